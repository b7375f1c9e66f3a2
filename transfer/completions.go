package transfer

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// Completions is a bounded queue of finished work: what asynchronous puts
// become when their waits are over, in the order they ended, pulled in batches.
// Many push, one pulls.
//
// A place is reserved before the work starts and given back when its result is
// pulled, so Push always has room: a completion pass is never stopped by a
// consumer that does not pull. It is the next put that is refused. Work under
// way and results not pulled are together at most the queue's size.
//
//	put:      Reserve ─▶ append, rings ─▶ … wait … ─▶ Push      (in Completed)
//	consumer: for { n := Pull(buf); if n == 0 { <-Ready() } … }
//
// The queue holds no goroutine and blocks nobody; the consumer sleeps on the
// channel of Ready, together with whatever else it waits for.
//
// Reserve, ReserveWait, Cancel, Push, Len and Close: any goroutine. Pull and
// Ready: one goroutine at a time.
type Completions[T any] struct {
	slots  []resultSlot[T] // length is a power of two, as Ring's
	mask   uint64
	signal chan struct{} // capacity 1
	_      cpu.CacheLinePad
	next   atomic.Uint64 // next ticket: those who push contend here
	_      cpu.CacheLinePad
	asleep atomic.Bool // the consumer found nothing and may sleep
	_      cpu.CacheLinePad
	head   uint64 // next ticket to pull: the consumer's
	_      cpu.CacheLinePad
	room   room
}

type resultSlot[T any] struct {
	ticket atomic.Uint64 // of the value in it; stored after the value
	value  T             // its pusher's until ticket is stored, then the consumer's
}

// NewCompletions returns a queue for at least size results: the next power of
// two.
func NewCompletions[T any](size int) *Completions[T] {
	n := powerOfTwo(size)
	q := &Completions[T]{slots: make([]resultSlot[T], n), mask: uint64(n - 1), signal: make(chan struct{}, 1), head: 1}
	q.room.size = int64(n)
	q.next.Store(1) // ticket 0 is what an unused slot says
	return q
}

// Reserve takes a place for one result before its work starts. It returns
// false if the queue is full, others wait for room, or it is closed. What was
// reserved ends in one Push or one Cancel.
func (q *Completions[T]) Reserve() bool { return q.room.take() }

// ReserveWait is Reserve that waits for room, first come first served. It
// returns the context's cause or ErrRingClosed, and holds nothing then.
func (q *Completions[T]) ReserveWait(ctx context.Context) error { return q.room.wait(ctx) }

// Cancel gives back a reservation that will not be pushed.
func (q *Completions[T]) Cancel() {
	q.room.free(1)
	if q.Closed() { // it was the last thing the consumer waited for
		q.wake()
	}
}

// Push adds a result, using one reservation. It never blocks or allocates.
func (q *Completions[T]) Push(v T) {
	ticket := q.next.Add(1) - 1
	s := &q.slots[ticket&q.mask]
	s.value = v
	step()
	s.ticket.Store(ticket)
	step()
	// The consumer says asleep and then looks at the slot; here the slot is
	// stored and then asleep is looked at. So at least one sees the other.
	if q.asleep.Load() && q.asleep.CompareAndSwap(true, false) {
		q.wake()
	}
}

// Pull moves results into dst, oldest first, and returns how many. Zero means
// that nothing is there now: see Ready.
func (q *Completions[T]) Pull(dst []T) int {
	n := 0
	var zero T
	for ; n < len(dst); n++ {
		s := &q.slots[q.head&q.mask]
		if s.ticket.Load() != q.head {
			break
		}
		dst[n], s.value = s.value, zero
		q.head++
	}
	if n > 0 {
		q.room.free(n)
	}
	return n
}

// Ready returns the channel to wait on after Pull returned zero. It receives
// when there is something to pull, or when Closed has become true; now and then
// for nothing, so Pull again. Call it anew for each wait.
func (q *Completions[T]) Ready() <-chan struct{} {
	q.asleep.Store(true)
	step()
	if q.slots[q.head&q.mask].ticket.Load() == q.head || q.Closed() {
		q.asleep.Store(false)
		q.wake()
	}
	return q.signal
}

// Close refuses further reservations and wakes the consumer. What was reserved
// can still be pushed, and what was pushed can still be pulled: the consumer is
// done when Closed says so.
func (q *Completions[T]) Close() {
	q.room.close()
	q.wake()
}

// Closed reports that the queue was closed and that all it owed was pulled.
func (q *Completions[T]) Closed() bool { return q.room.used.Load() == closedRoom }

// Len returns how many places are taken: work under way and results not pulled.
func (q *Completions[T]) Len() int { return q.room.taken() }

// wake leaves one signal; a second one would say nothing more.
func (q *Completions[T]) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}
