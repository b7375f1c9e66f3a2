package reactor

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The heap against a plain list, without a kernel: a loop that is stopping
// arms nothing.
func TestTimersRunLikeASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			id, seq int
			at      time.Duration
		}
		l := &Loop{stopping: true}
		l.timers.loop = l
		var ran []int
		timers := make([]*Timer, 8)
		for i := range timers {
			timers[i] = l.NewTimer(func() { ran = append(ran, i) })
		}
		var model []entry
		drop := func(id int) {
			model = slices.DeleteFunc(model, func(e entry) bool { return e.id == id })
		}
		seq := 0
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				id := rapid.IntRange(0, len(timers)-1).Draw(t, "id")
				at := time.Duration(rapid.IntRange(-5, 20).Draw(t, "offset")) + l.now
				timers[id].ResetAt(at)
				drop(id)
				seq++
				model = append(model, entry{id, seq, max(at, l.now)})
			},
			"stop": func(t *rapid.T) {
				id := rapid.IntRange(0, len(timers)-1).Draw(t, "id")
				timers[id].Stop()
				drop(id)
			},
			"time passes": func(t *rapid.T) {
				l.now += time.Duration(rapid.IntRange(0, 10).Draw(t, "passed"))
				ran = nil
				l.timers.ready(0)
				slices.SortFunc(model, func(a, b entry) int {
					return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
				})
				var want []int
				for len(model) > 0 && model[0].at <= l.now {
					want = append(want, model[0].id)
					model = model[1:]
				}
				if !slices.Equal(ran, want) {
					t.Fatalf("ran %v, want %v", ran, want)
				}
			},
			"": func(t *rapid.T) {
				if len(l.timers.heap) != len(model) {
					t.Fatalf("%d timers set, want %d", len(l.timers.heap), len(model))
				}
				for _, e := range model {
					if at, ok := timers[e.id].At(); !ok || at != e.at {
						t.Fatalf("timer %d is set for %v, %v, want %v", e.id, at, ok, e.at)
					}
				}
			},
		})
	})
}

func TestTimersRunInOrderAndNeverEarly(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	const n = 50
	var order []int
	done := make(chan struct{})
	on(t, l, func() {
		base := l.Now()
		for _, i := range []int{3, 1, 4, 0, 2} {
			for j := i; j < n; j += 5 {
				at := base + time.Duration(j)*time.Millisecond/2
				l.NewTimer(func() {
					if now := Now(); now < at || l.Now() < at {
						t.Errorf("timer for %v ran at %v, the loop's time being %v", at, now, l.Now())
					}
					if order = append(order, j); len(order) == n {
						close(done)
					}
				}).ResetAt(at)
			}
		}
	})
	await(t, done, "timers")
	if !slices.IsSorted(order) {
		t.Errorf("ran in order %v", order)
	}
}

func TestAMovedTimerRunsAtItsLastTimeOnly(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	runs := 0
	done := make(chan struct{})
	on(t, l, func() {
		moved := l.NewTimer(func() { runs++ })
		stopped := l.NewTimer(func() { t.Error("a stopped timer ran") })
		moved.ResetAt(l.Now() + time.Hour)
		stopped.ResetAt(l.Now() + time.Millisecond)
		moved.ResetAt(l.Now() + 2*time.Millisecond)
		moved.ResetAt(l.Now() + 4*time.Millisecond)
		stopped.Stop()
		stopped.Stop()
		l.NewTimer(func() {
			if runs != 0 {
				t.Error("ran at its earlier time")
			}
		}).ResetAt(l.Now() + 3*time.Millisecond)
		l.NewTimer(func() { close(done) }).ResetAt(l.Now() + 6*time.Millisecond)
	})
	await(t, done, "last timer")
	on(t, l, func() {
		if runs != 1 {
			t.Errorf("ran %d times", runs)
		}
	})
}

func TestATimerSetToThePastLeavesRoomForOthers(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	runs := 0
	var again *Timer
	on(t, l, func() {
		again = l.NewTimer(func() {
			runs++
			again.ResetAt(0)
		})
		again.ResetAt(0)
		if runs != 0 {
			t.Error("ran inside ResetAt")
		}
	})
	// Functions get their turns beside it, and so does another timer.
	done := make(chan struct{})
	on(t, l, func() { l.NewTimer(func() { close(done) }).ResetAt(l.Now() + time.Millisecond) })
	await(t, done, "other timer")
	on(t, l, func() {
		if runs == 0 {
			t.Error("the timer did not run")
		}
		again.Stop()
	})
}

func TestATroubleIsLoggedOnceAMinute(t *testing.T) {
	var q quiet
	start := 5 * time.Hour
	lines, unreported := 0, 0
	for i := range 600 { // a second apart
		if skipped, ok := q.allow(start + time.Duration(i)*time.Second); ok {
			lines++
			unreported += skipped
		}
	}
	if lines != 10 || unreported != 9*59 {
		t.Errorf("%d lines, %d events counted in them, want 10 and %d", lines, unreported, 9*59)
	}
}
