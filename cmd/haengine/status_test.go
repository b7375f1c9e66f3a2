package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/haengine/haengine/engine"
)

func sampleStatus() engine.Status {
	flushed := int64(900)
	return engine.Status{
		Role: engine.SyncMaster, State: engine.StateServing, MaxOffset: 12345678, FlushedOffset: 12000000, ConfirmedOffset: 12345000,
		SegmentBytes: 1 << 30, Segments: 1, Waiters: 3, HAListen: "127.0.0.1:10912", Replicas: []engine.ReplicaStatus{
			{Address: "10.0.0.2:4000", ReplicaID: "10.0.0.2", Mode: "plain", AckedOffset: 12345000, LagBytes: 678, LagSeconds: 0.25, BytesPerSecond: 2 << 20, Phase: engine.PhaseLive, InSync: true},
			{Address: "10.0.0.3:4000", ReplicaID: "b", Mode: "extended", AckedOffset: 1000, FlushedOffset: &flushed, LagBytes: 12344678, Phase: engine.PhaseCatchUp, InSync: false, Reason: "too far behind"},
		},
	}
}

// nodeThatAnswers is an admin address with a given status.
func nodeThatAnswers(t *testing.T, s engine.Status) (address string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		reply(w, http.StatusOK, s)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), asked
}

func TestStatusShowsTheNodeAndItsReplicas(t *testing.T) {
	address, _ := nodeThatAnswers(t, sampleStatus())
	got := expect(t, exitDone, "status", "--admin", address).stdout
	const want = `role         SYNC_MASTER
state        serving
epoch        -
log          0 to 12,345,678 (11.8 MiB in 1 segment of 1 GiB)
flushed      12,000,000 (338 KiB to go)
confirmed    12,345,000 (678 B to go)
waiters      3
replicas at  127.0.0.1:10912

REPLICA        IDENTITY  MODE      PHASE     ACKED       FLUSHED  LAG       BEHIND  RATE     IN SYNC  WHY
10.0.0.2:4000  10.0.0.2  plain     live      12,345,000  -        678 B     0.2s    2 MiB/s  yes      
10.0.0.3:4000  b         extended  catch-up  1,000       900      11.8 MiB  0.0s    0 B/s    no       too far behind
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStatusShowsASlavesMaster(t *testing.T) {
	address, _ := nodeThatAnswers(t, engine.Status{
		Role: engine.Slave, State: engine.StateReadOnly, Reason: "disk failed",
		Master: &engine.MasterStatus{Address: "10.0.0.1:10912", State: "connecting", LastError: "connection refused"},
	})
	mustContain(t, expect(t, exitDone, "status", "--admin", address).stdout, "read-only: disk failed", "10.0.0.1:10912", "connecting", "connection refused", "unknown")
}

func TestStatusAsJSONIsWhatTheNodeSaid(t *testing.T) {
	want := sampleStatus()
	address, _ := nodeThatAnswers(t, want)
	line, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := expect(t, exitDone, "status", "--admin", address, "--json").stdout; got != string(line)+"\n" {
		t.Errorf("got  %s\nwant %s", got, line)
	}
}

func TestStatusOfNobodyFailsWithTheAddress(t *testing.T) {
	o := expect(t, exitFailed, "status", "--admin", "127.0.0.1:1")
	mustContain(t, o.stderr, "127.0.0.1:1", "connection refused", "--admin-listen")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	mustContain(t, expect(t, exitFailed, "status", "--admin", strings.TrimPrefix(other.URL, "http://")).stderr, "404 Not Found")
}

func TestWatchGoesOnUntilInterrupted(t *testing.T) {
	address, asked := nodeThatAnswers(t, sampleStatus())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		waitUntil(t, func() bool { return asked.Load() >= 3 })
		cancel()
	}()
	o := invokeContext(ctx, "status", "--admin", address, "--watch", "--json", "--interval", "10ms")
	if lines := strings.Count(o.stdout, "\n"); o.code != exitDone || lines < 2 {
		t.Errorf("exit code %d after %d lines, want 0 after 2 or more\n%s", o.code, lines, o.stderr)
	}
}

func TestReasonsHaveSizesForPeople(t *testing.T) {
	if got := humanBytes("1234567 bytes behind, max-lag is 268435456"); got != "1.18 MiB behind, max-lag is 256 MiB" {
		t.Errorf("%q", got)
	}
}

func TestComparisonIsToldInWords(t *testing.T) {
	at, ended := int64(77), int64(1_700_000_000_000)
	for want, c := range map[string]engine.ComparisonStatus{
		"not yet": {},
		"equal from 10 to 2,000, goes on to 5,000":                                        {Running: true, FromOffset: 10, ComparedOffset: 2000, ToOffset: 5000},
		"equal from 10 to 5,000; 2 rounds, the last ended 2023-11-14T22:13:20.000Z":       {Rounds: 2, FinishedMS: &ended, FromOffset: 10, ComparedOffset: 5000, ToOffset: 5000},
		"equal from 0 to 9, then: lost; 1 round, the last ended 2023-11-14T22:13:20.000Z": {Rounds: 1, FinishedMS: &ended, ComparedOffset: 9, LastError: "lost"},
		"the log differs from the master's at offset 77":                                  {Rounds: 1, FinishedMS: &ended, FirstDifference: &at},
	} {
		if got := comparisonText(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
