package reactor

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	acceptsPerTurn = 64
	// acceptPause is how long a listener waits when the machine has no
	// descriptor or memory for a connection.
	acceptPause = 200 * time.Millisecond
)

// Listener accepts connections on one loop and spreads them over all.
//
// It keeps a descriptor in reserve. When the process has none left, that one
// is closed to accept the peer and turn it away at once, instead of leaving
// it in the backlog with an event that never goes silent.
type Listener struct {
	watch
	loop    *Loop
	addr    netip.AddrPort
	options SocketOptions
	accept  func(c *Conn) Handler

	fd      int // loop-confined, as the rest of these; -1 once closed
	reserve int // -1: lost to somebody else
	paused  *Timer
	trouble quiet

	mu struct {
		sync.Mutex
		closed bool
		fd     int // what Close may shut down
	}
}

// Listen accepts TCP connections on addr, "host:port"; port 0 picks a free
// one. For each connection accept runs on the loop that will own it and
// returns its handler; nil closes it. Any goroutine but a loop's: it waits for
// one, and resolving a host name takes its time.
func (g *Group) Listen(addr string, o SocketOptions, accept func(c *Conn) Handler) (*Listener, error) {
	fd, err := g.listenSocket(addr, o)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	ln := &Listener{loop: g.Next(), options: o, accept: accept, fd: fd, reserve: openReserve()}
	ln.mu.fd = fd
	if ln.addr, err = localAddr(fd); err != nil {
		ln.end()
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	registered := make(chan error, 1)
	if !ln.loop.Post(func() { registered <- ln.start() }) {
		ln.end()
		return nil, fmt.Errorf("listen on %s: %w", addr, ErrClosed)
	}
	if err := <-registered; err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return ln, nil
}

// Addr returns the address listened on. Any goroutine.
func (ln *Listener) Addr() netip.AddrPort { return ln.addr }

// Close stops listening: the kernel refuses connections, and the port can be
// listened on again, when it returns. An accept callback may still be under
// way. A second call does nothing. Any goroutine.
func (ln *Listener) Close() {
	ln.mu.Lock()
	if !ln.mu.closed {
		ln.mu.closed = true
		_ = unix.Shutdown(ln.mu.fd, unix.SHUT_RDWR)
	}
	ln.mu.Unlock()
	ln.loop.Post(func() { ln.abandon(ErrClosed) })
}

func (ln *Listener) start() error {
	if ln.loop.stopping {
		ln.end()
		return ErrClosed
	}
	ln.paused = ln.loop.NewTimer(ln.resume)
	ln.loop.poller.attach(&ln.watch, ln.fd, ln)
	if err := ln.loop.poller.watch(&ln.watch, watchRead); err != nil {
		ln.abandon(err)
		return err
	}
	return nil
}

// ready accepts what is waiting.
func (ln *Listener) ready(uint32) {
	for range acceptsPerTurn {
		fd, sa, err := unix.Accept4(ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch errnoOf(err) {
		case 0:
			ln.spread(fd, fromSockaddr(sa))
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
			unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH, unix.EPERM, unix.ETIMEDOUT:
			// The connection that was waiting is gone: accept(2), "error
			// handling".
		case unix.EMFILE:
			if !ln.turnAway(err) {
				return
			}
		case unix.EINVAL, unix.EBADF: // shut down by Close
			ln.abandon(ErrClosed)
			return
		default: // ENFILE, ENOBUFS, ENOMEM
			ln.pause(err)
			return
		}
	}
}

// turnAway spends the reserve on one waiting connection. It returns false
// when there was none to spend; the listener is paused then.
func (ln *Listener) turnAway(cause error) bool {
	if ln.reserve < 0 {
		ln.pause(cause)
		return false
	}
	ln.complain("out of file descriptors: connections are turned away", cause)
	_ = unix.Close(ln.reserve)
	fd, _, err := unix.Accept4(ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == nil {
		_ = unix.Close(fd)
	}
	// Somebody else may have taken the place meanwhile.
	ln.reserve = openReserve()
	if ln.reserve < 0 || err != nil && errnoOf(err) != unix.EAGAIN {
		ln.pause(cause)
		return false
	}
	return err == nil
}

// pause stops accepting for a while.
func (ln *Listener) pause(cause error) {
	ln.complain("connections cannot be accepted: waiting", cause)
	_ = ln.loop.poller.watch(&ln.watch, watchNone)
	ln.paused.ResetAt(Now() + acceptPause)
}

func (ln *Listener) resume() {
	if ln.reserve < 0 {
		ln.reserve = openReserve()
	}
	if err := ln.loop.poller.watch(&ln.watch, watchRead); err != nil {
		ln.pause(err)
	}
}

func (ln *Listener) complain(what string, cause error) {
	if skipped, ok := ln.trouble.allow(ln.loop.now); ok {
		ln.loop.group.logger.Error(what, "listen", ln.addr, "error", cause, "unreported", skipped)
	}
}

// spread hands a connection to its loop.
func (ln *Listener) spread(fd int, peer netip.AddrPort) {
	owner := ln.loop.group.Next()
	if owner == ln.loop {
		ln.adopt(owner, fd, peer)
		return
	}
	if !owner.Post(func() { ln.adopt(owner, fd, peer) }) {
		_ = unix.Close(fd)
	}
}

// adopt makes a connection of fd. It runs on the connection's loop.
func (ln *Listener) adopt(l *Loop, fd int, peer netip.AddrPort) {
	if l.stopping {
		_ = unix.Close(fd)
		return
	}
	local, err := localAddr(fd)
	if err == nil {
		err = l.group.applyOptions(fd, ln.options)
	}
	if err != nil { // EINVAL if the peer has reset it already
		_ = unix.Close(fd)
		return
	}
	c := l.newConn(fd, peer, local)
	c.start(ln.accept(c))
}

// abandon stops the listener, on its loop.
func (ln *Listener) abandon(error) {
	if ln.owner == nil {
		return // closed already
	}
	ln.paused.Stop()
	ln.loop.poller.detach(&ln.watch)
	ln.loop.later(ln)
}

func (ln *Listener) end() {
	ln.mu.Lock()
	ln.mu.closed = true
	_ = unix.Close(ln.fd)
	ln.mu.Unlock()
	if ln.reserve >= 0 {
		_ = unix.Close(ln.reserve)
	}
	ln.fd, ln.reserve = -1, -1
}

// openReserve returns -1 if there is no descriptor to have.
func openReserve() int {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
