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

// At is what Now was at t, which must have a reading of the monotonic clock.
func At(t time.Time) time.Duration { return t.Sub(clockStart) }

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
	stopping bool
	busy     bool // something happened in this turn that others may follow
	rest     rest
	timers   timers
	vectors  vectors
	pipe     pipe
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
	l.rest = rest{loop: l, spin: spin}
	// A loop that is locked to its thread would have to hand over to another one to
	// park; and with one processor blocking is faster, and rest yields before.
	park := pin < 0 && runtime.GOMAXPROCS(0) > 1
	var err error
	if l.poller, err = openPoller(park); err != nil {
		return nil, err
	}
	for _, open := range []func(*Loop) error{l.signal.open, l.timers.open} {
		if err := open(l); err != nil {
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
	if err := l.turns(); err != nil {
		l.err, reason = err, err
		l.group.logger.Error("loop ended: its connections are closed", "loop", l.index, "error", err)
	}
	l.terminate(reason)
}

// turns handles what happens until stop. The error is the kernel's.
func (l *Loop) turns() error {
	for looked := false; !l.stopping; {
		n, err := 0, error(nil)
		// What is queued does not wait for a look at the sockets; those wait for one turn at most.
		if looked = !looked || !l.queued(); looked {
			n, err = l.poller.poll()
		}
		if n == 0 && err == nil && !l.queued() {
			n, err = l.rest.next()
		}
		if err != nil {
			return err
		}
		if n > 0 || l.queued() {
			l.turn(n)
		}
		// Whoever this turn woke runs before the loop looks for more, on a
		// processor whose caches are warm; all of them together, which is what
		// makes batches.
		runtime.Gosched()
	}
	return nil
}

// turn handles the events that the poller found, then what was posted, then what
// is to be done when no event is left that could mistake a reused descriptor for
// the old one.
func (l *Loop) turn(events int) {
	for i := range events {
		l.now = Now()
		if w, bits := l.poller.event(i); w != nil {
			l.events++
			w.owner.ready(bits)
		}
	}
	if l.busy || l.queued() {
		l.now = Now()
		l.runPosted()
		l.busy = false
		l.rest.over()
	}
	l.runEnding()
}

// stop ends the loop at the end of this turn.
func (l *Loop) stop() { l.stopping = true }

// terminate closes everything, tells everybody, and lets go of the loop's
// own descriptors. No event is in flight any more.
func (l *Loop) terminate(reason error) {
	l.stopping = true
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
	for _, w := range []*watch{&l.signal.watch, &l.timers.watch} {
		if w.owner != nil {
			_ = unix.Close(w.fd)
		}
	}
	l.pipe.close()
	_ = l.poller.close()
}

// later has e finished at the end of the turn.
func (l *Loop) later(e ender) { l.ending = append(l.ending, e) }

func (l *Loop) runEnding() {
	if len(l.ending) == 0 {
		return
	}
	batch := l.ending
	l.ending, l.spare = l.spare[:0], nil
	for _, e := range batch {
		e.end()
	}
	clear(batch)
	l.spare = batch
}

// queued tells whether there is something for runPosted, or left for runEnding.
func (l *Loop) queued() bool { return l.waiting.Load() || l.woken.Load() != nil || len(l.ending) > 0 }

// runPosted runs the posted functions and the wakers that are there now; what
// they add runs in a later turn.
func (l *Loop) runPosted() {
	if l.waiting.Load() {
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
		runWakers(l.woken.Swap(nil))
	}
}
