package commitlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// errRollPending asks an append to wait for the next segment outside of the
// append section.
var errRollPending = errors.New("the next segment is being made")

// roller makes the next segment before it is needed, on a goroutine of its own
// (RocketMQ AllocateMappedFileService).
//
// A failure, most often a full disk, is told to whoever asked; whoever asks
// next causes the next attempt.
type roller struct {
	log        *Log
	allocation atomic.Uint32 // an Allocation: how the last segment got its space
	kick       chan struct{} // capacity 1
	quit       chan struct{}
	done       chan struct{}

	mu struct {
		sync.Mutex
		want     int64         // base of the segment to make; -1: none
		asked    bool          // somebody waits for it: an attempt is due
		next     *segment      // made, not yet taken
		err      error         // why the last attempt failed
		changed  chan struct{} // closed, and replaced, when next or err was set
		reserver bool          // a Reserve was told to wait
		refusal  error         // what the next Reserve returns instead of waiting
		shortage error         // why a writer's segment could not be made; nil once one was
		lastWarn time.Time
		failures int // not yet told in a warning
	}
}

func newRoller(l *Log) *roller {
	r := &roller{log: l, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	r.mu.want, r.mu.changed = -1, make(chan struct{})
	return r
}

func (r *roller) start() { r.log.goes(r.run, r.done) }

func (r *roller) run() {
	defer close(r.done)
	for {
		select {
		case <-r.quit:
			return
		case <-r.kick:
		}
		r.prepare()
	}
}

// wake makes the goroutine look for work. Any goroutine, no allocation.
func (r *roller) wake() { signal(r.kick) }

// stop ends the goroutine and everybody's wait.
func (r *roller) stop() {
	close(r.quit)
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err, r.mu.asked = ErrClosed, false
	r.announceLocked()
}

func (r *roller) announceLocked() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// expect asks for the segment at base in the background.
func (r *roller) expect(base int64) {
	r.mu.Lock()
	r.mu.want, r.mu.err = base, nil
	r.mu.Unlock()
	r.wake()
}

// take gives the segment at base and has the one after it made, or returns nil
// and has this one made: then await it. Under the append lock.
func (r *roller) take(base int64) *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wake()
	if next := r.mu.next; next != nil && next.base == base {
		r.mu.next, r.mu.want = nil, next.end()
		return next
	}
	r.mu.want, r.mu.asked, r.mu.err = base, true, nil
	return nil
}

// peek gives the segment that was made and not taken yet, if there is one.
func (r *roller) peek() *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.next
}

// asked tells whether a segment was ever wanted: one is there, or may be soon.
func (r *roller) asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.want >= 0 || r.mu.next != nil
}

// giveBack returns what take gave.
func (r *roller) giveBack(s *segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.next, r.mu.want = s, s.base
	r.announceLocked()
}

// await waits until the segment that take asked for is there or cannot be
// made.
func (r *roller) await(limit time.Duration) error {
	if r.log.opts.Manual {
		r.log.Work(RollerWorker)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		r.mu.Lock()
		next, err, asked, changed := r.mu.next, r.mu.err, r.mu.asked, r.mu.changed
		r.mu.Unlock()
		if next != nil || err == nil && !asked {
			return nil // there, or taken by another append meanwhile
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSegmentUnavailable, err)
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("%w: it was not ready within %v", ErrSegmentUnavailable, limit)
		}
	}
}

