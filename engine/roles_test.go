package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
)

// A slave becomes the master, the old master its slave: puts go on with the next
// queue offsets, and both logs are one.
func TestAMasterAndItsSlaveChangePlaces(t *testing.T) {
	a := openMaster(t, Options{})
	b := openSlave(t, a, Options{HAListen: "127.0.0.1:0"})
	puts(t, a, 20)
	follow(t, a, b)
	for i := range 3 {
		change, err := b.Promote(context20(t), PromoteOptions{Role: AsyncMaster})
		if err != nil {
			t.Fatal(err)
		}
		if want := int32(i + 2); change.Epoch != want || change.EndOffset != a.log.EndOffset() {
			t.Fatalf("change %+v, want epoch %d at %d", change, want, a.log.EndOffset())
		}
		if r := mustPut(t, b, message("t", 0, "first of the new master's")); r.QueueOffset != int64(20+2*i) {
			t.Fatalf("queue offset %d, want %d", r.QueueOffset, 20+2*i)
		}
		if i%2 == 1 {
			puts(t, a, 1) // nobody will have it, and it goes
		}
		if _, err := a.Follow(context20(t), b.HAAddr().String()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNotMaster) {
			t.Fatalf("a put on the new slave: %v", err)
		}
		mustPut(t, b, message("t", 0, "x"))
		follow(t, b, a)
		a, b = b, a
	}
	if got := a.log.Epochs(); len(got) != 4 {
		t.Errorf("epochs %+v", got)
	}
}

// A put that waits for a replica ends when its master is demoted, at once.
func TestDemotionEndsTheWaits(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: time.Hour, Wire: WirePlain})
	if r, _ := m.Put(context20(t), message("t", 0, "first")); r.Status != PutSlaveNotAvailable {
		t.Fatal(r.Status)
	}
	dialRaw(t, m).report(m.log.EndOffset()) // and never acknowledges more
	waitReplicas(t, m, 1)
	ended := make(chan PutResult, 1)
	go func() {
		r, _ := m.Put(context.Background(), message("t", 0, "waits"))
		ended <- r
	}()
	eventually(t, "the put waits", func() bool { return m.rings.waiting() == 1 })
	other := openMaster(t, Options{})
	if _, err := m.Follow(context20(t), other.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-ended:
		if r.Status != PutFlushSlaveTimeout {
			t.Errorf("status %v", r.Status)
		}
	case <-time.After(testTimeout):
		t.Fatal("it still waits")
	}
}

