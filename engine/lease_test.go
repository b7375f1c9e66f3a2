package engine

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
)

// leased is a synchronous master that has a lease for a while, and whose puts
// wait for nothing but their replica.
func leased(t *testing.T, o Options, lasts time.Duration) *Engine {
	t.Helper()
	o.Leased, o.Wire, o.SlaveTimeout, o.FlushTimeout = true, WirePlain, time.Hour, time.Hour
	m := openMaster(t, o)
	renew(t, m, lasts)
	return m
}

func renew(t *testing.T, m *Engine, lasts time.Duration) {
	t.Helper()
	if err := m.Renew(m.Status().Epoch, time.Now().Add(lasts)); err != nil {
		t.Fatal(err)
	}
}

// silentReplica is a raw replica that holds the whole log and says no more.
func silentReplica(t *testing.T, m *Engine) *rawPeer {
	t.Helper()
	if m.log.EndOffset() == 0 {
		_, _ = m.Put(context20(t), message("t", 0, "makes a log"))
	}
	p := dialRaw(t, m)
	p.report(m.log.EndOffset())
	waitReplicas(t, m, 1)
	return p
}

// putsThatWait begins so many puts and waits until they wait.
func putsThatWait(t *testing.T, m *Engine, n int) []*Future {
	t.Helper()
	var all []*Future
	for range n {
		f, err := m.PutAsync(message("t", 0, "waits"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// mustBeFenced wants each put to end as not replicated for want of a lease, and
// the master to be none any more.
func mustBeFenced(t *testing.T, m *Engine, waiting []*Future) {
	t.Helper()
	for i, f := range waiting {
		if r, err := f.Wait(context20(t)); r.Status != PutFlushSlaveTimeout || !errors.Is(err, ErrNoLease) {
			t.Errorf("put %d that was waiting: %v, %v", i, r.Status, err)
		}
	}
	end, confirmed := m.log.EndOffset(), m.ConfirmedOffset()
	if r, err := m.Put(context20(t), message("t", 0, "late")); r.Status != PutServiceNotAvailable || r.Appended() || !errors.Is(err, ErrNoLease) {
		t.Errorf("a new put: %+v, %v", r, err)
	}
	if now := m.log.EndOffset(); now != end {
		t.Errorf("a refused put moved the log's end from %d to %d", end, now)
	}
	if now := m.ConfirmedOffset(); now != confirmed || len(waiting) > 0 && now >= end {
		t.Errorf("confirmed offset %d, then %d of %d", confirmed, now, end)
	}
	eventually(t, "it serves no replica", func() bool { return len(m.Status().Replicas) == 0 })
	if s := m.Status(); s.State != StateFenced || !strings.Contains(s.Reason, "lease") || s.Waiters != 0 || s.Trouble == nil || s.Trouble.Cause != "lease" {
		t.Errorf("status %v, %q, %d waiters", s.State, s.Reason, s.Waiters)
	}
	if err := m.Ready(); err == nil {
		t.Error("it is ready")
	}
	if err := m.Renew(m.Status().Epoch, time.Now().Add(time.Hour)); !errors.Is(err, ErrNoLease) {
		t.Errorf("a late renewal: %v", err)
	}
	if m.HAAddr().IsValid() {
		if got := dialRaw(t, m).closedByPeer(); len(got) > 0 {
			t.Errorf("a new replica got %d bytes", len(got))
		}
	}
}

// Nobody renews, nothing else happens: at the deadline the puts that wait end,
// and the master is none any more.
func TestALeaseThatEndsEndsTheWaits(t *testing.T) {
	const lasts = 300 * time.Millisecond
	m := leased(t, Options{Role: SyncMaster}, time.Hour)
	p := silentReplica(t, m)
	waiting := putsThatWait(t, m, 8)
	again, err := m.Promote(context20(t), PromoteOptions{Role: SyncMaster, Epoch: 7})
	if err != nil || again.Epoch != 7 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, f := range waiting { // of the epoch before
		if r, err := f.Wait(context20(t)); r.Status != PutFlushSlaveTimeout || !errors.Is(err, ErrNoLease) {
			t.Errorf("a put of the epoch before: %v, %v", r.Status, err)
		}
	}
	p.closedByPeer()
	p = silentReplica(t, m)
	renew(t, m, lasts)
	began := time.Now()
	waiting = putsThatWait(t, m, 8)
	p.closedByPeer()
	if took := time.Since(began); took < lasts/2 {
		t.Errorf("the replica was closed after %v of %v", took, lasts)
	}
	mustBeFenced(t, m, waiting)
}

// A process that was frozen wakes up with its acknowledgements and its timer at
// once: the clock decides, not which comes first.
func TestAnAcknowledgementThatIsReadAfterTheLeaseConfirmsNothing(t *testing.T) {
	const lasts = 200 * time.Millisecond
	m := leased(t, Options{Role: SyncMaster}, lasts)
	p := silentReplica(t, m)
	confirmed := m.ConfirmedOffset()
	waiting := putsThatWait(t, m, 8)
	p.readUntil(confirmed, m.log.EndOffset())
	frozen, thaw := make(chan struct{}), make(chan struct{})
	m.group.Loop(0).Post(func() { close(frozen); <-thaw })
	<-frozen
	p.report(m.log.EndOffset())
	eventually(t, "the lease is over", func() bool { return !m.lease.Load().lasts() })
	close(thaw)
	mustBeFenced(t, m, waiting)
	if now := m.ConfirmedOffset(); now != confirmed {
		t.Errorf("the confirmed offset went from %d to %d", confirmed, now)
	}
}

// A result that waits to be collected is not handed out as confirmed after the
// lease: Wait and Pull ask the clock.
func TestAResultThatIsCollectedAfterTheLeaseIsNotConfirmed(t *testing.T) {
	m := leased(t, Options{Role: SyncMaster}, time.Hour)
	p := silentReplica(t, m)
	held := m.log.EndOffset()
	pulled := m.NewCompletions(1)
	if err := pulled.TryPut(message("t", 0, "x"), 1); err != nil {
		t.Fatal(err)
	}
	f := putsThatWait(t, m, 1)[0]
	end := m.log.EndOffset()
	p.readUntil(held, end)
	p.report(end)
	if err := m.WaitFor(context20(t), end); err != nil {
		t.Fatal(err)
	}
	l := m.lease.Load()
	l.until.Store(int64(reactor.Now())) // it is over, and no timer knows
	if r, err := f.Wait(context20(t)); r.Status != PutFlushSlaveTimeout || !errors.Is(err, ErrNoLease) {
		t.Errorf("waited for: %v, %v", r.Status, err)
	}
	got := make([]Completion, 1)
	if _, err := pulled.Pull(context20(t), got); err != nil || got[0].Result.Status != PutFlushSlaveTimeout || !errors.Is(got[0].Err, ErrNoLease) {
		t.Errorf("pulled: %+v, %v", got[0], err)
	}
	if r, err := m.Put(context20(t), message("t", 0, "y")); !errors.Is(err, ErrNoLease) || r.Appended() {
		t.Errorf("put: %+v, %v", r, err)
	}
	if err := m.Renew(l.epoch, time.Now().Add(time.Hour)); !errors.Is(err, ErrNoLease) {
		t.Errorf("renewed: %v", err)
	}
	mustBeFenced(t, m, nil)
}

// Whatever a node is doing when its lease ends, it notices.
func TestALeaseThatEndsIsNoticedInEveryState(t *testing.T) {
	const lasts = 150 * time.Millisecond
	fenced := func(m *Engine) {
		t.Helper()
		eventually(t, "it notices", func() bool { return m.lease.Load().until.Load() == leaseOver })
	}
	t.Run("idle, without a listener", func(t *testing.T) {
		m := open(t, Options{Role: AsyncMaster, Leased: true})
		events, done := m.Subscribe(4)
		defer done()
		renew(t, m, lasts)
		for _, want := range []State{StateServing, StateFenced} {
			select {
			case e := <-events:
				if e.Kind != StateChanged || e.State != want {
					t.Errorf("event %+v, want %v", e, want)
				}
			case <-time.After(testTimeout):
				t.Fatalf("no event %v", want)
			}
		}
		mustBeFenced(t, m, nil)
	})
	t.Run("waiting to have enough replicas", func(t *testing.T) {
		m := leased(t, Options{Role: SyncMaster, MinInSyncReplicas: 2}, lasts)
		if _, err := m.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNotEnoughInSync) {
			t.Errorf("put: %v", err)
		}
		fenced(m)
		mustBeFenced(t, m, nil)
	})
	t.Run("waiting for its own disk", func(t *testing.T) {
		disk := &gatedDisk{Disk: commitlog.OSDisk(), gate: make(chan struct{})}
		m := leased(t, Options{Role: AsyncMaster, Flush: SyncFlush, Disk: disk}, lasts)
		defer close(disk.gate)
		mustBeFenced(t, m, putsThatWait(t, m, 3))
	})
	t.Run("waiting for room", func(t *testing.T) {
		m := leased(t, Options{Role: SyncMaster, RingSize: 2}, 2*lasts)
		silentReplica(t, m)
		waiting := putsThatWait(t, m, 2)
		end := m.log.EndOffset()
		_, err := m.Put(context20(t), message("t", 0, "x"))
		if !errors.Is(err, ErrNoLease) || m.log.EndOffset() != end {
			t.Errorf("%v, the log's end went from %d to %d", err, end, m.log.EndOffset())
		}
		mustBeFenced(t, m, waiting)
	})
	t.Run("not yet given", func(t *testing.T) {
		m := openMaster(t, Options{Role: AsyncMaster, Leased: true})
		if _, err := m.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNoLease) || !strings.Contains(err.Error(), "none was given") {
			t.Errorf("put: %v", err)
		}
		if s := m.Status(); s.State != StateFenced {
			t.Errorf("state %v", s.State)
		}
		if err := m.Renew(m.Status().Epoch, time.Now()); !errors.Is(err, ErrNoLease) {
			t.Errorf("a lease that ended before it was known: %v", err)
		}
		mustBeFenced(t, m, nil)
	})
	t.Run("catching a slave up", func(t *testing.T) {
		m := leased(t, Options{Role: AsyncMaster, TransferRate: 100_000}, 4*lasts)
		for m.log.EndOffset() < 1_000_000 {
			if _, err := m.Put(context20(t), message("t", 0, strings.Repeat("x", 10_000))); err != nil {
				t.Fatal(err)
			}
		}
		p := dialRaw(t, m)
		p.report(1)
		p.closedByPeer()
		mustBeFenced(t, m, nil)
	})
}

// Leases are given, made longer, never shorter, and only for the present epoch.
func TestLeasesAreRenewedInTheirEpochOnly(t *testing.T) {
	plain := openMaster(t, Options{})
	if err := plain.Renew(1, time.Now().Add(time.Hour)); !errors.Is(err, ErrOptions) {
		t.Errorf("a node without leases: %v", err)
	}
	m := openMaster(t, Options{Leased: true})
	hour := time.Now().Add(time.Hour)
	for _, c := range []struct {
		epoch int32
		until time.Time
		want  error
	}{
		{2, hour, ErrNoLease},
		{0, hour, ErrNoLease},
		{1, hour.Round(0), ErrOptions},
		{1, hour, nil},
		{1, time.Now().Add(-time.Hour), nil}, // an answer that was long on its way
		{1, hour.Add(-time.Minute), nil},
		{1, time.Now().Add(100 * 365 * 24 * time.Hour), nil},
	} {
		before := m.lease.Load().until.Load()
		if err := m.Renew(c.epoch, c.until); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("renew %d until %v: %v, want %v", c.epoch, c.until, err, c.want)
		}
		if now := m.lease.Load().until.Load(); now < before {
			t.Errorf("renew %d until %v made the lease shorter", c.epoch, c.until)
		}
	}
	if r, err := m.Put(context20(t), message("t", 0, "x")); err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	s := openSlave(t, m, Options{Leased: true, HAListen: "127.0.0.1:0"})
	if err := s.Renew(1, hour); !errors.Is(err, ErrNotMaster) {
		t.Errorf("a slave: %v", err)
	}
	follow(t, m, s)
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: 9}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Follow(context20(t), s.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	if err := s.Renew(9, hour); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, message("t", 0, "y"))
	follow(t, s, m)
	if _, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: 12}); err != nil {
		t.Fatal(err)
	}
	if err := m.Renew(1, hour); !errors.Is(err, ErrNoLease) {
		t.Errorf("a renewal of an older epoch: %v", err)
	}
	if _, err := m.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNoLease) {
		t.Errorf("a put before the new lease: %v", err)
	}
	shut(t, m)
	if err := m.Renew(12, hour); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed node: %v", err)
	}
}

// A demotion ends its lease: what had been confirmed and is collected later may
// have been cut meanwhile.
func TestAPutOfALeaseThatWasGivenUpIsNotConfirmedInTheNext(t *testing.T) {
	m := leased(t, Options{Role: SyncMaster}, time.Hour)
	p := silentReplica(t, m)
	f := putsThatWait(t, m, 1)[0]
	end := m.log.EndOffset()
	p.readUntil(f.result.Offset, end)
	p.report(end)
	if err := m.WaitFor(context20(t), end); err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if _, err := m.Follow(context20(t), nobody.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Promote(context20(t), PromoteOptions{Role: SyncMaster}); err != nil {
		t.Fatal(err)
	}
	renew(t, m, time.Hour)
	if r, err := f.Wait(context.Background()); r.Status != PutFlushSlaveTimeout || !errors.Is(err, ErrNoLease) {
		t.Errorf("%v, %v", r.Status, err)
	}
}
