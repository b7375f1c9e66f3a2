package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/interop/rocketmq"
)

// testLog keeps what a node logs, for its test to look at and to show.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines gives the lines that contain all of the parts.
func (l *testLog) lines(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
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

// node is a node of ours in this process.
type node struct {
	*engine.Engine
	t       testing.TB
	store   string
	log     *testLog
	damaged bool // its log is meant to be: a close may say so
}

// open opens a node; it is closed with the test if it is not before.
func open(t testing.TB, o engine.Options) *node {
	t.Helper()
	n := &node{t: t, log: &testLog{}}
	if o.Store == "" {
		o.Store = filepath.Join(t.TempDir(), "ours")
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytes
	}
	if o.Reactors == 0 {
		o.Reactors = 1
	}
	o.Logger = slog.New(slog.NewTextHandler(n.log, nil))
	n.store = o.Store
	e, err := engine.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Engine = e
	t.Cleanup(func() {
		n.close()
		if t.Failed() {
			t.Logf("log of %s %s:\n%s", o.Role, n.store, strings.Join(n.log.lines(""), ""))
		}
	})
	return n
}

func openMaster(t testing.TB, o engine.Options) *node {
	t.Helper()
	if o.HAListen == "" {
		o.HAListen = "127.0.0.1:0"
	}
	return open(t, o)
}

func openSlave(t testing.TB, master string, o engine.Options) *node {
	t.Helper()
	o.Role, o.Master = engine.Slave, master
	return open(t, o)
}

func (n *node) address() string { return n.HAAddr().String() }

// close ends the node; more calls are harmless.
func (n *node) close() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Close(ctx); err != nil && !(n.damaged && errors.Is(err, commitlog.ErrReadOnly)) {
		n.t.Errorf("close: %v", err)
	}
}

// has waits until the node holds and has queued the log up to an offset.
func (n *node) has(offset int64) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s holds the log up to %d", n.store, offset), func() bool { return n.Status().QueuedOffset >= offset })
	if end := n.Status().MaxOffset; end != offset {
		n.t.Fatalf("%s ends at %d, want %d", n.store, end, offset)
	}
}

// acked waits until so many replicas have acknowledged everything.
func (n *node) acked(replicas int) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%d replicas hold everything", replicas), func() bool {
		s, level := n.Status(), 0
		for _, r := range s.Replicas {
			if r.AckedOffset == s.MaxOffset {
				level++
			}
		}
		return level >= replicas
	})
}

// haengine runs the command.
func haengine(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("haengine %s: %v\n%s%s", strings.Join(args, " "), err, stderr.Bytes(), out)
	}
	return out
}

// ends gives a store's range as a start would find it.
func ends(t testing.TB, store string) (low, high int64) {
	t.Helper()
	var info struct {
		Min int64 `json:"min_offset"`
		Max int64 `json:"max_offset"`
	}
	if err := json.Unmarshal(haengine(t, "log", "info", "--store", store, "--json"), &info); err != nil {
		t.Fatal(err)
	}
	return info.Min, info.Max
}

// checksum is the SHA-256 of the log's bytes in [from, to), read from the files.
func checksum(t testing.TB, store string, from, to int64) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(store, "commitlog", "0*"))
	if err != nil {
		t.Fatal(err)
	}
	sum, at := sha256.New(), from
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		base, err := strconv.ParseInt(filepath.Base(name), 10, 64)
		if err != nil || base > at || base+info.Size() <= at || at >= to {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(sum, io.NewSectionReader(f, at-base, min(to, base+info.Size())-at))
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if at != to {
		t.Fatalf("%s has no bytes from %d to %d", store, at, to)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// messages are the lines of a dump from an offset on.
func messages(t testing.TB, dump []byte, from int64) (lines []string) {
	t.Helper()
	s := bufio.NewScanner(bytes.NewReader(dump))
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		var m struct {
			Offset *int64 `json:"physicOffset"`
		}
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Fatalf("a dump has %.200q: %v", s.Bytes(), err)
		}
		if m.Offset != nil && *m.Offset >= from {
			lines = append(lines, s.Text())
		}
	}
	return lines
}

