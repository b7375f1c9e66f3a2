package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// results runs a benchmark for a moment and reads what it prints.
func results[T any](t *testing.T, args string) []T {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, append([]string{"bench"}, append(strings.Fields(args), "--json")...)...)
	var all []T
	for line := range strings.Lines(o.stdout) {
		var r T
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%s left behind %v, %v", args, left, err)
	}
	return all
}

func TestASweepHasOneResultForEachValue(t *testing.T) {
	for _, c := range []struct {
		args  string
		wants []int64
		limit bool
	}{
		{"sweep size --values 128,4KiB --producers 2 --rounds 2", []int64{128, 4096}, true},
		{"sweep size --values 1KiB --async --producers 1 --rounds 1", []int64{1024}, true},
		{"sweep outstanding --values 1,20 --rounds 1", []int64{1, 20}, true},
		{"sweep producers --values 3 --rounds 1", []int64{3}, true},
		{"sweep replicas --values 1,3 --rounds 1", []int64{1, 3}, true},
		{"sweep load --values 2000 --rounds 1", []int64{2000}, true},
		{"sweep lag --values 2000,0 --rounds 1", []int64{2000, 0}, false},
	} {
		var got []int64
		for _, r := range results[benchResult](t, c.args+" --duration 100ms --bytes 8MiB") {
			got = append(got, r.Sweep.Value)
			if r.Messages == 0 || *r.P50 <= 0 || *r.P99 < *r.P50 || (r.Limit != nil) != c.limit {
				t.Errorf("%s: %+v", c.args, r)
			}
			s, ok := r.Spread["messages_per_second"]
			if !ok || s[0] > r.MessagesPerSecond || s[1] < r.MessagesPerSecond {
				t.Errorf("%s: %g messages a second in a spread of %v", c.args, r.MessagesPerSecond, s)
			}
			if r.Memory == nil || r.Memory.Master == nil || r.Memory.Slave == nil || r.Memory.Master.Anonymous == 0 || r.Memory.Slave.Mapped == 0 {
				t.Errorf("%s: memory %v", c.args, r.Memory)
			}
		}
		if !slices.Equal(got, c.wants) {
			t.Errorf("%s: results of %v, want %v", c.args, got, c.wants)
		}
	}
	t.Setenv("TMPDIR", t.TempDir())
	mustContain(t, expect(t, exitDone, "bench", "sweep", "load", "--values", "1000", "--duration", "100ms", "--rounds", "1").stdout, "puts/s", "p99.9", "mapped")
}

// What a rate asks for and cannot get is neither hidden nor an error.
func TestALoadThatIsNotReachedIsNoted(t *testing.T) {
	r := results[benchResult](t, "sweep load --values 50000000 --duration 100ms --rounds 1 --bytes 8MiB")[0]
	if !strings.Contains(r.Note, "puts a second") || r.MessagesPerSecond >= 50000000 {
		t.Errorf("note %q at %g a second", r.Note, r.MessagesPerSecond)
	}
}

// An open loop begins as many puts as are due, and no faster.
func TestAnOpenLoopKeepsItsRate(t *testing.T) {
	o := benchOptions{size: 100, rounds: 1, producers: 1, outstanding: 1, rate: 1000, bytes: 1 << 30, inProcess: true, placement: placeAny, dir: t.TempDir()}
	p, err := startPair(t.Context(), 0, o) // asynchronous: a put ends at once
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	begun := time.Now()
	r, err := p.puts(t.Context(), 200*time.Millisecond, 1<<30)
	if err != nil || r.messages != 200 || r.latency.count() != 200 {
		t.Fatalf("%d messages, %d latencies, %v; want 200", r.messages, r.latency.count(), err)
	}
	if took := time.Since(begun); took < 199*time.Millisecond {
		t.Errorf("200 puts at 1000 a second took %v", took)
	}
}

func TestStartIsMeasuredInAllStates(t *testing.T) {
	all := results[startResult](t, "start --values 2MiB --tail 1MiB --rounds 1")
	var states []string
	for _, r := range all {
		states = append(states, r.State)
		if r.Start <= 0 || r.Memory.Master == nil || r.LogBytes != 2<<20 {
			t.Errorf("%+v", r)
		}
	}
	if !slices.Equal(states, []string{startClean, startKilled, startTail}) || all[2].Unsynced != 1<<20 {
		t.Errorf("states %v, %+v", states, all)
	}
}

