package reactor

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// clockStart is the zero of Now.
var clockStart = time.Now()

// Now reads the monotonic clock that timers run on: time since an arbitrary
// start. Any goroutine.
func Now() time.Duration { return time.Since(clockStart) }

// ender is something to finish at the end of a turn.
type ender interface{ end() }

// Loop is one epoll loop and what it owns: connections, dials, listeners and
// timers. Only Post, and Wake of its wakers, may be called from elsewhere.
type Loop struct {
	group *Group
	index int

	// The fields down to the padding are loop-confined.
	poller   *poller
	now      time.Duration
	events   uint64 // reported by epoll so far
	ending   []ender
	spare    []ender // emptied; becomes ending in the next turn
	endAsked bool    // the end of a turn was asked for
	stopping bool
	timers   timers
	spinner  spinner
	vectors  vectors
	runs     []func() // posted, taken off the queue; swapped with it

	done chan struct{} // closed when the goroutine has ended
	err  error         // why it ended early; read after done

	_      cpu.CacheLinePad
	signal signal // producers and the loop meet here
	_      cpu.CacheLinePad
	posted struct {
		sync.Mutex
		queue  []func()
		closed bool
	}
	waiting atomic.Bool // posted.queue is not empty
	_       cpu.CacheLinePad
	woken   atomic.Pointer[Waker] // wakers to run, last one first
	_       cpu.CacheLinePad
}

// startLoop starts a loop, on the CPU given if that is not negative.
func startLoop(g *Group, index, pin int, spin time.Duration) (*Loop, error) {
	l := &Loop{group: g, index: index, now: Now(), done: make(chan struct{})}
	var err error
	if l.poller, err = openPoller(l.handle, l.endTurn); err != nil {
		return nil, err
	}
	for _, open := range []func() error{
		func() error { return l.signal.open(l) },
		func() error { return l.timers.open(l) },
		func() error { return l.spinner.open(l, spin) },
	} {
		if err := open(); err != nil {
			l.release()
			return nil, err
		}
	}
	started := make(chan error)
	go l.run(pin, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return l, nil
}

// Index returns the loop's place in its group. Any goroutine.
func (l *Loop) Index() int { return l.index }

// Now returns the time of the event being handled: a clock read once for all
// that one event leads to. Loop-confined.
func (l *Loop) Now() time.Duration { return l.now }

// Post runs fn on the loop, after what was posted before. It returns false,
// and fn will never run, if the loop is closed. Any goroutine.
func (l *Loop) Post(fn func()) bool {
	l.posted.Lock()
	if l.posted.closed {
		l.posted.Unlock()
		return false
	}
	l.posted.queue = append(l.posted.queue, fn)
	l.waiting.Store(true)
	l.posted.Unlock()
	l.signal.send()
	return true
}

// run is the loop's goroutine.
func (l *Loop) run(pin int, started chan<- error) {
	defer close(l.done)
	if pin >= 0 {
		// Never unlocked: the thread ends with the goroutine, and its
		// affinity with it.
		runtime.LockOSThread()
		if err := pinThread(pin); err != nil {
			l.release()
			started <- err
			return
		}
	}
	started <- nil
	reason := ErrClosed
	if err := l.poller.run(); err != nil {
		l.err, reason = err, err
		l.group.logger.Error("loop ended: its connections are closed", "loop", l.index, "error", err)
	}
	l.terminate(reason)
}

// stop ends the loop at the end of this turn.
func (l *Loop) stop() {
	l.stopping = true
	if err := l.poller.stop(); err != nil {
		l.group.logger.Error("loop cannot be stopped", "loop", l.index, "error", err)
	}
}

// terminate closes everything, tells everybody, and lets go of the loop's
// own descriptors. No event is in flight any more.
func (l *Loop) terminate(reason error) {
	l.stopping = true
	l.endAsked = true // there is no turn left to ask for
	l.now = Now()
	l.posted.Lock()
	l.posted.closed = true
	l.posted.Unlock()
	l.runPosted()
	for _, w := range l.poller.table {
		if w != nil {
			w.owner.abandon(reason)
		}
	}
	for len(l.ending) > 0 {
		l.runEnding()
	}
	l.signal.retire()
	l.release()
}

// release closes the loop's own descriptors.
func (l *Loop) release() {
	for _, fd := range []int{l.signal.fd, l.timers.fd, l.spinner.fd} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
	_ = l.poller.close()
}

// handle is called for each event.
func (l *Loop) handle(w *watch, events uint32) {
	l.events++
	l.now = Now()
	w.owner.ready(events)
	// Whoever this event woke runs before the loop looks for more. The poller's
	// own yield before it blocks is not enough: the scheduler may return to the
	// loop itself, which then blocks in epoll_wait with the woken producer in
	// its processor's queue, for 10 to 20 ms (docs/benchmarks.md).
	runtime.Gosched()
}

// later has e finished at the end of the turn, when no event of the batch is
// left that could mistake a reused descriptor for the old one.
func (l *Loop) later(e ender) {
	l.ending = append(l.ending, e)
	if l.endAsked {
		return
	}
	l.endAsked = true
	if err := l.poller.endTurn(); err != nil {
		l.group.logger.Error("end of turn cannot be asked for", "loop", l.index, "error", err)
	}
}

// endTurn is called after the last event of a batch, if asked for.
func (l *Loop) endTurn() {
	l.now = Now()
	l.endAsked = l.stopping
	l.runEnding()
}

func (l *Loop) runEnding() {
	batch := l.ending
	l.ending, l.spare = l.spare[:0], nil
	for _, e := range batch {
		e.end()
	}
	clear(batch)
	l.spare = batch
}

// runPosted runs the posted functions and the wakers that are there now; what
// they add runs in a later turn. It reports whether there were any.
func (l *Loop) runPosted() bool {
	ran := false
	if l.waiting.Load() {
		ran = true
		l.posted.Lock()
		batch := l.posted.queue
		l.posted.queue = l.runs[:0]
		l.waiting.Store(false)
		l.posted.Unlock()
		for i, fn := range batch {
			batch[i] = nil
			fn()
		}
		l.runs = batch
	}
	if l.woken.Load() != nil {
		ran = true
		runWakers(l.woken.Swap(nil))
	}
	return ran
}
