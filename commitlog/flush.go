package commitlog

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// flusher makes the log durable, on a goroutine of its own and one fdatasync
// at a time: whoever asks while one runs is served by the next (RocketMQ
// FlushRealTimeService and GroupCommitService).
//
// A segment is synced to its last byte before any byte of the next counts as
// flushed; its name was made durable when it was made. After a failure nothing
// is ever synced again: the kernel reports an error once and forgets which
// bytes it was about, so a second answer proves nothing.
type flusher struct {
	log    *Log
	wanted atomic.Int64  // highest offset somebody asked for
	kick   chan struct{} // capacity 1
	quit   chan struct{}
	done   chan struct{}

	// mu is held for a pass; a truncation holds it to keep passes out.
	mu        sync.Mutex
	rewriteTo int64         // guarded by mu: recovered bytes below are written again before they are synced
	thorough  time.Time     // the goroutine's: when everything was flushed last
	took      time.Duration // the goroutine's: by the last sync
	came      int64         // the goroutine's: bytes from where the last sync began to what was asked for when it was over

	border    atomic.Int64 // a record's border below which every byte is durable
	timestamp atomic.Int64 // ms: records stored before it are durable

	moving struct { // for Flush
		sync.Mutex
		changed chan struct{} // closed when the flushed offset moved or never will; nil while nobody waits
	}
}

func newFlusher(l *Log) *flusher {
	f := &flusher{log: l, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	return f
}

func (f *flusher) start() {
	f.thorough = f.log.opts.Monotonic()
	f.log.goes(f.run, f.done)
}

func (f *flusher) run() {
	defer close(f.done)
	tick := time.NewTicker(f.log.opts.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			f.finish()
			return
		case <-f.kick:
			for f.serve() {
				f.gather()
			}
		case <-tick.C:
			f.interval(f.log.opts.Monotonic())
		}
	}
}

// serve flushes, if somebody asked for it, and tells whether it did.
func (f *flusher) serve() bool {
	return f.asked() > f.log.flushed.Load() && f.pass()
}

// asked is up to where somebody asked for a flush.
func (f *flusher) asked() int64 { return min(f.wanted.Load(), f.log.end.Load()) }

// gather waits a moment for those whom the last sync served to come again before
// the next begins: each would serve only half of them otherwise, those who came
// during the one before. It waits for as many bytes as were asked for from the beginning of
// the last sync to its end, while more are, and for half of the last sync's time at most, unless
// those whom it lets go first take longer. What PostgreSQL's commit_delay is for, without a time to set.
func (f *flusher) gather() {
	l, now := f.log, f.log.opts.Monotonic
	began, asked := now(), f.asked()
	grown, limit := began, min(f.took/2, gatherLimit)
	for at := began; asked-l.flushed.Load() < f.came && at.Sub(grown) < gatherQuiet && at.Sub(began) < limit; at = now() {
		runtime.Gosched() // to those who were woken
		if to := f.asked(); to != asked {
			asked, grown = to, at
		}
	}
}

// finish flushes what there is, for the last time.
func (f *flusher) finish() {
	f.pass()
	f.announce()
}

// interval flushes without being asked, if there is enough to do or it was put
// off for long enough.
func (f *flusher) interval(now time.Time) {
	l := f.log
	since := now.Sub(f.thorough)
	if l.opts.flushDue(l.end.Load(), l.flushed.Load(), since) {
		f.pass()
	}
	if since >= l.opts.FlushThorough {
		f.thorough = now
	}
}

// flushDue tells whether an interval is to flush, since after the last
// thorough one.
func (o *Options) flushDue(end, flushed int64, since time.Duration) bool {
	const page = 4096 // RocketMQ's, whatever the machine's is
	return end > flushed && (since >= o.FlushThorough || end/page-flushed/page >= int64(o.FlushPages))
}

// stop flushes what there is and ends the goroutine. No byte may be added.
func (f *flusher) stop() {
	close(f.quit)
	<-f.done
	if f.log.opts.Manual {
		f.finish()
	}
}

// RequestFlush has the log made durable up to offset soon, by one fdatasync
// for all that ask meanwhile. FlushedOffset and Options.OnFlushed tell when.
// Any goroutine, does not block.
func (l *Log) RequestFlush(offset int64) {
	f := l.flusher
	raise(&f.wanted, offset)
	if offset > l.flushed.Load() {
		signal(f.kick)
	}
	if l.replica.Load() {
		l.dispatcher.hurry() // flushed counts there once it was checked
	}
}

