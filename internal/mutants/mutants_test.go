package mutants

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var all = flag.Bool("all", false, "try every mutant: some minutes")

// sampled is how many mutants are tried without -all.
const sampled = 2

// limit is how long a mutant may take, its build included. One that hangs the
// simulation is found, too.
const limit = 3 * time.Minute

// seedOfFailure is in the line that says what the simulation found.
var seedOfFailure = regexp.MustCompile(`seed \d+ at .*`)

// Each mutant fails the simulation within its seeds.
func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulation again for each mutant")
	}
	list := table
	if !*all {
		list = table[:sampled]
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			overlay, err := m.Overlay(top, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-overlay", overlay, "-run", "^("+m.Run+")$",
				"-timeout", limit.String(), "./internal/sim", "-from", "1", "-seeds", fmt.Sprint(m.Seeds))
			cmd.Dir = top
			cmd.WaitDelay = 10 * time.Second
			began := time.Now()
			out, err := cmd.CombinedOutput()
			text := string(out)
			switch {
			case err == nil:
				t.Errorf("not found in %d seeds of %s", m.Seeds, m.Run)
			case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"):
				t.Errorf("it does not build:\n%s", text)
			case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic: ") && ctx.Err() == nil:
				t.Errorf("it was not the simulation that failed:\n%s", text)
			default:
				t.Logf("found in %.0f s, %s", time.Since(began).Seconds(), found(text))
			}
		})
	}
}

// found is what the simulation says of a mutant, in one line.
func found(output string) string {
	if line := seedOfFailure.FindString(output); line != "" {
		return line
	}
	return "without a word of a checker: " + strings.TrimSpace(output[max(len(output)-300, 0):])
}

// The table names each mutant once, and what it names is there.
func TestMutantsFitTheProgram(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range table {
		if names[m.Name] || m.Name == "" || m.Seeds < 1 || m.Run == "" || m.Old == m.New {
			t.Errorf("%+v", m)
		}
		names[m.Name] = true
		if _, err := m.Overlay(top, t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if len(table) < 20 {
		t.Errorf("%d mutants", len(table))
	}
}
