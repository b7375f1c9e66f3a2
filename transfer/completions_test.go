package transfer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestCompletionsAgreeWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(0, 3).Draw(t, "log2 size")
		q := NewCompletions[int](size)
		var model []int
		reserved, next := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				want := reserved+len(model) < size
				if got := q.Reserve(); got != want {
					t.Fatalf("Reserve = %v with %d reserved and %d unread of %d", got, reserved, len(model), size)
				}
				if want {
					reserved++
				}
			},
			"cancel": func(t *rapid.T) {
				if reserved == 0 {
					t.Skip()
				}
				q.Cancel()
				reserved--
			},
			"push": func(t *rapid.T) {
				if reserved == 0 {
					t.Skip()
				}
				reserved--
				q.Push(next)
				model = append(model, next)
				next++
			},
			"pull": func(t *rapid.T) {
				buf := make([]int, rapid.IntRange(0, 5).Draw(t, "batch"))
				n := q.Pull(buf)
				want := min(len(buf), len(model))
				if !slices.Equal(buf[:n], model[:want]) {
					t.Fatalf("pulled %v, want %v", buf[:n], model[:want])
				}
				model = model[want:]
			},
			"ready": func(t *rapid.T) {
				ready := q.Ready()
				if len(model) > 0 && len(ready) == 0 {
					t.Fatal("no signal although there is something to pull")
				}
			},
			"": func(t *rapid.T) {
				if got := q.Len(); got != reserved+len(model) {
					t.Fatalf("Len = %d, want %d", got, reserved+len(model))
				}
			},
		})
	})
}

func TestConsumerSleepsUntilThereIsSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewCompletions[int](4)
		got := make(chan int, 4)
		go func() {
			defer close(got)
			buf := make([]int, 4)
			for !q.Closed() {
				n := q.Pull(buf)
				for _, v := range buf[:n] {
					got <- v
				}
				if n == 0 {
					<-q.Ready()
				}
			}
		}()
		synctest.Wait()
		for range 3 {
			q.Reserve()
		}
		q.Push(7)
		synctest.Wait()
		if len(got) != 1 || <-got != 7 {
			t.Fatal("the consumer was not woken")
		}
		q.Close()
		synctest.Wait()
		if q.Closed() || q.Reserve() {
			t.Fatal("a closed queue owes what was reserved, and no more")
		}
		q.Push(8)
		if v := <-got; v != 8 {
			t.Fatalf("pulled %d, want 8", v)
		}
		synctest.Wait() // asleep: it does not spin on what is still owed
		q.Cancel()
		if _, open := <-got; open || !q.Closed() {
			t.Fatal("the consumer was not told the end")
		}
	})
}

// A refused put, not a stopped completion pass, is what a consumer that does
// not pull leads to.
func TestFullCompletionsRefuseTheNextPut(t *testing.T) {
	q := NewCompletions[int](2)
	r := NewRing(8)
	for i := range 2 {
		if !q.Reserve() {
			t.Fatal("no room")
		}
		push(t, r, &note{then: func(*Ring) { q.Push(i) }}, int64(i+1), time.Second)
	}
	if q.Reserve() {
		t.Fatal("room for a third under way")
	}
	if n := r.Complete(2, 0); n != 2 || q.Reserve() {
		t.Fatalf("%d completed, or room before the results were pulled", n)
	}
	if n := q.Pull(make([]int, 2)); n != 2 || !q.Reserve() {
		t.Fatalf("%d pulled, or no room after it", n)
	}
}

func TestCompletionsUnderStress(t *testing.T) {
	const producers = 4
	each := 20_000
	if testing.Short() {
		each = 2_000
	}
	type result struct{ producer, n int }
	q := NewCompletions[result](8)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for n := range each {
				if err := q.ReserveWait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				q.Push(result{p, n})
			}
		})
	}
	go func() {
		wg.Wait()
		q.Close()
	}()
	var next [producers]int
	buf := make([]result, 5)
	for slept := 0; ; {
		n := q.Pull(buf)
		for _, v := range buf[:n] {
			if v.n != next[v.producer] {
				t.Fatalf("producer %d: result %d, want %d", v.producer, v.n, next[v.producer])
			}
			next[v.producer]++
		}
		if n > 0 {
			continue
		}
		if q.Closed() {
			t.Logf("slept %d times", slept)
			break
		}
		slept++
		<-q.Ready()
	}
	for p, n := range next {
		if n != each {
			t.Errorf("producer %d: %d results, want %d", p, n, each)
		}
	}
}

func TestCompletionsDoNotAllocate(t *testing.T) {
	q := NewCompletions[*int](16)
	buf, v := make([]*int, 8), new(int)
	n := testing.AllocsPerRun(1000, func() {
		for range 8 {
			q.Reserve()
			q.Push(v)
		}
		<-q.Ready()
		q.Pull(buf)
	})
	if n != 0 || q.Len() != 0 {
		t.Errorf("%v allocations, want 0; %d left", n, q.Len())
	}
}
