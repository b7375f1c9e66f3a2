package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// roleChange is what promote and follow print.
type roleChange struct {
	Role  string `json:"role"`
	Epoch int32  `json:"epoch"`
	End   int64  `json:"end_offset"`
}

func (n *node) promote(t *testing.T, args ...string) (c roleChange) {
	t.Helper()
	ask(t, &c, append([]string{"promote", "--admin", n.serving.AdminListen}, args...)...)
	return c
}

func (n *node) follow(t *testing.T, master string) (c roleChange) {
	t.Helper()
	ask(t, &c, "follow", master, "--admin", n.serving.AdminListen)
	return c
}

// The master is lost, its slave takes over at once, and the old master comes
// back as a slave: every put that returned PUT_OK, of either, is in both logs.
func TestASlaveTakesOverAndTheOldMasterComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	load := []string{"--load", "0,500,0", "--load-outstanding", "32"}
	a := serveMaster(t, "", append([]string{"--role", "SYNC_MASTER", "--load-replicas", "1"}, load...)...)
	b := serveSlave(t, "", a.serving.HAListen, append([]string{"--ha-listen", "127.0.0.1:0"}, load...)...)
	eventually(t, "puts are confirmed", func() bool { return a.count(putOK) > 2000 })
	a.kill()
	first := b.promote(t, "--role", "SYNC_MASTER")
	if first.Role != "SYNC_MASTER" || first.Epoch != 2 {
		t.Fatalf("promoted: %+v", first)
	}
	eventually(t, "the new master's load has begun", func() bool { return b.ended() > 0 })
	back := serveSlave(t, a.store, b.serving.HAListen, "--ha-listen", "127.0.0.1:0")
	eventually(t, "its puts are confirmed by the old master", func() bool { return b.count(putOK) > 2000 })

	// They change places once more, both running.
	if code := run(t, "promote", "--admin", b.serving.AdminListen).code; code != 1 {
		t.Errorf("promoting a master ends with exit code %d, want 1", code)
	}
	b.follow(t, back.serving.HAListen)
	second := back.promote(t)
	if second.Epoch != 3 {
		t.Errorf("promoted: %+v", second)
	}
	eventually(t, "the other follows", func() bool { m := b.status(t).Master; return m != nil && m.State == "transferring" })
	eventually(t, "both logs end alike", func() bool { return b.status(t).Max == back.status(t).Max })
	back.stop(t)
	b.stop(t)
	mustVerify(t, a.store)
	mustVerify(t, b.store)
	mustEqual(t, a.store, b.store)
	l := readLog(t, b.store)
	mustHold(t, append(confirmed(a.puts()), confirmed(b.puts())...), l, readLog(t, a.store))
	l.mustCountQueues(t)
}

// What an old master has that nobody else got is cut when it comes back, and
// kept where the log commands read it.
func TestWhatIsCutIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	a := serveMaster(t, "", "--load", "0,500,300")
	b := serveSlave(t, "", a.serving.HAListen, "--ha-listen", "127.0.0.1:0")
	eventually(t, "the slave has all", func() bool { return a.ended() == 300 && b.status(t).Max == a.status(t).Max })
	common := b.status(t).Max
	b.stop(t)
	a.stop(t)
	// The old master goes on alone for a while.
	a = serveMaster(t, a.store, "--load", "0,500,40")
	eventually(t, "it has more", func() bool { return a.ended() == 40 })
	more := a.status(t).Max
	a.stop(t)
	b = serveMaster(t, b.store, "--load", "0,500,25")
	eventually(t, "so has the new one", func() bool { return b.ended() == 25 })

	back := serveSlave(t, a.store, b.serving.HAListen)
	eventually(t, "the old master follows", func() bool { return back.status(t).Max == b.status(t).Max })
	back.stop(t)
	b.stop(t)
	mustEqual(t, a.store, b.store)
	kept, err := filepath.Glob(filepath.Join(a.store, "cut", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Size() < more-common {
		t.Errorf("%s: %d bytes, want %d: %v", kept[0], info.Size(), more-common, err)
	}
	if lines := back.logLines("level\":\"WARN", "history leaves it"); len(lines) != 1 || !strings.Contains(lines[0], kept[0]) {
		t.Errorf("the log says %q", back.logLines("WARN"))
	}
}

// A master that is silent when it is asked for the extended protocol, as
// RocketMQ's are, is followed in the plain one. That it is asked once only is
// shown in transfer.
func TestASilentMasterIsFollowedInPlain(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--wire", "plain", "--load", "0,500,100")
	s := serveSlave(t, "", m.serving.HAListen)
	eventually(t, "the slave has all", func() bool { return m.ended() == 100 && s.status(t).Max == m.status(t).Max })
	if mode := s.status(t).Master.Mode; mode != "plain" {
		t.Errorf("mode %q", mode)
	}
}
