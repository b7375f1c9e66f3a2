package sim

import (
	"container/heap"
	"time"
)

// Clock is virtual time and what happens in it. The zero value stands at 0.
type Clock struct {
	now    time.Duration
	made   uint64 // events made so far: orders those of one instant
	events eventHeap
	crowd  int // events run at this instant
}

// Now returns the time.
func (c *Clock) Now() time.Duration { return c.now }

// At makes do run at a time; one that has passed means next.
func (c *Clock) At(at time.Duration, do func()) {
	c.made++
	heap.Push(&c.events, event{max(at, c.now), c.made, do})
}

// After makes do run when d has passed.
func (c *Clock) After(d time.Duration, do func()) { c.At(c.now+d, do) }

// Step runs the next event if it is due by limit; otherwise it moves the time
// there and returns false.
func (c *Clock) Step(limit time.Duration) bool {
	if len(c.events) == 0 || c.events[0].at > limit {
		c.now = max(c.now, limit)
		return false
	}
	e := heap.Pop(&c.events).(event)
	if e.at > c.now {
		c.now, c.crowd = e.at, 0
	}
	c.crowd++
	e.do()
	return true
}

// Crowd returns how many events ran at this instant.
func (c *Clock) Crowd() int { return c.crowd }

type event struct {
	at   time.Duration
	made uint64
	do   func()
}

type eventHeap []event

func (h eventHeap) Len() int      { return len(h) }
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].made < h[j].made
}
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
