package reactor

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCloseFromAnyCallbackIsToldOnce(t *testing.T) {
	closeIt := func(c *Conn) {
		c.Close(errReason)
		c.Close(io.EOF)
		c.CloseDrained(io.EOF, patience)
		if _, err := c.Readv([][]byte{make([]byte, 1)}); !errors.Is(err, ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if _, err := c.Writev([][]byte{make([]byte, 1)}); !errors.Is(err, ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
		if _, err := c.Sendfile(0, 0, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("send after close: %v", err)
		}
		c.WantWrite(true)
		c.WantRead(true)
	}
	for _, where := range []string{"accept", "readable", "writable", "timer", "waker", "posted"} {
		t.Run(where, func(t *testing.T) {
			g := open(t, Options{})
			gone := make(chan error, 4)
			inside := false
			act := func(c *Conn) {
				inside = true
				closeIt(c)
				inside = false
			}
			h := &hooks{closed: func(c *Conn, err error) {
				if inside {
					t.Error("Closed inside the call of Close")
				}
				c.Close(io.EOF)
				gone <- err
			}}
			switch where {
			case "readable":
				h.readable = act
			case "writable":
				h.writable = act
			}
			ln := listen(t, g, SocketOptions{}, func(c *Conn) Handler {
				switch where {
				case "accept":
					act(c)
				case "writable":
					c.WantWrite(true)
				case "timer":
					c.Loop().NewTimer(func() { act(c) }).ResetAt(0)
				case "waker":
					c.Loop().NewWaker(func() { act(c) }).Wake()
				case "posted":
					c.Loop().Post(func() { act(c) })
				}
				return h
			})
			raw := dialRaw(t, ln.Addr(), 0)
			defer shut(t, raw)
			writeRaw(t, raw, []byte("x"))
			if err := await(t, gone, "close"); !errors.Is(err, errReason) {
				t.Errorf("closed with %v, want the first reason", err)
			}
			on(t, g.Loop(0), func() {})
			if n := h.closes.Load(); n != 1 {
				t.Errorf("Closed was called %d times", n)
			}
		})
	}
}

func TestAnAcceptWithoutHandlerCloses(t *testing.T) {
	g := open(t, Options{})
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return nil })
	raw := dialRaw(t, ln.Addr(), 0)
	defer shut(t, raw)
	if _, err := readRaw(raw, make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
}

// Two connections have an event in one batch. Whichever comes first closes
// the other and dials: the event that is left must reach neither the closed
// connection nor the new one, which would have got its descriptor.
func TestAStaleEventReachesNobody(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	target := listen(t, g, SocketOptions{}, func(*Conn) Handler { return &hooks{} })
	for range 200 {
		var conns [2]*Conn
		var raws [2]int
		calls := 0
		fresh := make(chan *Conn, 1)
		closed := make(chan struct{}, 2)
		young := &hooks{
			readable: func(*Conn) { t.Error("the new connection got the old one's event") },
			closed:   func(*Conn, error) { closed <- struct{}{} },
		}
		for i := range conns {
			h := &hooks{closed: func(*Conn, error) { closed <- struct{}{} }}
			h.readable = func(c *Conn) {
				if calls++; calls > 1 {
					t.Error("a closed connection got an event")
					return
				}
				other := conns[1-i]
				fd := other.fd
				other.Close(nil)
				l.Dial(target.Addr(), SocketOptions{}, patience, func(c *Conn, err error) Handler {
					if err != nil {
						t.Error(err)
						return nil
					}
					if c.fd == fd && other.fd == fd {
						t.Error("descriptor reused while still in use")
					}
					fresh <- c
					return young
				})
				c.Close(nil)
			}
			raws[i], conns[i] = pair(t, g, h)
		}
		release := hold(t, l, nil)
		for _, raw := range raws {
			writeRaw(t, raw, []byte("x"))
		}
		release()
		c := await(t, fresh, "dialed connection")
		await(t, closed, "close")
		await(t, closed, "close")
		on(t, l, func() { c.Close(nil) })
		await(t, closed, "close")
		for _, raw := range raws {
			shut(t, raw)
		}
	}
}

func TestAnEventAfterDetachIsDropped(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{readable: func(*Conn) { t.Error("event of a closed connection") }})
	defer shut(t, raw)
	on(t, g.Loop(0), func() {
		fd := c.fd
		c.Close(nil)
		if w := g.Loop(0).poller.watched(fd); w != nil {
			t.Errorf("an event would reach %+v", w.owner)
		}
		if g.Loop(0).poller.watched(1<<20) != nil {
			t.Error("a descriptor without a place has a watch")
		}
	})
}

func TestCloseDrainedGetsTheLastBytesThrough(t *testing.T) {
	g := open(t, Options{})
	gone := make(chan error, 1)
	h := &hooks{closed: func(_ *Conn, err error) { gone <- err }}
	h.readable = func(c *Conn) {
		if _, err := c.Writev([][]byte{[]byte("refused")}); err != nil {
			t.Error(err)
		}
		c.CloseDrained(errReason, patience)
	}
	raw, _ := pair(t, g, h)
	// Much more than anybody reads: a plain close would reset the connection.
	writeRaw(t, raw, make([]byte, 8<<20))
	got := make([]byte, 16)
	n, err := readRaw(raw, got)
	if string(got[:n]) != "refused" || !errors.Is(err, io.EOF) {
		t.Errorf("peer got %q, %v, want the reason and the end of the stream", got[:n], err)
	}
	shut(t, raw)
	if err := await(t, gone, "close"); !errors.Is(err, errReason) {
		t.Errorf("closed with %v", err)
	}
}

