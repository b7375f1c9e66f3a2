package commitlog

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// queueUnitBytes is a consume queue's unit: int64 offset of the record,
	// int32 size, int64 tags code.
	queueUnitBytes = 20

	// queueBlankSize is the size word of a unit without a record, before the
	// first or in a gap (ConsumeQueue.fillPreBlank).
	queueBlankSize = math.MaxInt32

	// queueBufferBytes is how much of one queue is held back until it is
	// written: 204 units.
	queueBufferBytes = 4096 / queueUnitBytes * queueUnitBytes
)

// queueGapError refuses a unit that would leave others before it unwritten.
type queueGapError struct {
	id         QueueID
	index, end int64
}

func (e *queueGapError) Error() string {
	return fmt.Sprintf("consume queue %s/%d ends at index %d, the next record is at index %d", e.id.Topic, e.id.ID, e.end, e.index)
}

// queue is one consume queue: unit i stands at byte 20·i of a row of files of
// one size. Units [first, end) can be read. RocketMQ ConsumeQueue.
//
// One goroutine at a time writes (put, commit, truncate, trim): recovery, then
// the dispatcher, or whoever has stopped it. Any goroutine reads and assigns.
type queue struct {
	set *queues
	id  QueueID
	dir string

	// assigned is the next queue offset that a put gets. The holder of the
	// append lock adds; the writer raises it to what it finds in the log.
	assigned atomic.Int64

	// Stored by the writer. maxPhysical is the end of the last record.
	first, end, maxPhysical atomic.Int64

	listed atomic.Bool // in set.dirty

	// The writer's alone: units that wait to be written, from index pendingAt.
	pending   []byte
	pendingAt int64

	// mu guards files and their handles. It is held for reading while a handle
	// is used, so that none is closed under a reader.
	mu    sync.RWMutex
	files []*queueFile // in order, without holes; all but the last are full
}

// nextOffset is the queue offset that the next message gets. Any goroutine.
func (qu *queue) nextOffset() int64 { return qu.assigned.Load() }

// assign takes n queue offsets and returns the first. Under the append lock.
func (qu *queue) assign(n int64) int64 { return qu.assigned.Add(n) - n }

// raise makes the next queue offset at least n.
func (qu *queue) raise(n int64) {
	for {
		old := qu.assigned.Load()
		if old >= n || qu.assigned.CompareAndSwap(old, n) {
			return
		}
	}
}

// bounds gives the range of units that can be read. Any goroutine.
func (qu *queue) bounds() (first, end int64) { return qu.first.Load(), qu.end.Load() }

// put adds the unit of a record at an index. It is visible once the set has
// committed, and may be put again: what stands there already stays, unless it
// is no record. An index behind the end is a *queueGapError; a queue without
// any unit begins at any index.
func (qu *queue) put(index int64, e QueueEntry) error {
	if index < 0 || index > math.MaxInt64/queueUnitBytes-1 {
		return fmt.Errorf("%w: queue offset %d of the record at offset %d", ErrOutOfRange, index, e.Offset)
	}
	if n := int64(len(qu.pending) / queueUnitBytes); n > 0 {
		if index >= qu.pendingAt && index < qu.pendingAt+n {
			return nil
		}
		if index != qu.pendingAt+n || len(qu.pending) == queueBufferBytes {
			if err := qu.commit(); err != nil {
				return err
			}
		}
	}
	if len(qu.pending) == 0 {
		start, empty := qu.start()
		if !empty && index < start {
			return nil // trimmed; its file is gone
		}
		if end := qu.end.Load(); index > end && !empty {
			return &queueGapError{id: qu.id, index: index, end: end}
		}
		qu.pending, qu.pendingAt = qu.set.buffer(qu), index
	}
	qu.pending = appendQueueEntry(qu.pending, e)
	qu.raise(index + 1)
	return nil
}

// begins says that the next unit is the queue's first. The writer's alone.
func (qu *queue) begins() bool {
	_, empty := qu.start()
	return empty && len(qu.pending) == 0
}

// fillTo writes units without a record from the end up to index: their
// records are no longer in the log.
func (qu *queue) fillTo(index int64) error {
	if err := qu.commit(); err != nil {
		return err
	}
	from := qu.end.Load()
	if err := qu.writeBlanks(from, index); err != nil {
		return err
	}
	qu.end.Store(max(from, index))
	qu.raise(index)
	return nil
}

// start is the index of the first file's first unit; empty says that there is
// no file that fixes where the next unit goes.
func (qu *queue) start() (index int64, empty bool) {
	qu.mu.RLock()
	defer qu.mu.RUnlock()
	if len(qu.files) == 0 {
		return 0, true
	}
	return qu.files[0].base / queueUnitBytes, false
}

// commit writes what waits and makes it visible. After an error nothing of it
// is, and it still waits.
func (qu *queue) commit() error {
	if len(qu.pending) == 0 {
		return nil
	}
	at, end := qu.pendingAt, qu.end.Load()
	if _, empty := qu.start(); empty {
		perFile := qu.set.fileBytes / queueUnitBytes
		if err := qu.writeBlanks(at-at%perFile, at); err != nil {
			return err
		}
		qu.first.Store(at)
	}
	if at < end {
		if err := qu.keepExisting(at, min(end, at+int64(len(qu.pending)/queueUnitBytes))); err != nil {
			return err
		}
	}
	if err := qu.writeAt(qu.pending, at*queueUnitBytes); err != nil {
		return err
	}
	last := decodeQueueEntry(qu.pending[len(qu.pending)-queueUnitBytes:])
	qu.maxPhysical.Store(max(qu.maxPhysical.Load(), last.Offset+int64(last.Size)))
	qu.end.Store(max(end, at+int64(len(qu.pending)/queueUnitBytes)))
	qu.pending = qu.pending[:0]
	return nil
}

