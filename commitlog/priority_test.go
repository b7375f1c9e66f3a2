package commitlog

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// niceness gives the nice value of the calling thread.
func niceness(t testing.TB) int {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err != nil {
		t.Error(err)
	}
	return 20 - p // as the system call has it: getpriority(2)
}

// lowThreads counts the process's threads at the lowest priority.
func lowThreads(t testing.TB) (n int) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		// A thread may end meanwhile.
		if p, err := unix.Getpriority(unix.PRIO_PROCESS, id); err == nil && 20-p == lowestPriority {
			n++
		}
	}
	return n
}

// Whether the dispatcher comes after everybody else.
func TestDispatcherStepsBack(t *testing.T) {
	const bulk = dispatchChunkBytes
	for _, c := range []struct {
		name            string
		master, low     bool
		from, at, needs int64
		end             int64
		want            bool
	}{
		{"replica, records in bulk", false, false, 0, bulk, 0, 2 * bulk, true},
		{"replica, all of the bulk is dispatched", false, false, 0, bulk, 0, bulk, true},
		{"replica, few records", false, false, bulk, 2*bulk - 1, 0, 2*bulk - 1, false},
		{"replica, much to do, the pass has just begun", false, false, 0, 0, 0, 100 * bulk, false},
		{"replica, few records and low already", false, true, 0, 1, 0, 1, true},
		{"replica, low, the pass has just begun", false, true, bulk, bulk, 0, 2 * bulk, true},
		{"master, records in bulk", true, false, 0, bulk, 0, 2 * bulk, false},
		{"promoted meanwhile", true, true, 0, bulk, 0, 2 * bulk, false},
		{"somebody waits", false, true, 0, bulk, 2 * bulk, 2 * bulk, false},
		{"somebody waited, for what is dispatched", false, true, 0, 2 * bulk, 2 * bulk, 3 * bulk, true},
		{"behind as far as may be", false, true, 0, bulk, 0, bulk + dispatchBehindBytes, true},
		{"too far behind", false, true, 0, bulk, 0, bulk + dispatchBehindBytes + 1, false},
	} {
		l := &Log{}
		l.end.Store(c.end)
		l.replica.Store(!c.master)
		d := newDispatcher(l, c.at)
		d.low = c.low
		d.needed.Store(c.needs)
		if got := d.stepsBack(c.from); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Once too far behind, the dispatcher competes until it has come to where the log
// ended then: not for a step only.
func TestDispatcherThatIsTooFarBehindCatchesUp(t *testing.T) {
	l := &Log{}
	l.replica.Store(true)
	l.end.Store(dispatchBehindBytes + 1)
	d := newDispatcher(l, 0)
	d.low = true
	if d.stepsBack(0) {
		t.Error("it does not compete though it is too far behind")
	}
	d.offset.Store(dispatchBehindBytes)
	if d.stepsBack(0) {
		t.Error("it competes no longer a record before its goal")
	}
	d.offset.Store(dispatchBehindBytes + 1)
	if !d.stepsBack(0) {
		t.Error("it competes though it has caught up")
	}
}

// The kernel is told, for the time of the bulk alone.
func TestReplicasDispatcherRunsAtLowPriorityInBulk(t *testing.T) {
	usual := niceness(t)
	if usual == lowestPriority {
		t.Fatalf("the test runs at the lowest priority itself")
	}
	const bulk = 8 * dispatchCommitBytes
	source := twinOptions(NewTwin(1))
	source.SegmentBytes = 2 * bulk
	from := mustOpen(t, source)
	for from.EndOffset() < bulk {
		mustPut(t, from, "topic", 0, 1000)
	}
	end := from.EndOffset()
	mustPut(t, from, "topic", 0, 1000)

	for _, c := range []struct {
		name    string
		hurried bool
		low     bool // part of the bulk is dispatched at low priority
	}{
		{"replica", false, true},
		{"replica, and somebody waits", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[int]int{} // commits by niceness
			o := twinOptions(NewTwin(1))
			o.SegmentBytes = source.SegmentBytes
			o.OnDispatched = func(int64) {
				mu.Lock()
				defer mu.Unlock()
				seen[niceness(t)]++
			}
			l := mustOpen(t, o)
			l.dispatcher.stop()
			replicate(t, from, l, end, 1<<20)
			if c.hurried {
				l.dispatcher.hurry()
			}
			l.dispatcher.start()
			awaitOffset(t, l, end)
			eventually(t, "the dispatcher rests", l.dispatcher.idle)
			mu.Lock()
			if low := seen[lowestPriority] > 0; low != c.low || len(seen) > 2 {
				t.Errorf("commits by niceness: %v", seen)
			}
			clear(seen)
			mu.Unlock()
			eventually(t, "the thread at low priority has ended", func() bool { return lowThreads(t) == 0 })
			replicate(t, from, l, from.EndOffset(), 1<<20)
			eventually(t, "the last record is in its queue", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(seen) > 0
			})
			mu.Lock()
			defer mu.Unlock()
			if len(seen) != 1 || seen[usual] == 0 {
				t.Errorf("a single record behind the bulk: commits by niceness: %v, want %d", seen, usual)
			}
		})
	}
}

// The first thread of a process, which never ends, keeps its priority.
func TestFirstThreadKeepsItsPriority(t *testing.T) {
	for range 50 {
		atLowPriority(func() {
			if unix.Gettid() == unix.Getpid() || niceness(t) != lowestPriority {
				t.Errorf("thread %d of process %d runs it at %d", unix.Gettid(), unix.Getpid(), niceness(t))
			}
		})
	}
	eventually(t, "all of its threads have ended", func() bool { return lowThreads(t) == 0 })
}
