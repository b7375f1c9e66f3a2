package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

// --set changes what it names, in both nodes, and nothing else.
func TestBenchmarksPassSettingsOn(t *testing.T) {
	base := engine.Options{FrameBytes: 32 << 10, Spin: time.Second, SlaveTimeout: time.Minute}
	p := passed{"spin=50us", "populate=0", "preallocate=false", "frame-bytes=64KiB", "flush=SYNC_FLUSH"}
	got := base
	if err := p.apply(&got); err != nil {
		t.Fatal(err)
	}
	if got.Spin != 50*time.Microsecond || got.PopulateBytes != -1 || !got.NoPreallocate || got.FrameBytes != 64<<10 || got.Flush != engine.SyncFlush {
		t.Errorf("%+v", got)
	}
	if got.SlaveTimeout != base.SlaveTimeout || got.FlushInterval != 0 || got.RingSize != 0 {
		t.Errorf("what was not named is another: %+v", got)
	}
	n := resolved(t, "", append([]string{"--store", "x", "--spin", "1s"}, p.arguments()...))
	if n.Spin != got.Spin || n.PopulateBytes != got.PopulateBytes || n.NoPreallocate != got.NoPreallocate || n.FrameBytes != got.FrameBytes || n.Flush != got.Flush {
		t.Errorf("the other node gets %+v", n.Options)
	}
	none := passed(nil)
	if got := base; none.apply(&got) != nil || got.NoPreallocate || got.PopulateBytes != 0 {
		t.Errorf("without settings: %+v", got)
	}
}

func TestBenchmarksRefuseSettingsThatTheyDecide(t *testing.T) {
	o := expect(t, exitUsage, "bench", "sync", "--set", "store=/x", "--set", "spin=soon", "--set", "what")
	mustContain(t, o.stderr, "store=/x", "spin=soon", "--set what: want name=value")
}

// Each of the tuning flags can be measured.
func TestEveryTuningSettingIsPassable(t *testing.T) {
	for _, name := range strings.Fields("reactors pin-cpus spin sndbuf rcvbuf tcp-congestion frame-bytes sendfile-min-bytes ring-size transfer-rate preallocate populate mlock flush-interval flush-pages flush-thorough heartbeat housekeeping") {
		if !slices.Contains(passable(), name) {
			t.Errorf("bench does not take --set %s", name)
		}
	}
}

func TestAnAnswerNamesTheSettingsItWasMeasuredWith(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, "bench", "async", "--duration", "100ms", "--rounds", "1", "--bytes", "8MiB", "--set", "spin=10us", "--set", "populate=1MiB", "--json")
	var r benchResult
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if set, _ := r.Settings["set"].(map[string]any); set["spin"] != "10us" || set["populate"] != "1MiB" {
		t.Errorf("%v", r.Settings)
	}
}

// Without the limit there is a figure and no ratio, for comparing settings.
func TestBenchmarksRunWithoutTheirLimit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, verb := range []string{"sync", "async", "catchup"} {
		o := expect(t, exitDone, "bench", verb, "--limit=false", "--duration", "50ms", "--rounds", "1", "--bytes", "8MiB", "--json")
		var r benchResult
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.MessagesPerSecond <= 0 || r.Limit != nil || r.Ratio != nil {
			t.Errorf("%s: %v, %s", verb, err, o.stdout)
		}
		if strings.Contains(r.Note, "limit") {
			t.Errorf("%s: %q", verb, r.Note)
		}
	}
	// Which measures nothing else takes no notice.
	expect(t, exitDone, "bench", "limit", "--limit=false", "--duration", "50ms", "--rounds", "1", "--bytes", "8MiB")
}

// bench/knobs.sh knows every tuning setting, and gives none a value that serve
// refuses.
func TestKnobsAreTheTuningSettings(t *testing.T) {
	list, err := exec.Command("../../bench/knobs.sh", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		w := strings.Fields(line)
		measured[w[0]] = true
		given := append(passed{w[0] + "=" + w[2]}, w[3:]...)
		if w[0] == strings.ToUpper(w[0]) {
			continue // of the environment
		}
		if err := given.apply(new(engine.Options)); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	for _, name := range passable() {
		if !measured[name] && name != "ack" && name != "wire" {
			t.Errorf("bench/knobs.sh does not measure %s", name)
		}
	}
}
