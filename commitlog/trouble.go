package commitlog

import (
	"errors"
	"fmt"
	"time"
)

// troubleError is why a log takes no more writes until it is opened again.
type troubleError struct{ err error }

// Error says that the log is read-only, why, and what to do.
func (e *troubleError) Error() string {
	return fmt.Sprintf("%v: %v; reads go on, writes need a restart after the disk was looked at", ErrReadOnly, e.err)
}

// Unwrap gives ErrReadOnly and the reason.
func (e *troubleError) Unwrap() []error { return []error{ErrReadOnly, e.err} }

// Writable is nil, or why the log takes no writes: [ErrReadOnly] with the
// reason after a failed fsync or damage, [ErrClosed] after Close.
func (l *Log) Writable() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	if l.over.Load() {
		return ErrClosed
	}
	if l.readOnly && l.opened.damage != nil {
		return &troubleError{err: l.opened.damage}
	}
	if l.readOnly {
		return ErrReadOnly
	}
	return nil
}

// fail makes the log read-only for good. The first reason counts.
func (l *Log) fail(err error) {
	if !l.failed.CompareAndSwap(nil, &troubleError{err: err}) {
		return
	}
	select {
	case l.troubled <- struct{}{}:
	default:
	}
}

// damage is fail for bytes that are not what was written, whoever meets them:
// recovery, a read, the dispatcher. A log that was opened for reading only
// reports them to the reader and keeps nothing.
func (l *Log) damage(err *CorruptError) {
	if !l.readOnly {
		l.fail(err)
	}
}

// reportTrouble calls Options.OnTrouble, on a goroutine of its own: whoever
// met the trouble may hold the append section or be the only loop there is.
func (l *Log) reportTrouble() {
	defer l.goroutines.Done()
	select {
	case <-l.troubled:
		if l.opts.OnTrouble != nil {
			l.opts.OnTrouble(l.failed.Load())
		}
	case <-l.stopped:
	}
}

// Fault is called when the kernel could not give bytes of the log to somebody
// it gave a view or reserved bytes to: sendfile found the file short, or a
// vector of a mapping faulted. It returns the error to report, which names the
// segment, and makes the log read-only, because its bytes are not what they
// were.
func (l *Log) Fault(offset int64, cause error) error {
	return l.faulted(&CorruptError{Path: l.SegmentPath(offset), Offset: offset, Kind: KindFault, Detail: cause.Error()})
}

// faulted judges an error of a guarded access: damage, but for one case. A
// sparse segment whose file is whole has met a full disk past the end; that
// passes when there is space again.
func (l *Log) faulted(err error) error {
	var bad *CorruptError
	if !errors.As(err, &bad) {
		return err
	}
	if s := l.list.Load().find(bad.Offset); s != nil && bad.Offset >= l.end.Load() && !l.opts.Preallocate {
		if info, serr := l.disk.Stat(s.path); serr == nil && info.Size == s.size {
			err := fmt.Errorf("%w: no space for offset %d of %s", ErrSegmentUnavailable, bad.Offset, s.path)
			l.lacking.Store(&err)
			return err
		}
	}
	l.damage(bad)
	return bad
}

// full is nil, or the last answer of a full disk to a writer of a sparse segment, as
// long as there is no more space.
func (l *Log) full() error {
	last := l.lacking.Load()
	if last == nil {
		return nil
	}
	const enough = 1 << 20
	if used, total, err := l.disk.Usage(l.dir); err == nil && total-used >= enough {
		l.lacking.CompareAndSwap(last, nil)
		return nil
	}
	return *last
}

// AwaitChecked waits until every whole record that the log holds was looked at
// and is in its queue. The error says why they are not: damage, queues that cannot
// be written, or that the time is over.
func (l *Log) AwaitChecked(limit time.Duration) error {
	if l.awaitDispatched(limit) || l.dispatcher.idle() {
		return l.Writable()
	}
	if err := l.Writable(); err != nil {
		return err
	}
	return fmt.Errorf("records from offset %d on are not in their queues after %v: %w", l.DispatchedOffset(), limit, ErrNotQueued)
}

// awaitDispatched waits until all whole records are in their queues. false:
// it cannot be so, or the time is over.
func (l *Log) awaitDispatched(limit time.Duration) bool {
	if l.opts.Manual {
		l.dispatcher.work()
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(limit / 1000)
	defer look.Stop()
	l.dispatcher.hurry()
	for {
		moved := l.dispatcher.moved()
		if l.dispatcher.Offset() >= l.end.Load() {
			return true
		}
		if l.dispatcher.idle() || l.dispatcher.trouble() != nil {
			return false // the beginning of a record, damage, or a disk that fails
		}
		select {
		case <-moved:
		case <-look.C: // a trouble is not announced
		case <-deadline.C:
			return false
		}
	}
}
