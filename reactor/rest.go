package reactor

import (
	"runtime"
	"time"
)

const (
	// glance is how long a loop looks for the next event before it sleeps, where
	// pauses have been that short: an acknowledgement from the same machine or a
	// fast network takes less, and to sleep and be woken costs as much.
	glance = 50 * time.Microsecond
	// wakeUp is what sleep adds to a pause that would have been short without.
	wakeUp = 50 * time.Microsecond
	// glanceAfter is how many short pauses in a row make the next one likely to be
	// short. So a loop whose pauses are short and long in turn does not glance, and
	// one that glanced in vain lets whoever it waits for have the processor.
	glanceAfter = 8
)

// rest is how a loop passes the time between events. Loop-confined.
type rest struct {
	loop    *Loop
	spin    time.Duration // how long to look after each event, at least
	last    time.Duration // when something happened
	paused  bool          // since then
	glanced bool          // since then, and in vain
	slept   bool          // since then
	short   int           // pauses in a row
}

// over notes, once a turn, that something happened in it.
func (r *rest) over() {
	limit := glance
	if r.slept {
		limit += wakeUp
	}
	switch {
	case !r.paused:
	case r.glanced || r.loop.now-r.last > limit:
		r.short = 0
	default:
		r.short++
	}
	r.last, r.paused, r.glanced, r.slept = r.loop.now, false, false, false
}

// likely tells whether the next event may come within a glance.
func (r *rest) likely() bool { return r.short >= glanceAfter }

// patience is how long to look for events before sleeping.
func (r *rest) patience() time.Duration {
	if r.likely() {
		return max(r.spin, glance)
	}
	return r.spin
}

// next is called when there was nothing to do. While the pause is young it
// returns at once; then it sleeps until there are events, and gives their number.
func (r *rest) next() (int, error) {
	l := r.loop
	r.paused = true
	if l.now = Now(); l.now-r.last < r.patience() {
		return 0, nil
	}
	if !l.poller.parks {
		// Once in a while the scheduler returns from the loop's own yield to the loop,
		// ahead of those whom it woke. They would wait in its processor's queue.
		runtime.Gosched()
	}
	// Who adds to the queues from here on wakes the loop. Who came before had no
	// need to: what they added is seen here.
	l.signal.awake.Store(false)
	defer l.signal.wokenUp()
	if l.queued() {
		return 0, nil
	}
	r.glanced, r.slept = r.likely(), true
	if l.poller.parks {
		return l.poller.park()
	}
	return l.poller.block()
}
