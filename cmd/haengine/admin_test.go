package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestALagAboveTheLimitIsNotReady(t *testing.T) {
	lag := func(n int64) *engine.MasterStatus { return &engine.MasterStatus{LagBytes: &n} }
	for _, c := range []struct {
		m     *engine.MasterStatus
		ready bool
	}{{nil, true}, {&engine.MasterStatus{}, true}, {lag(100), true}, {lag(101), false}} {
		if err := lagWithin(c.m, 100); (err == nil) != c.ready {
			t.Errorf("%+v: %v, want ready %v", c.m, err, c.ready)
		}
	}
}

func TestReadinessIsTheNodes(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0")
	if got := get(t, m.AdminListen, "/readyz"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("a master: %s", got)
	}
	s := startNode(t, "--role", "SLAVE", "--master", "127.0.0.1:1")
	if got := get(t, s.AdminListen, "/readyz"); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "connecting") {
		t.Errorf("a slave without a master: %s", got)
	}
}

func TestAdminAnswersWhileTheNodeRecovers(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	a, err := openAdmin("127.0.0.1:0", engine.Options{Role: engine.SyncMaster}, prometheus.NewRegistry(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.recovery(5, 10)
	for path, want := range map[string]string{
		"/healthz": `200 {"state":"recovering","recovered_bytes":5,"recover_bytes":10}`,
		"/readyz":  `503 {"ready":false,"reason":"recovering: 5 B of 10 B read"}`,
		"/none":    "404 ",
	} {
		if got := get(t, a.addr(), path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	mustContain(t, get(t, a.addr(), "/status"), `"role":"SYNC_MASTER"`, `"state":"recovering"`, `"replicas":[]`)
}

// get asks an admin address and gives "code body".
func get(t *testing.T, address, path string) string {
	t.Helper()
	resp, err := statusClient.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status[:4] + string(body)
}

func TestAnAdminAddressInUseIsNamed(t *testing.T) {
	taken, _ := nodeThatAnswers(t, engine.Status{})
	o := expect(t, exitFailed, "serve", "--store", t.TempDir(), "--ha-listen", "127.0.0.1:0", "--admin-listen", taken)
	mustContain(t, o.stderr, "--admin-listen "+taken, "address already in use")
}

func TestAGoneReplicaHasNoSeries(t *testing.T) {
	s := sampleStatus()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(statusCollector{func() engine.Status { return s }})
	const lag = `
# HELP haengine_replica_lag_bytes Bytes that a replica does not hold yet.
# TYPE haengine_replica_lag_bytes gauge
haengine_replica_lag_bytes{replica="10.0.0.2:4000"} 678
haengine_replica_lag_bytes{replica="b"} 1.2344678e+07
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(lag), "haengine_replica_lag_bytes"); err != nil {
		t.Error(err)
	}
	s.Replicas = s.Replicas[:1]
	if err := testutil.GatherAndCompare(registry, strings.NewReader(strings.Replace(lag, "haengine_replica_lag_bytes{replica=\"b\"} 1.2344678e+07\n", "", 1)), "haengine_replica_lag_bytes"); err != nil {
		t.Error(err)
	}
}

func TestCountingAPutAllocatesNothing(t *testing.T) {
	m := newNodeMetrics()
	if n := testing.AllocsPerRun(1000, func() { m.Put(engine.PutOK, time.Millisecond); m.Fsync(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if n := testutil.ToFloat64(m.puts[engine.PutOK]); n != 1001 {
		t.Errorf("%v puts counted, want 1001", n)
	}
}
