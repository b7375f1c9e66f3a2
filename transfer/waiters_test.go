package transfer

import (
	"slices"
	"testing"
	"time"
	"unsafe"
)

// note is a waiter that writes down how it ended. One goroutine.
type note struct {
	ended []Outcome
	then  func(*Ring) // called from within Completed
}

func (n *note) Completed(r *Ring, o Outcome) {
	n.ended = append(n.ended, o)
	if n.then != nil {
		n.then(r)
	}
}

// outcome returns how the wait ended, and fails if it ended twice.
func (n *note) outcome(t interface{ Fatalf(string, ...any) }) Outcome {
	if len(n.ended) > 1 {
		t.Fatalf("a wait ended %d times: %v", len(n.ended), n.ended)
	}
	if len(n.ended) == 0 {
		return Pending
	}
	return n.ended[0]
}

// push reserves and pushes one wait.
func push(t interface{ Fatal(...any) }, r *Ring, w Waiter, end int64, deadline time.Duration) Ticket {
	if !r.Reserve() {
		t.Fatal("no room")
	}
	return r.Push(w, end, deadline)
}

func TestCompleteEndsWhatIsReachedAndThenWhatIsLate(t *testing.T) {
	r := NewRing(8)
	notes := make([]note, 6)
	for i := range notes {
		push(t, r, &notes[i], int64(10*(i+1)), time.Duration(i+1)*time.Second)
	}
	// 10 and 20 are reached although both are late too; 30 and 40 are late.
	if n := r.Complete(29, 4*time.Second); n != 4 {
		t.Errorf("%d waits ended, want 4", n)
	}
	want := []Outcome{Done, Done, Expired, Expired, Pending, Pending}
	for i := range notes {
		if got := notes[i].outcome(t); got != want[i] {
			t.Errorf("wait %d: %v, want %v", i, got, want[i])
		}
	}
	if d, ok := r.NextDeadline(); !ok || d != 5*time.Second || r.Len() != 2 {
		t.Errorf("next deadline %v %v, %d in the ring; want 5s, 2", d, ok, r.Len())
	}
}

func TestDeadlineIsRaisedToTheOneBefore(t *testing.T) {
	r := NewRing(2)
	var long, short note
	push(t, r, &long, 1, 3*time.Second)
	push(t, r, &short, 2, time.Second)
	r.Complete(1, time.Second)
	if d, _ := r.NextDeadline(); d != 3*time.Second || short.outcome(t) != Pending {
		t.Errorf("deadline %v, outcome %v; want 3s, pending", d, short.outcome(t))
	}
	r.Complete(1, 3*time.Second)
	if got := short.outcome(t); got != Expired {
		t.Errorf("outcome %v, want expired", got)
	}
}

// One waiter behind 10,000 completed ones, and no further traffic: the clock
// alone ends it.
func TestDeadlineNeedsNoTraffic(t *testing.T) {
	r := NewRing(1 << 14)
	var before, last note
	for i := range 10_000 {
		push(t, r, &before, int64(i+1), 3*time.Second)
	}
	push(t, r, &last, 10_001, 4*time.Second)
	if n := r.Complete(10_000, 0); n != 10_000 {
		t.Fatalf("%d completed, want 10000", n)
	}
	at, ok := r.NextDeadline()
	if !ok || at != 4*time.Second {
		t.Fatalf("next deadline %v %v, want 4s", at, ok)
	}
	if n := r.Complete(10_000, at-1); n != 0 {
		t.Fatal("ended before its deadline")
	}
	if n := r.Complete(10_000, at); n != 1 || last.outcome(t) != Expired {
		t.Fatalf("%d ended as %v, want 1 expired", n, last.outcome(t))
	}
	if _, ok := r.NextDeadline(); ok {
		t.Error("an empty ring has a deadline")
	}
}

// 100 waits spread over 3 s on a dead replica: the delays do not add up.
func TestEachWaitEndsAtItsOwnDeadline(t *testing.T) {
	r := NewRing(128)
	notes := make([]note, 100)
	for i := range notes {
		push(t, r, &notes[i], int64(i+1), time.Duration(i)*30*time.Millisecond+3*time.Second)
	}
	for i := range notes {
		at, ok := r.NextDeadline()
		if want := time.Duration(i)*30*time.Millisecond + 3*time.Second; !ok || at != want {
			t.Fatalf("wait %d: next deadline %v %v, want %v", i, at, ok, want)
		}
		if n := r.Complete(0, at); n != 1 || notes[i].outcome(t) != Expired {
			t.Fatalf("wait %d: %d ended, this one %v", i, n, notes[i].outcome(t))
		}
	}
}

func TestAbandonedWaitIsNeverCalledAndGivesItsRoomBack(t *testing.T) {
	r := NewRing(4)
	notes := make([]note, 4)
	tickets := make([]Ticket, 4)
	for i := range notes {
		tickets[i] = push(t, r, &notes[i], int64(i+1), time.Second)
	}
	if r.Reserve() {
		t.Fatal("room in a full ring")
	}
	if !r.Abandon(tickets[1]) || r.Abandon(tickets[1]) || r.Len() != 4 {
		t.Errorf("abandon in the middle: %d in the ring, want 4 until the head passes", r.Len())
	}
	if !r.Abandon(tickets[0]) || r.Len() != 2 {
		t.Errorf("abandon at the head: %d in the ring, want 2: it passes both", r.Len())
	}
	r.Complete(4, 0)
	if r.Abandon(tickets[2]) || r.Abandon(tickets[3]) || r.Abandon(0) {
		t.Error("a wait that ended was abandoned")
	}
	for i := range 4 { // the slots are used again: old tickets must miss them
		push(t, r, &note{}, int64(5+i), time.Second)
	}
	if slices.ContainsFunc(tickets, r.Abandon) {
		t.Error("an old ticket abandoned another's wait")
	}
	for i, want := range []Outcome{Pending, Pending, Done, Done} {
		if got := notes[i].outcome(t); got != want {
			t.Errorf("wait %d: %v, want %v", i, got, want)
		}
	}
}

