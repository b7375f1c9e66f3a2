package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

func TestPaceIsShownForEachReplica(t *testing.T) {
	lag := int64(5 << 30)
	s := engine.PaceStatus{Pace: engine.Pace{CatchUp: 50 << 20}, Replicas: []engine.ReplicaPace{
		{ReplicaID: "a", Address: "10.0.0.2:4000", Phase: engine.PhaseCatchUp, Pace: engine.Pace{Live: 1000, CatchUp: 10 << 20}, BytesPerSecond: 10 << 20, LagBytes: &lag},
		{ReplicaID: "b", Pace: engine.Pace{Live: 1 << 20}},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/pace" {
			http.NotFound(w, r)
			return
		}
		reply(w, http.StatusOK, s)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	const want = `new replicas: live no limit, catch-up 50 MiB/s

IDENTITY  REPLICA        PHASE     LIVE      CATCH-UP  RATE      LAG
a         10.0.0.2:4000  catch-up  1000 B/s  10 MiB/s  10 MiB/s  5 GiB
b         -              gone      1 MiB/s   no limit  -         -
`
	if got := expect(t, exitDone, "pace", "--admin", address).stdout; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	line, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := expect(t, exitDone, "pace", "--admin", address, "--json").stdout; got != string(line)+"\n" {
		t.Errorf("got  %s\nwant %s", got, line)
	}
}

func TestPaceIsChangedWhileTheNodeRuns(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--transfer-rate", "9MiB", "--catchup-rate", "5MiB")
	pace := func(args ...string) (s engine.PaceStatus) {
		t.Helper()
		o := expect(t, exitDone, append([]string{"pace", "--json", "--admin", m.AdminListen}, args...)...)
		if err := json.Unmarshal([]byte(o.stdout), &s); err != nil {
			t.Fatalf("%s: %v", o.stdout, err)
		}
		return s
	}
	if got := pace(); got.Pace != (engine.Pace{Live: 9 << 20, CatchUp: 5 << 20}) || len(got.Replicas) != 0 {
		t.Errorf("as it was started: %+v", got)
	}
	for _, id := range []string{"b", "c"} {
		startNode(t, "--role", "SLAVE", "--master", m.HAListen, "--replica-id", id)
	}
	waitUntil(t, func() bool { return len(m.status(t).Replicas) == 2 })
	if got := pace("--replica", "b", "--catchup", "1MiB"); len(got.Replicas) != 1 || got.Replicas[0].Pace != (engine.Pace{Live: 9 << 20, CatchUp: 1 << 20}) {
		t.Errorf("one replica's: %+v", got)
	}
	got := pace("--live", "0")
	if got.Pace != (engine.Pace{CatchUp: 5 << 20}) || len(got.Replicas) != 2 || got.Replicas[0].Pace != (engine.Pace{CatchUp: 1 << 20}) || got.Replicas[1].Pace != (engine.Pace{CatchUp: 5 << 20}) {
		t.Errorf("everybody's: %+v", got)
	}
	mustContain(t, get(t, m.AdminListen, "/status"), `"phase":"live","live_limit_bytes_per_second":0,"catchup_limit_bytes_per_second":1048576`)
	mustContain(t, get(t, m.AdminListen, "/metrics"), `haengine_replica_catching_up{replica="b"} 0`)

	for _, method := range []string{"--replica x", "--replica x --live 5"} {
		o := expect(t, exitFailed, append([]string{"pace", "--admin", m.AdminListen}, strings.Fields(method)...)...)
		mustContain(t, o.stderr, `replica "x": no such replica; there are: b, c`)
	}
	mustContain(t, expect(t, exitUsage, "pace", "--live", "5MB", "--admin", m.AdminListen).stderr, "is no byte size", "Try: haengine help pace\n")
	mustContain(t, expect(t, exitFailed, "pace", "--admin", "127.0.0.1:1").stderr, "127.0.0.1:1", "connection refused", "--admin-listen")

	post := func(query, site string) (code int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+m.AdminListen+"/pace?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", site)
		resp, err := statusClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := post("live=1", "cross-site"); code != http.StatusForbidden {
		t.Errorf("a web page's change is answered with %d, want 403", code)
	}
	for _, query := range []string{"live=-1", "catchup=x", "live="} {
		if code := post(query, "none"); code != http.StatusBadRequest {
			t.Errorf("%s is answered with %d, want 400", query, code)
		}
	}
	if again := pace(); again.Pace != got.Pace {
		t.Errorf("a refused change is in force: %+v", again)
	}
}