func TestCloseDrainedGivesUp(t *testing.T) {
	for _, timeout := range []time.Duration{0, 5 * time.Millisecond} {
		g := open(t, Options{})
		gone := make(chan error, 1)
		raw, c := pair(t, g, &hooks{closed: func(_ *Conn, err error) { gone <- err }})
		on(t, g.Loop(0), func() { c.CloseDrained(errReason, timeout) })
		if err := await(t, gone, "close"); !errors.Is(err, errReason) {
			t.Errorf("closed with %v", err)
		}
		shut(t, raw)
	}
}

func TestReadAndWriteCanBeWantedInAnyOrder(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	var reads, writes int
	h := &hooks{
		readable: func(*Conn) { reads++ },
		writable: func(*Conn) { writes++ },
	}
	raw, c := pair(t, g, h)
	defer shut(t, raw)
	writeRaw(t, raw, []byte("x"))
	for from := range 4 {
		for to := range 4 {
			want := func(m int) {
				c.WantRead(m&1 != 0)
				c.WantWrite(m&2 != 0)
			}
			on(t, l, func() { want(from) })
			on(t, l, func() { want(to); reads, writes = 0, 0 })
			// Two turns: what is ready is reported in at least one.
			on(t, l, func() {})
			on(t, l, func() {})
			on(t, l, func() {
				if c.mode != watchMode(to) {
					t.Errorf("%d to %d: registered for %d", from, to, c.mode)
				}
				if (reads > 0) != (to&1 != 0) || (writes > 0) != (to&2 != 0) {
					t.Errorf("%d to %d: %d readable, %d writable", from, to, reads, writes)
				}
			})
		}
	}
}

func TestAnEmptyBufferIsNotTheEndOfTheStream(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	on(t, g.Loop(0), func() {
		for _, bufs := range [][][]byte{nil, {nil}, {{}, {}}} {
			if _, err := c.Readv(bufs); !errors.Is(err, ErrNoBytes) {
				t.Errorf("read: %v, want ErrNoBytes", err)
			}
			if _, err := c.Writev(bufs); !errors.Is(err, ErrNoBytes) {
				t.Errorf("write: %v, want ErrNoBytes", err)
			}
		}
	})
}

func TestManyBuffersMakeAShortCall(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	bufs := bytes.SplitAfter(bytes.Repeat([]byte("ab "), 100), []byte(" "))
	on(t, g.Loop(0), func() {
		if n, err := c.Writev(bufs); n != 3*maxVectors || err != nil {
			t.Errorf("wrote %d, %v, want the first %d buffers", n, err, maxVectors)
		}
	})
	got := make([]byte, 3*maxVectors)
	if _, err := readRaw(raw, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("ab "), maxVectors)) {
		t.Errorf("peer got %q, %v", got, err)
	}
}

func TestSocketOptionsAreSet(t *testing.T) {
	logger, lines := logSink()
	g := open(t, Options{Logger: logger})
	o := SocketOptions{
		SendBuffer: 1 << 16, ReceiveBuffer: 1 << 15, Congestion: "nosuchcontrol",
		UserTimeout: 1500 * time.Millisecond, KeepAlive: 9 * time.Second,
	}
	conns := make(chan *Conn, 2)
	take := func(c *Conn) Handler {
		conns <- c
		return &hooks{}
	}
	ln := listen(t, g, o, take)
	on(t, g.Loop(0), func() {
		g.Loop(0).Dial(ln.Addr(), o, patience, func(c *Conn, err error) Handler {
			if err != nil {
				t.Error(err)
				return nil
			}
			return take(c)
		})
	})
	for range 2 {
		c := await(t, conns, "connection")
		for name, want := range map[string][3]int{
			"nodelay":      {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			"send buffer":  {unix.SOL_SOCKET, unix.SO_SNDBUF, 1 << 17},
			"receive":      {unix.SOL_SOCKET, unix.SO_RCVBUF, 1 << 16},
			"user timeout": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1500},
			"keep-alive":   {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"idle":         {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 9},
			"interval":     {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
		} {
			var got int
			var err error
			on(t, c.Loop(), func() { got, err = unix.GetsockoptInt(c.fd, want[0], want[1]) })
			if err != nil || got != want[2] {
				t.Errorf("%s is %d, %v, want %d", name, got, err, want[2])
			}
		}
	}
	if n := lines.lines.Load(); n != 1 {
		t.Errorf("%d log lines about the congestion control, want 1", n)
	}
}

// What Closed closes is ended, too, though nothing else happens on the loop.
func TestCloseInsideClosed(t *testing.T) {
	g := open(t, Options{})
	last := make(chan error, 1)
	raw2, second := pair(t, g, &hooks{closed: func(_ *Conn, err error) { last <- err }})
	defer shut(t, raw2)
	cause := errors.New("the first one ended")
	raw1, first := pair(t, g, &hooks{closed: func(*Conn, error) { second.Close(cause) }})
	defer shut(t, raw1)
	on(t, g.Loop(0), func() { first.Close(nil) })
	if err := await(t, last, "end of the second"); err != cause {
		t.Errorf("ended with %v", err)
	}
}
