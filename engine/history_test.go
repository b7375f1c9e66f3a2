package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// joinedFirst follows a master and wants the first connection to be the one
// that stays, and nothing to be cut.
func joinedFirst(t *testing.T, m, s *Engine) {
	t.Helper()
	left, done := m.Subscribe(64)
	defer done()
	cut, over := s.Subscribe(64)
	defer over()
	if _, err := s.Follow(context20(t), m.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it follows", func() bool { m := s.Status().Master; return m.State == "transferring" && m.Mode == "extended" })
	joined := 0
	for len(left) > 0 {
		switch e := <-left; e.Kind {
		case ReplicaJoined:
			joined++
		case ReplicaLeft: // the connection from before, and no other
			if joined > 0 {
				t.Errorf("a connection that had joined ended: %v", e.Err)
			}
		}
	}
	if joined != 1 {
		t.Errorf("it joined %d times", joined)
	}
	for len(cut) > 0 {
		e := <-cut
		if e.Kind == LogCut || e.Kind == MasterChanged && e.Master != "connecting" && e.Master != "negotiating" && e.Master != "transferring" {
			t.Errorf("the slave: %v %s %v", e.Kind, e.Master, e.Err)
		}
	}
}

// Elections without a write leave terms without a record, on the master and on
// a slave that was elected for nothing: the handshake is done at the first try,
// nothing is cut, and the lists of terms become one, in which both columns grow.
func TestTermsWithoutRecordsDoNotDelayAHandshake(t *testing.T) {
	elect := func(t *testing.T, n *Engine, epochs ...int32) {
		t.Helper()
		for _, epoch := range epochs {
			if _, err := n.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: epoch}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		records int
		slaves  [][]int32 // terms that each slave was elected for
	}{
		{"with records before them", 5, [][]int32{{5, 6}, {7}, {4, 9}}},
		{"slaves that never were elected", 5, [][]int32{nil, nil, nil}},
		{"without any record", 0, [][]int32{nil, {5, 6}, {7}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := openMaster(t, Options{})
			puts(t, m, c.records)
			var slaves []*Engine
			for range c.slaves {
				s := openSlave(t, m, Options{HAListen: "127.0.0.1:0"})
				follow(t, m, s)
				eventually(t, "it has the master's epoch", func() bool { return c.records == 0 || s.Status().Epoch == 1 })
				slaves = append(slaves, s)
			}
			for i, s := range slaves {
				if len(c.slaves[i]) > 0 {
					elect(t, s, c.slaves[i]...)
				}
			}
			elect(t, m, 5, 6, 7)
			end := m.log.EndOffset()
			for _, s := range slaves {
				joinedFirst(t, m, s)
				if s.log.EndOffset() != end {
					t.Fatalf("the slave ends at %d, the master at %d", s.log.EndOffset(), end)
				}
			}
			puts(t, m, 3)
			for _, s := range slaves {
				follow(t, m, s)
				eventually(t, "the lists of terms are one", func() bool { return fmt.Sprint(s.log.Epochs()) == fmt.Sprint(m.log.Epochs()) })
			}
			number, start := int32(0), int64(-1)
			for _, e := range m.log.Epochs() {
				if e.Number <= number || e.Start <= start {
					t.Errorf("terms %+v", m.log.Epochs())
				}
				number, start = e.Number, e.Start
			}
		})
	}
}

// A replica whose copy begins where its master's log does, far from 0, becomes
// the master before it has a byte: all its watermarks are there, and puts and
// reads go on from it, after a restart, too.
func TestACopyThatBeginsLateMayBePromotedBeforeItHasAByte(t *testing.T) {
	const segment, begins = 1 << 20, 8 << 20
	dir := t.TempDir()
	nobody := listenRaw(t, nil)
	nobody.Close()
	n := open(t, Options{Store: dir, SegmentBytes: segment, Role: Slave, Master: nobody.Addr().String(), HAListen: "127.0.0.1:0"})
	if err := n.log.StartAt(begins); err != nil { // as it does for a master's hello
		t.Fatal(err)
	}
	if change, err := n.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil || change.EndOffset != begins {
		t.Fatalf("%+v, %v", change, err)
	}
	for i := range int64(2) {
		s := n.Status()
		if i == 0 && (s.MinOffset != begins || s.MaxOffset != begins || s.FlushedOffset != begins || s.ConfirmedOffset != begins || s.QueuedOffset != begins) {
			t.Errorf("status %+v, want %d everywhere", s, begins)
		}
		r := mustPut(t, n, message("t", 0, fmt.Sprint("body ", i)))
		if i == 0 && r.Offset != begins || r.QueueOffset != i {
			t.Errorf("put %d: %+v", i, r)
		}
		if err := n.WaitFor(context20(t), r.EndOffset); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is queued", func() bool { return n.log.DispatchedOffset() == r.EndOffset })
		if from, to, ok := n.QueueBounds("t", 0); !ok || from != 0 || to != i+1 {
			t.Errorf("queue from %d to %d, %v", from, to, ok)
		}
		for q := range i + 1 {
			if got, err := n.GetByQueue("t", 0, q); err != nil || string(got.Body) != fmt.Sprint("body ", q) {
				t.Errorf("read %d: %q, %v", q, got.Body, err)
			}
		}
		if _, err := n.Get(begins - 1); !errors.Is(err, commitlog.ErrOutOfRange) {
			t.Errorf("a read before the log: %v", err)
		}
		shut(t, n)
		n = openMaster(t, Options{Store: dir})
	}
	down := openSlave(t, n, Options{})
	follow(t, n, down)
}

// A log is cut while readers of every kind are in what goes: they get what was
// there, or are told that it is out of range, or wait. None reads on into other
// bytes, and who begins after the cut finds nothing of the dead history.
func TestReadersOfALogThatIsCutSeeNoDeadHistory(t *testing.T) {
	const dead = "dead"
	o := Options{SegmentBytes: 64 << 10, HAListen: "127.0.0.1:0"}
	a := openMaster(t, o)
	b := openSlave(t, a, o)
	for range 3 { // again and again, each with a segment's border in what goes
		puts(t, a, 60)
		follow(t, a, b)
		down := openSlave(t, a, o) // follows the one that is cut
		common := a.log.EndOffset()
		for range 80 {
			mustPut(t, a, message("t", 0, dead+strings.Repeat("x", 1500)))
		}
		follow(t, a, b)
		follow(t, a, down)
		// What b has of it is taken from it first, so that a is the one that is cut.
		if _, err := b.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
			t.Fatal(err)
		}
		cutTo(t, b, common)
		puts(t, b, 60)

		var readers sync.WaitGroup
		var over, isCut atomic.Bool
		var reads atomic.Int64
		check := func(begunAfter bool, r Record, err error) {
			reads.Add(1)
			switch {
			case errors.Is(err, commitlog.ErrOutOfRange):
			case err != nil:
				t.Errorf("a reader: %v", err)
			case r.PhysicalOffset >= common && begunAfter && strings.HasPrefix(string(r.Body), dead):
				t.Errorf("dead history at %d after the cut to %d", r.PhysicalOffset, common)
			}
		}
		var offsets []int64
		for r, err := range a.Records(common) {
			if err != nil {
				t.Fatal(err)
			}
			offsets = append(offsets, r.PhysicalOffset)
		}
		read := func(f func()) {
			readers.Go(func() {
				for !over.Load() {
					f()
				}
			})
		}
		read(func() { // a consumer that goes through
			after := isCut.Load()
			for r, err := range a.Records(common) {
				check(after, r, err)
			}
		})
		read(func() { // one that asks for single records
			after := isCut.Load()
			for _, at := range offsets {
				r, err := a.Get(at)
				if !errors.Is(err, commitlog.ErrCorrupt) { // it is: no record of the new history begins there
					check(after, r, err)
				}
			}
		})
		read(func() { // one that asks by queue
			after := isCut.Load()
			if _, to, ok := a.QueueBounds("t", 0); ok {
				for q := max(to-80, 0); q < to; q++ {
					r, err := a.GetByQueue("t", 0, q)
					check(after, r, err)
				}
			}
		})
		read(func() { // another process that looks at the store
			l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: a.opts.Store})
			if err != nil {
				t.Errorf("inspect: %v", err)
				return
			}
			for _, err := range l.Records(l.MinOffset()) {
				if err != nil {
					break // it may meet a segment that is being written
				}
			}
			if err := l.Close(); err != nil {
				t.Errorf("inspect: %v", err)
			}
		})
		eventually(t, "they read", func() bool { return reads.Load() > 500 })
		cut, done := a.Subscribe(64)
		if _, err := a.Follow(context20(t), b.HAAddr().String()); err != nil {
			t.Fatal(err)
		}
		for e := range cut {
			if e.Kind == LogCut {
				if e.Offset != common {
					t.Errorf("cut to %d, want %d", e.Offset, common)
				}
				break
			}
		}
		isCut.Store(true)
		done()
		from := reads.Load()
		eventually(t, "they read on", func() bool { return reads.Load() > from+500 })
		over.Store(true)
		readers.Wait()
		follow(t, b, a)
		follow(t, a, down)
		if s := a.Status(); s.State != StateServing {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		shut(t, down)
		a, b = b, a
	}
}

// cutTo takes the end of a master's log away, as if it had never come.
func cutTo(t *testing.T, n *Engine, to int64) {
	t.Helper()
	if _, err := n.log.Truncate(to); err != nil {
		t.Fatal(err)
	}
	n.loadTerms()
	n.rings.restart()
	if err := n.beginEpoch(0); err != nil {
		t.Fatal(err)
	}
	n.confirmed.Store(min(n.confirmed.Load(), to))
}
