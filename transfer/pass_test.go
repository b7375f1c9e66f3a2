package transfer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tally is a waiter that may be completed from any goroutine.
type tally struct {
	end   int64
	calls atomic.Int32
	got   atomic.Uint32 // Outcome
	// yield lets the others run in the middle of a pass, so that they meet it.
	yield bool
}

func (w *tally) Completed(_ *Ring, o Outcome) {
	w.calls.Add(1)
	w.got.Store(uint32(o))
	if w.yield {
		runtime.Gosched()
	}
}

// Several goroutines complete at once, each only once. When all have returned,
// everything that the highest offset reaches has been completed: a caller that
// met a running pass was not forgotten.
func TestNoCompletionIsLostBetweenConcurrentCallers(t *testing.T) {
	const callers, waits = 4, 24
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	left := 0 // rounds in which the highest offset was carried out by another caller
	r := NewRing(waits)
	end := int64(0)
	for round := range rounds {
		all := make([]tally, waits)
		first := end
		for i := range all {
			end++
			all[i].end, all[i].yield = end, rng.IntN(8) == 0
			push(t, r, &all[i], end, time.Duration(round+1)*time.Second)
		}
		offsets := make([]int64, callers)
		highest := int64(0)
		for i := range offsets {
			offsets[i] = first + 1 + rng.Int64N(waits)
			highest = max(highest, offsets[i])
		}
		var ready atomic.Int32
		ended := make([]int, callers)
		var wg sync.WaitGroup
		for i, offset := range offsets {
			wg.Go(func() {
				for ready.Add(1); ready.Load() < callers; {
					runtime.Gosched()
				}
				ended[i] = r.Complete(offset, 0)
			})
		}
		wg.Wait()
		if top := slices.Index(offsets, highest); ended[top] == 0 && slices.Index(offsets[top+1:], highest) < 0 {
			left++
		}
		for i := range all {
			want := int32(0)
			if all[i].end <= highest {
				want = 1
			}
			if got := all[i].calls.Load(); got != want {
				t.Fatalf("round %d: wait %d of %d called %d times, want %d (offsets %v from %d)", round, i, waits, got, want, offsets, first)
			}
		}
		if n := r.Drain(Stopped); n != int(end-highest) || r.Len() != 0 {
			t.Fatalf("round %d: %d drained, want %d; %d left", round, n, end-highest, r.Len())
		}
	}
	t.Logf("the highest offset was left to another in %d of %d rounds", left, rounds)
}

