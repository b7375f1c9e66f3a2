package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// waitUntil polls until done; a test that waits too long fails.
func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Errorf("waited 30 s in vain")
			return
		}
	}
}

// node is a child that serves.
type node struct {
	*child
	servingLine
	store string
	mu    struct {
		sync.Mutex
		puts []loadLine
	}
}

// startNode starts a node on a new store (or a given one, with --store in
// args) and waits until it serves.
func startNode(t *testing.T, args ...string) *node {
	t.Helper()
	n := &node{}
	for i, a := range args {
		if a == "--store" {
			n.store = args[i+1]
		}
	}
	if n.store == "" {
		n.store = filepath.Join(t.TempDir(), "store")
		args = append(args, "--store", n.store)
	}
	args = append([]string{"serve", "--admin-listen", "127.0.0.1:0", "--client-listen", "", "--log-format", "json", "--segment-bytes", "1MiB"}, args...)
	c, err := startChild("node", func(line []byte) {
		var l loadLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Errorf("stdout has %q: %v", line, err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.puts = append(n.mu.puts, l)
	}, args...)
	if err != nil {
		t.Fatal(err)
	}
	n.child = c
	t.Cleanup(c.kill)
	if n.servingLine, err = c.waitServing(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) puts() []loadLine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]loadLine(nil), n.mu.puts...)
}

func (n *node) status(t *testing.T) nodeStatus {
	t.Helper()
	s, _, err := fetchStatus(t.Context(), n.AdminListen)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) stopCleanly(t *testing.T) {
	t.Helper()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestLoadIsReplicatedAndLogsAreEqual(t *testing.T) {
	m := startNode(t, "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--load", "0,700,3000", "--load-outstanding", "4", "--load-replicas", "1")
	s := startNode(t, "--role", "SLAVE", "--master", m.HAListen)
	waitUntil(t, func() bool { return len(m.puts()) == 3000 })
	seen := map[int64]bool{}
	for _, l := range m.puts() {
		if l.Status != "PUT_OK" || l.Offset < 0 || l.EndOffset <= l.Offset || seen[l.Sequence] || l.LatencyUs <= 0 {
			t.Fatalf("put %+v", l)
		}
		seen[l.Sequence] = true
	}
	waitUntil(t, func() bool { st := m.status(t); return len(st.Replicas) == 1 && st.Replicas[0].AckedOffset == st.Max })
	if st := m.status(t); st.Role != "SYNC_MASTER" || st.State != "serving" || st.Confirmed != st.Max || !st.Replicas[0].InSync {
		t.Errorf("master's status %+v", st)
	}
	if st := s.status(t); st.Role != "SLAVE" || st.Master == nil || st.Master.State != "transferring" || len(st.Replicas) != 0 {
		t.Errorf("slave's status %+v", st)
	}
	for _, n := range []*node{m, s} {
		if got := get(t, n.AdminListen, "/readyz"); !strings.HasPrefix(got, "200 ") {
			t.Errorf("not ready: %s", got)
		}
	}
	metrics := get(t, m.AdminListen, "/metrics")
	mustContain(t, metrics, `haengine_put_total{status="PUT_OK"} 3000`, "haengine_put_seconds_count 3000", `haengine_state{state="serving"} 1`,
		`haengine_replica_in_sync{replica="`, "haengine_waiters 0", "haengine_confirmed_offset_bytes", "haengine_fsync_seconds_count")
	s.stopCleanly(t)
	waitUntil(t, func() bool { return !strings.Contains(get(t, m.AdminListen, "/metrics"), "haengine_replica_") })
	m.stopCleanly(t)
	for _, n := range []*node{m, s} {
		verify(t, exitDone, n.store)
		mustContain(t, expect(t, exitDone, "log", "info", "--store", n.store, "--json").stdout, `"clean_shutdown":true`, `"messages":3000`)
	}
	d := diff(t, exitDone, m.store, s.store)
	if d.Store.MaxOffset != d.With.MaxOffset || d.Store.MinOffset != d.With.MinOffset {
		t.Errorf("the ends differ: %+v", d)
	}
	checkLoad(t, m)
}

// checkLoad reads each put's record: topic, queue, body.
func checkLoad(t *testing.T, m *node) {
	t.Helper()
	bodies := map[int64]string{}
	queues := map[int64]int64{}
	for _, line := range dumpLines(t, exitDone, "--store", m.store, "--topic", loadTopic, "--body", "text") {
		var r struct {
			PhysicOffset, QueueID, BodyLength int64
			Body                              string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		bodies[r.PhysicOffset], queues[r.PhysicOffset] = r.Body, r.QueueID
	}
	for _, l := range m.puts() {
		if want := fmt.Sprintf("%-700d", l.Sequence); bodies[l.Offset] != want || queues[l.Offset] != l.Sequence%4 {
			t.Fatalf("put %+v: body %q in queue %d", l, bodies[l.Offset], queues[l.Offset])
		}
	}
}

func TestAMasterWithoutSlavesSaysSo(t *testing.T) {
	m := startNode(t, "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--load", "0,10,5")
	waitUntil(t, func() bool { return len(m.puts()) == 5 })
	for i, l := range m.puts() {
		if l.Sequence != int64(i) || l.Status != "SLAVE_NOT_AVAILABLE" || l.Offset < 0 {
			t.Errorf("put %d: %+v", i, l)
		}
	}
	m.stopCleanly(t)
}

func TestRefusedPutsHaveNoOffset(t *testing.T) {
	m := startNode(t, "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--min-in-sync-replicas", "2", "--load", "0,10,3")
	waitUntil(t, func() bool { return len(m.puts()) == 3 })
	for _, l := range m.puts() {
		if l.Offset != -1 || l.EndOffset != -1 || l.Status != "IN_SYNC_REPLICAS_NOT_ENOUGH" {
			t.Errorf("put %+v", l)
		}
	}
	m.stopCleanly(t)
}

func TestAnEndlessLoadEndsWithTheNode(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--load", "500,100,0")
	waitUntil(t, func() bool { return len(m.puts()) >= 20 })
	m.stopCleanly(t)
	v := verify(t, exitDone, m.store)
	if puts := m.puts(); v.Messages != int64(len(puts)) || puts[len(puts)-1].EndOffset != v.MaxOffset {
		t.Errorf("%d records for %d puts", v.Messages, len(puts))
	}
}

func TestRocketMQsStoresAreServedUnchanged(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		store := fixture(t, name)
		want := recoveredByRocketMQ(t, name)
		m := startNode(t, "--store", store, "--ha-listen", "127.0.0.1:0", "--plain-history", "first")
		if m.MinOffset != want.Min || m.MaxOffset != want.Max {
			t.Errorf("%s serves %d to %d, want %d to %d", name, m.MinOffset, m.MaxOffset, want.Min, want.Max)
		}
		s := startNode(t, "--role", "SLAVE", "--master", m.HAListen)
		waitUntil(t, func() bool { return s.status(t).Max == want.Max })
		s.stopCleanly(t)
		m.stopCleanly(t)
		for _, dir := range []string{store, s.store} {
			var info logInfo
			if err := json.Unmarshal([]byte(expect(t, exitDone, "log", "info", "--sha256", "--json", "--store", dir).stdout), &info); err != nil {
				t.Fatal(err)
			}
			if info.SHA256 != want.SHA256 || info.MinOffset != want.Min || info.MaxOffset != want.Max {
				t.Errorf("%s in %s: %+v, want %+v", name, dir, info, want)
			}
			verify(t, exitDone, dir)
		}
		got, expected := dumpLines(t, exitDone, "--store", store, "--marks"), expectedDump(t, name)
		if strings.Join(got, "") != strings.Join(expected, "") {
			t.Errorf("%s: the dump changed", name)
		}
	}
}

func TestTheAdminAddressCanBeLeftOut(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--admin-listen", "")
	if m.AdminListen != "" {
		t.Errorf("admin address %s", m.AdminListen)
	}
	m.stopCleanly(t)
}

func TestASecondSignalStopsNow(t *testing.T) {
	// A put waits for a slave that never acknowledges, so a drain would last.
	m := startNode(t, "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--slave-timeout", "1h", "--shutdown-timeout", "1h", "--load", "0,10,1", "--load-replicas", "1")
	peer, err := net.Dial("tcp", m.HAListen)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := peer.Write(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Write([]byte{1}); err != nil { // report 1: a slave of our kind without a log
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return m.status(t).Waiters > 0 })
	began := time.Now()
	signalNode(t, m, syscall.SIGTERM)
	waitUntil(t, func() bool { return strings.Contains(get(t, m.AdminListen, "/status"), `"state":"stopping"`) })
	// The first of the next ones come too soon to count.
	waitUntil(t, func() bool {
		_ = m.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		select {
		case <-m.exited:
			return true
		default:
			return false
		}
	})
	if code := m.cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d, want 1", code)
	}
	if took := time.Since(began); took < signalTwice {
		t.Errorf("stopped after %v by a signal that is still the first one", took)
	}
}

