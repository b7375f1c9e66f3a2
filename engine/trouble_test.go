package engine

import (
	"os"
	"strings"
	"testing"
)

// What is damaged when it arrives is not acknowledged as flushed. The replica
// says where, what its operator can do, and its master shows it after the
// replica has left, until it is back.
func TestDamageInACopyIsToldAndRemembered(t *testing.T) {
	m := openMaster(t, Options{})
	puts(t, m, 5)
	bad := mustPut(t, m, message("t", 0, strings.Repeat("x", 1000)))
	puts(t, m, 5)
	flip(t, m.opts.Store, bad.EndOffset-500)

	remedy := func(s Status) string { return "remedy for " + s.Trouble.Cause }
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir, Ack: AckFlushed, Remedy: remedy})
	id := s.Status().ReplicaID
	eventually(t, "the slave is in trouble", func() bool { return s.Status().Trouble != nil })
	if got := s.Status(); got.State != StateReadOnly || got.Trouble.Cause != "damaged" || got.Trouble.Remedy != "remedy for damaged" || s.Ready() == nil {
		t.Errorf("status %+v, trouble %+v", got, got.Trouble)
	}
	eventually(t, "the master remembers", func() bool { return len(m.Status().Departed) == 1 })
	left := m.Status().Departed[0]
	if left.ReplicaID != id || left.AckedOffset > bad.Offset || left.Reason == "" {
		t.Errorf("the master shows %+v of replica %s, bad record at %d", left, id, bad.Offset)
	}

	shut(t, s)
	flip(t, m.opts.Store, bad.EndOffset-500) // it was the master's copy
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s = openSlave(t, m, Options{ReplicaID: id})
	follow(t, m, s)
	if left := m.Status().Departed; len(left) != 0 {
		t.Errorf("the replica is back, the master still shows %+v", left)
	}
	if s.Status().Trouble != nil || s.Ready() != nil {
		t.Errorf("trouble %+v, ready %v", s.Status().Trouble, s.Ready())
	}
}

// A trouble is one line in the log, at most once a minute.
func TestTroubleIsInTheLog(t *testing.T) {
	logger, text := newTestLog(t, "slave")
	m := openMaster(t, Options{})
	puts(t, m, 5)
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir})
	follow(t, m, s)
	shut(t, s)
	spoil(t, dir)
	s = openSlave(t, m, Options{Store: dir, Logger: logger, Remedy: func(Status) string { return "repair it" }})
	eventually(t, "the slave is in trouble", func() bool { return s.Status().Trouble != nil })
	for range 3 {
		looked := make(chan struct{})
		s.vigil.loop.Post(func() { s.vigil.look(); close(looked) })
		<-looked
	}
	line := text.String()[strings.Index(text.String(), "needs an operator"):]
	if strings.Count(line, "needs an operator") != 1 || !strings.Contains(line, `remedy="repair it"`) || !strings.Contains(line, "cause=diverged") {
		t.Error(line)
	}
}
