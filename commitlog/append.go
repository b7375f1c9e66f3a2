package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/internal/invariant"
	"github.com/valyala/bytebufferpool"
)

// Sequencer learns of an append inside the append section, before its end
// offset is published: what it does is done in the order of offsets, and
// before anybody can acknowledge them. It must not block, allocate or call the
// log.
type Sequencer interface {
	Sequenced(endOffset int64)
}

// Appended tells where records are.
type Appended struct {
	Offset, EndOffset int64 // of the bytes in the log, half-open
	QueueOffset       int64 // of the first record, in records; 0 for a prepared or rolled-back transaction
	StoreTimestamp    int64 // milliseconds
}

// Encoded is one record, or the records of a batch, ready to be appended but
// for what only the append knows: offsets and store timestamp. It belongs to the
// caller until Release; no copy of it may be used after that.
type Encoded struct {
	buf   *bytebufferpool.ByteBuffer
	queue *queue // nil: a transaction's record that takes no queue offset
	at    moment // when it was encoded
}

var bufferPool bytebufferpool.Pool

// Encode checks the message against the limits and encodes it, outside of any
// lock. The message stays the caller's. What it leaves out is filled in: born
// time and host, and always the store host. Append soon, or Restamp: the time of the call
// becomes the store timestamp of an append that does not have to wait, because
// a clock costs as much as a copy of the message.
//
// Errors, before anything is written: [ErrMessageIllegal] or
// [ErrPropertiesTooLong], mostly as a *LimitError; a failure to make a new
// consume queue's directory.
func (l *Log) Encode(m *Message) (Encoded, error) {
	at := l.now()
	c := l.filled(m, at)
	size, err := l.opts.Limits.check(&c, l.segmentBytes.Load())
	if err != nil {
		return Encoded{}, err
	}
	e := Encoded{buf: bufferPool.Get(), at: at}
	e.buf.B = appendRecord(e.buf.B, &c, size)
	if queued(m.SysFlag) {
		if e.queue, err = l.findQueue(m); err != nil {
			e.Release()
			return Encoded{}, err
		}
	}
	return e, nil
}

// EncodeBatch is Encode for messages of one topic and queue, which get
// consecutive queue offsets, one store timestamp and a place in one segment.
func (l *Log) EncodeBatch(messages []*Message) (Encoded, error) {
	if err := l.opts.Limits.ValidateBatch(messages, l.segmentBytes.Load()); err != nil {
		return Encoded{}, err
	}
	e := Encoded{buf: bufferPool.Get(), at: l.now()}
	for _, m := range messages {
		c := l.filled(m, e.at)
		e.buf.B = AppendRecord(e.buf.B, &c)
	}
	var err error
	if e.queue, err = l.findQueue(messages[0]); err != nil {
		e.Release()
		return Encoded{}, err
	}
	return e, nil
}

// Release gives the buffer back.
func (e *Encoded) Release() {
	bufferPool.Put(e.buf)
	e.buf = nil
}

// Restamp makes now the time that e was encoded, after a wait.
func (l *Log) Restamp(e *Encoded) { e.at = l.now() }

// At is when it was encoded, since [Log.Began] and by the monotonic clock.
func (e Encoded) At() time.Duration { return e.at.since }

// Bytes is how much of the log the records take.
func (e Encoded) Bytes() int { return len(e.buf.B) }

// filled is the message as it is stored, but for what the append patches.
func (l *Log) filled(m *Message, at moment) Message {
	c := *m
	if c.BornTimestamp == 0 {
		c.BornTimestamp = at.ms
	}
	if !c.BornHost.Addr.IsValid() {
		c.BornHost = l.opts.StoreHost
	}
	c.StoreHost = l.opts.StoreHost
	c.QueueOffset, c.PhysicalOffset, c.StoreTimestamp = 0, 0, 0
	return c
}

// queued tells whether a record with these flags takes a queue offset
// (MessageSysFlag: not for prepared and rolled-back transactions).
func queued(sysFlag int32) bool {
	t := sysFlag & FlagTransactionMask
	return t != FlagTransactionPrepared && t != FlagTransactionRollback
}

func (l *Log) findQueue(m *Message) (*queue, error) {
	if q := l.queues.lookup(QueueID{Topic: m.Topic, ID: m.QueueID}); q != nil {
		return q, nil
	}
	q, err := l.queues.queue([]byte(m.Topic), m.QueueID)
	if err != nil {
		return nil, fmt.Errorf("consume queue %s/%d: %w", m.Topic, m.QueueID, err)
	}
	return q, nil
}

