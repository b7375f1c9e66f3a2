package tune

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "write the golden advice as it is now")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lookAt reads a described machine, and what was measured there.
func lookAt(t *testing.T, name string) (Machine, *Measured, Plan) {
	t.Helper()
	root, system, rest := fixture.Machine(t, filepath.Join("testdata", name+".machine"))
	var told struct {
		Store, Listen, Peer string
		Role                Role
	}
	if err := json.Unmarshal([]byte(rest["plan"]), &told); err != nil {
		t.Fatal(err)
	}
	plan := Plan{Place: Place{Store: told.Store, Listen: address(told.Listen), Peer: address(told.Peer)}, Role: told.Role}
	var got *Measured
	if text := rest["measured"]; text != "" {
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
	}
	return Look(root, system, plan.Place), got, plan
}

// address is zero for an empty text.
func address(s string) (a netip.AddrPort) {
	if s != "" {
		a = netip.MustParseAddrPort(s)
	}
	return a
}

// Each described machine gets the advice that stands beside it.
func TestMachinesGetTheirAdvice(t *testing.T) {
	files, err := filepath.Glob("testdata/*.machine")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %d machines", err, len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".machine")
		t.Run(name, func(t *testing.T) {
			m, measured, plan := lookAt(t, name)
			var told strings.Builder
			m.Print(&told)
			for _, s := range m.Unseen {
				fmt.Fprintf(&told, "  unseen  %s\n", s)
			}
			for _, a := range Advise(m, measured, plan) {
				fmt.Fprintf(&told, "\n%s %s %s: %s", a.Verdict, a.Kind, a.Name, a.Default)
				if a.Value != "" {
					fmt.Fprintf(&told, " → %s", a.Value)
				}
				fmt.Fprintf(&told, "\n  %s [%s]\n", a.Reason, a.Source)
				if a.Command != "" {
					fmt.Fprintf(&told, "  $ %s\n", a.Command)
				}
			}
			golden := filepath.Join("testdata", name+".advice")
			want, err := os.ReadFile(golden)
			if *rewrite {
				if err := os.WriteFile(golden, []byte(told.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if told.String() != string(want) {
				t.Errorf("other advice than in %s (go test ./internal/tune -run %s -rewrite, then read the diff); now:\n%s", golden, t.Name(), told.String())
			}
		})
	}
}
