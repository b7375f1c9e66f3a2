package reactor

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Waker runs one function on its loop when woken. After Wake the function
// runs at least once more, however many wakes came together.
type Waker struct {
	loop   *Loop
	fn     func()
	queued atomic.Bool // in the loop's list, or about to be
	next   *Waker      // belongs to whoever set queued, until the loop clears it
}

// NewWaker makes a waker that runs fn on the loop. Any goroutine.
func (l *Loop) NewWaker(fn func()) *Waker { return &Waker{loop: l, fn: fn} }

// Wake has the function run on the loop soon. What the caller did before is
// seen by it. It allocates nothing and, while an earlier wake is still
// waiting, costs one load. Once the loop is closed it does nothing. Any
// goroutine.
func (w *Waker) Wake() {
	if w.queued.Load() || !w.queued.CompareAndSwap(false, true) {
		return
	}
	l := w.loop
	for {
		head := l.woken.Load()
		w.next = head
		if l.woken.CompareAndSwap(head, w) {
			break
		}
	}
	l.signal.send()
}

// runWakers runs a list of wakers, oldest first.
func runWakers(last *Waker) {
	var first *Waker
	for w := last; w != nil; {
		w.next, first, w = first, w, w.next
	}
	for w := first; w != nil; {
		next := w.next
		w.next = nil
		// Cleared before the function runs: a wake from here on is about
		// something that the function may not see.
		w.queued.Store(false)
		w.fn()
		w = next
	}
}

// signalOne is what is written to an eventfd.
var signalOne = binary.NativeEndian.AppendUint64(nil, 1)

// signal wakes a loop that sleeps, once for all that ask until it has woken up.
// One that blocks in the kernel has an eventfd for it, edge triggered: no read is
// needed to silence it.
type signal struct {
	watch
	poller  *poller
	handled uint64      // writes whose event was handled; the loop's
	raised  atomic.Bool // somebody wakes the loop
	// awake is set by the loop while it looks at the queues in each turn: nobody
	// needs to wake it then.
	awake atomic.Bool
}

func (s *signal) open(l *Loop) error {
	s.poller = l.poller
	s.awake.Store(true)
	if l.poller.parks {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	l.poller.attach(&s.watch, fd, s)
	return l.poller.watch(&s.watch, watchEdge)
}

// send makes sure that the loop looks at its queues after this call. Any
// goroutine.
func (s *signal) send() {
	if s.awake.Load() || s.raised.Load() || !s.raised.CompareAndSwap(false, true) {
		return
	}
	if s.poller.parks {
		s.poller.unpark()
		return
	}
	for {
		// The counter would overflow, and the write fail, after 2^64 wakes.
		if _, err := unix.Write(s.fd, signalOne); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// wokenUp notes that the loop looks at its queues, in this turn and each that
// follows. An unpark that comes too late ends the next park for nothing.
func (s *signal) wokenUp() {
	s.awake.Store(true)
	if s.poller.parks {
		s.raised.Store(false)
	}
}

func (s *signal) ready(uint32) {
	s.handled++
	// Lowered before the queues are looked at, at the end of this turn: who adds
	// after the look writes again.
	s.raised.Store(false)
}

func (s *signal) abandon(error) {}

// retire returns when nobody will write to the eventfd any more, so that it
// can be closed without a late waker hitting a stranger's descriptor. The
// posted queue is closed, so only a few senders can be under way. To unpark
// what is closed does nothing.
func (s *signal) retire() {
	if s.poller.parks {
		return
	}
	written := uint64(0)
	for !s.raised.CompareAndSwap(false, true) {
		// Somebody raised it and writes. All writes since the start are still
		// in the counter.
		var buf [8]byte
		if n, err := unix.Read(s.fd, buf[:]); err == nil && n == len(buf) {
			written += binary.NativeEndian.Uint64(buf[:])
		}
		if written > s.handled {
			return // raised stays set
		}
		runtime.Gosched()
	}
}
