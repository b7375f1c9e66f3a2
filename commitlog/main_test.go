package commitlog

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childMode is the environment variable that makes the test binary another
// process of a test: it names what to do, childStore where.
const (
	childMode  = "COMMITLOG_TEST_CHILD"
	childStore = "COMMITLOG_TEST_STORE"
)

func TestMain(m *testing.M) {
	children := map[string]func(dir string) error{
		"hold":  holdStore,
		"write": writeUntilKilled,
	}
	if child := children[os.Getenv(childMode)]; child != nil {
		if err := child(os.Getenv(childStore)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
