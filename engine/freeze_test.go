package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childStore is the environment variable that makes the test binary another
// process: a leased master with this store.
const childStore = "ENGINE_TEST_LEASED_STORE"

// The leased master's lease and its puts, of which one of each producer is
// under way at any time.
const (
	childTTL       = time.Second
	childProducers = 8
	childBody      = 500
)

// monotonic is the machine's clock, which all its processes share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// runLeased is the other process: it puts and renews its lease without an end,
// as one whose coordinator always answers, and says all it does. A line of
// standard input names a master to follow; its end ends the process.
func runLeased(store string) error {
	e, err := Open(Options{
		Store: store, Role: SyncMaster, Leased: true, PlainIdentity: IdentityConnection, InSyncReplicas: 3, SlaveTimeout: time.Hour, HAListen: "127.0.0.1:0",
		SegmentBytes: 1 << 20, Reactors: 1, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Println("listens", e.HAAddr())
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(childTTL / 20)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			at := monotonic()
			if err := e.Renew(1, time.Now().Add(childTTL)); err != nil {
				fmt.Println("lost", err)
				return
			}
			fmt.Println("lease", int64(at+childTTL))
		}
	})
	for range childProducers {
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := e.Put(ctx, message("t", 0, strings.Repeat("x", childBody)))
				fmt.Println("put", r.Status, r.Offset, r.EndOffset, int64(monotonic()), err)
				time.Sleep(5 * time.Millisecond) // the load's pace
			}
		})
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		change, err := e.Follow(ctx, in.Text())
		fmt.Println("follows", change.EndOffset, err)
	}
	stop()
	all.Wait()
	return e.Close(context.Background())
}

// leasedChild is the other process as the test sees it.
type leasedChild struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines []string
}

func startLeased(t *testing.T, store string) *leasedChild {
	t.Helper()
	c := &leasedChild{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childStore+"="+store)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_, log := newTestLog(t, "the other process")
	c.cmd.Stderr = log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			c.mu.Lock()
			c.lines = append(c.lines, in.Text())
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-read
		_ = c.cmd.Wait()
	})
	return c
}

// said gives the lines that begin with a word, from the nth line on.
func (c *leasedChild) said(word string, from int) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.lines[from:] {
		if strings.HasPrefix(line, word+" ") {
			found = append(found, line)
		}
	}
	return found
}

func (c *leasedChild) stopped() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(b), ") ")
	return err == nil && strings.HasPrefix(after, "T")
}

// A master is frozen for longer than its lease, with puts that wait and with the
// acknowledgement that they lack on its socket; it wakes up and renews. It
// confirms nothing, closes its replicas, and follows another one as a slave.
func TestAFrozenMasterConfirmsNothingWhenItWakes(t *testing.T) {
	store := t.TempDir()
	child := startLeased(t, store)
	eventually(t, "it listens", func() bool { return len(child.said("listens", 0)) == 1 })
	master := strings.Fields(child.said("listens", 0)[0])[1]
	s := open(t, Options{Role: Slave, Master: master, HAListen: "127.0.0.1:0"})
	p := dialRawAt(t, master)
	p.report(0)
	received := int64(0)
	take := func() {
		offset, body := p.frame()
		if received == 0 {
			received = offset
		}
		received += int64(len(body))
	}
	for len(child.said("put PUT_OK", 0)) < 100 {
		take()
		p.report(received)
	}
	// From here on it acknowledges no more: all producers come to wait.
	var first, end int64
	if _, err := fmt.Sscanf(child.said("put PUT_OK", 0)[0], "put PUT_OK %d %d", &first, &end); err != nil {
		t.Fatal(err)
	}
	for acked := received; received < acked+childProducers*(end-first); {
		take()
	}
	if err := child.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is frozen", child.stopped)
	frozen := monotonic()
	p.report(received)
	child.mu.Lock()
	before := len(child.lines)
	child.mu.Unlock()
	eventually(t, "its lease is over", func() bool { return monotonic() > frozen+childTTL })
	if err := child.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.closedByPeer()
	eventually(t, "it knows", func() bool { return len(child.said("lost", before)) == 1 })
	eventually(t, "its puts have ended", func() bool {
		return len(child.said("put FLUSH_SLAVE_TIMEOUT", before)) == childProducers && len(child.said("put SERVICE_NOT_AVAILABLE", before)) > childProducers
	})
	var last int64
	leases := child.said("lease", 0)
	if _, err := fmt.Sscanf(leases[len(leases)-1], "lease %d", &last); err != nil {
		t.Fatal(err)
	}
	for _, line := range child.said("put PUT_OK", 0) {
		var from, to, at int64
		if _, err := fmt.Sscanf(line, "put PUT_OK %d %d %d", &from, &to, &at); err != nil {
			t.Fatal(err)
		}
		if at > last {
			t.Errorf("%v after the lease's end: %s", time.Duration(at-last), line)
		}
	}
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	puts(t, s, 10)
	if _, err := fmt.Fprintln(child.stdin, s.HAAddr()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it follows", func() bool {
		r := s.Status().Replicas
		return len(r) == 1 && r[0].AckedOffset == s.log.EndOffset()
	})
	if err := child.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool {
		return errors.Is(child.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) || zombie(child.cmd.Process.Pid)
	})
	a := open(t, Options{Store: store})
	sameLog(t, s, a)
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	return err == nil && strings.HasPrefix(after, "Z")
}
