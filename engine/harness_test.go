package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if store := os.Getenv(childStore); store != "" {
		if err := runLeased(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const testTimeout = 20 * time.Second

// testLog keeps what a node logs and shows it when its test fails.
type testLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newTestLog(t testing.TB, name string) (*slog.Logger, *testLog) {
	l := &testLog{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, l.String())
		}
	})
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})), l
}

// open starts a node with small segments on a directory of its own, unless o
// says otherwise, and closes it with the test.
func open(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Store == "" {
		o.Store = t.TempDir()
	}
	if o.Logger == nil {
		o.Logger, _ = newTestLog(t, o.Role.String()+" "+o.Store)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 1 << 20
	}
	if o.Reactors == 0 {
		o.Reactors = 1
	}
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, e) })
	return e
}

func shut(t testing.TB, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func openMaster(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.HAListen == "" {
		o.HAListen = "127.0.0.1:0"
	}
	return open(t, o)
}

func openSlave(t testing.TB, master *Engine, o Options) *Engine {
	t.Helper()
	o.Role, o.Master = Slave, master.HAAddr().String()
	return open(t, o)
}

// eventually waits for a condition; what says what was waited for.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(testTimeout); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

func context20(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func message(topic string, queue int32, body string) *Message {
	return &Message{Topic: topic, QueueID: queue, Body: []byte(body)}
}

func mustPut(t testing.TB, e *Engine, m *Message) PutResult {
	t.Helper()
	r, err := e.Put(context20(t), m)
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	return r
}

// waitReplicas waits until the master shows n replicas.
func waitReplicas(t testing.TB, master *Engine, n int) {
	t.Helper()
	eventually(t, "replicas joined", func() bool { return len(master.Status().Replicas) == n })
}

// sameLog fails unless both logs have the same range and bytes.
func sameLog(t testing.TB, a, b *Engine) {
	t.Helper()
	from, to := a.log.MinOffset(), a.log.EndOffset()
	if bf, bt := b.log.MinOffset(), b.log.EndOffset(); bf != from || bt != to {
		t.Fatalf("ranges differ: [%d, %d) and [%d, %d)", from, to, bf, bt)
	}
	sameBytes(t, a, b, from, to)
}

// sameBytes fails unless both logs hold the same bytes from one offset to
// another.
func sameBytes(t testing.TB, a, b *Engine, from, to int64) {
	t.Helper()
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := from; at < to; {
		n, err := a.log.ReadAt(x, at)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		m, err := b.log.ReadAt(y[:n], at)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if string(x[:m]) != string(y[:m]) || m == 0 {
			t.Fatalf("logs differ in [%d, %d)", at, at+int64(n))
		}
		at += int64(m)
	}
}

// rawPeer is a TCP peer that speaks bytes.
type rawPeer struct {
	t testing.TB
	net.Conn
}

func dialRaw(t testing.TB, master *Engine) *rawPeer {
	t.Helper()
	return dialRawAt(t, master.HAAddr().String())
}

func dialRawAt(t testing.TB, addr string) *rawPeer {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &rawPeer{t: t, Conn: c}
}

func (p *rawPeer) report(offset int64) {
	p.t.Helper()
	p.send(binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

func (p *rawPeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatalf("raw peer writes: %v", err)
	}
}

// frame reads one frame.
func (p *rawPeer) frame() (offset int64, body []byte) {
	p.t.Helper()
	var header [12]byte
	if _, err := io.ReadFull(p, header[:]); err != nil {
		p.t.Fatalf("raw peer reads a header: %v", err)
	}
	body = make([]byte, binary.BigEndian.Uint32(header[8:]))
	if _, err := io.ReadFull(p, body); err != nil {
		p.t.Fatalf("raw peer reads a body: %v", err)
	}
	return int64(binary.BigEndian.Uint64(header[:])), body
}

// readUntil reads frames until the stream reaches end, and checks that they
// join.
func (p *rawPeer) readUntil(from, end int64) {
	p.t.Helper()
	for at := from; at < end; {
		offset, body := p.frame()
		if offset != at {
			p.t.Fatalf("frame at offset %d, want %d", offset, at)
		}
		at += int64(len(body))
	}
}

// closedByPeer reads until the other side closes, and returns what came before.
func (p *rawPeer) closedByPeer() []byte {
	p.t.Helper()
	got, err := io.ReadAll(p)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatal("the connection was not closed")
	}
	return got
}
