package commitlog

import (
	"errors"
	"fmt"
)

// truncate drops the units of records at or after an offset in the log, from
// the end back (ConsumeQueue.truncateDirtyLogicFiles), and takes the next
// queue offset back with them. What waits to be written is dropped too.
func (qu *queue) truncate(offset int64) error {
	qu.pending = qu.pending[:0]
	cut, err := qu.cutOf(offset)
	if err != nil {
		return err
	}
	if err := qu.cutAt(cut); err != nil {
		return err
	}
	return qu.setMaxPhysical()
}

// cutOf finds from the end back which units go with the records at or after an
// offset, and the blanks between them.
func (qu *queue) cutOf(offset int64) (int64, error) {
	first, end := qu.bounds()
	block := queueBlocks.Get().(*[queueBufferBytes]byte)
	defer queueBlocks.Put(block)
	for cut := end; cut > first; {
		n := min(cut-first, int64(len(block)/queueUnitBytes))
		b := block[:n*queueUnitBytes]
		if err := qu.readBytes(b, (cut-n)*queueUnitBytes); err != nil {
			return 0, err
		}
		for ; len(b) > 0; b = b[:len(b)-queueUnitBytes] {
			e := decodeQueueEntry(b[len(b)-queueUnitBytes:])
			if e.Offset < offset && !(e.blank() && cut < end) {
				return cut, nil
			}
			cut--
		}
	}
	return first, nil
}

// cutAt makes cut the end, and erases what stands behind it: also what a failed
// commit or a crash left there, which must not come to life again.
func (qu *queue) cutAt(cut int64) error {
	qu.mu.Lock()
	defer qu.mu.Unlock()
	qu.end.Store(cut)
	qu.assigned.Store(cut)
	if qu.set.readOnly {
		return nil
	}
	return qu.eraseLocked(cut * queueUnitBytes)
}

// trimBefore forgets the units of records before an offset in the log, and
// removes the files that hold nothing else, but never the last one
// (ConsumeQueue.deleteExpiredFile, correctMinOffset).
func (qu *queue) trimBefore(offset int64) error {
	first, end := qu.bounds()
	kept, err := qu.search(first, end, func(e QueueEntry) bool { return e.Offset >= offset && !e.blank() })
	if err != nil {
		return err
	}
	qu.first.CompareAndSwap(first, kept) // lost to a queue's first unit: nothing to trim
	if qu.set.readOnly {
		return nil
	}
	qu.mu.Lock()
	defer qu.mu.Unlock()
	for len(qu.files) > 1 && qu.files[1].base <= kept*queueUnitBytes {
		// Durable one by one, so that a crash brings none back but the last.
		if err := errors.Join(qu.removeLocked(0), qu.syncDirectory()); err != nil {
			return err
		}
	}
	return nil
}

// eraseLocked clears the queue's files from a position on. A file that holds
// nothing any more goes, unless it is the only one and its name is what
// remembers where the queue goes on.
func (qu *queue) eraseLocked(from int64) error {
	for n := len(qu.files); n > 0 && qu.files[n-1].base+qu.set.fileBytes > from; n = len(qu.files) {
		f := qu.files[n-1]
		if f.base < from || (n == 1 && f.base > 0) {
			return qu.clearLocked(f, max(from-f.base, 0))
		}
		if err := qu.removeLocked(n - 1); err != nil {
			return err
		}
	}
	return nil
}

// eraseStepBytes is how much of a file is looked at in one step.
const eraseStepBytes = 64 << 10

// clearLocked writes zeros over what a file holds from a position on, and only
// over that: a byte that is zero may be in a hole, and a hole takes space when
// it is written to, which a full disk does not have.
func (qu *queue) clearLocked(f *queueFile, from int64) error {
	if f.file == nil {
		file, err := qu.set.disk.Open(f.path, true)
		if err != nil {
			return fmt.Errorf("open consume queue: %w", err)
		}
		f.file = file
		qu.set.opened(qu, f)
	}
	var b []byte
	for from < qu.set.fileBytes {
		at, err := f.file.NextData(from)
		if err == nil && at >= qu.set.fileBytes {
			return nil
		}
		if err == nil {
			if b == nil {
				b = make([]byte, eraseStepBytes)
			}
			from = min(at+eraseStepBytes, qu.set.fileBytes)
			err = qu.clearPieceLocked(f, b[:from-at], at)
		}
		if err != nil {
			return fmt.Errorf("clear consume queue %s: %w", f.path, err)
		}
	}
	return nil
}

// clearPieceLocked clears the sectors of a piece that hold something; a hole is
// made of whole ones. b is room for the piece.
func (qu *queue) clearPieceLocked(f *queueFile, b []byte, at int64) error {
	if n, err := f.file.ReadAt(b, at); n < len(b) {
		return err
	}
	for len(b) > 0 {
		n := min(int64(len(b)), sectorBytes-at%sectorBytes)
		if !zeros(b[:n]) {
			for n < int64(len(b)) && !zeros(b[n:min(int64(len(b)), n+sectorBytes)]) {
				n = min(int64(len(b)), n+sectorBytes)
			}
			clear(b[:n])
			if _, err := f.file.WriteAt(b[:n], at); err != nil {
				return err
			}
			f.dirty.Store(true)
			qu.set.markDirty(qu)
		}
		b, at = b[n:], at+n
	}
	return nil
}
