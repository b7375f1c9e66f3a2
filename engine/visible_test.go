package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// nobody is an address at which no master is.
const nobody = "127.0.0.1:1"

// unwaited makes a put wait for no replica.
func unwaited(m *Message) *Message {
	m.Properties = "WAIT\x01false\x02"
	return m
}

// inQueue pulls all of topic t, queue 0, and gives the number of records and the
// end that is told.
func inQueue(t *testing.T, e *Engine, v Visible) (records int, end int64) {
	t.Helper()
	_, found, err := e.Pull(nil, &Pull{Queue: QueueID{Topic: "t"}, Messages: 1000, Bytes: 1 << 20, ColdMessages: 1000, ColdBytes: 1 << 20}, v)
	if err != nil {
		t.Fatal(err)
	}
	return found.Messages, found.Max
}

func expectInQueue(t *testing.T, what string, e *Engine, v Visible, want int) {
	t.Helper()
	eventually(t, what+": the queues follow", func() bool { return e.log.DispatchedOffset() == e.log.EndOffset() })
	if n, end := inQueue(t, e, v); n != want || end != int64(want) {
		t.Errorf("%s: %d records are visible, up to %d, want %d", what, n, end, want)
	}
	if _, end, _, err := e.VisibleBounds("t", 0, v); err != nil || end != int64(want) {
		t.Errorf("%s: the bounds end at %d, %v, want %d", what, end, err, want)
	}
	if e.QueueGrown("t", 0, int64(want), v) || want > 0 && !e.QueueGrown("t", 0, int64(want)-1, v) {
		t.Errorf("%s: what has grown is not %d", what, want)
	}
}

