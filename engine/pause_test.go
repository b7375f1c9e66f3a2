package engine

import (
	"testing"
	"time"
)

// rest has all sending loops of a master rest for d, as after a look at the log.
func rest(t testing.TB, m *Engine, d time.Duration) {
	t.Helper()
	for _, h := range *m.senders.Load() {
		done := make(chan struct{})
		h.loop.Post(func() {
			h.sent = m.served().End
			h.resting.Store(true)
			h.pause.ResetAt(h.loop.Now() + d)
			close(done)
		})
		<-done
	}
}

const longPause = 10 * time.Minute

func TestAPutThatWaitsForAReplicaEndsThePause(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	mustPut(t, m, message("t", 0, "first"))
	rest(t, m, longPause)
	unwaited := message("t", 0, "second")
	unwaited.Properties = "WAIT\x01false\x02"
	mustPut(t, m, unwaited)
	mustPut(t, m, message("t", 0, "third")) // times out if it is not sent
}

func TestAsynchronousPutsAreSentWhenThePauseEnds(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	mustPut(t, m, message("t", 0, "first"))
	eventually(t, "the first is there", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
	rest(t, m, 300*time.Millisecond)
	begun, before := time.Now(), s.log.EndOffset()
	for range 10 {
		mustPut(t, m, message("t", 0, "more"))
	}
	eventually(t, "something arrives", func() bool { return s.log.EndOffset() > before })
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("sent %v after the put, in a pause of 300ms", took)
	}
	eventually(t, "all is there", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
	eventually(t, "the pause is over", func() bool {
		for _, h := range *m.senders.Load() {
			if h.resting.Load() {
				return false
			}
		}
		return true
	})
	mustPut(t, m, message("t", 0, "after a silence"))
	eventually(t, "the last is there", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
}

func TestAReplicaThatJoinsAtTheEndInAPauseGetsHeartbeats(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster, Heartbeat: 100 * time.Millisecond})
	end := mustPut(t, m, message("t", 0, "before")).EndOffset
	first := dialRaw(t, m)
	first.report(end)
	waitReplicas(t, m, 1)
	rest(t, m, longPause)
	late := dialRaw(t, m)
	late.report(end)
	if offset, body := late.frame(); offset != end || len(body) != 0 {
		t.Fatalf("a frame at %d of %d bytes, want a heartbeat", offset, len(body))
	}
}

func TestACloseInAPauseSendsWhatWasPut(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster})
	end := mustPut(t, m, message("t", 0, "before")).EndOffset
	p := dialRaw(t, m)
	p.report(end)
	waitReplicas(t, m, 1)
	rest(t, m, longPause)
	last := mustPut(t, m, message("t", 0, "the last one"))
	shut(t, m)
	if offset, body := p.frame(); offset != last.Offset || offset+int64(len(body)) != last.EndOffset {
		t.Fatalf("a frame at %d of %d bytes, want the record at %d", offset, len(body), last.Offset)
	}
}

func TestALoopWithoutReplicasDoesNotTick(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster})
	end := mustPut(t, m, message("t", 0, "before")).EndOffset
	p := dialRaw(t, m)
	p.report(end)
	waitReplicas(t, m, 1)
	hosts := *m.senders.Load()
	mustPut(t, m, message("t", 0, "more"))
	p.Close()
	waitReplicas(t, m, 0)
	for _, h := range hosts {
		done := make(chan bool)
		h.loop.Post(func() { _, set := h.pause.At(); done <- set || h.resting.Load() })
		if <-done {
			t.Error("the pause goes on without a replica")
		}
	}
}

func TestAReplicaThatJoinsInAPauseIsServedAtOnce(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster})
	mustPut(t, m, message("t", 0, "before"))
	first := dialRaw(t, m)
	first.report(0)
	if offset, body := first.frame(); offset != 0 || len(body) == 0 {
		t.Fatalf("a frame at %d of %d bytes", offset, len(body))
	}
	rest(t, m, longPause)
	late := dialRaw(t, m)
	late.report(0)
	if offset, body := late.frame(); offset != 0 || len(body) == 0 {
		t.Fatalf("a frame at %d of %d bytes", offset, len(body))
	}
}
