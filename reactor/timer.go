package reactor

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timer runs a function on its loop at a time. Loop-confined.
type Timer struct {
	loop  *Loop
	fn    func()
	at    time.Duration
	seq   uint64 // order of setting: breaks ties
	index int    // in the heap; -1: not set
}

// NewTimer makes a timer, not set yet. Loop-confined.
func (l *Loop) NewTimer(fn func()) *Timer { return &Timer{loop: l, fn: fn, index: -1} }

// ResetAt sets the timer, or sets it anew, to run once at a time of Now's
// clock or as soon after as the loop is free. A time that is past counts as
// the loop's Now: the timer runs in a later turn, never in this call, and not
// before others that are due. Moving a timer to a later time costs no system
// call. Loop-confined.
func (t *Timer) ResetAt(at time.Duration) {
	h := &t.loop.timers
	h.seq++
	t.at, t.seq = max(at, t.loop.now), h.seq
	if t.index < 0 {
		t.index = len(h.heap)
		h.heap = append(h.heap, t)
	}
	h.fix(t.index)
	h.arm()
}

// Stop unsets the timer. The function will not run until it is set again.
// Loop-confined.
func (t *Timer) Stop() {
	if t.index >= 0 {
		t.loop.timers.remove(t.index)
	}
}

// At returns when the timer will run; ok is false if it is not set.
// Loop-confined.
func (t *Timer) At() (at time.Duration, ok bool) { return t.at, t.index >= 0 }

// neverArmed is a time that no timer has.
const neverArmed = time.Duration(math.MaxInt64)

// timers is a loop's timers: a heap by time, and one timerfd armed for the
// earliest or for something before it. A wake-up too early costs little; a
// system call each time a heartbeat moves on would not.
type timers struct {
	watch
	loop  *Loop
	heap  []*Timer
	seq   uint64
	armed time.Duration   // when the timerfd fires; neverArmed: not armed
	spec  unix.ItimerSpec // scratch
}

func (h *timers) open(l *Loop) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	h.loop, h.armed = l, neverArmed
	l.poller.attach(&h.watch, fd, h)
	return l.poller.watch(&h.watch, watchEdge)
}

// arm makes sure that the timerfd fires no later than the earliest timer.
func (h *timers) arm() {
	if len(h.heap) == 0 || h.heap[0].at >= h.armed || h.loop.stopping {
		return
	}
	at := h.heap[0].at
	// Zero would disarm it.
	wait := max(at-Now(), 1)
	h.spec.Value = unix.NsecToTimespec(int64(wait))
	if err := unix.TimerfdSettime(h.fd, 0, &h.spec, nil); err != nil {
		h.loop.group.logger.Error("timer cannot be set", "loop", h.loop.index, "error", err)
		return
	}
	h.armed = at
}

// ready runs the timers that are due, in order of time, then of setting.
func (h *timers) ready(uint32) {
	h.armed = neverArmed
	// What the functions set runs in a later turn, or a timer that sets
	// itself to a time past would keep the loop here. It is not in the way
	// of others: ResetAt puts it behind all that are due.
	last, now := h.seq, h.loop.now
	for len(h.heap) > 0 && h.heap[0].at <= now && h.heap[0].seq <= last {
		t := h.heap[0]
		h.remove(0)
		t.fn()
	}
	h.arm()
}

func (h *timers) abandon(error) {}

func (h *timers) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (h *timers) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].index, h.heap[j].index = i, j
}

func (h *timers) remove(i int) {
	last := len(h.heap) - 1
	h.swap(i, last)
	h.heap[last].index = -1
	h.heap[last] = nil
	h.heap = h.heap[:last]
	if i < last {
		h.fix(i)
	}
}

// fix moves the timer at i to where it belongs.
func (h *timers) fix(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	for {
		child := 2*i + 1
		if child+1 < len(h.heap) && h.less(child+1, child) {
			child++
		}
		if child >= len(h.heap) || !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
