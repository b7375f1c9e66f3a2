package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// VisibleBounds is QueueBounds of the units whose records end at or before an
// offset in the log. It may read from the disk. Any goroutine.
func (l *Log) VisibleBounds(id QueueID, visible int64) (first, end int64, ok bool, err error) {
	qu := l.queues.lookup(id)
	if qu == nil {
		return 0, 0, false, nil
	}
	first, end = qu.bounds()
	end, err = qu.visibleEnd(first, end, visible)
	return first, end, true, err
}

// UnitVisible tells whether a queue has a unit at or behind an index that is not
// beyond an offset in the log. It costs a few loads where the queue is visible to
// its end, and else a read of one unit.
func (l *Log) UnitVisible(id QueueID, index, visible int64) bool {
	qu := l.queues.lookup(id)
	if qu == nil {
		return false
	}
	first, end := qu.bounds()
	if index >= end {
		return false
	}
	if index < first || qu.maxPhysical.Load() <= visible {
		return true
	}
	e, err := qu.entry(index)
	return err != nil || e.blank() || e.Offset+int64(e.Size) <= visible
}

// SeekTime gives the index of the first unit of a queue whose record was stored
// at a time in milliseconds or later; with upper, of the last that was stored at
// that time or before. Behind all of them it is the end and, with upper, the
// last; before all of them the first. Only units whose records end at or before
// the visible offset count; a queue without any gives its end.
//
// It reads two dozen records at most, from the disk if need be. The error is
// about reading. Any goroutine. RocketMQ ConsumeQueue.getOffsetInQueueByTime.
func (l *Log) SeekTime(id QueueID, ms int64, upper bool, visible int64) (int64, error) {
	if l.gone.Load() {
		return 0, ErrClosed
	}
	qu := l.queues.lookup(id)
	if qu == nil {
		return 0, nil
	}
	first, end := qu.bounds()
	end, err := qu.visibleEnd(first, end, visible)
	if err != nil || first >= end {
		return max(first, end), err
	}
	var failure error
	low := l.MinOffset()
	found, err := qu.search(first, end, func(e QueueEntry) bool {
		if e.blank() || e.Offset < low {
			return false // as if stored before everything: it is not there any more
		}
		at, err := l.StoreTime(e.Offset)
		failure = errors.Join(failure, err)
		return at > ms || !upper && at == ms
	})
	if err = errors.Join(failure, err); err != nil {
		return 0, err
	}
	if upper && found > first {
		found--
	}
	return found, nil
}

// StoreTime is when the record at an offset was stored, in milliseconds. The
// offset must be known to be a record's; nothing else of it is looked at. It may
// read from the disk. Any goroutine.
func (l *Log) StoreTime(offset int64) (int64, error) {
	v, err := l.View(offset, offset+recordFixedBytes)
	if err != nil {
		return 0, err
	}
	defer v.Release()
	var head [recordFixedBytes]byte
	if v.to-v.from < recordFixedBytes {
		return 0, l.outOfRange(offset, offset+recordFixedBytes)
	}
	if err := v.readAt(head[:]); err != nil {
		return 0, err
	}
	magic := binary.BigEndian.Uint32(head[4:])
	if magic != MagicV1 && magic != MagicV2 {
		return 0, &CorruptError{Path: v.segment.path, Offset: offset, Kind: KindMagic, Detail: hexWord(magic)}
	}
	h := Header{SysFlag: int32(binary.BigEndian.Uint32(head[sysFlagAt:]))}
	born, _ := h.hostBytes()
	return int64(binary.BigEndian.Uint64(head[48+born:])), nil
}

// FirstStoreTime is the store time of a queue's first record in milliseconds,
// and the record's offset; ok is false if there is none. It may read from the
// disk. Any goroutine.
func (l *Log) FirstStoreTime(id QueueID) (ms, offset int64, ok bool, err error) {
	qu := l.queues.lookup(id)
	if qu == nil {
		return 0, 0, false, nil
	}
	for first, end := qu.bounds(); first < end; first++ {
		e, err := qu.entry(first)
		if err != nil {
			return 0, 0, false, err
		}
		if e.blank() || e.Offset < l.MinOffset() {
			continue
		}
		ms, err = l.StoreTime(e.Offset)
		return ms, e.Offset, err == nil, err
	}
	return 0, 0, false, nil
}

// AppendRecordAt appends the record that begins at an offset to dst, as it
// stands in the log, checked with its body's checksum. Errors are those of Read,
// and ErrOutOfRange if it ends behind the visible offset. Nothing waits for the
// disk in a way that holds a processor. Any goroutine.
func (l *Log) AppendRecordAt(dst []byte, offset, visible int64) ([]byte, error) {
	cuts := l.cuts.Load()
	if err := l.warm(offset); err != nil {
		return dst, err
	}
	b, err := l.readRecord(nil, offset)
	if err != nil {
		return dst, err
	}
	if offset+int64(len(b)) > visible || cuts&1 != 0 || l.cuts.Load() != cuts {
		return dst, fmt.Errorf("offset %d: %w: the record there is not visible", offset, ErrOutOfRange)
	}
	if dst == nil {
		return b, nil
	}
	return append(dst, b...), nil
}

// warm brings the bytes of a record into memory by system calls, if something
// like one stands at the offset.
func (l *Log) warm(offset int64) error {
	v, err := l.View(offset, offset+l.segmentBytes.Load())
	if err != nil {
		return err
	}
	defer v.Release()
	var head [4]byte
	if v.to-v.from < int64(len(head)) {
		return nil // readRecord says what is wrong
	}
	if err := v.readAt(head[:]); err != nil {
		return err
	}
	left := min(int64(int32(binary.BigEndian.Uint32(head[:]))), v.to-v.from, readUnchecked)
	b := make([]byte, min(max(left, 0), eraseStepBytes))
	for left > 0 {
		if err := v.readAt(b[:min(left, int64(len(b)))]); err != nil {
			return err
		}
		v.from += int64(len(b))
		left -= int64(len(b))
	}
	return nil
}
