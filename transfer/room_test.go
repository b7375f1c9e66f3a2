package transfer

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitForRoomIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(1)
		r.Reserve()
		var served []int // each writes before it gives its place on
		for i := range 5 {
			go func() {
				if err := r.ReserveWait(t.Context()); err != nil {
					t.Error(err)
				}
				served = append(served, i)
				r.Cancel()
			}()
			synctest.Wait() // it stands in line
		}
		if r.Reserve() || len(served) != 0 {
			t.Fatalf("room in a full ring: %v", served)
		}
		r.Cancel()
		synctest.Wait()
		for i := range 5 {
			if len(served) != 5 || served[i] != i {
				t.Fatalf("served in the order %v", served)
			}
		}
		if r.Len() != 0 {
			t.Errorf("%d places taken", r.Len())
		}
	})
}

func TestNewcomersDoNotOvertakeTheLine(t *testing.T) {
	r := NewRing(2)
	r.room.waiting.Add(1) // as between a place coming free and its being given
	if r.Reserve() {
		t.Error("a place was taken past the line")
	}
}

func TestWaitForRoomEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(1)
		r.Reserve()
		tired := errors.New("tired")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, tired)
		defer cancel()
		began := time.Now()
		if err := r.ReserveWait(ctx); err != tired || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// The one who left is not in the way of those who come.
		r.Cancel()
		if !r.Reserve() {
			t.Error("no room after the line emptied")
		}
	})
}

func TestCompletionMakesRoomForThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(2)
		var w note
		push(t, r, &w, 1, time.Second)
		push(t, r, &w, 2, time.Second)
		var came atomic.Int32
		for range 3 {
			go func() {
				if r.ReserveWait(t.Context()) == nil {
					came.Add(1)
				}
			}()
		}
		synctest.Wait()
		for offset, want := range []int32{0, 1, 2} {
			r.Complete(int64(offset), 0)
			synctest.Wait()
			if came.Load() != want {
				t.Fatalf("%d came after offset %d, want %d", came.Load(), offset, want)
			}
		}
		r.Cancel()
		synctest.Wait()
		if came.Load() != 3 {
			t.Fatal("the last one was forgotten")
		}
	})
}

func TestCloseSendsThoseInLineAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(1)
		r.Reserve()
		errs := make(chan error, 3)
		for range 3 {
			go func() { errs <- r.ReserveWait(t.Context()) }()
		}
		synctest.Wait()
		r.Close(Stopped)
		for range 3 {
			if err := <-errs; err != ErrRingClosed {
				t.Error(err)
			}
		}
		if r.Cancel(); r.Len() != 0 || r.Reserve() {
			t.Errorf("%d places taken in a closed ring", r.Len())
		}
	})
}

// Many come, wait, give up and go; nobody with a context that lasts is left
// waiting, and no place is lost or made.
func TestRoomUnderStress(t *testing.T) {
	const size, people = 3, 16
	visits := 3_000
	if testing.Short() {
		visits = 300
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := NewRing(size)
	limit := int32(r.Size())
	var inside atomic.Int32
	var gaveUp atomic.Int64
	var wg sync.WaitGroup
	for p := range people {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			for range visits {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(2) == 0 {
					go cancel()
				}
				err := r.ReserveWait(ctx)
				cancel()
				if err != nil {
					gaveUp.Add(1)
					continue
				}
				if n := inside.Add(1); n > limit {
					t.Errorf("%d inside, room for %d", n, limit)
				}
				if rng.IntN(2) == 0 {
					runtime.Gosched()
				}
				inside.Add(-1)
				r.Cancel()
			}
		})
	}
	wg.Wait()
	if r.Len() != 0 || r.room.waiting.Load() != 0 {
		t.Errorf("%d places taken, %d in line", r.Len(), r.room.waiting.Load())
	}
	for range r.Size() {
		if !r.Reserve() {
			t.Fatal("a place was lost")
		}
	}
	t.Logf("%d of %d gave up", gaveUp.Load(), people*visits)
}

func TestWaitForRoomDoesNotAllocate(t *testing.T) {
	r := NewRing(1)
	var other sync.WaitGroup
	other.Go(func() {
		for r.ReserveWait(context.Background()) == nil {
			r.Cancel()
		}
	})
	n := testing.AllocsPerRun(1000, func() {
		if err := r.ReserveWait(context.Background()); err != nil {
			t.Error(err)
		}
		runtime.Gosched()
		r.Cancel()
	})
	r.Close(Stopped)
	other.Wait()
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
