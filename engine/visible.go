package engine

import (
	"errors"

	"github.com/haengine/haengine/commitlog"
)

// Visible is what consumers may see of the log.
type Visible uint8

// VisibleAppended: all that is in its consume queue, as in RocketMQ.
// VisibleFlushed: what is on this node's disk, too. VisibleConfirmed: what a put
// with the node's own settings would be told to be complete; see
// Engine.ConfirmedOffset.
const (
	VisibleAppended Visible = iota
	VisibleFlushed
	VisibleConfirmed
)

var visibleNames = names{"appended", "flushed", "confirmed"}

// String is the value's name on the command line.
func (v Visible) String() string { return visibleNames.of(int(v)) }

// MarshalText writes the value's name.
func (v Visible) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// ParseVisible reads a visibility in any case.
func ParseVisible(s string) (Visible, error) { return parse[Visible]("visible", s, visibleNames) }

// VisibleOffset is up to where the log may be given to consumers; it is never
// behind the last record that is in its queue.
//
// On a slave that was a master it is at most what was known to be on other nodes,
// until a master has shown which of the log's end is history: what is cut then
// was seen by nobody. The same holds for a slave that has not heard of its
// master since it was opened, if only what is confirmed may be seen. Otherwise a
// slave gives what it has, whether its master lives or not; with a master that
// speaks RocketMQ's protocol, all that it holds counts as confirmed.
//
// It may go back, when a slave is cut or a master starts again: a consumer that
// is ahead of it waits. Any goroutine.
func (e *Engine) VisibleOffset(v Visible) int64 { return e.visible(v, e.log.DispatchedOffset()) }

// visible is the part of the log up to an offset that may be given to consumers.
func (e *Engine) visible(v Visible, offset int64) int64 {
	if v == VisibleFlushed {
		offset = min(offset, e.log.FlushedOffset())
	}
	if e.Role() != Slave {
		if v == VisibleConfirmed {
			// What was confirmed before a restart still is.
			offset = min(offset, max(e.ConfirmedOffset(), e.log.Confirmed()))
		}
		return offset
	}
	s := e.slave.Load()
	if s == nil || s.doubtful.Load() {
		return min(offset, e.log.Confirmed())
	}
	if v != VisibleConfirmed {
		return offset
	}
	confirmed := s.confirmed.Load()
	if confirmed < 0 && s.aligned.Load() && !s.extended.Load() {
		return offset
	}
	return min(offset, max(confirmed, e.log.Confirmed()))
}

// watch is who is told that more may have become visible.
type watch struct {
	visible Visible
	grown   func()
}

// ErrWatched means that somebody watches the engine already.
var ErrWatched = errors.New("the engine has a watcher")

// Watch has grown called whenever more may have become visible in some queue. It
// is called often, by the goroutines that moved it on, and must not block nor
// call the engine: it leaves a mark for a goroutine of the watcher's, who then
// looks with QueueGrown at the queues for which somebody waits. There is one
// watcher at a time; stop ends it, and calls that are under way may still come.
func (e *Engine) Watch(v Visible, grown func()) (stop func(), err error) {
	w := &watch{visible: v, grown: grown}
	if !e.watcher.CompareAndSwap(nil, w) {
		return nil, ErrWatched
	}
	return func() { e.watcher.CompareAndSwap(w, nil) }, nil
}

// moved tells the watcher that what counts as visible from some kind on has
// moved. A load where nobody watches.
func (e *Engine) moved(from Visible) {
	if w := e.watcher.Load(); w != nil && w.visible >= from {
		w.grown()
	}
}

// doubtful tells whether the end of the log may be in no other log of those who
// follow the master at an address: this node or a broker of RocketMQ's wrote it
// as a master, or it came from another master.
func (e *Engine) doubtful(address string, own identity) bool {
	if e.log.EndOffset() == e.log.MinOffset() {
		return false
	}
	if s := e.slave.Load(); s != nil {
		return s.master != address || s.doubtful.Load()
	}
	return own.Term != "" || own.Doubtful || !e.log.Info().Untouched
}

