package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// program is the command under test, built by TestMain.
var program string

func TestMain(m *testing.M) {
	dir, err := buildBinary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

var seedFlag = flag.Uint64("seed", 0, "replay a test that draws; 0: a new seed")

// newDraw gives the chance of one test and prints its seed.
func newDraw(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Logf("seed %d (replay: go test ./internal/e2e -run '^%s$' -seed %d)", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// buildBinary builds the command into a new directory that other users may
// enter: one test runs it as one of them.
func buildBinary() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "haengine-e2e-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "haengine")
	out, err := exec.Command("go", "build", "-o", program, "github.com/haengine/haengine/cmd/haengine").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return dir, nil
}
