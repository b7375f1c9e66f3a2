package transfer

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// counter is the cheapest waiter, so that the ring itself is measured.
type counter struct{ n int }

func (c *counter) Completed(*Ring, Outcome) { c.n++ }

// BenchmarkRingEnd measures one wait's whole way, reserve to outcome, with a
// given number outstanding all the while. The figure should not depend on it.
func BenchmarkRingEnd(b *testing.B) {
	const batch = 64 // waits a step, as many as one report releases under load
	for _, by := range []Outcome{Done, Expired} {
		for _, outstanding := range []int{1, 1_000, 1_000_000} {
			b.Run(fmt.Sprintf("%v/outstanding=%d", by, outstanding), func(b *testing.B) {
				r, c := NewRing(1<<20+batch), &counter{}
				last := int64(0)
				put := func() {
					last++
					if !r.Reserve() {
						b.Fatal("no room")
					}
					r.Push(c, last, time.Duration(last))
				}
				// One lap first, so that no slot's page is touched for the first time.
				for range r.Size() {
					put()
				}
				r.Complete(last, 0)
				for range outstanding {
					put()
				}
				began := c.n
				b.ReportAllocs()
				for b.Loop() {
					for range batch {
						put()
					}
					if reached := last - int64(outstanding); by == Done {
						r.Complete(reached, 0)
					} else {
						r.Complete(0, time.Duration(reached))
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.n-began), "ns/wait")
			})
		}
	}
}

// mutexQueue is the plain alternative: a circular buffer under a lock.
type mutexQueue struct {
	mu         sync.Mutex
	waits      []plainWait
	head, next int
}

type plainWait struct {
	w        Waiter
	end      int64
	deadline time.Duration
}

func (q *mutexQueue) push(w plainWait) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next-q.head == len(q.waits) {
		return false
	}
	q.waits[q.next%len(q.waits)] = w
	q.next++
	return true
}

func (q *mutexQueue) complete(offset int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; q.head < q.next; q.head++ {
		w := &q.waits[q.head%len(q.waits)]
		if w.end > offset {
			return
		}
		w.w.Completed(nil, Done)
	}
}

// BenchmarkWaiters compares the ring with a channel and with a mutex, each
// pushed by one goroutine, the append section, and completed by another in
// whatever batches form.
func BenchmarkWaiters(b *testing.B) {
	const size = 1 << 12
	// race runs push for 1..n here and finish, with the highest pushed, there.
	race := func(b *testing.B, push func(end int64) bool, finish func(offset int64)) {
		b.ReportAllocs()
		pushed := make(chan int64, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for offset := range pushed {
				finish(offset)
			}
		}()
		b.ResetTimer()
		for end := int64(1); end <= int64(b.N); end++ {
			for !push(end) {
				pushed <- end - 1
			}
			if end%64 == 0 {
				select {
				case pushed <- end:
				default:
				}
			}
		}
		pushed <- int64(b.N)
		close(pushed)
		<-done
	}
	b.Run("ring", func(b *testing.B) {
		r, c := NewRing(size), &counter{}
		race(b, func(end int64) bool {
			if !r.Reserve() {
				return false
			}
			r.Push(c, end, time.Hour)
			return true
		}, func(offset int64) { r.Complete(offset, 0) })
		wantCount(b, c)
	})
	b.Run("mutex", func(b *testing.B) {
		q, c := &mutexQueue{waits: make([]plainWait, size)}, &counter{}
		race(b, func(end int64) bool { return q.push(plainWait{c, end, time.Hour}) }, q.complete)
		wantCount(b, c)
	})
	b.Run("channel", func(b *testing.B) {
		c := &counter{}
		waits := make(chan plainWait, size)
		var first plainWait // taken out and not yet due: a channel cannot be peeked
		race(b, func(end int64) bool {
			select {
			case waits <- plainWait{c, end, time.Hour}:
				return true
			default:
				return false
			}
		}, func(offset int64) {
			for {
				if first.w == nil {
					select {
					case first = <-waits:
					default:
						return
					}
				}
				if first.end > offset {
					return
				}
				first.w.Completed(nil, Done)
				first.w = nil
			}
		})
		wantCount(b, c)
	})
}

func wantCount(b *testing.B, c *counter) {
	if c.n != b.N {
		b.Fatalf("%d of %d completed", c.n, b.N)
	}
}

// BenchmarkCompletions is one result's way through the queue, in batches.
func BenchmarkCompletions(b *testing.B) {
	q := NewCompletions[*counter](1 << 10)
	buf, c := make([]*counter, 64), &counter{}
	b.ReportAllocs()
	for b.Loop() {
		for range buf {
			q.Reserve()
			q.Push(c)
		}
		q.Pull(buf)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(buf)), "ns/result")
}