// Promoting a master is refused, unless a new epoch is asked for; then puts go
// on with the next queue offset each, however often. Its own epoch changes
// nothing, a past one is refused.
func TestRepeatedPromotion(t *testing.T) {
	m := openMaster(t, Options{})
	puts(t, m, 1)
	if _, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); !errors.Is(err, ErrMaster) {
		t.Fatalf("%v", err)
	}
	if _, err := m.Promote(context20(t), PromoteOptions{Role: Slave}); !errors.Is(err, ErrOptions) {
		t.Fatalf("%v", err)
	}
	s := openSlave(t, m, Options{})
	var producers sync.WaitGroup
	var over atomic.Bool
	var count atomic.Int64
	var seen sync.Map
	for p := range 8 {
		producers.Go(func() {
			for i := 0; !over.Load(); i++ {
				r, err := m.Put(context.Background(), message("t", 1, fmt.Sprint(p, i)))
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				if _, twice := seen.LoadOrStore(r.QueueOffset, true); twice {
					t.Errorf("queue offset %d twice", r.QueueOffset)
				}
				count.Add(1)
			}
		})
	}
	for i := range 100 {
		o := PromoteOptions{Role: AsyncMaster, NewEpoch: true}
		if i%2 == 1 { // as a coordinator says it
			o = PromoteOptions{Role: AsyncMaster, Epoch: int32(i + 2)}
		}
		change, err := m.Promote(context20(t), o)
		if err != nil || change.Epoch != int32(i+2) {
			t.Errorf("%+v, %v", change, err)
			break
		}
		epochs := len(m.log.Epochs())
		if same, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: change.Epoch}); err != nil || same.Epoch != change.Epoch || len(m.log.Epochs()) != epochs {
			t.Errorf("in its own epoch %d: %+v, %v, %d epochs after %d", change.Epoch, same, err, len(m.log.Epochs()), epochs)
		}
		for _, past := range []int32{change.Epoch - 1, 1, -1} {
			if _, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: past}); !errors.Is(err, ErrEpochPast) || m.Status().Epoch != change.Epoch {
				t.Errorf("in epoch %d after %d: %v, now in %d", past, change.Epoch, err, m.Status().Epoch)
			}
		}
	}
	over.Store(true)
	producers.Wait()
	for i := range count.Load() {
		if _, ok := seen.Load(i); !ok {
			t.Fatalf("queue offset %d is missing of %d", i, count.Load())
		}
	}
	follow(t, m, s)
	eventually(t, "the slave has the epochs", func() bool { return s.Status().Epoch == m.Status().Epoch })
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: m.Status().Epoch}); !errors.Is(err, ErrEpochPast) || s.Role() != Slave {
		t.Errorf("a slave in its master's epoch: %v, it is a %v", err, s.Role())
	}
	last := int64(-1)
	for _, e := range s.log.Epochs() {
		if e.Start <= last {
			t.Fatalf("epochs %+v", s.log.Epochs())
		}
		last = e.Start
	}
}

// A slave whose last record is not whole gives it up when it is promoted.
func TestPromotionCutsHalfARecord(t *testing.T) {
	log := recordsOf(t, 3, Options{})
	half := int64(len(log)) - 10
	m := listenRaw(t, func(_ int64, c net.Conn) {
		first, err := readReport(c)
		if err != nil {
			return
		}
		_, _ = c.Write(append(header(first, int32(half-first)), log[first:half]...))
		_, _ = io.Copy(io.Discard, c)
	})
	s := slaveOf(t, m, Options{})
	eventually(t, "half a record is there", func() bool { return s.log.EndOffset() == half })
	change, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster})
	if err != nil || change.Cut == "" || change.EndOffset >= half {
		t.Fatalf("%+v, %v", change, err)
	}
	r := mustPut(t, s, message("t", 0, "x"))
	if r.Offset != change.EndOffset {
		t.Errorf("the put is at %d, the log ended at %d", r.Offset, change.EndOffset)
	}
	if got := s.Status(); got.Role != AsyncMaster || got.Master != nil {
		t.Errorf("status %+v", got)
	}
}

// A put that meets a change of the role waits for it, and no longer than its own
// context.
func TestAPutWaitsForAChangeOfTheRole(t *testing.T) {
	m := openMaster(t, Options{})
	release, err := m.holdPuts(context20(t), func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := m.Put(ctx, message("t", 0, "gives up")); r.Appended() || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := m.Put(context.Background(), message("t", 0, "waits"))
		ended <- err
	}()
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A node that has met a master of a new epoch does not begin one of that number,
// even if nothing of the new epoch has reached its log.
func TestAnEpochThatWasHeardOfIsNotBegunAgain(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	s := openSlave(t, m, Options{Store: b})
	puts(t, m, 20)
	follow(t, m, s)
	shut(t, s)
	puts(t, m, 7) // nobody else has these
	shut(t, m)
	next := openMaster(t, Options{Store: b})
	puts(t, next, 3)

	// The old master gets the new one's hello and cuts; the connection ends then.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", next.HAAddr().String())
			if err != nil {
				c.Close()
				return
			}
			go func() { _, _ = io.Copy(c, up) }()
			go func() {
				if n == 0 {
					_, _ = io.CopyN(up, c, 8) // -1, and no answer to the hello
					_, _ = io.Copy(io.Discard, c)
				} else {
					_, _ = io.Copy(up, c) // questions
				}
				up.Close()
				c.Close()
			}()
		}
	}()
	old := open(t, Options{Store: a, Role: Slave, Master: l.Addr().String(), HAListen: "127.0.0.1:0"})
	common := old.log.EndOffset()
	eventually(t, "the old master cuts its log", func() bool { return old.log.EndOffset() < common })
	if change, err := old.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil || change.Epoch != 3 {
		t.Fatalf("%+v, %v: epoch 2 is another's", change, err)
	}
	puts(t, old, 2)
	shut(t, next)
	follow(t, old, openSlave(t, old, Options{Store: b}))
}