// mustMatch wants two stores to hold one log from offset 0 on: the same bytes,
// and the same messages as RocketMQ decodes them. On the newest version our own
// decoder must say the same to the byte, on 4.9 find as many, up to the same
// offset. It returns how many messages there are.
func (v version) mustMatch(t testing.TB, a, b string) (count int) {
	t.Helper()
	return v.mustMatchFrom(t, 0, a, b)
}

// mustMatchFrom is mustMatch where one of the logs begins later, at from.
func (v version) mustMatchFrom(t testing.TB, from int64, a, b string) (count int) {
	t.Helper()
	lowA, highA := ends(t, a)
	lowB, highB := ends(t, b)
	if low := max(lowA, lowB); highA != highB || low != from {
		t.Fatalf("%s holds %d to %d, %s %d to %d; want the same end, and both from %d on", a, lowA, highA, b, lowB, highB, from)
	}
	if x, y := checksum(t, a, from, highA), checksum(t, b, from, highA); x != y {
		t.Fatalf("%s and %s differ in [%d, %d): %s and %s", a, b, from, highA, x, y)
	}
	theirs := messages(t, v.output(t, "dump", "--store", a), from)
	ours := messages(t, haengine(t, "log", "dump", "--store", b, "--json"), from)
	if len(theirs) == 0 {
		t.Fatalf("no message in [%d, %d)", from, highA)
	}
	mustAgree(t, theirs, messages(t, v.output(t, "dump", "--store", b), from))
	if v == v5 {
		mustAgree(t, theirs, ours)
	} else if n := len(theirs); n != len(ours) || offsetOf(t, theirs[n-1]) != offsetOf(t, ours[n-1]) {
		t.Fatalf("RocketMQ decodes %d messages of %s, we %d", n, a, len(ours))
	}
	haengine(t, "log", "verify", "--store", b)
	return len(theirs)
}

func mustAgree(t testing.TB, a, b []string) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d messages and %d", len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("message %d of %d:\n%s\n%s", i, len(a), a[i], b[i])
		}
	}
}

// daemon is a node of ours in a process of its own, which can be killed.
type daemon struct {
	t       testing.TB
	store   string
	cmd     *exec.Cmd
	exited  chan struct{}
	serving servingLine
	mu      sync.Mutex
	puts    map[string]int // ended puts of --load by status
	said    []string
}

type servingLine struct {
	Message  string `json:"msg"`
	HAListen string `json:"ha_listen"`
	Max      int64  `json:"max_offset"`
}

// serve starts haengine serve on a store and waits until it serves.
func serve(t testing.TB, store string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, store: store, exited: make(chan struct{}), puts: map[string]int{}}
	d.cmd = exec.Command(program, append([]string{"serve", "--store", store, "--admin-listen", "", "--client-listen", "", "--log-format", "json", "--segment-bytes", fmt.Sprint(segmentBytes)}, args...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	served := make(chan servingLine, 1)
	var readers sync.WaitGroup
	readers.Go(func() {
		rocketmq.EachLine(stdout, func(line []byte) {
			var put struct {
				Status string `json:"status"`
			}
			if json.Unmarshal(line, &put) == nil {
				d.mu.Lock()
				d.puts[put.Status]++
				d.mu.Unlock()
			}
		})
	})
	readers.Go(func() {
		rocketmq.EachLine(stderr, func(line []byte) {
			d.mu.Lock()
			d.said = append(d.said, string(line))
			d.mu.Unlock()
			var s servingLine
			if json.Unmarshal(line, &s) == nil && s.Message == "serving" {
				served <- s // there is one such line
			}
		})
	})
	go func() {
		readers.Wait()
		_ = d.cmd.Wait() // its state is asked for where it matters
		close(d.exited)
	}()
	t.Cleanup(d.kill)
	select {
	case d.serving = <-served:
	case <-d.exited:
		t.Fatalf("haengine serve ended: %v\n%s", d.cmd.ProcessState, strings.Join(d.said, "\n"))
	case <-time.After(patience):
		t.Fatalf("haengine serve does not serve within %v", patience)
	}
	return d
}

// count counts the ended puts of a status.
func (d *daemon) count(status string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.puts[status]
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // an error means that it is gone already
	<-d.exited
}
