package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

const firstSegment = "00000000000000000000"

// failing gives a command line under which a system call fails for one file,
// from its nth call on. The counting is strace's: each thread counts by itself,
// so later calls succeed again on threads that have made fewer. That is what a
// disk is like after a failed write, and what must not be believed.
func failing(t *testing.T, call, path, inject string) []string {
	t.Helper()
	needTool(t, "strace")
	return []string{
		"strace", "-D", "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"),
		"-P", path, "-e", "trace=" + call, "-e", "inject=" + call + ":" + inject,
	}
}

// A sync of the segment fails under puts that wait for it.
func TestAFailedFsyncEndsTheWritesUntilARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a daemon under strace")
	}
	for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			store := filepath.Join(t.TempDir(), "store")
			m := daemon{
				store: store,
				wrap:  failing(t, "fdatasync", filepath.Join(store, "commitlog", firstSegment), "error=EIO:when=3+"),
				args: masterArgs("--flush", flush, "--flush-interval", "20ms", "--flush-pages", "1",
					"--load", "200,1000,0", "--load-outstanding", "4"),
			}.serve(t)
			eventually(t, "the failure is met", func() bool { return m.status(t).State == "read-only" })
			flushed := m.status(t).Flushed
			mustBeReadOnly(t, m, firstSegment, "input/output error")

			all := m.puts()
			mustEndInRefusals(t, all)
			if flush == "SYNC_FLUSH" {
				waiters := 0
				for _, p := range all {
					if p.Status == putOK && p.End > flushed {
						t.Errorf("put %+v returned PUT_OK, and only %d bytes were synced", p, flushed)
					}
					if p.Status == "FLUSH_DISK_TIMEOUT" {
						waiters++
					}
				}
				if waiters == 0 {
					t.Error("no put that waited for the disk was told that it failed")
				}
			}
			if now := m.status(t); now.Flushed != flushed {
				t.Errorf("after the failure the flushed offset went from %d to %d", flushed, now.Flushed)
			}
			log := readLog(t, store) // reads go on
			mustHold(t, confirmed(all), log)
			if lines := m.logLines(`"level":"ERROR"`); len(lines) != 1 {
				t.Errorf("%d error lines for one failure: %q", len(lines), lines)
			}
			if _, metrics := m.ask("/metrics"); !strings.Contains(metrics, `haengine_state{state="read-only"} 1`) {
				t.Error("the gauge does not show it")
			}
			m.kill()

			again := serveMaster(t, store, "--flush", flush, "--load", "0,1000,20")
			eventually(t, "puts go on after a restart", func() bool { return again.count(putOK) == 20 })
			again.stop(t)
			mustVerify(t, store)
			log = readLog(t, store)
			mustHold(t, confirmed(all), log)
			log.mustCountQueues(t)
		})
	}
}

// mustEndInRefusals wants that once a put was refused as SERVICE_NOT_AVAILABLE
// none that began later went through.
func mustEndInRefusals(t *testing.T, all []put) {
	t.Helper()
	first := int64(-1)
	for _, p := range all {
		if p.Status == "SERVICE_NOT_AVAILABLE" {
			if first < 0 || p.Sequence < first {
				first = p.Sequence
			}
		}
	}
	const underWay = 8 // puts that began before the refused one and end later
	for _, p := range all {
		if first >= 0 && p.Sequence > first+underWay && p.Status != "SERVICE_NOT_AVAILABLE" {
			t.Errorf("put %+v, and put %d was refused before", p, first)
		}
	}
}

// A slave that acknowledges only what is on its disk meets a failed sync: it
// acknowledges no more, says so, and its master stops counting on it.
func TestASlaveWhoseFsyncFailsLeavesTheInSyncSet(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a daemon under strace")
	}
	t.Parallel()
	m := serveMaster(t, "", "--role", "SYNC_MASTER", "--load", "50,1000,0", "--load-replicas", "1")
	store := filepath.Join(t.TempDir(), "store")
	s := daemon{
		store: store,
		wrap:  failing(t, "fdatasync", filepath.Join(store, "commitlog", firstSegment), "error=EIO:when=5+"),
		args:  slaveArgs(m.serving.HAListen, "--ack", "flushed", "--flush", "SYNC_FLUSH"),
	}.serve(t)
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 0 })
	eventually(t, "the slave has met the failure", func() bool { return s.status(t).State == "read-only" })
	flushed := s.status(t).Flushed
	const none = "SLAVE_NOT_AVAILABLE"
	eventually(t, "the master counts on it no more", func() bool { return m.count(none) > 10 && len(m.status(t).Replicas) == 0 })
	for _, p := range confirmed(m.puts()) {
		if p.End > flushed {
			t.Errorf("put %+v returned PUT_OK, and the slave had synced %d bytes", p, flushed)
		}
	}
	if s.ready() {
		t.Error("the slave is ready")
	}
	if st := s.status(t); st.Master == nil || !strings.Contains(st.Master.LastError, "input/output error") {
		t.Errorf("the slave does not say why: %+v", st.Master)
	}
	s.kill()

	again := serveSlave(t, store, m.serving.HAListen, "--ack", "flushed", "--flush", "SYNC_FLUSH")
	before := m.count(putOK)
	eventually(t, "puts are confirmed again", func() bool { return m.count(putOK) > before+10 })
	m.stop(t)
	eventually(t, "the slave has it all", func() bool { return again.status(t).Queued >= confirmed(m.puts())[m.count(putOK)-1].End })
	again.stop(t)
	mustHold(t, confirmed(m.puts()), readLog(t, store))
	mustVerify(t, store)
}
