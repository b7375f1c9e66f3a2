package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	fullFlag  = flag.Bool("full", false, "run every case, long ones included")
	tableFlag = flag.String("table", "", "write the results into this file's table")
	seedFlag  = flag.Uint64("seed", 0, "replay a test that draws; 0: a new seed")
)

// program is the haengine command, built by TestMain.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	moreSideBySide()
	dir, err := os.MkdirTemp("", "haengine-interop-")
	if err == nil {
		program = filepath.Join(dir, "haengine")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", program, "github.com/haengine/haengine/cmd/haengine").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the command: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if *tableFlag != "" {
			if err := results.write(*tableFlag); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		os.Exit(code)
	}))
}

// moreSideBySide has more cases run at once than there are processors, unless
// -parallel was given: most of a case is waiting.
func moreSideBySide() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", fmt.Sprint(2*runtime.NumCPU()))
	}
}

// patience is how long a condition may take, far beyond what it needs.
const patience = 90 * time.Second

// eventually polls until done.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}
