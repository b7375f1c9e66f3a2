package reactor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haengine/haengine/internal/invariant"
)

// Bits of an event, as epoll reports them.
const (
	eventRead   = uint32(unix.EPOLLIN | unix.EPOLLPRI)
	eventWrite  = uint32(unix.EPOLLOUT)
	eventHangUp = uint32(unix.EPOLLERR | unix.EPOLLHUP)
)

// watchMode is what a watch is registered for.
type watchMode uint8

const (
	watchNone  watchMode = 0 // not in the epoll set: no event, not even a hang-up
	watchRead  watchMode = 1
	watchWrite watchMode = 2
	watchBoth  watchMode = watchRead | watchWrite
	watchEdge  watchMode = 4 // readable, edge triggered: needs no read to fall silent
)

// bits are what epoll is asked for.
func (m watchMode) bits() (events uint32) {
	if m&watchRead != 0 {
		events |= eventRead
	}
	if m&watchWrite != 0 {
		events |= eventWrite
	}
	if m == watchEdge {
		events = eventRead | unix.EPOLLET
	}
	return events
}

// target is what owns a watched file descriptor.
type target interface {
	ready(events uint32) // epoll reported events
	abandon(err error)   // the loop ends: let go of the descriptor
}

// watch is a file descriptor's place in a poller. It is embedded in its owner.
type watch struct {
	fd    int
	owner target // nil: not attached
	mode  watchMode
}

// batchEvents is how many events one call of epoll_wait brings at most. Whoever
// the first of them woke runs when all are handled.
const batchEvents = 64

// poller is an epoll set, and how a loop sleeps until it has events.
//
// One that blocks in epoll_wait keeps its processor, one of GOMAXPROCS, for up to
// 20 ms, until the runtime's monitor takes it away, and what is runnable there waits
// as long. So the set is itself registered in Go's own poller, and the loop parks there
// like any goroutine that waits for a socket
// (docs/decisions/0015-loops-sleep-in-gos-poller.md).
// Loop-confined, but for unpark.
type poller struct {
	fd     int
	table  []*watch // by descriptor
	events [batchEvents]unix.EpollEvent

	// Of a set that can be parked on; else file is nil or only closes it.
	parks bool
	file  *os.File
	set   syscall.RawConn
	look  func(uintptr) bool // poll, for set; made once
	n     int                // what look found
	err   error
}

// openPoller makes a poller; park asks for one that can be parked on, if Go's own
// poller takes it.
func openPoller(park bool) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	p := &poller{fd: fd}
	// Non-blocking means nothing to epoll, and tells os.NewFile to register it.
	if !park || unix.SetNonblock(fd, true) != nil {
		return p, nil
	}
	p.file = os.NewFile(uintptr(fd), "epoll")
	p.look = func(uintptr) bool {
		p.n, p.err = p.poll()
		return p.n != 0 || p.err != nil
	}
	if p.set, err = p.file.SyscallConn(); err == nil {
		// Only what is registered has deadlines.
		err = p.file.SetReadDeadline(time.Time{})
	}
	p.parks = err == nil
	return p, nil
}

func (p *poller) close() error {
	if p.file != nil {
		return p.file.Close()
	}
	return unix.Close(p.fd)
}

// poll takes the events that are there; their number.
func (p *poller) poll() (int, error) {
	n, errno := pollEvents(p.fd, p.events[:])
	if errno != 0 {
		return 0, fmt.Errorf("look for events: %w", errno)
	}
	return n, nil
}

// block waits for events in the kernel, and keeps the processor meanwhile.
func (p *poller) block() (int, error) {
	for {
		n, err := unix.EpollWait(p.fd, p.events[:], -1)
		if err == nil {
			return n, nil
		}
		if errnoOf(err) != unix.EINTR {
			return 0, fmt.Errorf("wait for events: %w", err)
		}
	}
}

// park waits for events, or for unpark, in Go's poller.
func (p *poller) park() (int, error) {
	p.n = 0
	err := p.set.Read(p.look)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, p.file.SetReadDeadline(time.Time{})
	case err != nil:
		return 0, fmt.Errorf("wait for events: %w", err)
	}
	return p.n, p.err
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// unpark ends park, or the next one. Go's scheduler runs the loop then as it does a
// goroutine that is sent something: events of the set it looks for only when a
// processor has nothing else to do. Any goroutine, also after close.
func (p *poller) unpark() { _ = p.file.SetReadDeadline(past) }

// event gives event i of those that were found, or nil: whatever was detached or
// silenced earlier in this batch may still have an event in it.
func (p *poller) event(i int) (w *watch, events uint32) {
	return p.watched(int(p.events[i].Fd)), p.events[i].Events
}

func (p *poller) watched(fd int) *watch {
	if fd >= len(p.table) || p.table[fd] == nil || p.table[fd].mode == watchNone {
		return nil
	}
	return p.table[fd]
}

// attach gives fd a place, with no event asked for yet.
func (p *poller) attach(w *watch, fd int, owner target) {
	for fd >= len(p.table) {
		p.table = append(p.table, nil)
	}
	invariant.Check(p.table[fd] == nil, "descriptor attached twice")
	w.fd, w.owner, w.mode = fd, owner, watchNone
	p.table[fd] = w
}

// detach takes w out; no event of it is reported from here on. The
// descriptor must stay open until the end of the turn.
func (p *poller) detach(w *watch) {
	if w.owner == nil {
		return
	}
	// It can only fail for a descriptor that is not in the set.
	_ = p.watch(w, watchNone)
	p.table[w.fd] = nil
	w.owner, w.mode = nil, watchNone
}

// watch registers w for mode.
func (p *poller) watch(w *watch, mode watchMode) error {
	if w.mode == mode || w.owner == nil {
		return nil
	}
	op := unix.EPOLL_CTL_MOD
	switch {
	case w.mode == watchNone:
		op = unix.EPOLL_CTL_ADD
	case mode == watchNone:
		op = unix.EPOLL_CTL_DEL
	}
	err := unix.EpollCtl(p.fd, op, w.fd, &unix.EpollEvent{Events: mode.bits(), Fd: int32(w.fd)})
	if err == nil {
		w.mode = mode
	}
	return err
}
