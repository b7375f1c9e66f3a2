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
	"time"
)

// child is a node of this program in a process of its own, as demo and bench
// use it. Its methods may be called from any goroutine.
type child struct {
	name    string
	cmd     *exec.Cmd
	serving chan servingLine // gets one line, when the node serves
	exited  chan struct{}    // closed when the process is gone and its output read
	mu      struct {
		sync.Mutex
		tail []string // last lines of its log
		err  error    // of the process, once exited
	}
}

// servingLine is the line "serving" of a node's JSON log.
type servingLine struct {
	Message       string `json:"msg"`
	HAListen      string `json:"ha_listen"`
	AdminListen   string `json:"admin_listen"`
	ClientListen  string `json:"client_listen"`
	NamesrvListen string `json:"namesrv_listen"`
	Advertised    string `json:"advertised"`
	MinOffset     int64  `json:"min_offset"`
	MaxOffset     int64  `json:"max_offset"`
}

// tailLines is how much of a child's log is kept for an error message.
const tailLines = 8

// startChild runs this program with args. Each line of its stdout goes to
// line, from one goroutine; nil drops them. The child is killed when this
// process dies.
func startChild(name string, line func([]byte), args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	c := &child{name: name, cmd: exec.Command(self, args...), serving: make(chan servingLine, 1), exited: make(chan struct{})}
	c.cmd.Env = childEnvironment(os.Environ())
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // own group: ctrl-C reaches the parent only
	stdout, err1 := c.cmd.StdoutPipe()
	stderr, err2 := c.cmd.StderrPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { readLines(stdout, line) })
	readers.Go(func() { readLines(stderr, c.logged) })
	go func() {
		readers.Wait()
		err := c.cmd.Wait()
		c.mu.Lock()
		c.mu.err = err
		c.mu.Unlock()
		close(c.exited)
	}()
	return c, nil
}

// childEnvironment leaves out the settings of this process: a child gets its
// own by flag.
func childEnvironment(environ []string) (kept []string) {
	for _, v := range environ {
		if !strings.HasPrefix(v, envPrefix) {
			kept = append(kept, v)
		}
	}
	return kept
}

func readLines(r io.Reader, line func([]byte)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		if line != nil {
			line(s.Bytes())
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the child
}

func (c *child) logged(line []byte) {
	c.mu.Lock()
	if len(c.mu.tail) == tailLines {
		c.mu.tail = c.mu.tail[1:]
	}
	c.mu.tail = append(c.mu.tail, string(line))
	c.mu.Unlock()
	var s servingLine
	if json.Unmarshal(line, &s) == nil && s.Message == "serving" {
		select {
		case c.serving <- s:
		default:
		}
	}
}

// failure is err with the last lines of the child's log.
func (c *child) failure(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%s: %w; its last lines:\n  %s", c.name, err, strings.Join(c.mu.tail, "\n  "))
}

// waitServing waits until the node serves.
func (c *child) waitServing(ctx context.Context) (servingLine, error) {
	select {
	case s := <-c.serving:
		return s, nil
	case <-c.exited:
		return servingLine{}, c.failure(errors.New("ended before it served"))
	case <-ctx.Done():
		return servingLine{}, c.failure(fmt.Errorf("does not serve: %w", context.Cause(ctx)))
	}
}

// kill ends the process at once, as a crash would, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it is gone already
	<-c.exited
}

// stop asks the node to end and waits for it; after a while it is killed.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone already
	late := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	<-c.exited
	c.mu.Lock()
	err := c.mu.err
	c.mu.Unlock()
	if err != nil {
		return c.failure(fmt.Errorf("did not end cleanly: %w", err))
	}
	return nil
}

// gone tells whether the process has ended.
func (c *child) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}
