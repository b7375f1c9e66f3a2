package e2e

import (
	"testing"
	"time"
)

// pace is what haengine pace prints.
type pace struct {
	Live     int64 `json:"live_limit_bytes_per_second"`
	CatchUp  int64 `json:"catchup_limit_bytes_per_second"`
	Replicas []struct {
		ID      string `json:"replica_id"`
		Phase   string `json:"phase"`
		Live    int64  `json:"live_limit_bytes_per_second"`
		CatchUp int64  `json:"catchup_limit_bytes_per_second"`
	} `json:"replicas"`
}

func (n *node) pace(t testing.TB, args ...string) (p pace) {
	t.Helper()
	ask(t, &p, append([]string{"pace", "--admin", n.serving.AdminListen}, args...)...)
	return p
}

// A slave that was away for long is held back, a live one is not, and puts that
// wait for it go on; when the limit is lifted, the late one is there soon.
func TestACatchUpIsHeldBackUntilItsLimitIsLifted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	const (
		mib   = 1 << 20
		limit = mib
		puts  = 640 // of 64 KiB: 40 MiB
	)
	store := serveMaster(t, "", "--load", "0,65536,640")
	eventually(t, "the log is filled", func() bool { return store.ended() == puts })
	store.stop(t)

	m := serveMaster(t, store.store, "--role", "SYNC_MASTER", "--max-lag", "1MiB", "--load", "200,1000,0", "--load-replicas", "1")
	live := serveSlave(t, "", m.serving.HAListen, "--replica-id", "live")
	eventually(t, "puts are confirmed by the live one", func() bool { return m.count(putOK) > 100 })
	if got := m.pace(t, "--catchup", "1MiB"); got.Live != 0 || got.CatchUp != limit || len(got.Replicas) != 1 || got.Replicas[0].Phase != "live" {
		t.Fatalf("a limit for all: %+v", got)
	}
	begun := time.Now()
	late := serveSlave(t, "", m.serving.HAListen, "--replica-id", "late")
	eventually(t, "the late one is under way", func() bool { return late.status(t).Max > 2*mib })
	took := time.Since(begun)
	if least := 1500 * time.Millisecond; took < least {
		t.Errorf("2 MiB took %v under a limit of 1 MiB/s, want more than %v", took, least)
	}
	got := m.pace(t, "--replica", "late")
	if len(got.Replicas) != 1 || got.Replicas[0].Phase != "catch-up" || got.Replicas[0].CatchUp != limit {
		t.Errorf("the late one's pace: %+v", got)
	}
	before := m.count(putOK)
	eventually(t, "puts go on", func() bool { return m.count(putOK) > before+100 })
	if st := late.status(t); st.Max > 30*mib {
		t.Errorf("the late one has %d bytes already", st.Max)
	}

	m.pace(t, "--replica", "late", "--catchup", "0")
	lifted, has := time.Now(), late.status(t).Max
	eventually(t, "the late one has caught up", func() bool {
		r := m.pace(t, "--replica", "late").Replicas[0]
		return r.Phase == "live" && late.status(t).Max > 40*mib
	})
	if paced := time.Duration(float64(40*mib-has) / limit * float64(time.Second)); time.Since(lifted) > paced/2 {
		t.Errorf("%v after the limit was lifted, under it %v were needed", time.Since(lifted), paced)
	}
	for _, p := range m.puts() {
		if p.Status != putOK {
			t.Fatalf("put %+v beside a replica that is held back", p)
		}
	}

	// What each has is the same in the end.
	m.stop(t)
	ok := confirmed(m.puts())
	m = daemon{store: m.store, args: []string{"--ha-listen", m.serving.HAListen}}.serve(t)
	for _, n := range []*node{live, late} {
		eventually(t, "the slave has all", func() bool { return n.status(t).Max == m.status(t).Max })
		n.stop(t)
	}
	m.stop(t)
	mustEqual(t, m.store, live.store)
	mustEqual(t, m.store, late.store)
	mustHold(t, ok, readLog(t, late.store))
}
