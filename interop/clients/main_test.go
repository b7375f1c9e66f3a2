package clients

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

var (
	fullFlag    = flag.Bool("full", false, "every client, cluster and scenario")
	tableFlag   = flag.String("table", "", "write the results into this page's table")
	rewriteFlag = flag.Bool("rewrite", false, "write testdata/results.txt from what RocketMQ's brokers gave; read the difference")
)

// program is the haengine command, goProgram the scenarios of the client for Go;
// both are built by TestMain.
var program, goProgram string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "haengine-clients-")
	if err == nil {
		program, goProgram = filepath.Join(dir, "haengine"), filepath.Join(dir, "goclient")
		err = build("", program, "github.com/haengine/haengine/cmd/haengine")
	}
	if err == nil && *fullFlag {
		err = build("../goclient", goProgram, ".") // a module of its own
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// gnet starts the goroutines of its worker pool when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

func build(dir, to, what string) error {
	cmd := exec.Command("go", "build", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, out)
	}
	return nil
}
