package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sendLoad is producers in one goroutine: connections of its own on one epoll,
// and sends that are copied from a template, so that the load takes as little as
// can be of the processors that it shares with what it measures.
type sendLoad struct {
	template *sendTemplate
	poll     int
	timer    int // a timerfd in poll; armed with a rate only
	conns    []*sendConn
	most     int     // under way on each connection
	rate     float64 // messages a second that are due; 0: as many as may be under way

	in, out []byte // shared by the connections
	events  []unix.EpollEvent
	number  int64 // of the next message, over all rounds
	turn    int   // the connection that is next to send, with a rate

	// Of one round:
	begun   time.Time
	issued  int64 // with a rate: messages whose time has come and that were sent
	result  *sendRound
	sending bool
}

// sendRound is what one round did.
type sendRound struct {
	messages int64           // that were stored, as their answers say
	codes    map[int32]int64 // answers that say something else
	took     time.Duration
	latency  *latencies // of messages; with a rate from the time that each was due
	cpu      time.Duration
	broker   time.Duration // CPU time of the broker's processes
}

// sendConn is one producer's connection.
type sendConn struct {
	fd     int
	begun  []time.Duration // by slot, since the round began
	free   []int           // slots
	held   []byte          // an answer that has come in part
	unsent []byte          // what the kernel did not take
}

const (
	loadBuffer  = 256 << 10
	notUnderWay = -1
)

func newSendLoad(template *sendTemplate, addr string, connections, most int, rate float64) (l *sendLoad, err error) {
	l = &sendLoad{
		template: template, poll: -1, timer: -1, most: most, rate: rate,
		in: make([]byte, loadBuffer), out: make([]byte, 0, loadBuffer+len(template.frame)), events: make([]unix.EpollEvent, 256),
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return l, os.NewSyscallError("epoll_create1", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return l, os.NewSyscallError("timerfd_create", err)
	}
	if err := l.watch(unix.EPOLL_CTL_ADD, l.timer, -1, unix.EPOLLIN); err != nil {
		return l, err
	}
	for i := range connections {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return l, err
		}
		fd, err := ownSocket(conn.(*net.TCPConn))
		conn.Close()
		if err != nil {
			return l, err
		}
		c := &sendConn{fd: fd, begun: make([]time.Duration, most)}
		for slot := range most {
			c.begun[slot] = notUnderWay
			c.free = append(c.free, most-1-slot)
		}
		l.conns = append(l.conns, c)
		if err := l.watch(unix.EPOLL_CTL_ADD, fd, i, unix.EPOLLIN); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *sendLoad) close() {
	for _, c := range l.conns {
		unix.Close(c.fd)
	}
	for _, fd := range []int{l.poll, l.timer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// watch has the events of a connection reported by its number.
func (l *sendLoad) watch(op, fd, number int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(number)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poll, op, fd, &e))
}

// drainTimeout is how long a round waits for the answers of its last messages.
const drainTimeout = 15 * time.Second

// run sends for d and waits until everything is answered.
func (l *sendLoad) run(ctx context.Context, d time.Duration) (*sendRound, error) {
	l.result = &sendRound{codes: map[int32]int64{}, latency: new(latencies)}
	l.begun, l.issued, l.sending = time.Now(), 0, true
	cpu := cpuTime(nil)
	if err := l.sendAll(); err != nil {
		return nil, err
	}
	for {
		now := time.Since(l.begun)
		if now >= d || ctx.Err() != nil {
			l.sending = false
			if l.underWay() == 0 {
				break
			}
		}
		if now > d+drainTimeout {
			return nil, fmt.Errorf("%d messages are not answered %v after the last was sent", l.underWay(), drainTimeout)
		}
		if err := l.wait(d - now); err != nil {
			return nil, err
		}
	}
	l.result.took = time.Since(l.begun)
	l.result.cpu = cpuTime(nil) - cpu
	return l.result, ctx.Err()
}

func (l *sendLoad) underWay() (n int) {
	for _, c := range l.conns {
		n += l.most - len(c.free)
	}
	return n
}

// wait handles what the connections have, which it waits for until left is over,
// or the next message is due.
func (l *sendLoad) wait(left time.Duration) error {
	if err := l.arm(left); err != nil {
		return err
	}
	n, err := unix.EpollWait(l.poll, l.events, 100)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("epoll_wait", err)
	}
	for _, e := range l.events[:max(n, 0)] {
		if e.Fd < 0 {
			var count [8]byte
			_, _ = unix.Read(l.timer, count[:]) // what it says is known
			continue
		}
		c := l.conns[e.Fd]
		if e.Events&unix.EPOLLOUT != 0 {
			if err := l.flush(c, int(e.Fd)); err != nil {
				return err
			}
		}
		if e.Events&^unix.EPOLLOUT != 0 {
			if err := l.read(c); err != nil {
				return err
			}
		}
		if l.rate == 0 && l.sending {
			if err := l.fill(c, int(e.Fd)); err != nil {
				return err
			}
		}
	}
	if l.rate > 0 && l.sending {
		return l.sendAll()
	}
	return nil
}

