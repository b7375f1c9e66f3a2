package reactor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const pingBytes = 128

// pinger plays ping-pong from a loop: each answer sends the next.
type pinger struct {
	left int
	bufs [1][]byte
	done chan struct{}
}

func (p *pinger) Readable(c *Conn) {
	if _, err := c.Readv(p.bufs[:]); err != nil {
		if !errors.Is(err, ErrWouldBlock) {
			c.Close(err)
		}
		return
	}
	if p.left--; p.left == 0 {
		p.done <- struct{}{}
		return
	}
	p.send(c)
}

func (p *pinger) send(c *Conn) {
	if _, err := c.Writev(p.bufs[:]); err != nil {
		c.Close(err)
	}
}

func (p *pinger) Writable(*Conn)      {}
func (p *pinger) Closed(*Conn, error) {}

// pingLoops makes a pinger on a loop of g, and an echo on another group's, as
// in two processes.
func pingLoops(t testing.TB, o Options) (p *pinger, c *Conn) {
	o.Loops = 1
	g, other := open(t, o), open(t, o)
	ln := listen(t, other, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	p = &pinger{done: make(chan struct{}, 1)}
	p.bufs[0] = make([]byte, pingBytes)
	connected := make(chan *Conn, 1)
	on(t, g.Loop(0), func() {
		g.Loop(0).Dial(ln.Addr(), SocketOptions{}, patience, func(c *Conn, err error) Handler {
			if err != nil {
				t.Error(err)
				return nil
			}
			connected <- c
			return p
		})
	})
	return p, await(t, connected, "connection")
}

func (p *pinger) play(c *Conn, rounds int) {
	c.Loop().Post(func() {
		p.left = rounds
		p.send(c)
	})
	<-p.done
}

// epollEnd is one side of a ping-pong with nothing but system calls: wait in
// epoll, read, write.
type epollEnd struct{ fd, epoll int }

func newEpollEnd(t testing.TB, fd int) epollEnd {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, fd); shut(t, epoll) })
	return epollEnd{fd, epoll}
}

func (e epollEnd) wait(events []unix.EpollEvent) {
	for {
		if n, err := unix.EpollWait(e.epoll, events, -1); n > 0 || !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// epollPingPong returns the time of one round of the bare ping-pong.
func epollPingPong(t testing.TB, rounds int) time.Duration {
	fds, err := tcpPair(t)
	if err != nil {
		t.Fatal(err)
	}
	a, b := newEpollEnd(t, fds[0]), newEpollEnd(t, fds[1])
	done := make(chan struct{})
	go func() {
		defer close(done)
		var buf [pingBytes]byte
		events := make([]unix.EpollEvent, 4)
		for range rounds {
			b.wait(events)
			_, _ = unix.Read(b.fd, buf[:])
			_, _ = unix.Write(b.fd, buf[:])
		}
	}()
	start := time.Now()
	var buf [pingBytes]byte
	events := make([]unix.EpollEvent, 4)
	for range rounds {
		_, _ = unix.Write(a.fd, buf[:])
		a.wait(events)
		_, _ = unix.Read(a.fd, buf[:])
	}
	<-done
	return time.Since(start) / time.Duration(rounds)
}

// tcpPair returns two ends of a connection, both without Nagle's delay.
func tcpPair(t testing.TB) ([2]int, error) {
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return [2]int{}, err
	}
	defer unix.Close(ln)
	if err := unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return [2]int{}, err
	}
	if err := unix.Listen(ln, 1); err != nil {
		return [2]int{}, err
	}
	addr, err := localAddr(ln)
	if err != nil {
		return [2]int{}, err
	}
	near := dialRaw(t, addr, 0)
	far, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	if err != nil {
		return [2]int{}, err
	}
	return [2]int{near, far}, unix.SetsockoptInt(far, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func benchmarkPingPong(b *testing.B, o Options) {
	p, c := pingLoops(b, o)
	p.play(c, 100)
	b.ReportAllocs()
	b.ResetTimer()
	// Turn and turn about with the limit, so that both see the same machine.
	const slice = 2000
	var limit time.Duration
	slices := 0
	for left := b.N; left > 0; left -= slice {
		p.play(c, min(left, slice))
		b.StopTimer()
		limit += epollPingPong(b, slice)
		slices++
		b.StartTimer()
	}
	b.StopTimer()
	round := float64(b.Elapsed()) / float64(b.N)
	b.ReportMetric(round/(float64(limit)/float64(slices)), "of-epoll")
}

// One outstanding 128-byte message between two loops, as a multiple of the
// same with bare epoll.
func BenchmarkPingPong(b *testing.B) { benchmarkPingPong(b, Options{}) }

func BenchmarkPingPongSpinning(b *testing.B) {
	benchmarkPingPong(b, Options{Spin: 200 * time.Microsecond})
}

// A wake from another goroutine to a loop that is mostly awake.
func BenchmarkWake(b *testing.B) {
	g := open(b, Options{})
	waker := g.Loop(0).NewWaker(func() {})
	b.ReportAllocs()
	for b.Loop() {
		waker.Wake()
	}
}

func BenchmarkMoveTimer(b *testing.B) {
	g := open(b, Options{})
	l := g.Loop(0)
	b.ReportAllocs()
	on(b, l, func() {
		for range 100 {
			l.NewTimer(func() {}).ResetAt(l.Now() + time.Hour)
		}
		moved := l.NewTimer(func() {})
		at := l.Now() + time.Minute
		for b.Loop() {
			at++
			moved.ResetAt(at)
		}
	})
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	zero := func(t *testing.T, what string, runs int, fn func()) {
		t.Helper()
		if n := testing.AllocsPerRun(runs, fn); n != 0 {
			t.Errorf("%s: %v allocations, want 0", what, n)
		}
	}
	p, c := pingLoops(t, Options{})
	p.play(c, 10)
	start := func() {
		p.left = 100
		p.send(c)
	}
	zero(t, "ping-pong of 100 rounds between two loops", 20, func() {
		c.Loop().Post(start)
		<-p.done
	})

	l := c.Loop()
	waker := l.NewWaker(func() { p.done <- struct{}{} })
	zero(t, "wake", 100, func() {
		waker.Wake()
		<-p.done
	})

	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	raw, sender := pair(t, open(t, Options{}), &hooks{})
	defer shut(t, raw)
	got := make([]byte, 4096)
	bufs := [][]byte{got[:100], nil, got[100:200]}
	timer := sender.Loop().NewTimer(func() {})
	on(t, sender.Loop(), func() {
		zero(t, "sendfile, writev, reads that would block, interest, timers", 100, func() {
			if _, err := sender.Sendfile(fd, 0, 3896); err != nil {
				t.Error(err)
			}
			if _, err := sender.Writev(bufs); err != nil {
				t.Error(err)
			}
			if _, err := sender.Readv(bufs); !errors.Is(err, ErrWouldBlock) {
				t.Error(err)
			}
			sender.WantWrite(true)
			sender.WantWrite(false)
			timer.ResetAt(Now() + time.Hour)
			timer.Stop()
			if _, err := readRaw(raw, got); err != nil {
				t.Error(err)
			}
		})
	})
	on(t, sender.Loop(), func() {
		full := func() error {
			_, err := sender.Sendfile(fd, 0, 4096)
			return err
		}
		for full() == nil {
		}
		zero(t, "calls on a socket that is full", 100, func() {
			if err := full(); !errors.Is(err, ErrWouldBlock) {
				t.Error(err)
			}
			if _, err := sender.Writev(bufs); !errors.Is(err, ErrWouldBlock) {
				t.Error(err)
			}
		})
	})
}
