package reactor

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience bounds every wait of these tests. None is expected to last.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		starvedChild()
		return
	}
	goleak.VerifyTestMain(m)
}

// open starts a group that ends with the test.
func open(t testing.TB, o Options) *Group {
	t.Helper()
	if o.Loops == 0 {
		o.Loops = 1
	}
	g, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// on runs fn on the loop and waits for it.
func on(t testing.TB, l *Loop, fn func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); fn() }) {
		t.Fatal("loop is closed")
	}
	await(t, done, "function on the loop")
}

func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s after %v", what, patience)
		panic("unreachable")
	}
}

// hold keeps the loop busy until the returned function is called, so that
// what happens meanwhile arrives as one batch of events. then, if given, runs
// on the loop before it looks at the batch.
func hold(t testing.TB, l *Loop, then func()) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	l.Post(func() {
		close(held)
		<-free
		if then != nil {
			then()
		}
	})
	await(t, held, "hold of the loop")
	return func() { close(free) }
}

// hooks is a Handler of functions; those missing do nothing.
type hooks struct {
	readable func(c *Conn)
	writable func(c *Conn)
	closed   func(c *Conn, err error)
	closes   atomic.Int32
}

func (h *hooks) Readable(c *Conn) {
	if h.readable != nil {
		h.readable(c)
	}
}

func (h *hooks) Writable(c *Conn) {
	if h.writable != nil {
		h.writable(c)
	}
}

func (h *hooks) Closed(c *Conn, err error) {
	h.closes.Add(1)
	if h.closed != nil {
		h.closed(c, err)
	}
}

// collect is a handler that reads everything until the end of the stream, and
// hands over what it got and why it ended.
func collect() (*hooks, <-chan ended) {
	out := make(chan ended, 1)
	var got []byte
	buf := [][]byte{make([]byte, 4096)}
	h := &hooks{}
	h.readable = func(c *Conn) {
		for {
			n, err := c.Readv(buf)
			got = append(got, buf[0][:n]...)
			if errors.Is(err, ErrWouldBlock) {
				return
			}
			if err != nil {
				c.Close(err)
				return
			}
		}
	}
	h.closed = func(_ *Conn, err error) { out <- ended{string(got), err} }
	return h, out
}

type ended struct {
	got string
	err error
}

func listen(t testing.TB, g *Group, o SocketOptions, accept func(c *Conn) Handler) *Listener {
	t.Helper()
	ln, err := g.Listen("127.0.0.1:0", o, accept)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// dialRaw makes a blocking socket, connected to addr, that knows no runtime.
func dialRaw(t testing.TB, addr netip.AddrPort, receiveBuffer int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if receiveBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			t.Fatal(err)
		}
	}
	timeout := unix.NsecToTimeval(int64(patience))
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &timeout); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		t.Fatal(err)
	}
	sa := &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	err = unix.Connect(fd, sa)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EALREADY) {
		err = unix.Connect(fd, sa)
	}
	if err != nil && !errors.Is(err, unix.EISCONN) {
		t.Fatal(err)
	}
	return fd
}

// pair connects a raw socket to a connection of loop 0 with handler h.
func pair(t testing.TB, g *Group, h Handler) (raw int, c *Conn) {
	t.Helper()
	accepted := make(chan *Conn, 1)
	ln := listen(t, g, SocketOptions{}, func(c *Conn) Handler {
		accepted <- c
		return h
	})
	raw = dialRaw(t, ln.Addr(), 0)
	c = await(t, accepted, "accepted connection")
	ln.Close()
	on(t, c.Loop(), func() {}) // the handler is in place
	return raw, c
}

// reset closes a raw socket with RST.
func reset(t testing.TB, fd int) {
	t.Helper()
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	shut(t, fd)
}

func shut(t testing.TB, fd int) {
	t.Helper()
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

func writeRaw(t testing.TB, fd int, b []byte) {
	t.Helper()
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
}

// readRaw fills b; it returns what it got when the stream ends before.
func readRaw(fd int, b []byte) (int, error) {
	got := 0
	for got < len(b) {
		n, err := unix.Read(fd, b[got:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return got, err
		}
		if n == 0 {
			return got, io.EOF
		}
		got += n
	}
	return got, nil
}

// echo writes back what it reads, and keeps what the socket does not take.
type echo struct {
	buf     []byte
	from    int // buf[from:to] is not written yet
	to      int
	vectors [1][]byte
}

func newEcho() *echo { return &echo{buf: make([]byte, 8192)} }

func (e *echo) Readable(c *Conn) {
	e.vectors[0] = e.buf
	n, err := c.Readv(e.vectors[:])
	if err != nil {
		if !errors.Is(err, ErrWouldBlock) {
			c.Close(err)
		}
		return
	}
	e.from, e.to = 0, n
	e.Writable(c)
}

func (e *echo) Writable(c *Conn) {
	for e.from < e.to {
		e.vectors[0] = e.buf[e.from:e.to]
		n, err := c.Writev(e.vectors[:])
		if errors.Is(err, ErrWouldBlock) {
			break
		}
		if err != nil {
			c.Close(err)
			return
		}
		e.from += n
	}
	c.WantRead(e.from == e.to)
	c.WantWrite(e.from < e.to)
}

func (e *echo) Closed(*Conn, error) {}

// dialGo connects with the net package, for tests that want a net.Conn.
func dialGo(t testing.TB, addr netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// logSink counts log lines by message.
func logSink() (*slog.Logger, *countingWriter) {
	w := &countingWriter{first: make(chan struct{})}
	return slog.New(slog.NewTextHandler(w, nil)), w
}

type countingWriter struct {
	lines atomic.Int32
	first chan struct{} // closed at the first line
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.lines.Add(1) == 1 {
		close(w.first)
	}
	return len(b), nil
}
