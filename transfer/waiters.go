package transfer

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/internal/invariant"

	"golang.org/x/sys/cpu"
)

// Outcome says how a wait ended.
type Outcome uint8

// What may become of a wait.
const (
	Pending   Outcome = iota // it has not
	Done                     // the offset was reached
	Expired                  // the deadline came first
	Abandoned                // the one who waited left; a Ring never calls Completed with it
	Failed                   // what was waited for cannot come any more: a failed fsync
	Stopped                  // closed, or no longer master
)

// String returns the outcome in one lower-case word.
func (o Outcome) String() string {
	switch o {
	case Pending:
		return "pending"
	case Done:
		return "done"
	case Expired:
		return "expired"
	case Abandoned:
		return "abandoned"
	case Failed:
		return "failed"
	case Stopped:
		return "stopped"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Waiter is told when its wait in a ring is over.
type Waiter interface {
	// Completed is called exactly once for each Push that was not abandoned,
	// by whichever goroutine runs the ring's completion pass, possibly before
	// Push returned to the one who pushed. It must not block or panic, because
	// every waiter behind it waits for its return; it may call any method of
	// the ring but ReserveWait and Push. The ring tells apart the waits of a
	// put that stands in several. The ring forgets the waiter before the call,
	// so the waiter may be reused from within it on.
	Completed(ring *Ring, o Outcome)
}

// Ticket names one wait in one ring. The zero Ticket names none.
type Ticket uint64

// pendingBit is set in slot.word while the outcome is open.
const pendingBit = 1

// slot holds one wait. It belongs to the one who pushes until word says
// ticket and pending, then to the completion pass until the head has passed it.
type slot struct {
	// word is ticket<<1, plus pendingBit while the outcome is open. Clearing
	// the bit by compare-and-swap is what decides between completion and
	// abandonment; the ticket in it makes a late Abandon miss a reused slot.
	word     atomic.Uint64
	deadline atomic.Int64 // time.Duration; atomic because NextDeadline looks from outside
	end      int64
	waiter   Waiter
}

// States of Ring.turn.
const (
	turnIdle    = iota // nobody runs a pass
	turnRunning        // one goroutine does
	turnMarked         // one does, and must look at the marks before it leaves
)

// noOffset and noTime in a mark, or in a pass, reach nothing.
const (
	noOffset = math.MinInt64
	noTime   = time.Duration(math.MinInt64)
)

// passBatch is how many slots a pass frees at a time: large enough that its
// shared counters cost nothing a waiter, small enough that producers waiting
// for room go on while a long pass is still at work.
const passBatch = 64

// Ring holds those who wait for an offset, in offset order, so that one step
// forward completes from the head: constant work a waiter, whatever the number
// outstanding. Deadlines are in the same order (each is raised to the one
// before it), so expiry is the same walk.
//
//	      passed           pending or abandoned          room
//	────────────────┬───────────────────────────────┬───────────────
//	                head                            next
//	                pass holder ─▶                  append section ─▶
//
// A put uses it in four steps: Reserve (or ReserveWait) before the append, Push
// inside the append section, then it waits to be called, or leaves by Abandon.
// A put that needs several rings reserves in one fixed order of rings, or two
// puts could each hold the last place the other needs.
//
// Each wait ends exactly once: by Completed with one outcome, or by Abandon
// that returned true. All waiters of a ring wait for the same thing; a ring for
// each (kind, count) in use and one for the local flush keep them from waiting
// behind each other.
//
// Any goroutine may call any method, but Push, which the append section
// serialises. No method blocks but ReserveWait. Nothing allocates in steady
// state. The caller runs Complete when the offset moves, and every few
// milliseconds while Len is above 0 (or when NextDeadline has come): a deadline
// needs no traffic, but it needs a clock.
//
// Source: RocketMQ GroupTransferService and GroupCommitService with
// GroupCommitRequest, which look at each request under a lock.
type Ring struct {
	slots  []slot        // length is a power of two; fixed by NewRing
	mask   uint64        // len(slots) - 1
	closed atomic.Uint32 // Outcome given to Close, Pending before; read by each Push
	_      cpu.CacheLinePad
	next   uint64        // next ticket; the append section's, as the two below
	end    int64         // of the last Push: ends do not go back
	latest time.Duration // deadline of the last Push
	_      cpu.CacheLinePad
	head   atomic.Uint64 // lowest ticket not passed; stored by the pass holder
	turn   atomic.Uint32 // the try-lock of the pass
	_      cpu.CacheLinePad
	marks  struct { // what those wanted who came while a pass ran
		offset atomic.Int64  // highest
		now    atomic.Int64  // latest
		drain  atomic.Uint32 // Outcome
	}
	_    cpu.CacheLinePad
	room room
	_    cpu.CacheLinePad
}

// NewRing returns a ring with room for at least size waiters: the next power
// of two.
func NewRing(size int) *Ring {
	n := powerOfTwo(size)
	r := &Ring{slots: make([]slot, n), mask: uint64(n - 1)}
	r.room.size = int64(n)
	r.next = 1 // ticket 0 is none, and what an unused slot's word says
	r.head.Store(1)
	r.latest = noTime
	r.marks.offset.Store(noOffset)
	r.marks.now.Store(int64(noTime))
	return r
}

// Reserve takes room for one wait before its offset is known. It returns false
// if the ring is full, others wait for room, or the ring is closed. What was
// reserved ends in one Push or one Cancel.
func (r *Ring) Reserve() bool { return r.room.take() }

// ReserveWait is Reserve that waits for room, first come first served. It
// returns nil with a reservation, or without one the context's cause or
// ErrRingClosed.
func (r *Ring) ReserveWait(ctx context.Context) error { return r.room.wait(ctx) }

// Cancel gives back a reservation that will not be pushed.
func (r *Ring) Cancel() { r.room.free(1) }

// Restart lets offsets begin anew: the log was cut. Nobody may be in Push, and
// no wait in the ring.
func (r *Ring) Restart() {
	invariant.Check(r.Len() == 0, "transfer: a ring restarted with waits in it")
	r.end = 0
}

// Push puts a wait for offset end into the ring, using one reservation. The
// deadline is raised to the last one's. Calls must not overlap, and end must
// not go back: the append section sees to both. After Close the wait ends at
// once, before Push returns or in the pass that is running.
func (r *Ring) Push(w Waiter, end int64, deadline time.Duration) Ticket {
	ticket := r.next
	if invariant.Enabled {
		invariant.Check(ticket < r.head.Load()+uint64(len(r.slots)), "transfer: Ring.Push without a reservation")
		invariant.Check(end >= r.end, "transfer: Ring.Push of an offset below the last one's")
	}
	r.next = ticket + 1
	r.end = end
	r.latest = max(r.latest, deadline)
	s := &r.slots[ticket&r.mask]
	s.waiter = w
	s.end = end
	s.deadline.Store(int64(r.latest))
	s.word.Store(ticket<<1 | pendingBit) // publishes the slot
	step()
	// Close first sets closed, then runs a pass: either that pass sees the
	// slot, or closed is seen here.
	if o := Outcome(r.closed.Load()); o != Pending {
		r.enter(noOffset, noTime, o)
	}
	return Ticket(ticket)
}

// Abandon ends a wait for the one who waits. True: the outcome is Abandoned,
// Completed was not called and never will be, and the waiter may be reused.
// False: Completed has been called, or is being called. The slot's room comes
// back when the head passes it, which is at once if the slot is the head, and
// by its deadline at the latest.
func (r *Ring) Abandon(t Ticket) bool {
	s := &r.slots[uint64(t)&r.mask]
	if t == 0 || !s.word.CompareAndSwap(uint64(t)<<1|pendingBit, uint64(t)<<1) {
		return false
	}
	step()
	if r.head.Load() == uint64(t) {
		r.enter(noOffset, noTime, Pending)
	}
	return true
}

// Complete ends every wait for an offset at or below offset as Done, and then
// every one whose deadline is at or before now as Expired. It returns how many
// waits this call ended; a pass already running may end some of them for it,
// and this call some of others'. When every call that overlapped has returned,
// all that any of them could end has ended.
func (r *Ring) Complete(offset int64, now time.Duration) int {
	head := r.head.Load()
	if r.slots[head&r.mask].word.Load()>>1 < head {
		return 0 // nothing was pushed at the head yet: the ring is empty
	}
	return r.enter(offset, now, Pending)
}

// Drain ends every wait now: with Done where an overlapping Complete has
// reached it, otherwise with o. The ring can be used on. It returns how many
// waits this call ended.
func (r *Ring) Drain(o Outcome) int {
	invariant.Check(o != Pending, "transfer: a wait cannot end as pending")
	return r.enter(noOffset, noTime, o)
}

// Close is Drain for good: there is no more room, those who wait for room get
// ErrRingClosed, and what is still pushed on an earlier reservation ends with o
// at once. A second Close changes the outcome for those only.
func (r *Ring) Close(o Outcome) int {
	r.closed.Store(uint32(o))
	r.room.close()
	return r.Drain(o)
}

// NextDeadline returns the earliest deadline in the ring; false if none waits.
// It may be that of a wait just abandoned, never later than one still open.
func (r *Ring) NextDeadline() (time.Duration, bool) {
	for {
		head := r.head.Load()
		s := &r.slots[head&r.mask]
		word := s.word.Load()
		step()
		deadline := s.deadline.Load()
		if r.head.Load() != head {
			continue // the slot may have been reused under our eyes
		}
		return time.Duration(deadline), word>>1 == head
	}
}

// Len returns how many places are taken: reserved, pending, or abandoned and
// not yet passed.
func (r *Ring) Len() int { return r.room.taken() }

// Size returns how many waits the ring has room for.
func (r *Ring) Size() int { return len(r.slots) }

// powerOfTwo returns the least power of two that is at least n and at least 1.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
