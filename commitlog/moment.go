package commitlog

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
)

// moment is one reading of the clock.
type moment struct {
	since time.Duration // since Log.began
	ms    int64         // the wall clock
}

// wallClock knows the wall clock's time from one reading of the monotonic clock,
// where time.Now reads both: a reading costs as much as a copy of a small message.
// It looks at the wall clock itself once in wallClockRead, and so follows it when it is set.
//
// Any goroutine.
type wallClock struct {
	given func() time.Time // Options.Now, in place of all that; nil: none. Never changes
	_     cpu.CacheLinePad
	read  atomic.Int64 // since began, of the last look; 0: none yet
	began atomic.Int64 // what the wall clock showed at Log.began, by that look; ns
	_     cpu.CacheLinePad
}

// readWall looks at the wall clock, and again if it was kept from the processor between
// the two clocks that time.Now reads: the time until the next look would be wrong by that.
func (l *Log) readWall(before time.Duration) (since time.Duration) {
	const together = 50 * time.Microsecond
	var t time.Time
	for range 4 {
		t = time.Now()
		if since = t.Sub(l.began); since-before < together {
			break
		}
		before = since
	}
	l.wall.began.Store(t.UnixNano() - int64(since))
	l.wall.read.Store(int64(since))
	return since
}

const wallClockRead = time.Millisecond // store timestamps count milliseconds

// now reads the clock.
func (l *Log) now() moment {
	w := &l.wall
	if w.given != nil {
		t := w.given()
		return moment{t.Sub(l.began), t.UnixMilli()}
	}
	since := time.Since(l.began)
	if read := time.Duration(w.read.Load()); read == 0 || since-read >= wallClockRead {
		since = l.readWall(since)
	}
	return moment{since, (w.began.Load() + int64(since)) / int64(time.Millisecond)}
}
