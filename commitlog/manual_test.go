package commitlog

import (
	"math"
	"runtime"
	"testing"
	"time"
)

// A manual log does nothing by itself: what is due is done when its owner says
// so, or inside the call that would wait for it.
func TestManualLogDoesNothingByItself(t *testing.T) {
	before := runtime.NumGoroutine()
	o := twinOptions(NewTwin(1))
	now := time.UnixMilli(1_700_000_000_000)
	o.Manual, o.FlushPages, o.Monotonic = true, 1, func() time.Time { return now }
	flushed, dispatched := int64(0), int64(0)
	o.OnFlushed, o.OnDispatched = func(at int64) { flushed = at }, func(at int64) { dispatched = at }
	l := mustOpen(t, o)
	for range 40 { // over segments' borders: each is made inside the append
		mustPut(t, l, "topic", 0, 500)
	}
	end := l.EndOffset()
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines more", n-before)
	}
	if end < 2*o.SegmentBytes || l.FlushedOffset() != 0 || l.DispatchedOffset() != 0 || flushed != 0 || dispatched != 0 {
		t.Errorf("end %d, flushed %d, dispatched %d before any work", end, l.FlushedOffset(), l.DispatchedOffset())
	}
	l.Work(FlushWorker)
	if flushed != 0 {
		t.Errorf("flushed to %d, and nobody has asked", flushed)
	}
	l.Work(IntervalWorker)
	l.Work(DispatchWorker)
	if flushed != end || dispatched != end {
		t.Errorf("flushed to %d and dispatched to %d of %d", flushed, dispatched, end)
	}
	mustPut(t, l, "topic", 0, 500)
	l.RequestFlush(l.EndOffset())
	if l.FlushedOffset() != end {
		t.Error("flushed at once")
	}
	l.Work(FlushWorker)
	if flushed != l.EndOffset() {
		t.Errorf("flushed to %d of %d", flushed, l.EndOffset())
	}
	mustPut(t, l, "topic", 0, 500)
	must(t, l.Flush()) // does it itself
	if l.FlushedOffset() != l.EndOffset() {
		t.Errorf("flushed to %d of %d", l.FlushedOffset(), l.EndOffset())
	}
	must(t, l.Close())
	for w := range WorkersEnd {
		l.Work(w)
	}
	l = mustOpen(t, o)
	if !l.Info().CleanShutdown || l.FlushedOffset() != l.EndOffset() {
		t.Errorf("clean %v, flushed %d of %d", l.Info().CleanShutdown, l.FlushedOffset(), l.EndOffset())
	}
	must(t, l.Close())
}

// A manual replica is told of its next segment inside Work.
func TestManualReplicaGetsItsSegmentFromWork(t *testing.T) {
	o := twinOptions(NewTwin(1))
	ready := 0
	o.Manual, o.OnSegmentReady = true, func() { ready++ }
	l := mustOpen(t, o)
	if _, err := l.Reserve(math.MaxInt32); err != ErrSegmentPending || ready != 0 {
		t.Fatalf("%v, told %d times", err, ready)
	}
	l.Work(RollerWorker)
	room, err := l.Reserve(math.MaxInt32)
	if err != nil || int64(len(room)) != o.SegmentBytes || ready != 1 {
		t.Errorf("%d bytes, %v, told %d times", len(room), err, ready)
	}
	must(t, l.Close())
}
