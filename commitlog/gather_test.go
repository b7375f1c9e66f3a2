package commitlog

import (
	"testing"
	"time"
)

// How long the flusher waits for those whom the last sync served: the clock moves on
// by a microsecond with each look, and some of them append meanwhile.
func TestFlusherGathersThoseWhoComeAgain(t *testing.T) {
	const µs = time.Microsecond
	for _, c := range []struct {
		name  string
		took  time.Duration // by the last sync
		came  int           // records from its beginning to its end
		there int           // of these, not flushed yet
		every time.Duration // a record is appended so often
		want  time.Duration
		comes int // records that were waited for
	}{
		{"all are there", 200 * µs, 3, 3, 0, 0, 0},
		{"they come one after the other", 200 * µs, 8, 4, 5 * µs, 20 * µs, 4},
		{"nobody comes", 200 * µs, 8, 4, 0, gatherQuiet, 0},
		{"they come, but slowly", 200 * µs, 100, 4, 15 * µs, 100 * µs, 6},
		{"too slowly", 200 * µs, 8, 4, 30 * µs, gatherQuiet, 0},
		{"the disk is faster than they", 10 * µs, 8, 4, 2 * µs, 5 * µs, 2},
		{"a slow disk", time.Second, 8000, 4, 15 * µs, gatherLimit, 66},
		{"the last sync took no time", 0, 8, 4, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l *Log
			clock, came := time.Unix(0, 0), 0
			gathering := time.Time{}
			o := twinOptions(NewTwin(1))
			o.Manual, o.SegmentBytes = true, 1<<20
			o.Monotonic = func() time.Time {
				if gathering.IsZero() {
					return clock
				}
				if passed := clock.Sub(gathering); c.every > 0 && passed > 0 && passed%c.every == 0 {
					l.RequestFlush(mustPut(t, l, "topic", 0, 100).EndOffset)
					came++
				}
				now := clock
				clock = clock.Add(µs)
				return now
			}
			l = mustOpen(t, o)
			record := mustPut(t, l, "topic", 0, 100).EndOffset
			must(t, l.Flush())
			for range c.there {
				l.RequestFlush(mustPut(t, l, "topic", 0, 100).EndOffset)
			}
			l.flusher.took, l.flusher.came = c.took, record*int64(c.came)
			gathering = clock
			l.flusher.gather()
			// The look at the beginning and the one that ended it.
			if took := clock.Sub(gathering) - µs; (took-c.want).Abs() > µs || came != c.comes {
				t.Errorf("%v, %d came; want %v, %d", took, came, c.want, c.comes)
			}
			gathering = time.Time{}
		})
	}
}

// What is waited for is what came from the beginning of a sync to its end: those
// whom it served and those who came too late for it.
func TestFlusherExpectsWhomItServedAndWhoWaits(t *testing.T) {
	disk := &slowDisk{Disk: NewTwin(1)}
	var l *Log
	late := 0
	disk.before = func() {
		for ; late > 0; late-- {
			l.RequestFlush(mustPut(t, l, "topic", 0, 100).EndOffset)
		}
	}
	o := twinOptions(nil)
	o.Disk, o.Manual, o.SegmentBytes = disk, true, 1<<20
	l = mustOpen(t, o)
	record := mustPut(t, l, "topic", 0, 100).EndOffset
	must(t, l.Flush())
	for range 3 {
		mustPut(t, l, "topic", 0, 100)
	}
	late = 2
	l.RequestFlush(l.EndOffset())
	if !l.flusher.serve() || l.FlushedOffset() != 4*record {
		t.Errorf("flushed to %d, want four records of %d", l.FlushedOffset(), record)
	}
	if got := l.flusher.came; got != 5*record {
		t.Errorf("%d bytes are waited for, want five records of %d", got, record)
	}
	mustPut(t, l, "topic", 0, 100) // and nobody waits for it
	if !l.flusher.serve() || l.FlushedOffset() != 7*record {
		t.Errorf("flushed to %d, want seven records of %d", l.FlushedOffset(), record)
	}
	if got := l.flusher.came; got != 2*record {
		t.Errorf("%d bytes are waited for, want two records of %d", got, record)
	}
}
