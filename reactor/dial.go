package reactor

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Dialing is a connection being made. Loop-confined.
type Dialing struct {
	watch
	loop    *Loop
	fd      int // -1: none
	peer    netip.AddrPort
	done    func(c *Conn, err error) Handler
	timer   *Timer
	settled bool
	err     error
}

// Dial connects to addr. done is called once, never inside this call: with
// the connection, and returns its handler (nil closes it); or with an error
// (its result does not matter then): an *OpError that names the address and,
// where it applies, is ErrTimeout, ErrCanceled or ErrClosed. After ErrClosed
// the loop is ending, and a new Dial fails the same way. A timeout of 0
// leaves it to the kernel, which takes minutes. Loop-confined.
func (l *Loop) Dial(addr netip.AddrPort, o SocketOptions, timeout time.Duration, done func(c *Conn, err error) Handler) *Dialing {
	d := &Dialing{loop: l, fd: -1, peer: addr, done: done}
	d.timer = l.NewTimer(func() { d.fail(ErrTimeout, nil) })
	if l.stopping {
		d.fail(ErrClosed, nil)
		return d
	}
	fd, err := l.group.dialSocket(addr, o)
	if err != nil {
		d.fail(nil, err)
		return d
	}
	d.fd = fd
	l.poller.attach(&d.watch, fd, d)
	if err := l.poller.watch(&d.watch, watchWrite); err != nil {
		d.fail(nil, err)
		return d
	}
	if timeout > 0 {
		d.timer.ResetAt(Now() + timeout)
	}
	return d
}

// Cancel gives up: done is told ErrCanceled at the end of the turn. It does
// nothing if the dial is over. Loop-confined.
func (d *Dialing) Cancel() { d.fail(ErrCanceled, nil) }

// ready is called when the kernel is done connecting.
func (d *Dialing) ready(uint32) {
	d.loop.busy = true
	if err := socketError(d.fd); err != nil {
		d.fail(nil, err)
		return
	}
	peer, err := peerAddr(d.fd)
	if err != nil {
		d.fail(nil, err)
		return
	}
	local, err := localAddr(d.fd)
	if err != nil {
		d.fail(nil, err)
		return
	}
	if local == peer {
		// A free port of this machine, dialed, can be given to the dialing
		// socket itself: TCP's simultaneous open.
		d.fail(nil, unix.ECONNREFUSED)
		return
	}
	d.settle()
	fd := d.fd
	d.fd = -1
	c := d.loop.newConn(fd, peer, local)
	c.start(d.done(c, nil))
}

func (d *Dialing) settle() {
	d.settled = true
	d.timer.Stop()
	d.loop.poller.detach(&d.watch)
}

func (d *Dialing) fail(kind, cause error) {
	if d.settled {
		return
	}
	d.settle()
	d.err = &OpError{Op: "dial", Peer: d.peer, Kind: kind, Err: cause}
	d.loop.later(d)
}

func (d *Dialing) end() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
	d.done(nil, d.err)
}

func (d *Dialing) abandon(error) { d.fail(ErrClosed, nil) }