// An abandon races the completion of the same wait: exactly one of them wins,
// and the room comes back either way without a further call.
func TestAbandonRacingCompletionHasOneWinner(t *testing.T) {
	rounds := 50_000
	if testing.Short() {
		rounds = 5_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := NewRing(2)
	wins := [2]int{}
	for round := range rounds {
		var w, behind tally
		end := int64(2*round + 1)
		ticket := push(t, r, &w, end, time.Hour)
		last := push(t, r, &behind, end+1, time.Hour)
		var ready atomic.Int32
		meet := func(spin int) {
			for ready.Add(1); ready.Load() < 2; {
				runtime.Gosched()
			}
			for range spin {
				ready.Load()
			}
		}
		spins := [2]int{rng.IntN(200), rng.IntN(200)}
		var wg sync.WaitGroup
		var left, leftLast bool
		racers := [2]func(){
			func() { meet(spins[0]); left = r.Abandon(ticket); leftLast = r.Abandon(last) },
			func() { meet(spins[1]); r.Complete(end, 0) },
		}
		first := rng.IntN(2) // the scheduler favours one of them
		wg.Go(racers[first])
		wg.Go(racers[1-first])
		wg.Wait()
		if calls := w.calls.Load(); left == (calls == 1) || calls > 1 || !leftLast || behind.calls.Load() != 0 {
			t.Fatalf("round %d: abandoned %v, completed %d times; the one behind %v, %d", round, left, calls, leftLast, behind.calls.Load())
		}
		if r.Len() != 0 {
			t.Fatalf("round %d: %d places not given back", round, r.Len())
		}
		if left {
			wins[0]++
		} else {
			wins[1]++
		}
	}
	t.Logf("abandon won %d, completion %d", wins[0], wins[1])
}

// fullPut is one put of the stress below, used again and again.
type fullPut struct {
	ended chan Outcome // capacity 2, so that a second outcome is seen, not blocked on
	pause bool
}

func (p *fullPut) Completed(_ *Ring, o Outcome) {
	pause := p.pause
	p.ended <- o // from here on the put is the producer's again
	if pause {
		runtime.Gosched()
	}
}

// Producers reserve, push in an append section, and wait or leave; loops
// complete with lagging offsets and a running clock. Every put ends once, Done
// only when its offset had been asked for, Expired only when its time had come,
// and all room comes back.
func TestRingUnderStress(t *testing.T) {
	const producers, completers = 8, 3
	puts := 4_000
	if testing.Short() {
		puts = 500
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := NewRing(16)
	var (
		appendMu  sync.Mutex
		end       int64 // under appendMu
		published atomic.Int64
		asked     atomic.Int64 // highest offset given to Complete; raised before
		clock     atomic.Int64
		counts    [Stopped + 1]atomic.Int64
		stop      atomic.Bool
		work, bg  sync.WaitGroup
	)
	for p := range producers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			put := &fullPut{ended: make(chan Outcome, 2)}
			for range puts {
				put.pause = rng.IntN(16) == 0
				if !r.Reserve() {
					if err := r.ReserveWait(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
				if rng.IntN(32) == 0 {
					r.Cancel()
					continue
				}
				appendMu.Lock()
				end += 1 + rng.Int64N(9)
				mine := end
				deadline := time.Duration(clock.Load() + 1 + rng.Int64N(64))
				ticket := r.Push(put, mine, deadline)
				published.Store(mine)
				appendMu.Unlock()
				if rng.IntN(4) == 0 {
					for range rng.IntN(3) {
						runtime.Gosched()
					}
					if r.Abandon(ticket) {
						counts[Abandoned].Add(1)
						continue
					}
				}
				o := <-put.ended
				counts[o].Add(1)
				switch {
				case o == Done && mine > asked.Load():
					t.Errorf("done at %d, highest offset asked for %d", mine, asked.Load())
				case o == Expired && int64(deadline) > clock.Load():
					t.Errorf("expired %d before its time", int64(deadline)-clock.Load())
				case o != Done && o != Expired:
					t.Errorf("outcome %v", o)
				}
				if len(put.ended) != 0 {
					t.Error("ended twice")
				}
			}
		})
	}
	for c := range completers {
		bg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+c)))
			for !stop.Load() {
				offset := published.Load() - rng.Int64N(64)
				raise(&asked, offset)
				now := clock.Add(rng.Int64N(2))
				r.Complete(offset, time.Duration(now))
				if at, ok := r.NextDeadline(); ok && int64(at) > clock.Load()+64 {
					t.Errorf("a deadline of %d at %d", at, clock.Load())
				}
				runtime.Gosched()
			}
		})
	}
	work.Wait()
	stop.Store(true)
	bg.Wait()
	if r.Len() != 0 {
		t.Errorf("%d places not given back", r.Len())
	}
	for o := range counts {
		t.Logf("%v: %d", Outcome(o), counts[o].Load())
	}
}

// The ring is closed while producers push: whoever had a reservation is told,
// nobody waits for ever.
func TestCloseMeetsPushesInFlight(t *testing.T) {
	rounds := 2_000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		r := NewRing(2)
		var appendMu sync.Mutex
		var end int64
		var refused, ended atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				put := &fullPut{ended: make(chan Outcome, 2), pause: true}
				for r.ReserveWait(context.Background()) == nil {
					appendMu.Lock()
					end++
					r.Push(put, end, time.Hour)
					appendMu.Unlock()
					if <-put.ended == Failed {
						ended.Add(1)
					}
				}
				refused.Add(1)
			})
		}
		for range 3 {
			r.Complete(1, 0)
			runtime.Gosched()
		}
		r.Close(Failed)
		wg.Wait()
		if refused.Load() != 4 || r.Len() != 0 {
			t.Fatalf("%d of 4 refused, %d left in the ring", refused.Load(), r.Len())
		}
	}
}