// keepExisting puts into the pending units those of [from, to), which begin
// where the pending ones do, that stand in the queue already: RocketMQ keeps
// the first that came. A hole that a crash left, or a blank, is filled.
func (qu *queue) keepExisting(from, to int64) error {
	old := make([]byte, (to-from)*queueUnitBytes)
	if err := qu.readBytes(old, from*queueUnitBytes); err != nil {
		return err
	}
	for i := 0; i < len(old); i += queueUnitBytes {
		if e := decodeQueueEntry(old[i:]); e.valid() && !e.blank() {
			copy(qu.pending[i:i+queueUnitBytes], old[i:])
		}
	}
	return nil
}

// writeBlanks writes units without a record at [from, to).
func (qu *queue) writeBlanks(from, to int64) error {
	if from >= to {
		return nil
	}
	block := make([]byte, 0, min((to-from)*queueUnitBytes, 16*queueBufferBytes))
	for len(block) < cap(block) {
		block = appendQueueEntry(block, QueueEntry{Size: queueBlankSize})
	}
	for at := from * queueUnitBytes; at < to*queueUnitBytes; at += int64(len(block)) {
		if err := qu.writeAt(block[:min(int64(len(block)), to*queueUnitBytes-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// read copies units from an index on and says how many; 0 at and behind the
// end. An index before the first is ErrOutOfRange. Any goroutine.
func (qu *queue) read(from int64, dst []QueueEntry) (int, error) {
	first, end := qu.bounds()
	if from < first {
		return 0, fmt.Errorf("%w: queue offset %d of %s/%d, which holds %d to %d",
			ErrOutOfRange, from, qu.id.Topic, qu.id.ID, first, end)
	}
	if from >= end {
		return 0, nil
	}
	dst = dst[:min(int64(len(dst)), end-from)]
	block := queueBlocks.Get().(*[queueBufferBytes]byte)
	defer queueBlocks.Put(block)
	for done := 0; done < len(dst); {
		n := min(len(dst)-done, len(block)/queueUnitBytes)
		b := block[:n*queueUnitBytes]
		if err := qu.readBytes(b, (from+int64(done))*queueUnitBytes); err != nil {
			return done, err
		}
		for i := range n {
			dst[done+i] = decodeQueueEntry(b[i*queueUnitBytes:])
		}
		done += n
	}
	return len(dst), nil
}

var queueBlocks = sync.Pool{New: func() any { return new([queueBufferBytes]byte) }}

// entry reads one unit, whatever the bounds.
func (qu *queue) entry(index int64) (QueueEntry, error) {
	block := queueBlocks.Get().(*[queueBufferBytes]byte)
	defer queueBlocks.Put(block)
	b := block[:queueUnitBytes]
	err := qu.readBytes(b, index*queueUnitBytes)
	return decodeQueueEntry(b), err
}

// search gives the lowest index in [low, high) whose unit the predicate holds
// for, or high. The predicate holds for no unit before one it fails for.
func (qu *queue) search(low, high int64, holds func(QueueEntry) bool) (int64, error) {
	var failure error
	n := sort.Search(int(high-low), func(i int) bool {
		e, err := qu.entry(low + int64(i))
		failure = errors.Join(failure, err)
		return err != nil || holds(e)
	})
	return low + int64(n), failure
}

// setBounds finds what the files hold when the queue is opened. Only the last
// file is expected to have room; a crash may have left it in an earlier one.
func (qu *queue) setBounds() error {
	if len(qu.files) == 0 {
		return nil
	}
	perFile := qu.set.fileBytes / queueUnitBytes
	start := qu.files[0].base / queueUnitBytes
	end := qu.files[len(qu.files)-1].base/queueUnitBytes + perFile
	for i, f := range qu.files[max(0, len(qu.files)-3):] {
		base := f.base / queueUnitBytes
		last, err := qu.entry(base + perFile - 1)
		if err != nil {
			return err
		}
		if last.valid() {
			continue
		}
		if end, err = qu.search(base, base+perFile-1, func(e QueueEntry) bool { return !e.valid() }); err != nil {
			return err
		}
		qu.set.incomplete = qu.set.incomplete || i < min(3, len(qu.files))-1
		break
	}
	first, err := qu.skipBlanks(start, end)
	if err != nil {
		return err
	}
	qu.first.Store(first)
	qu.end.Store(end)
	qu.assigned.Store(end)
	return qu.setMaxPhysical()
}

// skipBlanks gives the index of the first unit in [from, to) that has a
// record, or to.
func (qu *queue) skipBlanks(from, to int64) (int64, error) {
	for ; from < to; from++ {
		if e, err := qu.entry(from); err != nil || !e.blank() {
			return from, err
		}
	}
	return from, nil
}

// setMaxPhysical takes the end of the last record from the last unit that has
// one.
func (qu *queue) setMaxPhysical() error {
	first, end := qu.bounds()
	qu.maxPhysical.Store(0)
	for i := end - 1; i >= first; i-- {
		e, err := qu.entry(i)
		if err != nil {
			return err
		}
		if !e.blank() {
			qu.maxPhysical.Store(e.Offset + int64(e.Size))
			return nil
		}
	}
	return nil
}

// queuePath is a queue's directory.
func queuePath(dir string, id QueueID) string {
	return filepath.Join(dir, id.Topic, strconv.Itoa(int(id.ID)))
}
