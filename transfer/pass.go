package transfer

import (
	"sync/atomic"
	"time"
)

// enter runs a completion pass, or leaves its wishes to the goroutine that is
// running one. It returns how many waits it ended.
//
// No wish is lost. One that finds a pass running (1) raises the marks, then
// (2) looks at turn. The holder leaves only by a compare-and-swap from running
// to idle; finding marked instead, it (3) stores running and then (4) takes
// the marks. All are sequentially consistent. At (2) a caller sees
//
//   - marked: the holder has not yet done (3), so (4) comes after (1) and takes
//     the wish;
//   - running: the caller makes it marked. If that succeeds the holder cannot
//     leave without (3) and (4), which come after (1). If it fails, turn has
//     changed and the caller looks again;
//   - idle: the caller becomes the holder and does (4) itself.
//
// A mark may be taken together with an earlier caller's; its own caller's
// marked then leads to a pass with nothing to do. And since the last holder
// returns only after a pass in which nothing was marked, all wishes are carried
// out when all callers have returned.
func (r *Ring) enter(offset int64, now time.Duration, drain Outcome) int {
	if !r.turn.CompareAndSwap(turnIdle, turnRunning) {
		r.leaveMarks(offset, now, drain)
		step()
		if !r.takeTurn() {
			return 0
		}
		offset, now, drain = r.takeMarks()
	}
	ended := 0
	for {
		ended += r.pass(offset, now, drain)
		step()
		if r.turn.CompareAndSwap(turnRunning, turnIdle) {
			return ended
		}
		r.turn.Store(turnRunning)
		step()
		offset, now, drain = r.takeMarks()
	}
}

// takeTurn makes the caller the holder (true), or makes sure that the holder
// will take the marks.
func (r *Ring) takeTurn() bool {
	for {
		turn := r.turn.Load()
		step()
		switch turn {
		case turnMarked:
			return false
		case turnRunning:
			if r.turn.CompareAndSwap(turnRunning, turnMarked) {
				return false
			}
		default:
			if r.turn.CompareAndSwap(turnIdle, turnRunning) {
				return true
			}
		}
	}
}

func (r *Ring) leaveMarks(offset int64, now time.Duration, drain Outcome) {
	raise(&r.marks.offset, offset)
	raise(&r.marks.now, int64(now))
	if drain != Pending {
		r.marks.drain.Store(uint32(drain))
	}
}

// takeMarks takes what was left and clears it: a mark speaks for the waits of
// its time, not for all that will ever be pushed.
func (r *Ring) takeMarks() (offset int64, now time.Duration, drain Outcome) {
	return r.marks.offset.Swap(noOffset),
		time.Duration(r.marks.now.Swap(int64(noTime))),
		Outcome(r.marks.drain.Swap(uint32(Pending)))
}

// pass walks from the head as far as offset, now and drain reach. The caller
// holds the turn.
func (r *Ring) pass(offset int64, now time.Duration, drain Outcome) (ended int) {
	head := r.head.Load()
	for {
		from := head
		for head-from < passBatch {
			s := &r.slots[head&r.mask]
			word := s.word.Load()
			if word>>1 != head {
				break // not pushed yet
			}
			if word&pendingBit != 0 {
				o := s.due(offset, now, drain)
				if o == Pending {
					break
				}
				w := s.waiter
				s.waiter = nil
				step()
				if s.word.CompareAndSwap(word, word&^pendingBit) {
					w.Completed(r, o)
					ended++
				}
			} else {
				s.waiter = nil // abandoned: nobody is called
			}
			head++
		}
		if head == from {
			return ended
		}
		step()
		// head before room: whoever gets the room finds the slots passed. And
		// head before the next look at its slot: an Abandon that came after
		// our last look and still saw the old head left its slot to us.
		r.head.Store(head)
		r.room.free(int(head - from))
	}
}

// due returns the outcome that a pending slot has reached, or Pending.
func (s *slot) due(offset int64, now time.Duration, drain Outcome) Outcome {
	switch {
	case s.end <= offset:
		return Done
	case s.deadline.Load() <= int64(now):
		return Expired
	}
	return drain
}

// raise lifts a cell that many write to at least to.
func raise(cell *atomic.Int64, to int64) {
	for {
		old := cell.Load()
		if to <= old || cell.CompareAndSwap(old, to) {
			return
		}
	}
}
