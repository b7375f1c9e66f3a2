package commitlog

import (
	"errors"
	"fmt"

	"github.com/haengine/haengine/internal/invariant"
)

// StartAt chooses where a log without a byte begins: at the base of a segment.
// Minimum and end are base afterwards, and epochs that were begun are gone: they
// have no byte, and the one at base is not theirs. Choosing the same start again
// changes nothing. [ErrNotEmpty]: there are bytes, or another start.
func (l *Log) StartAt(base int64) error {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.flusher.mu.Lock()
	defer l.flusher.mu.Unlock()
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.Writable(); err != nil {
		return err
	}
	if size := l.segmentBytes.Load(); base < 0 || base%size != 0 {
		return fmt.Errorf("start the log at offset %d: %w: not the base of a segment of %d bytes", base, ErrOutOfRange, size)
	}
	a := &l.append
	if a.tail != nil && (len(*l.list.Load()) > 1 || a.end != a.tail.base || a.end != base) {
		return fmt.Errorf("start the log at offset %d: %w: it holds [%d, %d)", base, ErrNotEmpty, l.MinOffset(), a.end)
	}
	if a.end == base {
		return nil
	}
	if err := l.keeper.cutEpochsLocked(0); err != nil {
		return fmt.Errorf("start the log at offset %d: %w", base, err)
	}
	l.dispatcher.stop()
	defer l.dispatcher.start()
	// The minimum first: whoever looks meanwhile sees a log without a byte, never
	// one that begins before base.
	l.start.Store(base)
	a.end = base
	l.end.Store(base)
	l.flushed.Store(base)
	l.flusher.border.Store(base)
	l.dispatcher.restart(base)
	l.window.cut(base)
	l.roller.expect(base)
	return nil
}

// adoptBytesMin is the smallest segment that is taken from somebody else. Tests
// ask for smaller ones.
const adoptBytesMin = 64 << 10

// AdoptSegmentBytes gives a log without a byte and without a file segments of
// n bytes, which are its master's: a filler must end where the segment does.
// The size is noted durably, so that a restart of the log, still empty, keeps
// it; it may be changed again as long as there is no file. The size that it has
// already is always taken. Any goroutine.
//
// [ErrSegmentBytes], the reason with it: n is none that a segment can have, the
// size was given in Options, or there is a byte or a file ([ErrNotEmpty]).
func (l *Log) AdoptSegmentBytes(n int64) error {
	if l.readOnly {
		return l.Writable()
	}
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	l.append.Lock() // nobody asks the roller for a segment meanwhile
	defer l.append.Unlock()
	if err := l.Writable(); err != nil {
		return err
	}
	old := l.segmentBytes.Load()
	switch {
	case n == old:
		return nil
	case n < adoptBytesMin || n > segmentBytesMax:
		return fmt.Errorf("%w: it is %d bytes, want %d to %d", ErrSegmentBytes, n, adoptBytesMin, segmentBytesMax)
	case l.opts.SegmentBytes != 0:
		return fmt.Errorf("%w: it would be %d bytes, and %d were given; leave the size out or give that one", ErrSegmentBytes, n, old)
	case len(*l.list.Load()) > 0:
		return fmt.Errorf("%w: it would be %d bytes, %w: it has segments of %d bytes in %s", ErrSegmentBytes, n, ErrNotEmpty, old, l.dir)
	case l.roller.asked():
		return fmt.Errorf("%w: it would be %d bytes, %w: its first segment, of %d bytes, is being made in %s", ErrSegmentBytes, n, ErrNotEmpty, old, l.dir)
	}
	l.segmentBytes.Store(n)
	if err := k.saveLocked(false); err != nil {
		l.segmentBytes.Store(old)
		return fmt.Errorf("note the segment size %d: %w", n, err)
	}
	return nil
}

// Reserve gives writable bytes of the open segment behind the end, at most n, which
// is more than 0, or to the segment's end, for a reader to fill from a socket.
// They become part of the log by Publish, and must be given back as zeros by
// Discard if they do not. The slice is mapped memory: the kernel may write it,
// our own code must not touch it. It is valid until the next call of Reserve, Place,
// Truncate or Close; a further call may give more, the same bytes first. One
// goroutine, the same that publishes and discards; a log that is filled so is not
// appended to.
//
// [ErrSegmentPending]: the next segment is being made; call again when
// Options.OnSegmentReady was called. [ErrSegmentUnavailable]: it could not be
// made; the next call tries again.
//
// RocketMQ CommitLog.appendData, without its buffer.
func (l *Log) Reserve(n int64) ([]byte, error) {
	l.append.Lock()
	defer l.append.Unlock()
	to, err := l.reserveMappedLocked(n)
	if err != nil {
		return nil, err
	}
	a := &l.append
	return a.file.data[a.end-a.tail.base : to-a.tail.base], nil
}