// Append puts the records at the end of the log and returns where they are.
// They are readable on return, and durable once FlushedOffset has reached
// their end. s may be nil. It does not allocate, and blocks only for other
// appends, or for the next segment for at most Options.SegmentTimeout.
//
// Errors, nothing having been written: [ErrReadOnly], [ErrClosed], [ErrBusy],
// [ErrSegmentUnavailable] (the next append tries again), or the *CorruptError
// of a segment that somebody has cut.
func (l *Log) Append(e Encoded, s Sequencer) (Appended, error) {
	now := e.at
	if !l.append.TryLock() {
		if err := l.checkBusy(); err != nil {
			return Appended{}, err
		}
		l.append.Lock()
		now = l.now()
	}
	l.holding.Store(max(1, int64(now.since)))
	for {
		err := l.roomLocked(int64(len(e.buf.B)))
		if err == nil {
			break
		}
		l.holding.Store(0)
		l.append.Unlock()
		if !errors.Is(err, errRollPending) {
			return Appended{}, err
		}
		if err := l.roller.await(l.opts.SegmentTimeout); err != nil {
			return Appended{}, err
		}
		l.append.Lock()
		l.holding.Store(max(1, int64(l.now().since)))
	}
	a, err := l.putLocked(e, s, now)
	l.holding.Store(0)
	l.append.Unlock()
	if err != nil {
		return Appended{}, l.faulted(err)
	}
	l.dispatcher.wake()
	l.window.grown(a.EndOffset)
	return a, nil
}

// checkBusy refuses when the append section has been held for too long: its
// holder hangs in a page fault, that is, in the disk.
func (l *Log) checkBusy() error {
	if held := l.AppendHeld(); held > l.opts.BusyTimeout {
		return fmt.Errorf("%w: held for %v, at most %v is waited", ErrBusy, held.Round(time.Millisecond), l.opts.BusyTimeout)
	}
	return nil
}

// AppendHeld is for how long the append section is held now; 0: it is free. Any
// goroutine. RocketMQ CommitLog.lockTimeMills.
func (l *Log) AppendHeld() time.Duration {
	since := l.holding.Load()
	if since == 0 {
		return 0
	}
	return l.now().since - time.Duration(since)
}

// roomLocked makes sure that n bytes and the smallest filler behind them fit
// into the tail, rolling to the next segment if they do not.
func (l *Log) roomLocked(n int64) error {
	if err := l.Writable(); err != nil {
		return err
	}
	a := &l.append
	if a.tail != nil && a.end+n+fillerHeaderBytes <= a.tail.end() {
		return nil
	}
	// What was encoded before AdoptSegmentBytes may be too large now.
	if err := limit("record in one segment", n, l.segmentBytes.Load()-fillerHeaderBytes); err != nil {
		return err
	}
	base := a.end
	if a.tail != nil {
		base = a.tail.end()
	}
	next := l.roller.take(base)
	if next == nil {
		return errRollPending
	}
	if a.tail != nil && a.end < a.tail.end() {
		// The next segment is there before the filler is published: a log that
		// ends with a filler would lose it in RocketMQ's recovery.
		if err := l.fillLocked(); err != nil {
			l.roller.giveBack(next)
			return l.faulted(err)
		}
	}
	l.rollLocked(next)
	return nil
}

// fillLocked writes the filler that closes the tail.
func (l *Log) fillLocked() error {
	a := &l.append
	var header [fillerHeaderBytes]byte
	AppendFiller(header[:0], int(a.tail.end()-a.end))
	l.window.skip(a.tail.end())
	if err := a.file.write(a.end-a.tail.base, header[:]); err != nil {
		return err
	}
	a.tail.lastTimestamp.Store(l.timestamp.Load())
	a.end = a.tail.end()
	l.end.Store(a.end)
	return nil
}

// rollLocked makes next the tail of the list.
func (l *Log) rollLocked(next *segment) {
	a := &l.append
	invariant.Check(a.tail == nil || next.base == a.tail.end(), "a segment does not follow the tail")
	if a.tail != nil && l.opts.Mlock {
		_ = a.file.file.Unpin() // it only costs memory
	}
	a.tail, a.file = next, next.opened.Load()
	list := append((*l.list.Load())[:len(*l.list.Load()):len(*l.list.Load())], next)
	l.list.Store(&list)
	l.roller.wake()
	l.window.wake() // which may have looked while the segment was in neither place
}

// putLocked copies the records to the end and publishes it.
func (l *Log) putLocked(e Encoded, s Sequencer, now moment) (Appended, error) {
	a := &l.append
	result := Appended{
		Offset: a.end, EndOffset: a.end + int64(len(e.buf.B)),
		StoreTimestamp: max(now.ms, l.timestamp.Load()),
	}
	if e.queue != nil {
		result.QueueOffset = e.queue.nextOffset()
	}
	records := int64(0)
	for b := e.buf.B; len(b) > 0; records++ {
		patchRecord(b, result.QueueOffset+records, result.EndOffset-int64(len(b)), result.StoreTimestamp)
		b = b[recordSizeWord(b):]
	}
	l.window.claim(result.EndOffset)
	if err := a.file.write(a.end-a.tail.base, e.buf.B); err != nil {
		return Appended{}, err
	}
	if e.queue != nil {
		// Only now: a refused put leaves no hole in the queue.
		first := e.queue.assign(records)
		invariant.Check(first == result.QueueOffset, "a queue offset was taken outside the append section")
	}
	l.sawTimestamp(result.StoreTimestamp)
	a.end = result.EndOffset
	if s != nil {
		s.Sequenced(a.end)
	}
	l.end.Store(a.end)
	return result, nil
}

// recordSizeWord reads a record's size word.
func recordSizeWord(b []byte) int64 { return int64(int32(binary.BigEndian.Uint32(b))) }