func TestWhatIsFlushedIsVisibleThen(t *testing.T) {
	e := openMaster(t, Options{FlushInterval: time.Hour, FlushThorough: time.Hour})
	mustPut(t, e, message("t", 0, "x"))
	expectInQueue(t, "appended", e, VisibleAppended, 1)
	if n, _ := inQueue(t, e, VisibleFlushed); e.log.FlushedOffset() == 0 && n != 0 {
		t.Error("visible before the flush")
	}
	told := make(chan struct{}, 1)
	if _, err := e.Watch(VisibleFlushed, func() {
		select {
		case told <- struct{}{}:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.log.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(testTimeout):
		t.Error("the watcher was not told")
	}
	expectInQueue(t, "flushed", e, VisibleFlushed, 1)
}

// What was confirmed stays visible when the master starts again without replicas.
func TestWhatWasConfirmedIsVisibleAfterARestart(t *testing.T) {
	dir := t.TempDir()
	m := openMaster(t, Options{Role: SyncMaster, Store: dir})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	mustPut(t, m, message("t", 0, "x"))
	eventually(t, "it is confirmed", func() bool { return m.ConfirmedOffset() == m.log.EndOffset() })
	shut(t, s)
	mustPut(t, m, unwaited(message("t", 0, "y")))
	expectInQueue(t, "before", m, VisibleConfirmed, 1)
	shut(t, m)
	m = openMaster(t, Options{Role: SyncMaster, Store: dir})
	expectInQueue(t, "after", m, VisibleConfirmed, 1)
	expectInQueue(t, "after, appended", m, VisibleAppended, 2)
}

// What an old master has and nobody else is not shown by it as a slave, also
// after a restart, and goes when it follows.
func TestAnOldMastersTailIsNotVisible(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Role: SyncMaster, Store: dir})
	s := openSlave(t, m, Options{Store: other})
	waitReplicas(t, m, 1)
	mustPut(t, m, message("t", 0, "x"))
	eventually(t, "it is confirmed", func() bool { return m.ConfirmedOffset() == m.log.EndOffset() })
	follow(t, m, s)
	shut(t, s)
	mustPut(t, m, unwaited(message("t", 0, "tail")))
	expectInQueue(t, "the master", m, VisibleAppended, 2)
	if err := m.log.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Follow(context20(t), nobody); err != nil {
		t.Fatal(err)
	}
	for _, v := range []Visible{VisibleAppended, VisibleFlushed, VisibleConfirmed} {
		expectInQueue(t, "the slave, "+v.String(), m, v, 1)
	}
	shut(t, m)
	m = open(t, Options{Role: Slave, Master: nobody, Store: dir})
	expectInQueue(t, "after a restart", m, VisibleAppended, 1)

	s = openMaster(t, Options{Role: AsyncMaster, Store: other})
	var told atomic.Bool
	stop, err := m.Watch(VisibleAppended, func() { told.Store(true) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := m.Follow(context20(t), s.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, message("t", 0, "y"))
	follow(t, s, m)
	eventually(t, "all is visible", func() bool { n, _ := inQueue(t, m, VisibleAppended); return n == 2 })
	if !told.Load() {
		t.Error("the watcher was not told")
	}
	eventually(t, "that is remembered", func() bool { return !m.identityNow().Doubtful })
	shut(t, m)
	m = open(t, Options{Role: Slave, Master: nobody, Store: dir})
	expectInQueue(t, "after another restart", m, VisibleAppended, 2)
}

// A slave that never was a master shows all when its master is gone, also after a
// restart, but for what it cannot know to be confirmed then. A master that comes
// up as a slave may have a tail, and shows none of it.
func TestASlaveThatNeverWasAMasterShowsAll(t *testing.T) {
	for _, wire := range []WireMode{WireAuto, WirePlain} {
		t.Run(wire.String(), func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			m := openMaster(t, Options{Store: other})
			s := openSlave(t, m, Options{Store: dir, Wire: wire})
			for range 3 {
				mustPut(t, m, message("t", 0, "x"))
			}
			follow(t, m, s)
			expectInQueue(t, "the slave", s, VisibleAppended, 3)
			eventually(t, "it is confirmed", func() bool { n, _ := inQueue(t, s, VisibleConfirmed); return n == 3 })
			shut(t, m)
			eventually(t, "the master is gone", func() bool { return s.Status().Master.State != "transferring" })
			expectInQueue(t, "without its master", s, VisibleConfirmed, 3)
			shut(t, s)
			s = open(t, Options{Role: Slave, Master: nobody, Store: dir, Wire: wire})
			expectInQueue(t, "after a restart", s, VisibleAppended, 3)
			expectInQueue(t, "after a restart, confirmed", s, VisibleConfirmed, 0)
			m = open(t, Options{Role: Slave, Master: nobody, Store: other})
			expectInQueue(t, "the master as a slave", m, VisibleAppended, 0)
		})
	}
}

func TestOneWatchesAndIsTold(t *testing.T) {
	e := openMaster(t, Options{Flush: SyncFlush})
	told := make(chan struct{}, 1)
	grown := func() {
		select {
		case told <- struct{}{}:
		default:
		}
	}
	for _, v := range []Visible{VisibleAppended, VisibleFlushed, VisibleConfirmed} {
		stop, err := e.Watch(v, grown)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Watch(v, grown); !errors.Is(err, ErrWatched) {
			t.Errorf("a second watcher: %v", err)
		}
		at := mustPut(t, e, message("t", 0, "x")).QueueOffset
		for !e.QueueGrown("t", 0, at, v) {
			select {
			case <-told:
			case <-time.After(testTimeout):
				t.Fatalf("%v: not told", v)
			}
		}
		stop()
		stop()
	}
}

func TestVisibleIsReadInAnyCase(t *testing.T) {
	for _, v := range []Visible{VisibleAppended, VisibleFlushed, VisibleConfirmed} {
		text, err := v.MarshalText()
		if got, e := ParseVisible(string(text)); got != v || err != nil || e != nil {
			t.Errorf("%v: %v, %v, %v", v, got, err, e)
		}
	}
	if _, err := ParseVisible("all"); err == nil {
		t.Error("no error")
	}
}

// Queues are built behind the log, but a record's place in the log is known as soon
// as its put returns, and whoever has it may ask there at once.
func TestARecordIsFoundByItsPlaceWhenItsPutReturns(t *testing.T) {
	e := openMaster(t, Options{})
	for range 5000 {
		r, err := e.Put(t.Context(), unwaited(&Message{Topic: "t", Body: []byte("body")}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.AppendRecord(nil, r.Offset, VisibleAppended); err != nil {
			t.Fatalf("the queues end at %d of %d: %v", e.log.DispatchedOffset(), e.log.EndOffset(), err)
		}
	}
}
