package reactor

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestALoopSpinsOnlyForTheTimeGiven(t *testing.T) {
	const spin = 2 * time.Millisecond
	g := open(t, Options{Spin: spin})
	l := g.Loop(0)
	slept := make(chan time.Duration)
	on(t, l, func() {
		if !l.signal.awake.Load() {
			t.Error("a loop that runs takes itself for asleep")
		}
		since := l.Now()
		go func() {
			for l.signal.awake.Load() {
				runtime.Gosched()
			}
			slept <- Now() - since
		}()
	})
	if took := await(t, slept, "sleep"); took < spin {
		t.Errorf("the loop slept after %v", took)
	}
	on(t, l, func() {}) // and it can be woken
}

// A loop whose events follow each other closely looks for the next one before it
// sleeps; not after a long pause, nor after it has looked in vain.
func TestALoopGlancesWherePausesAreShort(t *testing.T) {
	l := &Loop{}
	l.rest.loop = l
	pause := func(d time.Duration, slept bool, want time.Duration) {
		t.Helper()
		l.now += d
		l.rest.paused, l.rest.glanced, l.rest.slept = true, slept && l.rest.likely(), slept
		if l.rest.over(); l.rest.patience() != want {
			t.Errorf("after a pause of %v: %v of patience, want %v", d, l.rest.patience(), want)
		}
	}
	for _, end := range []func(){
		func() { pause(time.Hour, false, 0) },
		func() { pause(glance+1, false, 0) },
		func() { pause(glance+wakeUp, true, 0) },
	} {
		for range glanceAfter - 1 {
			pause(glance+wakeUp, true, 0)
		}
		for range 100 {
			pause(glance, false, glance)
		}
		end()
	}
	for range 100 {
		pause(time.Microsecond, false, 0)
		pause(time.Millisecond, true, 0)
		l.rest.over() // a turn without a pause before it tells nothing
	}
	l.rest.spin = time.Second
	pause(time.Hour, true, time.Second)
}

// asleep waits until the loop is.
func asleep(l *Loop) {
	for l.signal.awake.Load() {
		runtime.Gosched()
	}
}

func TestAGlanceInVainIsTheLast(t *testing.T) {
	g := open(t, Options{Loops: 1})
	l := g.Loop(0)
	on(t, l, func() { l.rest.short, l.rest.paused = 100, false }) // of which this is none
	asleep(l)
	on(t, l, func() {}) // ends the pause
	on(t, l, func() {
		if l.rest.short > 1 {
			t.Errorf("%d pauses in a row count as short after one that was slept through", l.rest.short)
		}
	})
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestALoopThatWasWokenSleepsAgain(t *testing.T) {
	for name, o := range map[string]Options{"parks": {Loops: 2}, "pinned": {Loops: 1, PinCPUs: []int{aCPU(t)}}} {
		t.Run(name, func(t *testing.T) {
			g := open(t, o)
			for i := range 20 * g.Len() {
				asleep(g.Loop(i % g.Len()))
				on(t, g.Loop(i%g.Len()), func() {})
			}
			for i := range g.Len() {
				asleep(g.Loop(i))
			}
			before := cpuTime(t)
			const pause = 300 * time.Millisecond
			time.Sleep(pause) // what is looked for is work in it
			if used := cpuTime(t) - before; used > pause/3 {
				t.Errorf("%v of CPU time in %v without work", used, pause)
			}
		})
	}
}

// Events that came together are no sign that others follow soon.
func TestABatchOfEventsIsOnePause(t *testing.T) {
	g := open(t, Options{Loops: 1})
	l := g.Loop(0)
	const conns = 2 * glanceAfter
	read := make(chan struct{}, conns)
	h := &hooks{readable: func(c *Conn) {
		if !l.busy {
			t.Error("an event of a connection does not count")
		}
		_, _ = c.Readv([][]byte{make([]byte, 8)})
		read <- struct{}{}
	}}
	var raws []int
	for range conns {
		raw, _ := pair(t, g, h)
		raws = append(raws, raw)
	}
	asleep(l)
	on(t, l, func() { l.rest.short = 0 })
	release := hold(t, l, nil)
	for _, raw := range raws {
		writeRaw(t, raw, []byte("x"))
	}
	release()
	for range conns {
		await(t, read, "events")
	}
	on(t, l, func() {
		if l.rest.short >= glanceAfter {
			t.Errorf("%d events of one batch made %d short pauses", conns, l.rest.short)
		}
	})
	for _, raw := range raws {
		shut(t, raw)
	}
}

// What is posted to a sleeping loop does not wait until no goroutine is runnable.
// Counted is what others did meanwhile.
func TestASleepingLoopIsWokenWhileAllProcessorsAreBusy(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	g := open(t, Options{Loops: procs + 2})
	if procs > 1 && !g.Loop(0).poller.parks {
		t.Error("loops do not sleep in Go's poller")
	}
	var turns atomic.Int64
	for i := 1; i < g.Len(); i++ {
		var waker *Waker
		waker = g.Loop(i).NewWaker(func() {
			turns.Add(1)
			waker.Wake()
		})
		waker.Wake()
	}
	var meanwhile []int64
	for range 101 {
		asleep(g.Loop(0))
		before := turns.Load()
		on(t, g.Loop(0), func() { meanwhile = append(meanwhile, turns.Load()-before) })
	}
	slices.Sort(meanwhile)
	if median := meanwhile[len(meanwhile)/2]; median > 2000 {
		t.Errorf("others had %d turns before a loop woke up (all: %v)", median, meanwhile)
	}
}
