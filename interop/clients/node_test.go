package clients

import (
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/interop/rocketmq"
)

// node is a haengine node in a process of its own.
type node struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex
	said   []string
}

// serve starts a node and waits until it serves.
func serve(t testing.TB, name string, args ...string) *node {
	t.Helper()
	n := &node{t: t, name: name, exited: make(chan struct{})}
	n.cmd = exec.Command(program, append([]string{"serve", "--admin-listen", "", "--log-format", "json", "--segment-bytes", segmentBytes}, args...)...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		rocketmq.EachLine(stderr, func(line []byte) {
			n.mu.Lock()
			n.said = append(n.said, string(line))
			n.mu.Unlock()
			var s struct {
				Message string `json:"msg"`
			}
			if json.Unmarshal(line, &s) == nil && s.Message == "serving" {
				close(served) // there is one such line
			}
		})
		_ = n.cmd.Wait() // its state is told where it matters
		close(n.exited)
	}()
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("%s said:\n  %s", name, strings.Join(n.said[max(0, len(n.said)-30):], "\n  "))
		}
	})
	select {
	case <-served:
	case <-n.exited:
		t.Fatalf("%s ended: %v\n%s", name, n.cmd.ProcessState, strings.Join(n.said, "\n"))
	case <-time.After(rocketmq.Patience):
		t.Fatalf("%s does not serve within %v", name, rocketmq.Patience)
	}
	return n
}

// kill ends the node as a crash does.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // an error means that it is gone already
	<-n.exited
}
