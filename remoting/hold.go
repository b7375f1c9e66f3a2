package remoting

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

const (
	// holdPause is how much longer than its look at the queues the goroutine of
	// holds rests at least, while the log grows all the time: looking at very
	// many queues then costs a tenth of a processor, not a whole one.
	holdPause = 9

	holdPauseMax = 20 * time.Millisecond

	// stalledPause is the time between two looks at connections that do not take
	// what they were sent.
	stalledPause = 20 * time.Millisecond
)

// holds keeps the pulls that wait for a message: by queue, so that the queues
// that have grown are found, and by the time at which they are answered without
// one. One goroutine with one timer serves all of them. It hands those whose
// queue has something new to the readers, who find out whether it is for them.
//
// RocketMQ PullRequestHoldService, which looks for those whose time is over every
// 5 s, and so answers that much late.
type holds struct {
	p      *Pulls
	some   atomic.Int32  // pulls that are held
	wake   chan struct{} // capacity 1: something may have become visible, or the first in due is another one
	stall  atomic.Bool   // a lane has peers without room
	passes atomic.Int64  // looks at the queues so far
	quit   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	queues map[engine.QueueID]map[*pull]struct{}
	due    holdHeap
	over   bool
}

func (h *holds) init(p *Pulls) {
	h.p = p
	h.wake, h.quit, h.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	h.queues = map[engine.QueueID]map[*pull]struct{}{}
}

func (h *holds) start() { go h.run() }

// stop refuses what is held, and what comes.
func (h *holds) stop() {
	close(h.quit)
	<-h.done
	h.mu.Lock()
	h.over = true
	var all []*pull
	for len(h.due) > 0 {
		all = append(all, h.due[0])
		h.removeLocked(h.due[0])
	}
	h.mu.Unlock()
	for _, q := range all {
		q.stop()
	}
}

// grown is called by the engine, for each step of the log.
func (h *holds) grown() {
	if h.some.Load() > 0 {
		h.nudge()
	}
}

func (h *holds) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// stalled is called by a lane.
func (h *holds) stalled() {
	if !h.stall.Swap(true) {
		h.nudge()
	}
}

// add holds a pull until its queue has grown beyond q.next, or its time is over.
func (h *holds) add(q *pull) {
	q.again = true
	topic, queue, next := q.topic, q.queue, q.next // it may be somebody else's when keep returns
	first := h.keep(q)
	// What became visible since the queue was read was told to nobody. After some
	// was raised, so that what comes from here on is.
	if _, end, _ := h.p.e.QueueBounds(topic, queue); first || end > next {
		h.nudge()
	}
}

// keep tells whether the pull is the first whose time is over.
func (h *holds) keep(q *pull) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.peer.gone.Load() || h.over {
		q.stop()
		return false
	}
	id := engine.QueueID{Topic: q.topic, ID: q.queue}
	of := h.queues[id]
	if of == nil {
		of = map[*pull]struct{}{}
		h.queues[id] = of
	}
	of[q] = struct{}{}
	q.peer.held[q] = struct{}{}
	heap.Push(&h.due, q)
	h.some.Add(1)
	return q.at == 0
}

func (h *holds) removeLocked(q *pull) {
	id := engine.QueueID{Topic: q.topic, ID: q.queue}
	delete(h.queues[id], q)
	if len(h.queues[id]) == 0 {
		delete(h.queues, id)
	}
	delete(q.peer.held, q)
	heap.Remove(&h.due, q.at)
	h.some.Add(-1)
}

// drop forgets the pulls of a connection that is over.
func (h *holds) drop(s *pullPeer) {
	h.mu.Lock()
	var cost int64
	n := len(s.held)
	for q := range s.held {
		cost += q.cost
		h.removeLocked(q)
	}
	h.mu.Unlock()
	h.p.leave(s, n, cost)
}

func (h *holds) run() {
	defer close(h.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var grown []*pull
	var unstalled time.Time
	for {
		h.passes.Add(1)
		began := time.Now()
		h.expire(began)
		grown = h.look(grown[:0])
		if h.stall.Load() && began.Sub(unstalled) >= stalledPause {
			h.stall.Store(false)
			h.p.hot.unstall()
			h.p.cold.unstall()
			unstalled = began
		}
		if rest := min(holdPause*time.Since(began), holdPauseMax); rest > time.Millisecond {
			timer.Reset(rest)
			select {
			case <-timer.C:
			case <-h.quit:
				return
			}
		}
		wait := h.next()
		if h.stall.Load() {
			wait = min(wait, max(stalledPause-time.Since(unstalled), 0))
		}
		timer.Reset(wait)
		select {
		case <-h.wake:
		case <-timer.C:
		case <-h.quit:
			return
		}
	}
}

// next is the time until the first pull has to be answered.
func (h *holds) next() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.due) == 0 {
		return time.Hour
	}
	return max(time.Until(h.due[0].wakes()), 0)
}

// expire answers those whose time is over, and hands those whose message is due to
// the readers.
func (h *holds) expire(now time.Time) {
	for {
		h.mu.Lock()
		if len(h.due) == 0 || h.due[0].wakes().After(now) {
			h.mu.Unlock()
			return
		}
		q := h.due[0]
		h.removeLocked(q)
		h.mu.Unlock()
		if q.deadline.After(now) {
			h.p.hot.add(&q.peer.hot, q)
			continue
		}
		q.answer(nil)
	}
}

// look hands those whose queue has grown to the readers.
func (h *holds) look(grown []*pull) []*pull {
	h.some.Add(1) // what moves during the look is told
	defer h.some.Add(-1)
	h.mu.Lock()
	for id, of := range h.queues {
		_, end, _ := h.p.e.QueueBounds(id.Topic, id.ID)
		for q := range of {
			if end > q.next && !q.parked && q.due.IsZero() {
				grown = append(grown, q)
			}
		}
	}
	for _, q := range grown {
		h.removeLocked(q)
	}
	h.mu.Unlock()
	for _, q := range grown {
		// What is there and not visible yet is looked at again when that moves,
		// which is told after this look if it has not been before.
		if !h.p.e.QueueGrown(q.topic, q.queue, q.next, h.p.o.Visible) {
			h.keep(q)
			continue
		}
		h.p.hot.add(&q.peer.hot, q)
	}
	clear(grown)
	return grown
}

// wakes is when something has to be done with a pull that is held, whatever comes.
func (q *pull) wakes() time.Time {
	if !q.due.IsZero() && q.due.Before(q.deadline) {
		return q.due
	}
	return q.deadline
}

// holdHeap is in the order of wakes.
type holdHeap []*pull

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, k int) bool { return h[i].wakes().Before(h[k].wakes()) }
func (h holdHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].at, h[k].at = i, k
}

// Push is for package heap, as Pop.
func (h *holdHeap) Push(x any) {
	q := x.(*pull)
	q.at = len(*h)
	*h = append(*h, q)
}

// Pop is for package heap.
func (h *holdHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.at = -1
	return q
}
