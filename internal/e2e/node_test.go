package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a condition may take. It is far beyond what a quiet
// machine needs, so that a busy one fails no test.
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

// daemon is how a node is started.
type daemon struct {
	store string              // empty: a new one
	args  []string            // of serve
	wrap  []string            // a command that runs the daemon under its own process id, as strace -D
	user  *syscall.Credential // nil: the test's
}

// node is a running daemon. Its methods may be called by any goroutine, but
// those that take a testing.TB end that test.
type node struct {
	store   string
	cmd     *exec.Cmd
	serving servingLine
	served  chan servingLine // gets one line, when the node serves
	exited  chan struct{}    // closed when the process is gone and its output was read
	mu      struct {
		sync.Mutex
		log  []string
		puts []put
	}
}

// servingLine is what a daemon logs once it serves.
type servingLine struct {
	Message      string `json:"msg"`
	HAListen     string `json:"ha_listen"`
	AdminListen  string `json:"admin_listen"`
	MinOffset    int64  `json:"min_offset"`
	MaxOffset    int64  `json:"max_offset"`
	SegmentBytes int64  `json:"segment_bytes"`
	State        string `json:"state"`
	Reason       string `json:"reason"`
}

// start starts the daemon and does not wait for anything. It is killed at the
// end of the test if it is still there.
func (d daemon) start(t testing.TB) *node {
	t.Helper()
	if d.store == "" {
		d.store = filepath.Join(t.TempDir(), "store")
	}
	line := append(append([]string{}, d.wrap...), program, "serve", "--store", d.store,
		"--admin-listen", "127.0.0.1:0", "--client-listen", "", "--segment-bytes", "1MiB", "--log-format", "json")
	line = append(line, d.args...)
	n := &node{
		store: d.store, cmd: exec.Command(line[0], line[1:]...),
		served: make(chan servingLine, 1), exited: make(chan struct{}),
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HAENGINE_") {
			n.cmd.Env = append(n.cmd.Env, v)
		}
	}
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: d.user}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { eachLine(stdout, n.printed) })
	readers.Go(func() { eachLine(stderr, n.logged) })
	go func() {
		readers.Wait()
		_ = n.cmd.Wait() // its state is asked for where it matters
		close(n.exited)
	}()
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("log of %s:\n  %s", n.store, strings.Join(n.tail(40), "\n  "))
		}
	})
	return n
}

// serve starts the daemon and waits until it serves.
func (d daemon) serve(t testing.TB) *node {
	t.Helper()
	n := d.start(t)
	n.waitServing(t)
	return n
}

// serveMaster starts a master on a store, a new one if the name is empty, and
// waits until it serves.
func serveMaster(t testing.TB, store string, args ...string) *node {
	t.Helper()
	return daemon{store: store, args: masterArgs(args...)}.serve(t)
}

func masterArgs(args ...string) []string {
	return append([]string{"--ha-listen", "127.0.0.1:0"}, args...)
}

// serveSlave starts a slave of the node that listens at an address.
func serveSlave(t testing.TB, store, master string, args ...string) *node {
	t.Helper()
	return daemon{store: store, args: slaveArgs(master, args...)}.serve(t)
}

func slaveArgs(master string, args ...string) []string {
	return append([]string{"--role", "SLAVE", "--master", master}, args...)
}

func eachLine(r io.Reader, do func([]byte)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the daemon
}

func (n *node) printed(line []byte) {
	var p put
	if err := json.Unmarshal(line, &p); err != nil {
		p.Status = fmt.Sprintf("unreadable line %q: %v", line, err)
	}
	n.mu.Lock()
	n.mu.puts = append(n.mu.puts, p)
	n.mu.Unlock()
}

func (n *node) logged(line []byte) {
	n.mu.Lock()
	n.mu.log = append(n.mu.log, string(line))
	n.mu.Unlock()
	var s servingLine
	if json.Unmarshal(line, &s) == nil && s.Message == "serving" {
		n.served <- s // there is one such line
	}
}

func (n *node) waitServing(t testing.TB) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case n.serving = <-n.served:
	case <-n.exited:
		t.Fatalf("ended with %v before it served:\n  %s", n.cmd.ProcessState, strings.Join(n.tail(20), "\n  "))
	case <-limit.C:
		t.Fatalf("does not serve within %v", patience)
	}
}

// tail gives the last lines of the log.
func (n *node) tail(most int) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string{}, n.mu.log[max(0, len(n.mu.log)-most):]...)
}

// logLines gives the log's lines that contain all of the parts.
func (n *node) logLines(parts ...string) (found []string) {
	for _, line := range n.tail(1 << 30) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

func (n *node) pid() int { return n.cmd.Process.Pid }

func (n *node) gone() bool {
	select {
	case <-n.exited:
		return true
	default:
		return false
	}
}

// runFor lets the node run for a while; it must not end.
func (n *node) runFor(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.exited:
		t.Fatalf("ended with %v:\n  %s", n.cmd.ProcessState, strings.Join(n.tail(20), "\n  "))
	}
}

// kill ends the process as a crash would.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // an error means that it is gone already
	<-n.exited
}

func (n *node) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// waitExit waits for the process to end and gives its exit code.
func (n *node) waitExit(t testing.TB) int {
	t.Helper()
	eventually(t, "the daemon ends", n.gone)
	return n.cmd.ProcessState.ExitCode()
}

// stop ends the node with SIGTERM; it must leave with exit code 0.
func (n *node) stop(t testing.TB) {
	t.Helper()
	n.signal(t, syscall.SIGTERM)
	if code := n.waitExit(t); code != 0 {
		t.Fatalf("exit code %d after SIGTERM:\n  %s", code, strings.Join(n.tail(20), "\n  "))
	}
}