// arm sets the timer to when the next message is due, or the round is over.
func (l *sendLoad) arm(left time.Duration) error {
	if l.rate == 0 {
		return nil
	}
	next := max(min(l.due(l.issued)-time.Since(l.begun), left), time.Microsecond)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(next))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(l.timer, 0, &spec, nil))
}

// due is when a message is to be sent, with a rate.
func (l *sendLoad) due(message int64) time.Duration {
	return time.Duration(float64(message) / l.rate * float64(time.Second))
}

// sendAll sends what each connection may, or what is due: connections take turns,
// and what finds none free goes as soon as one is. Its latency counts from when
// it was due, so that a broker that is slow cannot hide it.
func (l *sendLoad) sendAll() error {
	if l.rate == 0 {
		for i, c := range l.conns {
			if err := l.fill(c, i); err != nil {
				return err
			}
		}
		return nil
	}
	now := time.Since(l.begun)
	for full := 0; full < len(l.conns) && l.due(l.issued) <= now; {
		i := l.turn
		l.turn = (l.turn + 1) % len(l.conns)
		c := l.conns[i]
		if len(c.free) == 0 || len(c.unsent) > 0 {
			full++
			continue
		}
		full = 0
		if err := l.send(c, i, 1); err != nil {
			return err
		}
	}
	return nil
}

// fill sends what a connection may have under way.
func (l *sendLoad) fill(c *sendConn, number int) error {
	for len(c.free) > 0 && len(c.unsent) == 0 {
		if err := l.send(c, number, len(c.free)); err != nil {
			return err
		}
	}
	return nil
}

// send sends n messages with one write, or as many as a write may have.
func (l *sendLoad) send(c *sendConn, number, n int) error {
	if len(c.unsent) > 0 || n == 0 {
		return nil
	}
	wall := time.Now()
	now := wall.Sub(l.begun)
	l.out = l.out[:0]
	for ; n > 0 && len(l.out) < loadBuffer; n-- {
		slot := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.begun[slot] = now
		if l.rate > 0 {
			c.begun[slot] = l.due(l.issued)
			l.issued++
		}
		l.out = l.template.append(l.out, slot, wall.UnixMilli(), l.number)
		l.number++
	}
	rest, err := writeSome(c.fd, l.out)
	if err != nil || len(rest) == 0 {
		return err
	}
	c.unsent = append(c.unsent[:0], rest...)
	return l.watch(unix.EPOLL_CTL_MOD, c.fd, number, unix.EPOLLIN|unix.EPOLLOUT)
}

func (l *sendLoad) flush(c *sendConn, number int) error {
	rest, err := writeSome(c.fd, c.unsent)
	if err != nil {
		return err
	}
	c.unsent = append(c.unsent[:0], rest...)
	if len(rest) > 0 {
		return nil
	}
	return l.watch(unix.EPOLL_CTL_MOD, c.fd, number, unix.EPOLLIN)
}

// writeSome writes what the kernel takes and returns the rest.
func writeSome(fd int, b []byte) ([]byte, error) {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return b, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return b, os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	return nil, nil
}

// read takes in the answers that are there.
func (l *sendLoad) read(c *sendConn) error {
	have := copy(l.in, c.held)
	n, err := unix.Read(c.fd, l.in[have:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("read", err)
	case n == 0:
		return errors.New("the broker closed a connection")
	}
	now := time.Since(l.begun)
	b := l.in[:have+n]
	for len(b) >= 4 {
		size := int(binary.BigEndian.Uint32(b)) + 4
		if size < 0 || size > loadBuffer {
			return fmt.Errorf("an answer of %d bytes", size)
		}
		if size > len(b) {
			break
		}
		if err := l.answered(c, b[:size], now); err != nil {
			return err
		}
		b = b[size:]
	}
	c.held = append(c.held[:0], b...)
	return nil
}

func (l *sendLoad) answered(c *sendConn, frame []byte, now time.Duration) error {
	code, slot, err := scanAnswer(frame)
	if err != nil {
		return err
	}
	if slot < 0 || slot >= l.most || c.begun[slot] == notUnderWay {
		return fmt.Errorf("an answer to a request that was not sent: %d", slot+opaqueBase)
	}
	if code == 0 {
		l.result.messages++
		l.result.latency.add(now - c.begun[slot])
	} else {
		l.result.codes[code]++
	}
	c.begun[slot] = notUnderWay
	c.free = append(c.free, slot)
	return nil
}