// What a slave has heard of is not forgotten when its half record is cut.
func TestAnEpochWithoutARecordIsNotBegunAgain(t *testing.T) {
	m := openMaster(t, Options{})
	s := openSlave(t, m, Options{HAListen: "127.0.0.1:0"})
	puts(t, m, 2)
	follow(t, m, s)
	if _, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
		t.Fatal(err)
	}
	puts(t, m, 1)
	follow(t, m, s)
	if _, err := s.log.Truncate(s.log.Epochs()[1].Start); err != nil { // as TakeOver does
		t.Fatal(err)
	}
	s.loadTerms()
	if got := s.highestEpoch(); got != 2 {
		t.Errorf("epoch %d, want 2", got)
	}
}

// A master that was killed begins an epoch behind bytes that may not be on the disk.
// Whenever the power is cut then, and whatever of the log goes with it, no epoch that
// a replica may have heard of is begun again under another id.
func TestNoPowerCutGivesAnEpochsNumberAgain(t *testing.T) {
	lost := 0
	for after := range 150 {
		disk := commitlog.NewTwin(uint64(after))
		must(t, disk.MkdirAll("/s"))
		ids := map[int32]uint64{}
		run := func(what string, do func(m *Engine)) {
			m, err := Open(Options{
				Store: "/s", Disk: disk, Role: AsyncMaster, HAListen: "127.0.0.1:0", FlushInterval: time.Hour, SegmentBytes: 1 << 20,
				Logger: slog.New(slog.DiscardHandler),
			})
			if err == nil {
				for _, epoch := range m.log.Epochs() {
					if id, ok := ids[epoch.Number]; ok && id != epoch.ID {
						t.Fatalf("%d operations, %s: epoch %d has the id %x, it had %x", after, what, epoch.Number, epoch.ID, id)
					}
					ids[epoch.Number] = epoch.ID
				}
				do(m)
				_ = m.Close(t.Context())
			}
		}
		var end int64
		run("first", func(m *Engine) {
			for range 20 {
				mustPut(t, m, message("t", 0, "x"))
			}
			end = m.log.EndOffset()
			disk.Kill()
		})
		disk.PowerOffAfter(after)
		run("after the kill", func(*Engine) {})
		disk.Crash()
		run("after the power cut", func(m *Engine) {
			if m.log.EndOffset() < end {
				lost++
			}
		})
	}
	if lost == 0 {
		t.Error("no power cut took anything from the log, which shows nothing")
	}
}

// What the old master acknowledged may be on its disk alone, and it will cut what the
// new one does not have: a promoted slave has what it holds on its own disk.
func TestWhatAPromotedSlaveHoldsIsOnItsDisk(t *testing.T) {
	m := openMaster(t, Options{})
	disk := commitlog.NewTwin(1)
	must(t, disk.MkdirAll("/s"))
	o := Options{Store: "/s", Disk: disk, FlushInterval: time.Hour}
	s := openSlave(t, m, o)
	puts(t, m, 50)
	follow(t, m, s)
	change, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster})
	must(t, err)
	o.Disk = disk.Clone(2)
	o.Disk.(*commitlog.Twin).Crash()
	if again := open(t, o); again.log.EndOffset() < change.EndOffset {
		t.Errorf("after a power cut its log ends at %d, it was promoted at %d", again.log.EndOffset(), change.EndOffset)
	}
}
