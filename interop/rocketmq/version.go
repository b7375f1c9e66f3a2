package rocketmq

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Version is a version of RocketMQ.
type Version string

// The newest that is published whole, and the last of 4.9, of which the broker's
// parts are published up to 4.9.7 only.
const (
	V5       Version = "5.5.0"
	V4       Version = "4.9.8"
	V4Broker Version = "4.9.7"
)

// Need leaves the test out where the real one cannot run. With INTEROP_REQUIRED
// in the environment that is a failure.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts JVMs")
	}
	for _, tool := range []string{"java", "javac", "mvn"} {
		_, err := exec.LookPath(tool)
		if err != nil && required() {
			t.Fatalf("INTEROP_REQUIRED is set, and Java 17 and Maven are not there: %v", err)
		}
		if err != nil {
			t.Skipf("needs Java 17 and Maven: %v", err)
		}
	}
}

func required() bool { return os.Getenv("INTEROP_REQUIRED") != "" }

// Kit is what a version is run with.
type Kit struct {
	Version Version
	Broker  bool     // with broker, name server and the clients' scenarios
	Env     []string // more environment
}

// builds are the builds of run.sh, each made once.
var builds sync.Map // of name to func() error

func (k Kit) environ() []string {
	env := append(os.Environ(), "INTEROP_ROCKETMQ="+string(k.Version))
	if os.Getenv("INTEROP_HEAP") == "" {
		env = append(env, "INTEROP_HEAP=-Xms128m -Xmx768m")
	}
	if k.Broker {
		env = append(env, "INTEROP_BROKER=1")
	}
	return append(env, k.Env...)
}

// Build makes sure that the version can be run. The test is left out if its parts
// cannot be had, or fails with INTEROP_REQUIRED.
func (k Kit) Build(t testing.TB) {
	t.Helper()
	once, _ := builds.LoadOrStore(fmt.Sprint(k.Version, k.Broker), sync.OnceValue(func() error {
		script, err := script()
		if err != nil {
			return err
		}
		cmd := exec.Command(script, "build")
		cmd.Env = k.environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build RocketMQ %s: %w\n%s", k.Version, err, out)
		}
		return nil
	}))
	err := once.(func() error)()
	if err != nil && !required() {
		t.Skipf("needs RocketMQ's artifacts, Java 17 and Maven (INTEROP_REQUIRED=1 makes this a failure): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Launch starts a command of run.sh.
func (k Kit) Launch(t testing.TB, args ...string) *Process {
	t.Helper()
	k.Build(t)
	script, err := script()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, args...)
	cmd.Env = k.environ()
	return Start(t, fmt.Sprintf("RocketMQ %s %s", k.Version, args[0]), cmd)
}

// Output runs a command of run.sh to its end.
func (k Kit) Output(t testing.TB, args ...string) []byte {
	t.Helper()
	k.Build(t)
	script, err := script()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, args...)
	cmd.Env = k.environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("RocketMQ %s %s: %v\n%s%s", k.Version, strings.Join(args, " "), err, stderr.Bytes(), out[max(0, len(out)-2000):])
	}
	return out
}

// script finds run.sh from where a test runs: its package's directory.
func script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		name := filepath.Join(dir, "interop", "run.sh")
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("interop/run.sh is in no directory above this one")
		}
		dir = up
	}
}
