package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/pflag"
)

// resolveSettings resolves serve's settings from a command line, a file's text
// and an environment.
func resolveSettings(t *testing.T, yaml string, environ, args []string) (*nodeSettings, []string, error) {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	n := &nodeSettings{}
	n.define(newSettings(flags))
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	file := ""
	if yaml != "" {
		file = filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ignored, err := n.resolve(file, func() []string { return environ })
	return n, ignored, err
}

func TestLaterLayersWin(t *testing.T) {
	cpu := allowedCPUs()[0]
	yaml := fmt.Sprintf("role: SYNC_MASTER\nmax_lag: 1MiB\nslave-timeout: 1s\nflush: SYNC_FLUSH\npin-cpus: [%d]\nring-size: 1024\nmlock: true\n", cpu)
	environ := []string{"HAENGINE_MAX_LAG=2MiB", "HAENGINE_FLUSH=async-flush", "PATH=/bin"}
	n, ignored, err := resolveSettings(t, yaml, environ, []string{"--flush", "sync_flush", "--store", "x"})
	if err != nil || len(ignored) > 0 {
		t.Fatal(ignored, err)
	}
	got := []any{n.Role, n.MaxLag, n.SlaveTimeout, n.FlushTimeout, n.Flush, n.Store, n.RingSize, n.Mlock}
	want := []any{engine.SyncMaster, int64(2 << 20), time.Second, 5 * time.Second, engine.SyncFlush, "x", 1024, true}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !slices.Equal(n.PinCPUs, []int{cpu}) {
		t.Errorf("cpus %v, want %d", n.PinCPUs, cpu)
	}
}

func TestCPUsThatThereAreNotAreRefused(t *testing.T) {
	_, _, err := resolveSettings(t, "", nil, []string{"--pin-cpus", "4000", "--role", "SLAVE"})
	if err == nil || !strings.Contains(err.Error(), "--pin-cpus: this process may not run on cpu 4000, only on "+cpuList(allowedCPUs())) || !strings.Contains(err.Error(), "--master is missing") {
		t.Errorf("error %v", err)
	}
	var cpus []int
	if err := toCPUs(&cpus, func() []int { return []int{0, 1, 2, 5} })("0-2,5"); err != nil || cpuList(cpus) != "0-2,5" {
		t.Errorf("%v, %v", cpus, err)
	}
}

func TestOnlyVariablesOfNoVerbAreWorthAWarning(t *testing.T) {
	all := flagVariables(newRoot(io.Discard, io.Discard))
	for name, want := range map[string]bool{"HAENGINE_ADMIN": true, "HAENGINE_WITH": true, "HAENGINE_STORE": true, "HAENGINE_PORT": false} {
		if all.has(name) != want {
			t.Errorf("%s is a flag's: %v", name, !want)
		}
	}
}

func TestDefaultsDependOnTheRole(t *testing.T) {
	n, _, err := resolveSettings(t, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n.HAListen != defaultHAListen || n.adminListen != defaultAdminListen || n.Retention != 72*time.Hour || n.RetentionGiven || n.NoPreallocate ||
		n.PopulateBytes != 4<<20 || n.logLevel != slog.LevelInfo || n.InSyncReplicas != 2 {
		t.Errorf("defaults of a master: %+v", n)
	}
	n, _, err = resolveSettings(t, "", nil, []string{"--role", "slave", "--master", "a:1", "--admin-listen", "", "--retention", "0", "--populate", "0", "--preallocate=false"})
	if err != nil {
		t.Fatal(err)
	}
	if n.HAListen != "" || n.adminListen != "" || n.Retention != 0 || n.RetentionDisk != 0 || !n.RetentionGiven || n.PopulateBytes >= 0 || !n.NoPreallocate {
		t.Errorf("a slave's settings: %+v", n)
	}
	n, _, err = resolveSettings(t, "", nil, []string{"--ha-listen", ""})
	if err != nil || n.HAListen != "" {
		t.Errorf("a master told not to listen listens on %q, %v", n.HAListen, err)
	}
}

func TestEveryWrongSettingIsNamedWithItsSource(t *testing.T) {
	yaml := "segment-bytes: 1KiB\nno-such: 1\nnested:\n  store: x\n"
	environ := []string{"HAENGINE_SLAVE_TIMEOUT=soon", "HAENGINE_PORT=tcp://1.2.3.4:5"}
	_, ignored, err := resolveSettings(t, yaml, environ, []string{
		"--role", "MASTER", "--frame-bytes", "1", "--pin-cpus", "a", "--load", "1,2", "--ha-listen", "here", "--log-format", "xml",
		"--heartbeat", "10s", "--housekeeping", "5s", "--log-level", "loud", "--preallocate=maybe", "--store-host", "x", "--admin-listen", "x", "--max-lag", "0",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`: segment-bytes: 1024 bytes is out of range, want 65536 to 2147483647`, `there is no setting "no-such"`, `there is no setting "nested"`,
		`HAENGINE_SLAVE_TIMEOUT: "soon" is no duration`, `--role: role "MASTER" is none of`, "--frame-bytes: 1 bytes is out of range", `--pin-cpus: "a"`,
		`--load: "1,2" has 2 parts`, `--ha-listen "here": missing port in address, want HOST:PORT`, `--log-format: "xml"`, "--housekeeping is 5s", "--log-level:", `--preallocate: "maybe"`,
		"--store-host:", "--admin-listen:", "--max-lag: 0 bytes is out of range, want 1 or more",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if !slices.Equal(ignored, []string{"HAENGINE_PORT"}) {
		t.Errorf("ignored %v, want HAENGINE_PORT", ignored)
	}
}

func TestAMissingOrBrokenFileIsAMistake(t *testing.T) {
	n := &nodeSettings{}
	n.define(newSettings(pflag.NewFlagSet("serve", pflag.ContinueOnError)))
	if _, err := n.resolve(filepath.Join(t.TempDir(), "none.yaml"), os.Environ); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, _, err := resolveSettings(t, "role: [", nil, nil); err == nil {
		t.Error("a broken file was taken")
	}
	if _, _, err := resolveSettings(t, "max-lag: 1MiB\nmax_lag: 2MiB\n", nil, nil); err == nil || !strings.Contains(err.Error(), "stands there twice") {
		t.Errorf("a setting given twice: %v", err)
	}
}

func TestLoadPlansAreRead(t *testing.T) {
	n, _, err := resolveSettings(t, "", nil, []string{"--load-outstanding", "8", "--load-replicas", "2", "--load", "1.5,1KiB,10"})
	want := loadPlan{on: true, rate: 1.5, size: 1024, count: 10, outstanding: 8, replicas: 2}
	if err != nil || n.load != want {
		t.Errorf("%+v, %v; want %+v", n.load, err, want)
	}
	for _, wrong := range []string{"", "1,2", "a,1,1", "1,1,1.5", "-1,1,1", "1,-1,1", "1,1,-1", "NaN,1,1"} {
		if _, err := parseLoadPlan(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

func TestOtherVerbsTakeTheirFlagsFromTheEnvironment(t *testing.T) {
	store := fixture(t, "killed")
	t.Setenv("HAENGINE_STORE", store)
	t.Setenv("HAENGINE_JSON", "true")
	mustContain(t, expect(t, exitDone, "log", "info").stdout, `"messages":123`)
	t.Setenv("HAENGINE_JSON", "perhaps")
	mustContain(t, expect(t, exitUsage, "log", "info").stderr, "HAENGINE_JSON=perhaps")
}

func TestWrongSettingsEndServeWithExitCode2BeforeAnythingIsOpened(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	o := expect(t, exitUsage, "serve", "--store", store, "--role", "SLAVE", "--flush", "NEVER", "--slave-timeout", "-1s")
	mustContain(t, o.stderr, "--flush: ", "--slave-timeout: ", "--master is missing: a SLAVE needs HOST:PORT", "Try: haengine help serve\n")
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("the store was touched: %v", err)
	}
}