// shown notes that a master has shown that what this slave holds is its history.
// On the slave's loop.
func (s *slave) shown() {
	if s.aligned.Swap(true) && !s.doubtful.Load() {
		return
	}
	if s.doubtful.Swap(false) {
		s.lookups.Add(1)
		go func() {
			defer s.lookups.Done()
			if err := s.e.changeIdentity(func(id *identity) { id.Doubtful = false }); err != nil {
				s.e.steady.warn("identity", "the end of the log will be held back from consumers after a restart, until a master has confirmed it", "error", err)
			}
		}()
	}
	s.e.moved(VisibleAppended)
}

// The log's own types of reads by queue.
type (
	// Pull is what a reader of a queue asks for; see commitlog.Pull. Its Visible
	// is filled in by Engine.Pull.
	Pull = commitlog.Pull
	// Pulled is what Engine.Pull found.
	Pulled = commitlog.Pulled
	// PullStatus says what a pull came to.
	PullStatus = commitlog.PullStatus
)

// The statuses of pulls.
const (
	PullFound       = commitlog.PullFound
	PullNoMatch     = commitlog.PullNoMatch
	PullRemoving    = commitlog.PullRemoving
	PullOverflowOne = commitlog.PullOverflowOne
	PullOverflowFar = commitlog.PullOverflowFar
	PullTooSmall    = commitlog.PullTooSmall
	PullEmptyQueue  = commitlog.PullEmptyQueue
	PullNoQueue     = commitlog.PullNoQueue
	PullCold        = commitlog.PullCold
	PullInterrupted = commitlog.PullInterrupted
)

// Pull appends raw records of a queue's range to dst, as far as they are
// visible; see commitlog.Pull. It may read from the disk: not for a loop.
func (e *Engine) Pull(dst []byte, p *Pull, v Visible) ([]byte, Pulled, error) {
	p.Visible = e.VisibleOffset(v)
	return e.log.Pull(dst, p)
}

// QueueGrown tells whether a queue has something visible at or behind a queue
// offset. It costs a few loads, and where the queue's end is not visible yet a
// read of one unit.
func (e *Engine) QueueGrown(topic string, queue int32, offset int64, v Visible) bool {
	return e.log.UnitVisible(QueueID{Topic: topic, ID: queue}, offset, e.VisibleOffset(v))
}

// VisibleBounds is QueueBounds of what is visible. It may read from the disk.
func (e *Engine) VisibleBounds(topic string, queue int32, v Visible) (from, to int64, ok bool, err error) {
	return e.log.VisibleBounds(QueueID{Topic: topic, ID: queue}, e.VisibleOffset(v))
}

// QueueOffsetAt gives the first queue offset whose record was stored at a time in
// milliseconds or later or, with upper, the last at that time or before; see
// commitlog.Log.SeekTime. It reads from the disk.
func (e *Engine) QueueOffsetAt(topic string, queue int32, ms int64, upper bool, v Visible) (int64, error) {
	return e.log.SeekTime(QueueID{Topic: topic, ID: queue}, ms, upper, e.VisibleOffset(v))
}

// FirstStoreTime is when the first record of a queue was stored, in milliseconds,
// and the offset in the log at which it stands; ok is false if there is none. It
// reads from the disk.
func (e *Engine) FirstStoreTime(topic string, queue int32) (ms, offset int64, ok bool, err error) {
	return e.log.FirstStoreTime(QueueID{Topic: topic, ID: queue})
}

// AppendRecord appends the raw record that begins at an offset in the log to dst,
// checked with its checksum. It need not be in its queue yet: who was told where
// it is may ask at once. ErrOutOfRange: none begins there, or it is not visible.
// It reads from the disk.
func (e *Engine) AppendRecord(dst []byte, offset int64, v Visible) ([]byte, error) {
	return e.log.AppendRecordAt(dst, offset, e.visible(v, e.log.EndOffset()))
}

// EndOffset is one past the log's last byte.
func (e *Engine) EndOffset() int64 { return e.log.EndOffset() }
