package engine

import (
	"strings"
	"testing"
	"time"
)

// A byte changes underneath a slave. Its comparison with the master finds it,
// says where and what to run, and nothing is acknowledged any more.
func TestASlaveThatComparesFindsAChangedByte(t *testing.T) {
	m := filledMaster(t, 200)
	logger, log := newTestLog(t, "slave")
	s := openSlave(t, m, Options{CompareInterval: 20 * time.Millisecond, Logger: logger})
	follow(t, m, s)
	events, unsubscribe := s.Subscribe(100)
	defer unsubscribe()
	end := m.log.EndOffset()
	eventually(t, "a round over all of it is done", func() bool {
		c := s.Status().Comparison
		return c.Rounds > 0 && c.ComparedOffset == end
	})
	if c := s.Status().Comparison; c.FirstDifference != nil || c.FinishedMS == nil || c.ToOffset != end || c.FromOffset != 0 {
		t.Errorf("equal logs: %+v", c)
	}
	if state := s.Status().Master.State; state != "transferring" {
		t.Errorf("equal logs: %s", state)
	}

	const at = 1_234_567
	flip(t, s.opts.Store, at)
	eventually(t, "the slave is diverged", func() bool { return s.Status().Master.State == "diverged" })
	c := s.Status().Comparison
	if c.FirstDifference == nil || *c.FirstDifference != at || c.Running {
		t.Errorf("%+v", c)
	}
	for _, text := range []string{s.Status().Master.LastError, log.String(), s.Ready().Error()} {
		if !strings.Contains(text, "offset 1234567") {
			t.Errorf("it does not say where: %s", text)
		}
	}
	if trouble := s.Status().Trouble; trouble == nil || trouble.Cause != "diverged" {
		t.Errorf("trouble %+v", trouble)
	}
	eventually(t, "the event", func() bool {
		select {
		case e := <-events:
			return e.Kind == LogDiffers && e.Offset == at
		default:
			return false
		}
	})
	eventually(t, "the master has lost it", func() bool { return len(m.Status().Replicas) == 0 })
	before := s.log.EndOffset()
	slave := s.slave.Load()
	slave.loop.Post(slave.due) // as if it were time to dial again
	puts(t, m, 20)
	follow(t, m, openSlave(t, m, Options{})) // who begins now has all in the end
	if s.log.EndOffset() != before || len(m.Status().Replicas) != 1 || s.Status().Master.State != "diverged" {
		t.Errorf("it goes on: %+v", s.Status().Master)
	}
}

// A comparison that goes on does not keep a slave from being stopped, and one
// with a master that gives no checksums is not begun.
func TestComparingStopsWithTheSlave(t *testing.T) {
	m := filledMaster(t, 200)
	s := openSlave(t, m, Options{CompareInterval: time.Millisecond, CompareRate: 1000})
	eventually(t, "a round is under way", func() bool { return s.Status().Comparison.ComparedOffset > 0 })
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
		t.Fatal(err)
	}
	if s.Status().Comparison != nil {
		t.Errorf("a master compares: %+v", s.Status().Comparison)
	}
	plain := openSlave(t, m, Options{CompareInterval: time.Millisecond, Wire: WirePlain})
	follow(t, m, plain)
	if c := plain.Status().Comparison; c.Running || c.Rounds > 0 || c.LastError != "" {
		t.Errorf("in RocketMQ's protocol: %+v", c)
	}
}

// A slave that was found to differ passes nothing on, also after a restart, until
// it becomes a master or is repaired.
func TestADifferenceIsRememberedAndNotPassedOn(t *testing.T) {
	m := filledMaster(t, 200)
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir, HAListen: "127.0.0.1:0", CompareInterval: time.Millisecond})
	follow(t, m, s)
	below := openSlave(t, s, Options{})
	follow(t, m, below)
	flip(t, dir, s.log.EndOffset()/2)
	keepsOut := func(s *Engine) {
		t.Helper()
		eventually(t, "the slave is diverged", func() bool { return s.Status().Master.State == "diverged" })
		eventually(t, "it has no replicas", func() bool { return len(s.Status().Replicas) == 0 })
		if got := dialRaw(t, s).closedByPeer(); len(got) > 0 {
			t.Errorf("a replica is sent %d bytes", len(got))
		}
	}
	keepsOut(s)
	shut(t, s)
	s = openSlave(t, m, Options{Store: dir, HAListen: "127.0.0.1:0"})
	keepsOut(s)
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Force: true}); err != nil {
		t.Fatal(err)
	}
	// It passes on what it has now, for what it is worth.
	p := dialRaw(t, s)
	p.report(1)
	if offset, body := p.frame(); offset != 1 || len(body) == 0 {
		t.Errorf("a frame at %d of %d bytes", offset, len(body))
	}
}
