package commitlog

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// window keeps a few MiB ahead of the end ready to be written: zeros are written
// there through the file, and their pages are mapped unless syncs are small, on a
// goroutine of its own, so that appends and receives do not fault. A write makes
// large folios of the size asked for, where a fault reads ahead as much as the
// device is set to, and whoever faulted waits for all of it. Never a whole segment:
// these pages are dirty, and the next fdatasync writes them.
//
// Invariant: nobody writes at or behind ready; whoever wants to, claims before.
// So zeros never meet a record, and what is there is zero as it was.
//
// Not on the roller's goroutine: that one waits for the disk while it makes a
// segment, and the log goes through a window meanwhile.
type window struct {
	log     *Log
	bytes   int64         // Options.PopulateBytes
	step    int64         // windowStep, or less in a smaller window
	mu      sync.Mutex    // held while ready is moved; taken inside the append section
	ready   atomic.Int64  // bytes below may be written to; stored under mu
	washed  atomic.Bool   // its pages were written to the disk; see synced
	vain    atomic.Bool   // syncs come more often than it is filled: pages are not mapped; see synced
	starved atomic.Bool   // the next segment is not there yet
	idle    atomic.Bool   // bytes are written through the file, for which no page is made ready
	kick    chan struct{} // capacity 1
	quit    chan struct{}
	done    chan struct{}
}

const (
	// windowStep is how much is made ready at a time, and the size of the folios
	// that the kernel makes of it: larger ones cost less, but the kernel also
	// writes a folio as a whole when a byte of it is synced.
	windowStep = 64 << 10

	// A window is filled again when one of windowRefill parts of it is used up: the sync
	// that takes a refill to the disk takes the longer the more it is.
	windowRefill = 8

	// windowOff is up to where all is ready in a window that has nothing to do.
	windowOff = math.MaxInt64 / 2
)

var windowZeros [windowStep]byte

func newWindow(l *Log) *window {
	w := &window{log: l, bytes: l.opts.PopulateBytes, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	w.step = min(windowStep, w.bytes)
	w.ready.Store(windowOff)
	return w
}

func (w *window) start() {
	w.cut(w.log.end.Load())
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
			w.fill()
		}
	}
}

// grown tells that the log ends at end now. Any goroutine, no allocation, free
// while the window needs no refill. If the goroutine gets no processor, the caller
// makes the next step itself.
func (w *window) grown(end int64) {
	left := w.ready.Load() - end
	if left >= w.bytes-w.bytes/windowRefill || w.starved.Load() || w.idle.Load() {
		return
	}
	signal(w.kick)
	if left < min(2*w.step, w.bytes/4) && w.mu.TryLock() {
		w.stepLocked(end)
		w.mu.Unlock()
	}
}

// claim is called inside the append section, before bytes below to are written.
// Free if they are ready, as nearly always.
func (w *window) claim(to int64) {
	if to <= w.ready.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.ready.Load() < to && w.stepLocked(to) {
		continue
	}
	w.skipLocked(to)
}

// skip is claim for bytes whose pages are not made ready: few of them, or written
// through the file.
func (w *window) skip(to int64) {
	if to <= w.ready.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skipLocked(to)
}

func (w *window) skipLocked(to int64) {
	w.ready.Store(max(to, w.ready.Load()))
}

// rest tells whether bytes are written through the file from here on, which wants
// no pages ahead, or through the mapping.
func (w *window) rest(on bool) {
	if w.idle.Load() == on {
		return
	}
	w.idle.Store(on)
	if !on {
		signal(w.kick)
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
// makes them dirty again, too. Where puts wait for the disk, and every few of them have a
// sync of their own, mapping pages is in vain, and costs a word to all processors for
// each when it is undone.
func (w *window) synced(bytes int64) {
	w.vain.Store(bytes < w.bytes/windowRefill)
	if w.bytes > 0 && bytes >= w.bytes/4 && !w.idle.Load() {
		w.washed.Store(true)
		signal(w.kick)
	}
}

// cut makes the window begin again, at the end of the log.
func (w *window) cut(end int64) {
	if w.bytes == 0 {
		return
	}
	w.mu.Lock()
	w.ready.Store(end)
	w.mu.Unlock()
	w.wake()
}

// hold keeps the window from writing until cut, because what is behind the end is not free.
func (w *window) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready.Store(windowOff)
}

// fill makes the whole window ready.
func (w *window) fill() {
	l := w.log
	if w.washed.Swap(false) {
		// Up to where the window was: appends go by that meanwhile.
		const piece = 4 * windowStep
		for at := l.end.Load(); ; runtime.Gosched() {
			ready := w.ready.Load()
			if ready == windowOff {
				break
			}
			at = max(at, l.end.Load())
			s, to := w.segment(at, min(at+piece, ready))
			if s == nil {
				break
			}
			_ = s.opened.Load().file.Populate(at-s.base, to-at)
			s.release()
			at = to
		}
	}
	for w.advance() {
		runtime.Gosched()
	}
}

func (w *window) advance() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.idle.Load() && w.stepLocked(w.log.end.Load())
}

// stepLocked makes one step if the window ahead of end has room for it. That it
// fails, on an old kernel or a full disk, is left to whoever writes there, who
// then faults and is guarded.
func (w *window) stepLocked(end int64) bool {
	from := w.ready.Load()
	if w.bytes == 0 || from == windowOff {
		return false
	}
	to := from - from%w.step + w.step
	if to > end+w.bytes || w.log.failed.Load() != nil {
		return false
	}
	s, to := w.segment(from, to)
	if s == nil {
		w.starved.Store(true) // until the roller has made the next segment
		// It may have, and told us, before that.
		if s, to = w.segment(from, to); s == nil {
			return false
		}
	}
	defer s.release()
	if w.starved.Load() {
		w.starved.Store(false)
	}
	// A file that somebody has cut is not to grow again: that would hide it.
	if f := s.opened.Load(); s.checkSize(f.file) == nil {
		_, _ = f.file.WriteAt(windowZeros[:to-from], from-s.base)
		// A burst behind a quiet time is not met by a sync soon, whatever the last ones were.
		if !w.vain.Load() || end-w.log.flushed.Load() >= w.bytes/windowRefill {
			_ = f.file.Populate(from-s.base, to-from)
		}
	}
	w.ready.Store(to)
	return true
}

// segment acquires the segment that holds the byte at from, and shortens [from, to)
// to what is in it; nil: it is not there.
func (w *window) segment(from, to int64) (*segment, int64) {
	next := w.log.roller.peek() // before the list, which it moves to
	s := w.log.list.Load().last()
	if s == nil || from >= s.end() {
		s = next
	}
	if s == nil || from < s.base || from >= s.end() || to <= from || !s.acquire() {
		return nil, to
	}
	if f := s.opened.Load(); f == nil || !f.writable {
		s.release()
		return nil, to
	}
	return s, min(to, s.end())
}