// Flush makes everything up to now durable. An error says why it is not, and
// that the log takes no more writes.
func (l *Log) Flush() error {
	if l.readOnly {
		return ErrReadOnly
	}
	end := l.end.Load()
	l.RequestFlush(end)
	if l.opts.Manual {
		l.Work(FlushWorker)
	}
	for {
		changed := l.flusher.moved()
		// A truncation may have taken the end back.
		if l.flushed.Load() >= min(end, l.end.Load()) {
			return nil
		}
		if err := l.Writable(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-l.flusher.done:
			if l.flushed.Load() < min(end, l.end.Load()) {
				return ErrClosed
			}
		}
	}
}

// moved returns a channel that the next announcement closes.
func (f *flusher) moved() <-chan struct{} {
	f.moving.Lock()
	defer f.moving.Unlock()
	if f.moving.changed == nil {
		f.moving.changed = make(chan struct{})
	}
	return f.moving.changed
}

func (f *flusher) announce() {
	f.moving.Lock()
	defer f.moving.Unlock()
	if f.moving.changed != nil {
		close(f.moving.changed)
		f.moving.changed = nil
	}
}

// pass syncs up to where the log ends when it begins. It returns false when the
// log is in trouble.
func (f *flusher) pass() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.log
	if l.failed.Load() != nil {
		return false
	}
	border, timestamp := l.DispatchedOffset(), l.timestamp.Load()
	end := l.end.Load()
	for from := l.flushed.Load(); from < end; {
		s := l.list.Load().find(from)
		if s == nil || !s.acquire() {
			l.fail(fmt.Errorf("flush at offset %d: its segment is gone; the log holds %d to %d", from, l.MinOffset(), end))
			f.announce()
			return false
		}
		to := min(end, s.end())
		err := f.sync(s, from, to)
		s.release()
		if err != nil {
			l.fail(fmt.Errorf("flush segment %s: %w", s.path, err))
			f.announce()
			return false
		}
		f.came = f.asked() - from
		l.flushed.Store(to)
		l.window.synced(to - from)
		from = to
		f.announce()
		if l.opts.OnFlushed != nil {
			l.opts.OnFlushed(to)
		}
		if from == s.end() {
			l.keeper.wake() // a segment is full: note it soon
		}
	}
	if border <= end && border > f.border.Load() {
		f.border.Store(border)
	}
	f.timestamp.Store(timestamp)
	return true
}

const (
	// gatherQuiet is for how long nobody came when nobody is waited for any more.
	gatherQuiet = 20 * time.Microsecond

	// gatherLimit is how long others are waited for however slow the disk is.
	gatherLimit = time.Millisecond
)

// sync makes [from, to) of a segment durable. Bytes that a recovery found are
// written again first: if the process before us saw an fsync fail, they may be
// clean in memory and yet not on the disk.
func (f *flusher) sync(s *segment, from, to int64) error {
	if from < f.rewriteTo {
		if err := f.rewrite(s, from, min(to, f.rewriteTo)); err != nil {
			return err
		}
	}
	file, err := s.use()
	if err != nil {
		return err
	}
	// The kernel writes folios as a whole, and stops all processors for each page of
	// them that is mapped.
	first, last := from-s.base, to-s.base
	first -= first % windowStep
	last = min(last+windowStep-1-(last-1)%windowStep, s.size)
	_ = file.file.Forget(first, last-first) // pinned pages stay
	began := f.log.opts.Monotonic()
	if err := file.file.Sync(); err != nil {
		return err
	}
	f.took = f.log.opts.Monotonic().Sub(began)
	if f.log.opts.OnFsync != nil {
		f.log.opts.OnFsync(f.took)
	}
	return s.checkSize(file.file)
}

func (f *flusher) rewrite(s *segment, from, to int64) error {
	file, err := f.log.disk.Open(s.path, true)
	if err != nil {
		return err
	}
	if err := file.Rewrite(from-s.base, to-from); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// durable gives a record's border below which every byte is on the disk.
func (f *flusher) durable() int64 {
	// What is dispatched ends at a record's border.
	if d := f.log.DispatchedOffset(); d <= f.log.flushed.Load() {
		return d
	}
	return f.border.Load()
}
