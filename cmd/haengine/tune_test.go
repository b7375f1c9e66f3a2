package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
	described "github.com/haengine/haengine/internal/fixture"
	"github.com/haengine/haengine/internal/tune"
	"github.com/spf13/cobra"
)

// machines are the described ones, with what tune says of them.
func machines(t *testing.T) map[string]tuneAnswer {
	t.Helper()
	files, err := filepath.Glob("../../internal/tune/testdata/*.machine")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %d machines", err, len(files))
	}
	all := map[string]tuneAnswer{}
	for _, file := range files {
		root, system, rest := described.Machine(t, file)
		var told struct {
			Store, Listen, Peer string
			Role                int
		}
		if err := json.Unmarshal([]byte(rest["plan"]), &told); err != nil {
			t.Fatal(err)
		}
		o := tuneOptions{store: told.Store, listen: told.Listen, peer: told.Peer, role: []string{"ASYNC_MASTER", "SYNC_MASTER", "SLAVE"}[told.Role], json: true}
		var out strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		cmd.SetContext(t.Context())
		if err := runTune(cmd, o, root, system); err != nil {
			t.Fatal(err)
		}
		var a tuneAnswer
		if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
			t.Fatal(err)
		}
		a.options = o
		all[strings.TrimSuffix(filepath.Base(file), ".machine")] = a
	}
	return all
}

// What the rules know of settings is what serve has: the names exist, the values
// are taken, the defaults are the real ones.
func TestAdviceNamesRealSettings(t *testing.T) {
	for name, a := range machines(t) {
		flags := 0
		for _, x := range a.Advice {
			if x.Reason == "" || x.Source == "" || x.Default == "" {
				t.Errorf("%s: %+v says too little", name, x)
			}
			if file, anchor, ok := strings.Cut(x.Source, "#"); strings.HasPrefix(file, "docs/") {
				if text, err := os.ReadFile("../../" + file); err != nil || ok && !hasHeading(string(text), anchor) {
					t.Errorf("%s: the source %s is not there (%v)", name, x.Source, err)
				}
			}
			if x.Kind != tune.Flag {
				continue
			}
			flags++
			f := newServe().Flags().Lookup(x.Name)
			if f == nil {
				t.Errorf("%s: serve has no --%s", name, x.Name)
				continue
			}
			if f.DefValue != "" && f.DefValue != x.Default && x.Default != "the store's own" {
				t.Errorf("%s: --%s has the default %s, not %s", name, x.Name, f.DefValue, x.Default)
			}
			if x.Value == "" != (x.Verdict == tune.Keep) {
				t.Errorf("%s: %+v", name, x)
			}
		}
		if flags < 15 {
			t.Errorf("%s: advice on %d flags only", name, flags)
		}
	}
}

// The file that --yaml prints, and the command line, are taken by serve as they
// stand, and say what the advice says.
func TestWhatTuneWouldSetServeTakes(t *testing.T) {
	set := 0
	for name, a := range machines(t) {
		var yaml strings.Builder
		a.printYAML(&yaml)
		_, rest, _ := strings.Cut(a.commandLine(), "haengine serve ")
		for how, n := range map[string]*nodeSettings{"yaml": resolved(t, yaml.String(), nil), "flags": resolved(t, "", strings.Fields(rest))} {
			for _, x := range a.pick(tune.Set, tune.Flag) {
				set++
				if !n.table.given(x.Name) {
					t.Errorf("%s, %s: %s is not given", name, how, x.Name)
				}
			}
			if n.Store != a.options.store || n.Role.String() != a.options.role || n.Master != a.options.peer && n.Role == engine.Slave {
				t.Errorf("%s, %s: %+v", name, how, n.Options)
			}
		}
	}
	if set < 6 {
		t.Errorf("only %d settings in all", set)
	}
}

func resolved(t *testing.T, yaml string, args []string) *nodeSettings {
	t.Helper()
	n, ignored, err := resolveSettings(t, yaml, nil, args)
	if err != nil || len(ignored) > 0 {
		t.Fatalf("%v, ignored %q\n%s%q", err, ignored, yaml, args)
	}
	return n
}

// hasHeading tells whether a heading's anchor is the one given.
func hasHeading(markdown, anchor string) bool {
	for line := range strings.Lines(markdown) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			if strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

func TestTheTextSaysWhatTheJSONSays(t *testing.T) {
	for name, a := range machines(t) {
		var out strings.Builder
		a.print(&out)
		plain := strings.Join(strings.Fields(out.String()), " ")
		for _, x := range a.Advice {
			if !strings.Contains(plain, strings.Join(strings.Fields(x.Reason), " ")) || !strings.Contains(plain, strings.Join(strings.Fields(x.Command), " ")) {
				t.Errorf("%s: the text says nothing of %+v:\n%s", name, x, out.String())
			}
		}
	}
}

// This machine, for real and without privilege: exit code 0, nothing changed.
func TestTuneLooksAtThisMachine(t *testing.T) {
	dir := t.TempDir()
	before := treeDigest(t, dir)
	o := expect(t, exitDone, "tune", "--store", filepath.Join(dir, "store"), "--role", "sync-master", "--json")
	var a tuneAnswer
	if err := json.Unmarshal([]byte(o.stdout), &a); err != nil {
		t.Fatal(err)
	}
	if a.Machine.CPU.Usable < 1 || a.Machine.Store.Filesystem == "" || a.Machine.Store.Directory != dir || a.Measured != nil || len(a.Advice) < 20 {
		t.Errorf("%s", o.stdout)
	}
	mustContain(t, expect(t, exitDone, "tune", "--store", dir).stdout, "machine\n", "settings to change", "keeps\n", "outside haengine", "haengine serve --store "+dir)
	mustContain(t, expect(t, exitDone, "tune", "--store", dir, "--yaml").stdout, "store: \""+dir+"\"")
	if after := treeDigest(t, dir); after != before {
		t.Error("tune changed something")
	}
}

func TestTuneMeasuresThisMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	dir := t.TempDir()
	o := expect(t, exitDone, "tune", "--store", dir, "--measure", "--peer", peer.Addr().String())
	mustContain(t, o.stdout, "measured in", "fdatasync of 4 KiB", "connect to the peer", "sendfile on loopback", "first touch of pages")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTuneRefusesWhatItCannotRead(t *testing.T) {
	for _, args := range []string{"--role king", "--peer nowhere", "--ha-listen 1.2.3.4:x", "--json --yaml", "more"} {
		expect(t, exitUsage, append([]string{"tune"}, strings.Fields(args)...)...)
	}
}