func TestDrainEndsAllAndLeavesTheRingUsable(t *testing.T) {
	r := NewRing(2)
	var a, b, c note
	push(t, r, &a, 1, time.Second)
	push(t, r, &b, 2, time.Second)
	if n := r.Drain(Stopped); n != 2 || a.outcome(t) != Stopped || b.outcome(t) != Stopped {
		t.Errorf("%d ended as %v and %v", n, a.outcome(t), b.outcome(t))
	}
	push(t, r, &c, 3, time.Second)
	if r.Complete(3, 0); c.outcome(t) != Done || r.Len() != 0 {
		t.Errorf("after a drain: %v, %d in the ring", c.outcome(t), r.Len())
	}
}

func TestClosedRingHasNoRoomAndEndsLatePushesAtOnce(t *testing.T) {
	r := NewRing(4)
	var early, late note
	push(t, r, &early, 1, time.Second)
	for range 2 {
		if !r.Reserve() {
			t.Fatal("no room")
		}
	}
	r.Close(Failed)
	if r.Reserve() || r.ReserveWait(t.Context()) != ErrRingClosed {
		t.Error("room in a closed ring")
	}
	r.Push(&late, 2, time.Second)
	r.Cancel()
	if early.outcome(t) != Failed || late.outcome(t) != Failed || r.Len() != 0 {
		t.Errorf("early %v, late %v, %d in the ring", early.outcome(t), late.outcome(t), r.Len())
	}
}

func TestCompletedMayUseTheRing(t *testing.T) {
	r := NewRing(8)
	var second, third note
	var thirdTicket Ticket
	first := note{then: func(r *Ring) {
		r.Cancel()
		if !r.Reserve() {
			t.Error("no room")
		}
		if !r.Abandon(thirdTicket) {
			t.Error("not abandoned")
		}
		if n := r.Complete(2, 0); n != 0 {
			t.Errorf("the inner call ended %d, want 0: it leaves a mark", n)
		}
	}}
	r.Reserve()
	push(t, r, &first, 1, time.Second)
	push(t, r, &second, 2, time.Second)
	thirdTicket = push(t, r, &third, 3, time.Second)
	if n := r.Complete(1, 0); n != 2 || second.outcome(t) != Done || third.outcome(t) != Pending {
		t.Errorf("%d ended, second %v, third %v", n, second.outcome(t), third.outcome(t))
	}
	if r.Cancel(); r.Len() != 0 {
		t.Errorf("%d in the ring", r.Len())
	}
}

// A mark is used up by the pass that takes it: what is pushed later is measured
// by later calls only, although it lies below an offset asked for earlier.
func TestMarkSpeaksOnlyForTheWaitsOfItsTime(t *testing.T) {
	r := NewRing(8)
	var late note
	first := note{then: func(r *Ring) { r.Complete(1000, 0) }}
	push(t, r, &first, 1, time.Second)
	r.Complete(1, 0)
	second := note{then: func(r *Ring) { r.Complete(2, 0) }}
	push(t, r, &second, 2, time.Second)
	push(t, r, &late, 500, time.Second)
	if r.Complete(2, 0); late.outcome(t) != Pending {
		t.Errorf("%v by an offset asked for before the push", late.outcome(t))
	}
}

type silent struct{}

func (silent) Completed(*Ring, Outcome) {}

func TestWaitDoesNotAllocate(t *testing.T) {
	r, w := NewRing(64), &silent{}
	end := int64(0)
	n := testing.AllocsPerRun(1000, func() {
		for range 8 {
			r.Reserve()
			end++
			r.Push(w, end, time.Second)
		}
		r.Complete(end-4, 0)
		r.Reserve()
		end++
		r.Abandon(r.Push(w, end, time.Second))
		r.NextDeadline()
		r.Complete(0, time.Second)
	})
	if n != 0 || r.Len() != 0 {
		t.Errorf("%v allocations, want 0; %d in the ring", n, r.Len())
	}
}

// Cells that different cores write are a line or more apart.
func TestRingKeepsItsWritersApart(t *testing.T) {
	var r Ring
	offsets := []uintptr{
		unsafe.Offsetof(r.slots), unsafe.Offsetof(r.next), unsafe.Offsetof(r.head), unsafe.Offsetof(r.marks),
		unsafe.Offsetof(r.room), unsafe.Offsetof(r.room) + unsafe.Offsetof(r.room.used), unsafe.Offsetof(r.room) + unsafe.Offsetof(r.room.mu),
	}
	for i := range len(offsets) - 1 {
		if offsets[i+1]-offsets[i] < 64 {
			t.Errorf("group %d begins at %d, the one before at %d", i+1, offsets[i+1], offsets[i])
		}
	}
}
