package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGTERM under 16 producers, in each kind of wait: no put is left without its
// answer, every PUT_OK is in the log, and the process ends with exit code 0.
func TestAStopUnderLoadKeepsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for _, c := range []stopCase{
		{name: "asynchronous", rounds: 4},
		{name: "waiting for the disk", rounds: 4, args: []string{"--flush", "SYNC_FLUSH"}},
		{name: "waiting for a slave", rounds: 4, args: []string{"--role", "SYNC_MASTER"}, slave: true},
		{name: "waiting for both", rounds: 4, args: []string{"--role", "SYNC_MASTER", "--flush", "SYNC_FLUSH"}, slave: true},
		{name: "waiting for a slave that answers no more", rounds: 1, args: []string{"--role", "SYNC_MASTER", "--slave-timeout", "1s"}, slave: true, frozen: true},
		{name: "waiting longer than a stop may", rounds: 1, args: []string{"--role", "SYNC_MASTER", "--slave-timeout", "1h", "--shutdown-timeout", "500ms"}, slave: true, frozen: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			draw := newDraw(t)
			for range c.rounds {
				c.run(t, time.Duration(draw.Int64N(int64(50*time.Millisecond))))
			}
		})
	}
}

type stopCase struct {
	name   string
	args   []string
	slave  bool
	frozen bool // the slave is stopped, so that puts wait
	rounds int
}

// run stops a master a while after it has confirmed puts.
func (c stopCase) run(t *testing.T, after time.Duration) {
	t.Helper()
	args := append([]string{"--load", "0,300,0", "--load-outstanding", "16"}, c.args...)
	if c.slave {
		args = append(args, "--load-replicas", "1")
	}
	m := serveMaster(t, "", args...)
	var s *node
	if c.slave {
		s = serveSlave(t, "", m.serving.HAListen)
	}
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 200 })
	if c.frozen {
		s.signal(t, syscall.SIGSTOP)
		mustStandStill(t, m, 16)
	}
	m.runFor(t, after)
	m.stop(t)

	all := m.puts()
	log := readLog(t, m.store)
	var stored []put
	for _, p := range all {
		if p.Offset >= 0 {
			stored = append(stored, p)
		}
		switch p.Status {
		case putOK, "FLUSH_SLAVE_TIMEOUT", "SERVICE_NOT_AVAILABLE":
		default:
			t.Errorf("put %+v", p)
		}
	}
	mustHold(t, stored, log)
	if len(stored) != len(log.records) {
		t.Errorf("%d records, and %d puts were told that theirs is stored", len(log.records), len(stored))
	}
	log.mustCountQueues(t)
	if i := info(t, m.store); !i.Clean {
		t.Error("no clean shutdown")
	}
	mustVerify(t, m.store)
	if s != nil {
		s.kill()
		mustHold(t, confirmed(all), readLog(t, s.store))
	}
}

// A second signal does not wait for anything; what was confirmed is there.
func TestASecondSignalEndsAStopThatWaits(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--role", "SYNC_MASTER", "--flush", "SYNC_FLUSH", "--slave-timeout", "1h", "--shutdown-timeout", "1h",
		"--load", "0,300,0", "--load-outstanding", "16", "--load-replicas", "1")
	s := serveSlave(t, "", m.serving.HAListen)
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 200 })
	s.signal(t, syscall.SIGSTOP)
	mustStandStill(t, m, 16)
	m.signal(t, syscall.SIGTERM)
	eventually(t, "the node is stopping", func() bool { _, body := m.ask("/status"); return strings.Contains(body, `"stopping"`) })
	if m.gone() {
		t.Fatal("ended although puts wait")
	}
	// One that comes with the first, as from a whole process group, is the same
	// signal: it is repeated until it counts.
	eventually(t, "a second signal ends the node", func() bool {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		return m.gone()
	})
	if code := m.waitExit(t); code != 1 {
		t.Errorf("exit code %d after a second signal, want 1", code)
	}
	s.kill()
	ok := confirmed(m.puts())
	serveMaster(t, m.store).stop(t)
	mustVerify(t, m.store)
	mustHold(t, ok, readLog(t, m.store))
	mustHold(t, ok, readLog(t, s.store))
}

// mustStandStill waits until that many puts wait and nothing moves: reports
// that were under way when the slave was stopped have come.
func mustStandStill(t *testing.T, m *node, waiters int) {
	t.Helper()
	end, same := int64(-1), 0
	eventually(t, "all puts wait", func() bool {
		st := m.status(t)
		same++
		if st.Waiters != waiters || st.Max != end {
			end, same = st.Max, 0
		}
		return same == 20
	})
}
