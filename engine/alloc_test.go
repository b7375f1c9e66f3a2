//go:build !race

package engine

import (
	"context"
	"strings"
	"testing"
)

// The race detector's instrumentation allocates, so these run without it.

func TestPutAllocatesNothingInSteadyState(t *testing.T) {
	t.Run("asynchronous master", func(t *testing.T) {
		expectNoAllocations(t, openMaster(t, Options{SegmentBytes: 64 << 20}))
	})
	t.Run("synchronous master and its replica", func(t *testing.T) {
		m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20})
		openSlave(t, m, Options{SegmentBytes: 64 << 20})
		waitReplicas(t, m, 1)
		expectNoAllocations(t, m)
	})
	t.Run("synchronous master and three replicas", func(t *testing.T) {
		m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20})
		for range 3 {
			openSlave(t, m, Options{SegmentBytes: 64 << 20})
		}
		waitReplicas(t, m, 3)
		expectNoAllocations(t, m)
	})
	t.Run("synchronous master and its replica, RocketMQ's protocol", func(t *testing.T) {
		m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20, Wire: WirePlain})
		openSlave(t, m, Options{SegmentBytes: 64 << 20, Wire: WirePlain})
		waitReplicas(t, m, 1)
		expectNoAllocations(t, m)
	})
	t.Run("frames by sendfile", func(t *testing.T) {
		m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20, SendfileMinBytes: 1})
		openSlave(t, m, Options{SegmentBytes: 64 << 20})
		waitReplicas(t, m, 1)
		expectNoAllocations(t, m)
	})
	t.Run("pipelined", func(t *testing.T) {
		m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20})
		openSlave(t, m, Options{SegmentBytes: 64 << 20})
		waitReplicas(t, m, 1)
		expectNoAllocationsPipelined(t, m)
	})
	t.Run("synchronous flush", func(t *testing.T) {
		expectNoAllocations(t, openMaster(t, Options{Flush: SyncFlush, SegmentBytes: 64 << 20}))
	})
}

// expectNoAllocations counts what the whole process allocates for a put: the
// producer, the loops on both sides, the flusher and the dispatcher.
func expectNoAllocations(t *testing.T, m *Engine) {
	t.Helper()
	ctx, msg := context.Background(), message("t", 0, strings.Repeat("x", 1000))
	put := func() {
		if _, err := m.Put(ctx, msg); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		put()
	}
	if n := leastAllocs(1000, put); n > 0 {
		t.Errorf("%v allocations a put, want 0", n)
	}
}

// leastAllocs is testing.AllocsPerRun at its best of five: what a process
// allocates for what it does by the clock counts too, and on a machine that
// stalls there is more of that in a run.
func leastAllocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for try := 1; least > 0 && try < 5; try++ {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// expectNoAllocationsPipelined is expectNoAllocations with a batch of puts under
// way, which end in a queue.
func expectNoAllocationsPipelined(t *testing.T, m *Engine) {
	t.Helper()
	const underWay = 64
	ctx, msg := context.Background(), message("t", 0, strings.Repeat("x", 1000))
	queue, done := m.NewCompletions(underWay), make([]Completion, underWay)
	batch := func() {
		for tag := range underWay {
			if err := queue.Put(ctx, msg, uint64(tag)); err != nil {
				t.Fatal(err)
			}
		}
		for ended := 0; ended < underWay; {
			n, err := queue.Pull(ctx, done)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range done[:n] {
				if c.Err != nil {
					t.Fatal(c.Err)
				}
			}
			ended += n
		}
	}
	for range 20 {
		batch()
	}
	if n := leastAllocs(100, batch); n > 0 {
		t.Errorf("%v allocations for %d puts, want 0", n, underWay)
	}
}
