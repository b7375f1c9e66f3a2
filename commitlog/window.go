package commitlog

import (
	"math"
	"runtime"
	"sync/atomic"
)

// window keeps the pages of a few MiB ahead of the end present and writable, on
// a goroutine of its own, so that appends and receives do not fault. Never a
// whole segment: populated pages are dirty, and the next fdatasync writes them.
//
// Not on the roller's goroutine: that one waits for the disk while it makes a
// segment, and the log goes through a window meanwhile.
type window struct {
	log     *Log
	bytes   int64         // Options.PopulateBytes
	to      atomic.Int64  // pages below are present
	washed  atomic.Bool   // they were written to the disk; see synced
	starved atomic.Bool   // the next segment is not there yet
	helped  atomic.Bool   // a caller of grown is at work
	kick    chan struct{} // capacity 1
	quit    chan struct{}
	done    chan struct{}
}

func newWindow(l *Log) *window {
	w := &window{log: l, bytes: l.opts.PopulateBytes, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if w.bytes == 0 {
		w.to.Store(math.MaxInt64 / 2) // no append ever wakes us
	}
	return w
}

func (w *window) start() {
	w.wake()
	w.log.goes(w.run, w.done)
}

func (w *window) stop() {
	close(w.quit)
	<-w.done
}

func (w *window) run() {
	defer close(w.done)
	for {
		select {
		case <-w.quit:
			return
		case <-w.kick:
			w.populate()
		}
	}
}

// grown tells that the log ends at end now. Any goroutine, no allocation, free
// while half of the window is left. If the goroutine gets no processor, the
// caller makes the next pages present itself: many in one call cost less than a
// fault for each.
func (w *window) grown(end int64) {
	left := w.to.Load() - end
	if left >= w.bytes/2 || w.starved.Load() {
		return
	}
	signal(w.kick)
	if left < min(populateStep, w.bytes)/2 && w.helped.CompareAndSwap(false, true) {
		w.step(end)
		w.helped.Store(false)
	}
}

// wake tells that there may be a segment to go on in.
func (w *window) wake() {
	w.starved.Store(false)
	signal(w.kick)
}

// synced tells that an fdatasync wrote so many bytes of the log, and with them
// the window's pages, which it has write-protected: each would fault again. They
// are made writable again only under a load that soon uses them, because that
// makes them dirty again, too.
func (w *window) synced(bytes int64) {
	if w.bytes > 0 && bytes >= w.bytes/4 {
		w.washed.Store(true)
		signal(w.kick)
	}
}

// cut tells that the log was truncated, or that a segment was replaced.
func (w *window) cut(to int64) {
	if w.bytes == 0 {
		return
	}
	for old := w.to.Load(); to < old && !w.to.CompareAndSwap(old, to); old = w.to.Load() {
		continue
	}
	w.wake()
}

// populateStep is how much is made present in one system call: the goroutine
// holds a processor that long.
const populateStep = 256 << 10

func (w *window) populate() {
	l := w.log
	if w.washed.Swap(false) {
		// Up to where the window was: appends go by that meanwhile.
		for at := l.end.Load(); ; runtime.Gosched() {
			at = max(at, l.end.Load())
			next := w.populateFrom(at, min(at+populateStep, w.to.Load()))
			if next <= at {
				break
			}
			at = next
		}
	}
	for w.step(l.end.Load()) {
		runtime.Gosched()
	}
}

// step goes on by one step in the window ahead of end, if there is one to go.
func (w *window) step(end int64) bool {
	old := w.to.Load()
	from := max(old, end)
	to := min(from+populateStep, end+w.bytes)
	if to <= from {
		return false
	}
	reached := w.populateFrom(from, to)
	if reached <= from {
		w.starved.Store(true) // until the roller has made the next segment
		// It may have, and told us, before that.
		if reached = w.populateFrom(from, to); reached <= from {
			return false
		}
	}
	if w.starved.Load() {
		w.starved.Store(false)
	}
	w.to.CompareAndSwap(old, reached) // somebody else may have been here
	return true
}

// populateFrom makes pages from an offset present, up to the offset that it
// returns: none if their segment is not there. That populating fails, on an old
// kernel or a full disk, is left to the write, which then faults and is guarded.
func (w *window) populateFrom(from, to int64) int64 {
	next := w.log.roller.peek() // before the list, which it moves to
	s := w.log.list.Load().last()
	if s == nil || from >= s.end() {
		s = next
	}
	if s == nil || s.base > from || s.end() <= from || to <= from || !s.acquire() {
		return from
	}
	defer s.release()
	to = min(to, s.end())
	if f := s.opened.Load(); f != nil && f.writable {
		_ = f.file.Populate(from-s.base, to-from)
	}
	return to
}
