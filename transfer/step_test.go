//go:build race || invariants

package transfer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// inEveryOrder runs goroutines one at a time, each to its next step, and picks
// the next to run from seed. It fails if some of them never return. Run in
// rounds with different seeds it tries the orders that a scheduler with few
// cores hardly ever shows.
func inEveryOrder(t *testing.T, seed uint64, run ...func()) {
	t.Helper()
	parked := make(chan chan struct{}, len(run))
	interleave = func() {
		resume := make(chan struct{})
		parked <- resume
		<-resume
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	finished := make(chan struct{}, len(run))
	for _, f := range run {
		go func() {
			interleave()
			f()
			finished <- struct{}{}
		}()
		synctest.Wait() // they park in this order
	}
	var waiting []chan struct{}
	for {
		synctest.Wait() // everybody is parked, asleep, or gone
		for len(parked) > 0 {
			waiting = append(waiting, <-parked)
		}
		if len(waiting) == 0 {
			break
		}
		i := rng.IntN(len(waiting))
		next := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		close(next)
	}
	interleave = nil
	if n := len(run) - len(finished); n != 0 {
		buf := make([]byte, 1<<16)
		t.Fatalf("seed %d: %d goroutines sleep for ever\n%s", seed, n, buf[:runtime.Stack(buf, true)])
	}
}

// eachSeed runs one round a bubble, so that a failure names its seed.
func eachSeed(t *testing.T, rounds int, round func(t *testing.T, seed uint64, rng *rand.Rand)) {
	first := rand.Uint64N(1 << 32)
	if testing.Short() {
		rounds /= 10
	}
	t.Logf("seeds %d to %d", first, first+uint64(rounds)-1)
	for i := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) { round(t, first+i, rand.New(rand.NewPCG(first+i, 0))) })
		if t.Failed() {
			return
		}
	}
}

// Completions, an expiry, abandons, a push and a look at the deadline, step by
// step in any order: nothing is lost, nothing ends twice, no room leaks.
func TestRingInEveryOrder(t *testing.T) {
	eachSeed(t, 6000, func(t *testing.T, seed uint64, rng *rand.Rand) {
		const waits = 4
		r := NewRing(waits)
		for range rng.IntN(waits) { // begin anywhere in the ring
			push(t, r, &note{}, 0, 0)
			r.Complete(0, 0)
		}
		notes := make([]note, waits+1)
		tickets := make([]Ticket, waits)
		left := make([]bool, waits)
		deadline := func(i int) time.Duration { return time.Duration(i + 1) }
		for i := range waits {
			tickets[i] = push(t, r, &notes[i], int64(i+1), deadline(i))
		}
		highest, latest := int64(0), time.Duration(0)
		var run []func()
		for range 2 + rng.IntN(2) {
			offset := rng.Int64N(waits + 1)
			highest = max(highest, offset)
			run = append(run, func() { r.Complete(offset, 0) })
		}
		if rng.IntN(2) == 0 {
			latest = time.Duration(rng.IntN(waits))
			run = append(run, func() { r.Complete(0, latest) })
		}
		for range rng.IntN(3) {
			i := rng.IntN(waits)
			run = append(run, func() {
				if r.Abandon(tickets[i]) {
					left[i] = true
				}
			})
		}
		pushed := false
		run = append(run, func() {
			if r.Reserve() {
				r.Push(&notes[waits], waits+1, deadline(waits))
				pushed = true
			}
		})
		seen := time.Duration(0)
		run = append(run, func() { seen, _ = r.NextDeadline() })
		inEveryOrder(t, seed, run...)

		open := -1 // first wait still open
		for i := range notes {
			o := notes[i].outcome(t)
			reached := int64(i+1) <= highest || deadline(i) <= latest
			switch {
			case i == waits && !pushed:
				continue
			case i < waits && left[i] && o != Pending, o == Done && int64(i+1) > highest, o == Expired && deadline(i) > latest:
				t.Fatalf("seed %d: wait %d ended as %v (left %v), highest %d, latest %d", seed, i, o, i < waits && left[i], highest, latest)
			case o == Pending && reached && (i == waits || !left[i]):
				t.Fatalf("seed %d: wait %d was lost, highest %d, latest %d", seed, i, highest, latest)
			case o == Pending && open < 0 && (i == waits || !left[i]):
				open = i
			}
		}
		taken := 0
		if open >= 0 {
			taken = waits - open
			if pushed {
				taken++
			}
			if seen > deadline(open) {
				t.Fatalf("seed %d: deadline %d seen while %d was open", seed, seen, deadline(open))
			}
		}
		if r.Len() != taken {
			t.Fatalf("seed %d: %d places taken, want %d", seed, r.Len(), taken)
		}
	})
}

// A push on an old reservation meets Close.
func TestCloseInEveryOrder(t *testing.T) {
	eachSeed(t, 500, func(t *testing.T, seed uint64, rng *rand.Rand) {
		r := NewRing(2)
		var early, late note
		push(t, r, &early, 1, time.Hour)
		if !r.Reserve() {
			t.Fatal("no room")
		}
		inEveryOrder(t, seed,
			func() { r.Push(&late, 2, time.Hour) },
			func() { r.Close(Failed) },
			func() { r.Complete(rng.Int64N(2), 0) },
			func() {
				if r.ReserveWait(t.Context()) == nil {
					r.Cancel()
				}
			})
		if late.outcome(t) != Failed || early.outcome(t) == Pending || r.Len() != 0 || r.Reserve() {
			t.Fatalf("seed %d: early %v, late %v, %d places taken", seed, early.outcome(t), late.outcome(t), r.Len())
		}
	})
}

// More want in than there is room for, and some give up: nobody sleeps for ever.
func TestRoomInEveryOrder(t *testing.T) {
	eachSeed(t, 2000, func(t *testing.T, seed uint64, rng *rand.Rand) {
		r := NewRing(1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		visit := func(ctx context.Context) func() {
			return func() {
				if r.ReserveWait(ctx) == nil {
					step()
					r.Cancel()
				}
			}
		}
		inEveryOrder(t, seed, visit(t.Context()), visit(ctx), visit(t.Context()), visit(ctx), cancel)
		if r.Len() != 0 || r.room.waiting.Load() != 0 || !r.Reserve() {
			t.Fatalf("seed %d: %d places taken, %d in line", seed, r.Len(), r.room.waiting.Load())
		}
	})
}

// Results come while the consumer goes to sleep: it is always woken.
func TestCompletionsInEveryOrder(t *testing.T) {
	eachSeed(t, 2000, func(t *testing.T, seed uint64, rng *rand.Rand) {
		q := NewCompletions[int](4)
		for range 3 {
			q.Reserve()
		}
		var got []int
		inEveryOrder(t, seed,
			func() {
				buf := make([]int, 2)
				for !q.Closed() {
					n := q.Pull(buf)
					got = append(got, buf[:n]...)
					if n == 0 {
						<-q.Ready()
					}
				}
			},
			func() { q.Push(1); q.Push(2) },
			func() { q.Push(3) },
			q.Close)
		if len(got) != 3 || slices.Index(got, 1) > slices.Index(got, 2) {
			t.Fatalf("seed %d: pulled %v", seed, got)
		}
	})
}