func signalNode(t *testing.T, n *node, s os.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestASecondNodeOnTheSameStoreIsRefused(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0")
	o := expect(t, exitFailed, "serve", "--store", m.store, "--ha-listen", "127.0.0.1:0", "--admin-listen", "")
	mustContain(t, o.stderr, m.store)
	m.stopCleanly(t)
}

func TestTheLogIsTextByDefault(t *testing.T) {
	c, err := startChild("node", nil, "serve", "--store", t.TempDir(), "--ha-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--client-listen", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	waitUntil(t, func() bool { return strings.Contains(c.failure(os.ErrInvalid).Error(), "msg=serving version=") })
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	lines := bufio.NewScanner(strings.NewReader(c.failure(os.ErrInvalid).Error()))
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=serving") {
			mustContain(t, lines.Text(), "role=ASYNC_MASTER", "ha_listen=127.0.0.1:", "admin_listen=127.0.0.1:", "min_offset=0", "max_offset=0")
		}
	}
}

func TestAnotherClustersStoreIsWrongConfiguration(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--cluster-id", "a")
	m.stopCleanly(t)
	o := expect(t, exitUsage, "serve", "--store", m.store, "--cluster-id", "b", "--ha-listen", "127.0.0.1:0", "--admin-listen", "")
	mustContain(t, o.stderr, `"a"`, `"b"`, "Try: haengine help serve\n")
}

func TestAnotherSegmentSizeThanTheStoresIsRefused(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--load", "0,10,1")
	waitUntil(t, func() bool { return len(m.puts()) == 1 })
	m.stopCleanly(t)
	o := expect(t, exitFailed, "serve", "--store", m.store, "--segment-bytes", "2MiB", "--ha-listen", "127.0.0.1:0", "--admin-listen", "")
	mustContain(t, o.stderr, "1048576", "2097152")
}