func TestAPairAtRestIsMeasured(t *testing.T) {
	all := results[idleResult](t, "idle --duration 1s --rounds 1")
	if len(all) != 2 || all[0].Process != "master" || all[1].Process != "slave" {
		t.Fatalf("%+v", all)
	}
	for _, r := range all {
		if r.CPU <= 0 || r.CPU > 50 || r.Memory == nil || r.Memory.Mapped < 5<<20 {
			t.Errorf("%+v", r)
		}
	}
}

func TestTroubleIsMeasuredBesideItsAbsence(t *testing.T) {
	var names []string
	for _, r := range results[benchResult](t, "busy --rate 500 --duration 200ms --rounds 1 --bytes 8MiB") {
		names = append(names, r.Name)
	}
	for _, r := range results[benchResult](t, "stuck --duration 400ms --rounds 1 --bytes 64MiB") {
		names = append(names, r.Name)
	}
	want := []string{"puts alone", "puts beside a catch-up", "catch-up alone", "catch-up beside puts", "two replicas", "two replicas and a stuck one"}
	if !slices.Equal(names, want) {
		t.Errorf("results %q, want %q", names, want)
	}
	var kinds []string
	for _, r := range results[outageResult](t, "outage --rounds 1 --bytes 1MiB") {
		kinds = append(kinds, r.Kind)
		if r.After <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if !slices.Equal(kinds, []string{"killed", "cut"}) {
		t.Errorf("kinds %q", kinds)
	}
}

// A cheap replica finds its frames however the stream is cut.
func TestACheapReplicaAcknowledgesWholeFrames(t *testing.T) {
	frame := func(offset byte, body int) []byte {
		return append([]byte{0, 0, 0, 0, 0, 0, 0, offset, 0, 0, 0, byte(body)}, make([]byte, body)...)
	}
	stream := slices.Concat(frame(10, 5), frame(15, 0), frame(15, 20))
	for cut := 1; cut <= len(stream); cut++ {
		r := cheapReplica{end: 10}
		for at := 0; at < len(stream); at += cut {
			piece := stream[at:min(at+cut, len(stream))]
			ended := r.parse(piece)
			read, want := at+len(piece), int64(10)
			if read >= 17 {
				want = 15
			}
			if read == len(stream) {
				want = 35
			}
			if r.end != want {
				t.Fatalf("cut %d: after %d bytes end %d, want %d", cut, read, r.end, want)
			}
			crossed := slices.ContainsFunc([]int{17, 29, len(stream)}, func(border int) bool { return at < border && border <= read })
			if ended != crossed {
				t.Fatalf("cut %d: bytes %d to %d: a frame ended %v, want %v", cut, at, read, ended, crossed)
			}
		}
	}
}

func TestPlacementsArePinsOfBothEnds(t *testing.T) {
	before := results[benchResult](t, "sync --duration 100ms --rounds 1 --bytes 4MiB --placement one-core")[0]
	if before.Limit.Name != "epoll ping-pong, one-core" || before.Settings["placement"] != "one-core" {
		t.Errorf("%+v", before)
	}
	mustContain(t, expect(t, exitUsage, "bench", "sync", "--placement", "both").stderr, "none of any, one-core, two-cores")
	two, err := placeTwoCores.cores()
	if err != nil {
		t.Skip(err) // there is but one core
	}
	if !two.two || two.master == two.slave {
		t.Errorf("two cores: %+v", two)
	}
	spin := results[benchResult](t, "sync --duration 100ms --rounds 1 --bytes 4MiB --placement two-cores --spin 50us")[0]
	if spin.Limit.Name != "spinning ping-pong, two-cores" {
		t.Errorf("limit %q", spin.Limit.Name)
	}
	if again, err := placeTwoCores.cores(); err != nil || again != two {
		t.Errorf("after a pinned benchmark this process may use %+v, %v; before %+v", again, err, two)
	}
}
