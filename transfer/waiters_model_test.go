package transfer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelWait is a wait as the model keeps it: nothing but the rules.
type modelWait struct {
	note     *note
	ticket   Ticket
	end      int64
	deadline time.Duration
	outcome  Outcome
}

func TestRingAgreesWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(0, 4).Draw(t, "log2 size")
		r := NewRing(size)
		var (
			waits    []*modelWait
			reserved int
			end      int64
			latest   time.Duration
		)
		open := func() []*modelWait { // from the first pending on: what holds room
			i := slices.IndexFunc(waits, func(w *modelWait) bool { return w.outcome == Pending })
			if i < 0 {
				return nil
			}
			return waits[i:]
		}
		finish := func(rule func(*modelWait) Outcome) (n int) {
			for _, w := range waits {
				if o := rule(w); w.outcome == Pending && o != Pending {
					w.outcome = o
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				want := reserved+len(open()) < size
				if got := r.Reserve(); got != want {
					t.Fatalf("Reserve = %v with %d reserved and %d open of %d", got, reserved, len(open()), size)
				}
				if want {
					reserved++
				}
			},
			"cancel": func(t *rapid.T) {
				if reserved == 0 {
					t.Skip()
				}
				r.Cancel()
				reserved--
			},
			"push": func(t *rapid.T) {
				if reserved == 0 {
					t.Skip()
				}
				reserved--
				end += rapid.Int64Range(0, 3).Draw(t, "bytes")
				deadline := time.Duration(rapid.Int64Range(0, 40).Draw(t, "deadline"))
				latest = max(latest, deadline)
				w := &modelWait{note: &note{}, end: end, deadline: latest}
				w.ticket = r.Push(w.note, end, deadline)
				waits = append(waits, w)
			},
			"complete": func(t *rapid.T) {
				offset := end - rapid.Int64Range(-1, 10).Draw(t, "behind")
				now := time.Duration(rapid.Int64Range(-1, 40).Draw(t, "now"))
				want := finish(func(w *modelWait) Outcome {
					switch {
					case w.end <= offset:
						return Done
					case w.deadline <= now:
						return Expired
					}
					return Pending
				})
				if got := r.Complete(offset, now); got != want {
					t.Fatalf("Complete(%d, %d) ended %d, want %d", offset, now, got, want)
				}
			},
			"abandon": func(t *rapid.T) {
				if len(waits) == 0 {
					t.Skip()
				}
				w := rapid.SampledFrom(waits).Draw(t, "wait")
				want := w.outcome == Pending
				if want {
					w.outcome = Abandoned
				}
				if got := r.Abandon(w.ticket); got != want {
					t.Fatalf("Abandon = %v, want %v", got, want)
				}
			},
			"drain": func(t *rapid.T) {
				want := finish(func(*modelWait) Outcome { return Stopped })
				if got := r.Drain(Stopped); got != want {
					t.Fatalf("Drain ended %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				for i, w := range waits {
					want := w.outcome
					if want == Abandoned {
						want = Pending // never called
					}
					if got := w.note.outcome(t); got != want {
						t.Fatalf("wait %d is %v, want %v", i, got, w.outcome)
					}
				}
				if got, want := r.Len(), reserved+len(open()); got != want {
					t.Fatalf("Len = %d, want %d", got, want)
				}
				at, ok := r.NextDeadline()
				if first := open(); ok != (len(first) > 0) || ok && at != first[0].deadline {
					t.Fatalf("NextDeadline = %v %v with %d open", at, ok, len(first))
				}
			},
		})
	})
}

// Four kinds of waiters on three replicas, one ring each. Only the first
// replica reports, and only received, past all; then it repeats itself, and
// again on a second connection. Nobody but those who asked for one replica's
// memory may be released, in whatever order the puts came.
func TestOneKindsAnswerNeverReleasesAnother(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	type class struct {
		kind     Kind
		replicas int
		ring     *Ring
		waits    []*note
		deadline time.Duration // of the first wait
	}
	for round := range 1000 {
		q := NewQuorum()
		classes := []*class{{kind: Received, replicas: 1}, {kind: Received, replicas: 2}, {kind: Flushed, replicas: 1}, {kind: Flushed, replicas: 2}}
		for i, c := range classes {
			c.ring = NewRing(16)
			c.deadline = time.Duration(3+i) * time.Second
		}
		var replicas []*Member
		for _, identity := range []string{"1", "2", "3"} {
			replicas = append(replicas, join(t, q, identity))
		}
		end := int64(0)
		for range 16 {
			c := classes[rng.IntN(len(classes))]
			end += 1 + rng.Int64N(100)
			w := &note{}
			push(t, c.ring, w, end, c.deadline)
			c.waits = append(c.waits, w)
		}
		advance := func(now time.Duration) {
			for _, i := range rng.Perm(len(classes)) {
				c := classes[i]
				c.ring.Complete(q.Committed(c.kind, c.replicas), now)
			}
		}
		check := func(step string, want ...Outcome) {
			t.Helper()
			for i, c := range classes {
				for _, w := range c.waits {
					if got := w.outcome(t); got != want[i] {
						t.Fatalf("round %d, %s: a wait for %d %v is %v, want %v", round, step, c.replicas, c.kind, got, want[i])
					}
				}
			}
		}
		replicas[0].Ack(end, unknown)
		advance(time.Second)
		check("first report", Done, Pending, Pending, Pending)
		replicas[0].Ack(end, unknown)
		advance(time.Second)
		second := join(t, q, "1")
		second.Ack(end, unknown)
		advance(time.Second)
		check("second connection", Done, Pending, Pending, Pending)
		// Each other kind now ends by its own condition or its own deadline.
		met := make([]bool, len(classes))
		if rng.IntN(2) == 0 {
			replicas[1].Ack(end, unknown)
			met[1] = true
		}
		if flushers := rng.IntN(3); flushers > 0 {
			replicas[1].Ack(end, end)
			met[1], met[2] = true, true
			if flushers == 2 {
				replicas[2].Ack(end, end)
				met[3] = true
			}
		}
		for now := time.Second; now <= 6*time.Second; now += time.Second {
			advance(now)
			want := []Outcome{Done, Pending, Pending, Pending}
			for i := range want {
				if met[i] {
					want[i] = Done
				} else if i > 0 && classes[i].deadline <= now {
					want[i] = Expired
				}
			}
			check(fmt.Sprint("at ", now), want...)
		}
	}
}