// takeForReserve is take for the replica's side, which does not wait: it is
// told by Options.OnSegmentReady when to call again.
func (r *roller) takeForReserve(base int64) (*segment, error) {
	r.mu.Lock()
	refusal := r.mu.refusal
	r.mu.refusal = nil
	r.mu.Unlock()
	if refusal != nil {
		return nil, fmt.Errorf("%w: %w", ErrSegmentUnavailable, refusal)
	}
	if s := r.take(base); s != nil {
		return s, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reserver = true
	r.wake() // an attempt that ended meanwhile has told nobody
	return nil, ErrSegmentPending
}

// Shortage is nil, or why the segment that a writer needed last could not be
// made, or a sparse one got no space: most often a full disk. To ask has it tried again, so that it ends soon
// after its cause does, whether anybody writes or not. Any goroutine.
func (l *Log) Shortage() error {
	r := l.roller
	if r == nil {
		return nil
	}
	if err := l.full(); err != nil {
		return err
	}
	r.mu.Lock()
	err := r.mu.shortage
	if err != nil {
		r.mu.asked = true
	}
	r.mu.Unlock()
	if err == nil {
		return nil
	}
	r.wake()
	return fmt.Errorf("%w: %w", ErrSegmentUnavailable, err)
}

// prepare makes the wanted segment if it is not there, and tells those who
// wait.
func (r *roller) prepare() {
	r.mu.Lock()
	want, stale := r.mu.want, r.mu.next
	due := want >= 0 && (r.mu.asked || r.mu.err == nil)
	if stale != nil && stale.base == want {
		stale, due = nil, false
	}
	if stale != nil {
		r.mu.next = nil // a truncation moved the end
	}
	r.mu.Unlock()
	if stale != nil {
		if err := r.discard(stale); err != nil {
			r.warn(err)
		}
	}
	if due {
		r.attempt(want)
		r.log.window.wake()
	}
	r.mu.Lock()
	tell := r.mu.reserver && (r.mu.next != nil || !r.mu.asked)
	if tell {
		r.mu.reserver, r.mu.refusal = false, r.mu.err
	}
	r.mu.Unlock()
	if tell && r.log.opts.OnSegmentReady != nil {
		r.log.opts.OnSegmentReady()
	}
}

func (r *roller) attempt(base int64) {
	err := r.log.Writable()
	var made *segment
	if err == nil {
		if made, err = r.create(base); err != nil {
			r.warn(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !r.mu.lastWarn.IsZero() {
		// The next trouble is news again.
		r.log.logger().Info("next segments can be made again", "segment", made.path)
		r.mu.lastWarn, r.mu.failures = time.Time{}, 0
	}
	if r.mu.asked || err == nil {
		r.mu.shortage = err
	}
	r.mu.next, r.mu.err, r.mu.asked = made, err, false
	r.announceLocked()
}

// create makes the segment at base, whole and durable with its name before any
// byte of it can be: nothing in it may be reported durable otherwise.
func (r *roller) create(base int64) (*segment, error) {
	l := r.log
	s := newSegment(l.disk, l.dir, base, l.segmentBytes.Load())
	reserve := s.size
	if !l.opts.Preallocate {
		reserve = 0
	}
	file, err := l.disk.Create(s.path, reserve)
	if err != nil {
		return nil, fmt.Errorf("make segment %s of %d bytes: %w", s.path, s.size, err)
	}
	if !l.opts.Preallocate {
		err = file.Truncate(s.size)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.disk.SyncDir(l.dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make segment %s: %w", s.path, err), file.Close(), l.disk.Remove(s.path))
	}
	if Allocation(r.allocation.Swap(uint32(file.Allocation()))) != AllocationWritten && file.Allocation() == AllocationWritten {
		l.logger().Warn("the file system cannot reserve space; new segments are written full of zeros", "dir", l.dir)
	}
	f, err := s.adopt(file, true)
	if err != nil {
		return nil, errors.Join(err, l.disk.Remove(s.path))
	}
	if l.opts.Mlock {
		if err := f.file.Pin(); err != nil {
			l.logger().Warn("segment is not kept in memory", "path", s.path, "error", err)
		}
	}
	return s, nil
}

// discard removes a segment that was made and never used.
func (r *roller) discard(s *segment) error {
	s.release()
	l := r.log
	if err := l.disk.Remove(s.path); err != nil {
		return fmt.Errorf("remove unused segment: %w", err)
	}
	return l.disk.SyncDir(l.dir)
}

// removeUnused removes the next segment after stop.
func (r *roller) removeUnused() error {
	r.mu.Lock()
	next := r.mu.next
	r.mu.next = nil
	r.mu.Unlock()
	if next == nil {
		return nil
	}
	return r.discard(next)
}

// warnEvery is how often a steady failure is logged.
const warnEvery = time.Minute

func (r *roller) warn(err error) {
	r.mu.Lock()
	r.mu.failures++
	now, failures := r.log.opts.Now(), r.mu.failures
	quiet := !r.mu.lastWarn.IsZero() && now.Sub(r.mu.lastWarn) < warnEvery
	if !quiet {
		r.mu.lastWarn, r.mu.failures = now, 0
	}
	r.mu.Unlock()
	if !quiet {
		r.log.logger().Warn("no next segment; each append that needs it tries again", "error", err, "attempts", failures)
	}
}
