package reactor

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deafAddr is an address whose backlog is full: connecting gets no answer.
func deafAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, ln) })
	if err := unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(ln, 0); err != nil {
		t.Fatal(err)
	}
	addr, err := localAddr(ln)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shut(t, fd) })
		_ = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(addr.Port())})
	}
	return addr
}

// refusedAddr is an address that nobody listens on.
func refusedAddr(t *testing.T, g *Group) netip.AddrPort {
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return nil })
	addr := ln.Addr()
	ln.Close()
	ln.Close()
	return addr
}

// dialEnd dials and returns what the callback was told. It fails the test if
// that was not exactly one call, outside of Dial.
func dialEnd(t *testing.T, l *Loop, addr netip.AddrPort, timeout time.Duration, then func(d *Dialing)) error {
	t.Helper()
	told := make(chan error, 2)
	on(t, l, func() {
		inside := true
		d := l.Dial(addr, SocketOptions{}, timeout, func(c *Conn, err error) Handler {
			if inside {
				t.Error("told inside the call of Dial")
			}
			if (c == nil) == (err == nil) {
				t.Errorf("told %v and %v", c, err)
			}
			told <- err
			return nil
		})
		if then != nil {
			then(d)
		}
		inside = false
	})
	err := await(t, told, "end of the dial")
	on(t, l, func() {})
	if len(told) > 0 {
		t.Error("told twice")
	}
	return err
}

func TestDial(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	if err := dialEnd(t, l, ln.Addr(), patience, nil); err != nil {
		t.Errorf("dial of a listener: %v", err)
	}
	cases := []struct {
		name    string
		addr    netip.AddrPort
		timeout time.Duration
		then    func(*Dialing)
		want    error
	}{
		{"refused", refusedAddr(t, g), patience, nil, unix.ECONNREFUSED},
		{"timeout", deafAddr(t), 20 * time.Millisecond, nil, ErrTimeout},
		{"canceled", deafAddr(t), patience, func(d *Dialing) { d.Cancel(); d.Cancel() }, ErrCanceled},
		{"no address", netip.AddrPort{}, patience, nil, unix.EAFNOSUPPORT},
		{"unknown zone", netip.MustParseAddrPort("[fe80::1%nosuch]:1"), patience, nil, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			err := dialEnd(t, l, tc.addr, tc.timeout, tc.then)
			var op *OpError
			if !errors.As(err, &op) || op.Op != "dial" || op.Peer != tc.addr {
				t.Errorf("got %v, want a dial error that names %v", err, tc.addr)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestADialedConnectionWorks(t *testing.T) {
	g := open(t, Options{Loops: 2})
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	h, out := collect()
	read := h.readable
	h.readable = func(c *Conn) {
		read(c)
		c.Close(nil)
	}
	on(t, g.Loop(1), func() {
		g.Loop(1).Dial(ln.Addr(), SocketOptions{}, patience, func(c *Conn, err error) Handler {
			if err != nil {
				t.Error(err)
				return nil
			}
			if c.RemoteAddr() != ln.Addr() || c.Loop() != g.Loop(1) {
				t.Errorf("connected to %v on another loop than asked", c.RemoteAddr())
			}
			if _, err := c.Writev([][]byte{[]byte("hello")}); err != nil {
				t.Error(err)
			}
			return h
		})
	})
	if end := await(t, out, "close"); end.got != "hello" || end.err != nil {
		t.Errorf("got %q, %v", end.got, end.err)
	}
}

func TestClosingTheGroupEndsDials(t *testing.T) {
	g, err := Open(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	addr := deafAddr(t)
	told := make(chan error, 4)
	l := g.Loop(0)
	on(t, l, func() {
		l.Dial(addr, SocketOptions{}, 0, func(_ *Conn, err error) Handler {
			told <- err
			// Too late; told so like everybody else.
			l.Dial(addr, SocketOptions{}, 0, func(_ *Conn, err error) Handler {
				told <- err
				return nil
			})
			return nil
		})
	})
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := await(t, told, "end of the dial"); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

func TestAClosedListenersPortIsFreeAtOnce(t *testing.T) {
	g := open(t, Options{Loops: 2})
	addr := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	for range 50 {
		addr.Close()
		next, err := g.Listen(addr.Addr().String(), SocketOptions{}, func(*Conn) Handler { return newEcho() })
		if err != nil {
			t.Fatal(err)
		}
		addr = next
		raw := dialRaw(t, addr.Addr(), 0)
		writeRaw(t, raw, []byte("x"))
		if _, err := readRaw(raw, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		shut(t, raw)
	}
	if _, err := g.Listen(addr.Addr().String(), SocketOptions{}, nil); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("second listener on the port: %v, want EADDRINUSE", err)
	}
	if _, err := g.Listen("127.0.0.1:nosuch", SocketOptions{}, nil); err == nil {
		t.Error("listening on a port that is no number")
	}
}
