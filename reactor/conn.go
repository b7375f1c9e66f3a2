package reactor

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haengine/haengine/internal/invariant"
)

// Handler is told what happens on a connection. All calls come on the
// connection's loop, one at a time, and must not block.
type Handler interface {
	// Readable is called while there is something to read: bytes, the end of
	// the stream, or an error. It should read until ErrWouldBlock, until Drained, or
	// until it has done enough for one turn; it is called again for what is left.
	Readable(c *Conn)
	// Writable is called while the socket takes bytes and WantWrite is on.
	Writable(c *Conn)
	// Closed is called once, as the last thing, at the end of the turn in
	// which the connection was closed, with the reason given to Close. The
	// descriptor is closed then.
	Closed(c *Conn, err error)
}

type connState uint8

const (
	connOpen connState = iota
	connDraining
	connClosed
)

// Conn is a TCP connection. Loop-confined, all of it, except Loop, ID and the
// addresses, which never change.
type Conn struct {
	watch
	loop    *Loop
	fd      int // -1 once closed
	id      uint64
	peer    netip.AddrPort
	local   netip.AddrPort
	handler Handler // nil until the accept or dial callback returned it

	state     connState
	started   bool // has a handler, and with it a place in the epoll set
	wantRead  bool
	wantWrite bool
	drained   bool // the last read got less than it asked for
	// progress counts the calls that were served or told to come back. A
	// hang-up event after which it stands still would come back forever.
	progress uint64
	readErr  error  // the end of the stream or a hard error: what reads return from here on
	writeErr error  // the peer is gone, as seen by a write
	err      error  // reason for Closed
	drain    *Timer // gives up draining
	// writeSeen: writeErr was returned to the handler.
	writeSeen bool
}

// newConn takes over a connected descriptor.
func (l *Loop) newConn(fd int, peer, local netip.AddrPort) *Conn {
	c := &Conn{loop: l, fd: fd, id: l.group.ids.Add(1), peer: peer, local: local, wantRead: true}
	l.poller.attach(&c.watch, fd, c)
	return c
}

// start gives the connection its handler; without one it is closed.
func (c *Conn) start(h Handler) {
	if h == nil {
		c.Close(nil)
		return
	}
	c.handler, c.started = h, true
	c.apply()
}

// Open tells that the connection was not closed, nor drained. Loop-confined.
func (c *Conn) Open() bool { return c.state == connOpen }

// Loop returns the loop that owns the connection. Any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// ID names the connection: no other of the group ever has the same. Any
// goroutine.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address. Any goroutine.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.peer }

// LocalAddr returns our address of the connection. Any goroutine.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// WantRead turns Readable on, as it is at the start, or off. While both are
// off a hang-up goes unnoticed. Free of system calls if nothing changes.
func (c *Conn) WantRead(on bool) {
	if c.wantRead != on {
		c.wantRead = on
		c.apply()
	}
}

// WantWrite turns Writable on or, as it is at the start, off. It should be on
// only while there is something to write, else Writable is called without
// end. Free of system calls if nothing changes.
func (c *Conn) WantWrite(on bool) {
	if c.wantWrite != on {
		c.wantWrite = on
		c.apply()
	}
}

// apply registers what is wanted.
func (c *Conn) apply() {
	if !c.started || c.state == connClosed {
		return
	}
	mode := watchNone
	if c.wantRead && c.readErr == nil || c.state == connDraining {
		mode |= watchRead
	}
	if c.wantWrite && c.writeErr == nil && c.state == connOpen {
		mode |= watchWrite
	}
	if err := c.loop.poller.watch(&c.watch, mode); err != nil {
		c.Close(&OpError{Op: "register", Peer: c.peer, Err: err})
	}
}

// ready hands an event to the handler: data before the hang-up.
func (c *Conn) ready(events uint32) {
	c.loop.busy = true
	if c.state == connDraining {
		c.drop()
		return
	}
	before := c.progress
	hungUp := events&eventHangUp != 0
	// A hang-up is something to read, and something to write into: both
	// calls say what it is.
	if c.mode&watchRead != 0 && (hungUp || events&eventRead != 0) {
		c.handler.Readable(c)
	}
	if c.mode&watchWrite != 0 && (hungUp || events&eventWrite != 0) {
		c.handler.Writable(c)
	}
	if c.state != connOpen {
		return
	}
	switch {
	// What the handler was told and let pass.
	case c.readErr != nil && !errors.Is(c.readErr, io.EOF):
		c.Close(c.readErr)
	case c.writeSeen:
		c.Close(c.writeErr)
	case hungUp && c.progress == before:
		c.Close(c.hangUp())
	}
}

// hangUp is the best name for why the peer is gone.
func (c *Conn) hangUp() error {
	if c.writeErr != nil {
		return c.writeErr
	}
	if err := socketError(c.fd); err != nil {
		return &OpError{Op: "wait", Peer: c.peer, Kind: ErrHungUp, Err: err}
	}
	return &OpError{Op: "wait", Peer: c.peer, Kind: ErrHungUp}
}

// Close closes the connection. Nothing is read, written or announced from
// here on; Closed(err) comes at the end of the turn, never inside this call.
// What was written is still sent, unless bytes from the peer are unread: the
// kernel then resets the connection, and the peer may lose what it has not
// read. CloseDrained avoids that. A second call does nothing.
func (c *Conn) Close(err error) {
	if c.state == connClosed {
		return
	}
	if c.state == connOpen {
		c.err = err
	} else {
		c.drain.Stop()
	}
	c.state = connClosed
	c.loop.poller.detach(&c.watch)
	c.loop.later(c)
}

// CloseDrained sends what was written and the end of the stream, then reads
// and drops what the peer still sends until it closes too or timeout is over.
// Then comes Closed(err); Readable and Writable do not come any more. So the
// peer gets our last bytes, with the reason they may hold.
func (c *Conn) CloseDrained(err error, timeout time.Duration) {
	if c.state != connOpen {
		return
	}
	if timeout <= 0 || c.readErr != nil || c.writeErr != nil || unix.Shutdown(c.fd, unix.SHUT_WR) != nil {
		c.Close(err)
		return
	}
	c.state, c.err = connDraining, err
	c.drain = c.loop.NewTimer(func() { c.Close(nil) })
	c.drain.ResetAt(Now() + timeout)
	c.apply()
}

// drop reads and forgets, a few MiB in a turn.
func (c *Conn) drop() {
	for range 4 {
		n, errno := discard(c.fd)
		if errno == unix.EAGAIN {
			return
		}
		if errno != 0 || n == 0 {
			c.Close(nil)
			return
		}
	}
}

// end closes the descriptor, at the end of the turn.
func (c *Conn) end() {
	invariant.Check(c.state == connClosed && c.fd >= 0, "connection ended twice")
	_ = unix.Close(c.fd)
	c.fd = -1
	if c.handler != nil {
		c.handler.Closed(c, c.err)
	}
}

func (c *Conn) abandon(err error) { c.Close(err) }
