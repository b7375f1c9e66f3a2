package rocketmq

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long an answer may take, far beyond what it needs.
const Patience = 180 * time.Second

// Event is a line that a process prints.
type Event map[string]any

// Number is a field's value; 0 if there is none.
func (e Event) Number(name string) int64 {
	n, _ := e[name].(json.Number)
	i, err := n.Int64()
	if err != nil {
		f, _ := n.Float64()
		return int64(f)
	}
	return i
}

// Float is a field's value; 0 if there is none.
func (e Event) Float(name string) float64 {
	n, _ := e[name].(json.Number)
	f, _ := n.Float64()
	return f
}

// Process is a running process. One goroutine may give it commands and await
// their answers; Kill may be called from any.
type Process struct {
	// Events are the lines with a field "event", in order. Closed at its end.
	Events <-chan Event

	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan Event
	exited chan struct{}
	said   struct {
		sync.Mutex
		lines []string
	}
}

// Start starts a command, whose standard streams must not be set.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	events := make(chan Event, 4096)
	p := &Process{t: t, name: name, cmd: cmd, events: events, Events: events, exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { EachLine(stdout, p.heard) })
	readers.Go(func() { EachLine(stderr, func(line []byte) { p.say("stderr: " + string(line)) }) })
	go func() {
		readers.Wait()
		_ = p.cmd.Wait() // its state is asked for where it matters
		close(p.events)
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s said:\n  %s", p.name, strings.Join(p.Tail(30), "\n  "))
		}
	})
	return p
}

// Name says what is running.
func (p *Process) Name() string { return p.name }

// EachLine reads lines up to the end.
func EachLine(r io.Reader, do func([]byte)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the process
}

func (p *Process) heard(line []byte) {
	p.say(string(line))
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var e Event
	if err := d.Decode(&e); err == nil && e["event"] != nil {
		p.events <- e
	}
}

func (p *Process) say(line string) {
	p.said.Lock()
	defer p.said.Unlock()
	if len(line) > 400 {
		line = line[:400] + "…"
	}
	p.said.lines = append(p.said.lines, line)
}

// Tail gives the last lines that the process printed.
func (p *Process) Tail(most int) []string {
	p.said.Lock()
	defer p.said.Unlock()
	return append([]string{}, p.said.lines[max(0, len(p.said.lines)-most):]...)
}

// Await waits for an event and passes over others.
func (p *Process) Await(name string) Event {
	p.t.Helper()
	e, err := p.Wait(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// Wait is Await with an error: the process ended, failed, or says nothing.
func (p *Process) Wait(name string) (Event, error) {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-p.events:
			switch {
			case !ok:
				return nil, fmt.Errorf("%s ended with %v before it said %q:\n  %s", p.name, p.cmd.ProcessState, name, strings.Join(p.Tail(20), "\n  "))
			case e["event"] == name:
				return e, nil
			case e["event"] == "failed":
				return nil, fmt.Errorf("%s failed: %v", p.name, e)
			}
		case <-limit.C:
			return nil, fmt.Errorf("%s did not say %q within %v:\n  %s", p.name, name, Patience, strings.Join(p.Tail(20), "\n  "))
		}
	}
}

// Order gives a command, whose answer is awaited apart.
func (p *Process) Order(command string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		p.t.Fatalf("%s takes no command: %v\n  %s", p.name, err, strings.Join(p.Tail(20), "\n  "))
	}
}

// Ask gives a command and waits for its answer.
func (p *Process) Ask(command, answer string) Event {
	p.t.Helper()
	p.Order(command)
	return p.Await(answer)
}

// EndInput ends its standard input, which has it stop.
func (p *Process) EndInput() { p.stdin.Close() }

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State is nil until the process is gone.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Quit ends the process as a stop does, and gives its last word.
func (p *Process) Quit() Event {
	p.t.Helper()
	p.EndInput()
	e := p.Await("closed")
	<-p.exited
	return e
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it is gone already
	for range p.events {
		continue // its reader must not wait for us
	}
	<-p.exited
}

// FreePort finds a TCP port that nobody listens on, nor on the one two below,
// under those that the kernel gives to outgoing connections: it stays free while
// its node is down.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		if free(port) && free(port-2) {
			return port
		}
	}
	t.Fatal("no free port between 20000 and 30000")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}
