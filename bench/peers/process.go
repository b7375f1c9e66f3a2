package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// statusOK is the status of a put that was acknowledged.
const statusOK = "PUT_OK"

// event is a line that a process prints; the fields are those of
// interop/README.md. A nil figure was not measured.
type event struct {
	Event  string `json:"event"`
	Reason string `json:"reason,omitempty"` // of a failure, or why nobody is in sync

	Address string `json:"address,omitempty"` // serving: where others connect

	Messages int64            `json:"messages,omitempty"` // phase, as all up to Status
	Seconds  float64          `json:"seconds,omitempty"`
	P50      *float64         `json:"p50_us,omitempty"`
	P99      *float64         `json:"p99_us,omitempty"`
	P999     *float64         `json:"p999_us,omitempty"`
	Max      *float64         `json:"max_us,omitempty"`
	Status   map[string]int64 `json:"status,omitempty"`

	InSync bool `json:"in_sync,omitempty"` // wait

	MaxOffset int64  `json:"max_offset,omitempty"` // status: one past what the node holds, in the peer's unit
	Leader    string `json:"leader,omitempty"`     // status: who leads, where that is not the driver's matter
}

// process is a part of a running peer.
type process struct {
	name   string
	load   bool // it is only there to put
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan event
	exited chan struct{} // closed when it is gone and its output read
	said   struct {
		sync.Mutex
		lines []string // the last ones, for an error message
	}
}

// launch starts a program. It is killed when this process dies.
func launch(name string, environ []string, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), events: make(chan event, 64), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // own group: ctrl-C reaches the runner only
	stdin, err0 := p.cmd.StdinPipe()
	stdout, err1 := p.cmd.StdoutPipe()
	stderr, err2 := p.cmd.StderrPipe()
	if err := errors.Join(err0, err1, err2); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.stdin = stdin
	var readers sync.WaitGroup
	readers.Go(func() { eachLine(stdout, p.heard) })
	readers.Go(func() { eachLine(stderr, func(line []byte) { p.say(string(line)) }) })
	go func() {
		readers.Wait()
		_ = p.cmd.Wait() // who cares asks why it said no more
		close(p.exited)
	}()
	return p, nil
}

// launchNode starts this program as a part of a peer; see node.go.
func launchNode(name, kind string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	return launch(name, nil, self, append([]string{nodeVerb, kind}, args...)...)
}

func eachLine(r io.Reader, do func([]byte)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the process
}

// heard takes an event in. One that nobody waits for is dropped when there are
// too many.
func (p *process) heard(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Event == "" {
		p.say(string(line))
		return
	}
	select {
	case p.events <- e:
	default:
	}
}

func (p *process) say(line string) {
	const most, wide = 8, 400
	p.said.Lock()
	defer p.said.Unlock()
	if len(line) > wide {
		line = line[:wide] + "…"
	}
	if len(p.said.lines) == most {
		p.said.lines = p.said.lines[1:]
	}
	p.said.lines = append(p.said.lines, line)
}

// failure is err with the last lines that the process said.
func (p *process) failure(err error) error {
	p.said.Lock()
	defer p.said.Unlock()
	if len(p.said.lines) == 0 {
		return fmt.Errorf("%s: %w; it said nothing", p.name, err)
	}
	return fmt.Errorf("%s: %w; its last lines:\n  %s", p.name, err, strings.Join(p.said.lines, "\n  "))
}

// await waits for an event and passes over others; "failed" is an error.
func (p *process) await(ctx context.Context, name string) (event, error) {
	for {
		e, err := p.next(ctx)
		switch {
		case err != nil:
			return event{}, p.failure(fmt.Errorf("no %s: %w", name, err))
		case e.Event == name:
			return e, nil
		case e.Event == "failed":
			return event{}, p.failure(fmt.Errorf("no %s: %s", name, e.Reason))
		case e.Event == "unknown":
			return event{}, p.failure(fmt.Errorf("no %s: the command is not known there", name))
		}
	}
}

// errEnded means that a process is gone, and all that it printed was heard.
var errEnded = errors.New("it has ended")

func (p *process) next(ctx context.Context) (event, error) {
	select {
	case e := <-p.events:
		return e, nil
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	case <-p.exited:
		select {
		case e := <-p.events: // its last words
			return e, nil
		default:
			return event{}, errEnded
		}
	}
}

// ask gives a command and waits for its answer. One at a time.
func (p *process) ask(ctx context.Context, command, answer string) (event, error) {
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		return event{}, p.failure(fmt.Errorf("say %q: %w", command, err))
	}
	return p.await(ctx, answer)
}

// kill ends the process at once and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it is gone already
	<-p.exited
	_ = p.stdin.Close()
}
