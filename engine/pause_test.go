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
	rest(t, m, 50*time.Millisecond)
	for range 10 {
		mustPut(t, m, message("t", 0, "more"))
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
