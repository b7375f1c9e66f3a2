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
	log    *Log
	bytes  int64         // Options.PopulateBytes
	to     atomic.Int64  // pages below are present
	washed atomic.Bool   // they were written to the disk; see synced
	behind atomic.Bool   // a caller of grown is at work
	kick   chan struct{} // capacity 1
	quit   chan struct{}
	done   chan struct{}
}

func newWindow(l *Log) *window {
	w := &window{log: l, bytes: l.opts.PopulateBytes, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if w.bytes == 0 {
		w.to.Store(math.MaxInt64 / 2) // no append ever wakes us
	}
	return w
}

func (w *window) start() { go w.run() }

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
	if left >= w.bytes/2 {
		return
	}
	w.wake()
	if left < min(populateStep, w.bytes)/2 && w.behind.CompareAndSwap(false, true) {
		w.step(end)
		w.behind.Store(false)
	}
}

// wake makes the goroutine look for work. Any goroutine, no allocation.
func (w *window) wake() { signal(w.kick) }

// synced tells that an fdatasync wrote so many bytes of the log, and with them
// the window's pages, which it has write-protected: each would fault again. They
// are made writable again only under a load that soon uses them, because that
// makes them dirty again, too.
func (w *window) synced(bytes int64) {
	if w.bytes > 0 && bytes >= w.bytes/4 {
		w.washed.Store(true)
		w.wake()
	}
}

// cut tells that the log was truncated.
func (w *window) cut(to int64) { w.to.Store(min(w.to.Load(), to)) }

// populateStep is how much is made present in one system call: the goroutine
// holds a processor that long.
const populateStep = 256 << 10

func (w *window) populate() {
	l := w.log
	if w.washed.Swap(false) {
		w.cut(l.end.Load()) // pages that are writable cost only the look
	}
	for w.step(l.end.Load()) {
		runtime.Gosched()
	}
}

// step goes on by one step in the window ahead of end, if there is one to go.
func (w *window) step(end int64) bool {
	old := w.to.Load()
	from := max(old, end)
	to := w.populateFrom(from, min(from+populateStep, end+w.bytes))
	if to <= from {
		return false
	}
	w.to.CompareAndSwap(old, to) // somebody else was here, or a truncation
	return true
}

// populateFrom makes pages from an offset present, up to the offset that it
// returns: none if their segment is not there, or if populating fails, in which
// case the write itself will fault, and be guarded.
func (w *window) populateFrom(from, to int64) int64 {
	s := w.log.list.Load().last()
	if s == nil || from >= s.end() {
		s = w.log.roller.peek()
	}
	if s == nil || s.base > from || s.end() <= from || to <= from || !s.acquire() {
		return from
	}
	defer s.release()
	f := s.opened.Load()
	to = min(to, s.end())
	if f == nil || !f.writable || f.file.Populate(from-s.base, to-from) != nil {
		return from
	}
	return to
}