// Place is Reserve for a few bytes that were read already: it puts as many of b as the
// segment has room for behind the end, from the skip-th reserved byte on, and says how
// many, with an error, too. Publish and Discard count them with the others. Errors are
// Reserve's, and the *CorruptError of a segment that somebody has cut.
func (l *Log) Place(skip int, b []byte) (int, error) {
	l.append.Lock()
	defer l.append.Unlock()
	to, err := l.reserveMappedLocked(int64(skip + len(b)))
	if err != nil {
		return 0, err
	}
	a := &l.append
	at := a.end + int64(skip)
	n := int(max(to-at, 0))
	if err := a.file.write(at-a.tail.base, b[:n]); err != nil {
		var fault *CorruptError
		if errors.As(err, &fault) { // of the second of two pages, perhaps
			n = min(n, int(max(fault.Offset-at, 0)))
		}
		return n, l.faulted(err)
	}
	return n, nil
}

// ReserveFile is Reserve for bytes that are written through a file, as splice(2)
// does: its descriptor, the position of the first of them, and how many there is
// room for. That is the fastest way for many bytes at a time: the kernel makes
// their pages as it writes them, and maps none. Discard is owed here, too. The descriptor
// is valid until the next call of Reserve, Place, ReserveFile, Truncate or Close: the number may be
// another file's then. It is -1 if the disk has none. Errors are Reserve's, and the
// *CorruptError of a segment that somebody has cut.
func (l *Log) ReserveFile(n int64) (fd int, at, room int64, err error) {
	l.append.Lock()
	defer l.append.Unlock()
	to, err := l.reserveLocked(n)
	if err != nil {
		return -1, 0, 0, err
	}
	a := &l.append
	fd = a.file.file.Fd()
	if fd < 0 {
		return -1, 0, 0, nil
	}
	// A file that somebody has cut is not to grow again: that would hide it.
	if err := a.tail.checkSize(a.file.file); err != nil {
		return -1, 0, 0, l.faulted(err)
	}
	l.window.rest(true)
	l.window.skip(to)
	return fd, a.end - a.tail.base, to - a.end, nil
}

// reserveLocked gives the end of up to n bytes that may be reserved.
func (l *Log) reserveLocked(n int64) (to int64, err error) {
	if err := l.Writable(); err != nil {
		return 0, err
	}
	l.replica.Store(true)
	a := &l.append
	if a.tail == nil || a.end == a.tail.end() {
		next, err := l.roller.takeForReserve(a.end)
		if err != nil {
			return 0, err
		}
		l.rollLocked(next)
	}
	invariant.Check(n > 0, "nothing is reserved")
	return a.end + min(n, a.tail.end()-a.end), nil
}

// reserveMappedLocked is reserveLocked for bytes that go through the mapping.
func (l *Log) reserveMappedLocked(n int64) (to int64, err error) {
	if to, err = l.reserveLocked(n); err != nil {
		return 0, err
	}
	l.window.rest(false)
	l.window.claim(to)
	return to, nil
}

// Publish makes the first n reserved bytes part of the log. What they are is
// the dispatcher's to check: bytes that are no record stop it, and make the log
// read-only. An error is why the log takes no more bytes.
func (l *Log) Publish(n int) error {
	end, err := l.publish(n)
	if err != nil {
		return err
	}
	l.dispatcher.wake()
	l.window.grown(end)
	return nil
}

func (l *Log) publish(n int) (end int64, err error) {
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.Writable(); err != nil {
		return 0, err
	}
	a := &l.append
	if a.tail == nil || n < 0 || int64(n) > a.tail.end()-a.end {
		invariant.Check(false, "more was published than reserved")
		return 0, fmt.Errorf("publish %d bytes at offset %d: %w: not reserved", n, a.end, ErrOutOfRange)
	}
	a.end += int64(n)
	invariant.Check(a.end <= l.window.ready.Load(), "bytes were received where the window may write")
	l.end.Store(a.end)
	return a.end, nil
}

// Discard zeroes the first n reserved bytes: they were received and are not
// part of the log. Until then nobody may be told an offset.
func (l *Log) Discard(n int) error {
	l.append.Lock()
	defer l.append.Unlock()
	a := &l.append
	if a.tail == nil || n <= 0 {
		return nil
	}
	n64 := min(int64(n), a.tail.end()-a.end)
	if err := a.file.zero(a.end-a.tail.base, n64); err != nil {
		return l.faulted(err)
	}
	return nil
}
