package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
)

// recovery finds where the log ends. It only reads, so that a log that is
// opened for reading finds the same end. The cases, in order:
//
//  1. A truncation was under way: the log ends where it cuts, or before as 2
//     has it.
//  2. Our hint fits: bytes below its flushed offset are known to be on the
//     disk and are not looked at, but for the few before it, which it knows the
//     checksum of. If they are not what they were, it is damage: the log opens
//     read-only and nothing is changed. The log goes on from there to the first
//     byte that is not a good record or filler.
//  3. No hint, no abort file: RocketMQ's rule for a clean store. The scan
//     begins in the last segment whose first record is good and not behind the
//     consume queues.
//  4. No hint, an abort file: RocketMQ's rule for a crashed store. The scan
//     begins in the last segment whose first record is good and not after the
//     checkpoint; in the first one if there is none, or no good checkpoint.
//
// In 3 and 4 a filler in the last file is not part of the log, as RocketMQ has
// it; in 2 it is, because we make the next segment before we write a filler.
//
// RocketMQ CommitLog.recoverNormally and recoverAbnormally.
type recovery struct {
	disk       Disk
	layout     *layout
	hint       *hint // nil: none, or RocketMQ has written since
	clean      bool  // no abort file
	checkpoint Checkpoint
	queuesEnd  int64 // end of the last record that a queue knows
	progress   func(done, total int64)
	logger     *slog.Logger

	from         int64         // where the scan began
	end          int64         // where the log ends
	stopped      *CorruptError // what stands there; nil at the end of the files
	timestamp    int64         // store time of the last record seen, ms
	dispatchFrom int64         // records from here on may be missing in the queues
	damage       *CorruptError // bytes below the flushed offset are not what they were

	epochs        []Epoch // that fit the log (epochs.go)
	epochsSettled bool    // the files say so already
}

// run sets the results.
func (r *recovery) run() error {
	if len(r.layout.files) == 0 {
		return r.runEmpty()
	}
	first, end := r.layout.files[0].base, r.layout.end()
	w := &walker{disk: r.disk, layout: r.layout}
	defer w.close()
	if r.hint == nil {
		if err := r.chooseStart(w); err != nil {
			return err
		}
		r.dispatchFrom = r.from
		if !r.clean {
			// Nothing says how much of the queues was on the disk, and a queue
			// that lost units gives its offsets out again.
			r.dispatchFrom = r.layout.files[0].base
		}
		return r.scan(w, r.from)
	}
	r.timestamp = r.hint.Timestamp
	if err := r.checkTail(w); err != nil {
		return err
	}
	r.from = max(r.hint.Flushed, first)
	if r.from > end {
		r.from = r.layout.files[len(r.layout.files)-1].base
	}
	if err := r.scan(w, r.from); err != nil {
		return err
	}
	r.dispatchFrom = min(max(r.hint.Queued, first), r.end)
	return nil
}

// runEmpty is for a store without a segment. One that had bytes was moved away
// or is not mounted: to begin a new log at its first offset would be worse
// than not to begin.
func (r *recovery) runEmpty() error {
	if r.hint == nil {
		return nil
	}
	if r.hint.Flushed > r.hint.Start && r.hint.CutTo != r.hint.Start {
		return fmt.Errorf("%w: no segment is there, and the log was on the disk up to offset %d; mount or restore its directory, or remove %s to begin anew",
			ErrCorrupt, r.hint.Flushed, hintName)
	}
	r.from, r.end, r.dispatchFrom = r.hint.Start, r.hint.Start, r.hint.Start
	r.timestamp = r.hint.Timestamp
	return nil
}

// chooseStart finds the segment where RocketMQ's rules begin.
func (r *recovery) chooseStart(w *walker) error {
	files := r.layout.files
	r.from = files[0].base
	newest := r.checkpoint.minTimestamp()
	if !r.clean && newest == 0 {
		return nil
	}
	for i := len(files) - 1; i > 0; i-- {
		h, bad, err := w.check(files[i].base)
		if err != nil {
			return err
		}
		if bad != nil || h.Magic == MagicBlank || h.StoreTimestamp == 0 {
			continue
		}
		if r.clean && h.PhysicalOffset <= r.queuesEnd || !r.clean && h.StoreTimestamp <= newest {
			r.from = files[i].base
			return nil
		}
	}
	return nil
}

// segmentAlignment is what sizes of segments are multiples of in practice.
const segmentAlignment = 4096

// otherSegments refuses a store that was filled by a master whose segments are
// smaller: its filler does not end on our border, and a good record follows it
// or, where the master's segment can end, nothing yet or a record's front.
// Cutting the log there would be undone by the next connection, which brings the
// same bytes, acknowledged again and cut again.
func (r *recovery) otherSegments() error {
	if r.stopped == nil || r.stopped.Kind != KindFiller || r.damage != nil {
		return nil
	}
	w := &walker{disk: r.disk, layout: r.layout}
	defer w.close()
	filler, bad, err := w.check(r.stopped.Offset)
	if err != nil || bad != nil {
		return err
	}
	next := r.stopped.Offset + int64(filler.Size)
	if next-next%r.layout.segmentBytes != r.stopped.Offset-r.stopped.Offset%r.layout.segmentBytes {
		return nil
	}
	if _, bad, err = w.check(next); err != nil {
		return err
	}
	if bad != nil && next%segmentAlignment == 0 {
		head, err := w.peek(next, fillerHeaderBytes)
		if err != nil {
			return err
		}
		magic := binary.BigEndian.Uint32(head[4:])
		if zeros(head[:fillerHeaderBytes]) || magic == MagicV1 || magic == MagicV2 {
			bad = nil
		}
	}
	if bad != nil {
		return nil
	}
	return fmt.Errorf("%w: its segments have %d bytes, and the filler at offset %d ends at %d, where the master's segment ends: "+
		"the master's segments are smaller; copy it again into a new directory with the master's segment size",
		ErrCorrupt, r.layout.segmentBytes, r.stopped.Offset, next)
}

// limit is where the log ends at most.
func (r *recovery) limit() int64 {
	if r.hint != nil && r.hint.CutTo >= 0 {
		return min(r.hint.CutTo, r.layout.end())
	}
	return r.layout.end()
}

// scan walks good records from an offset on.
func (r *recovery) scan(w *walker, from int64) error {
	at, total, told := from, r.limit()-from, from
	for at < r.limit() {
		h, bad, err := w.check(at)
		if err != nil {
			return err
		}
		border := at - at%r.layout.segmentBytes + r.layout.segmentBytes
		switch {
		case bad == nil && h.Magic == MagicBlank:
			if r.hint != nil && at+int64(h.Size) != border {
				bad = w.describe(at, KindFiller, &h)
				break
			}
			if border == r.layout.end() && !r.goesOn(border) {
				r.end = at
				return nil
			}
			at = border
		case bad == nil && !r.clean:
			if bad, err = w.lostSector(at, &h); err == nil && bad == nil {
				bad, err = w.unfinished(at, &h)
			}
			if err != nil {
				return err
			}
		}
		if bad != nil {
			r.end, r.stopped = at, bad
			return nil
		}
		if h.Magic != MagicBlank {
			r.timestamp = max(r.timestamp, h.StoreTimestamp)
			at += int64(h.Size)
		}
		if r.progress != nil && at-told >= recoveryStep {
			told = at
			r.progress(at-from, total)
		}
	}
	r.end = at
	return nil
}

// Kinds of damage that only a recovery tells.
const (
	KindMissing = "missing segment" // bytes that were durable, and their file is not there
	KindTorn    = "lost sector"     // a power cut took a part that no checksum covers

	KindUnfinished = "unfinished record" // its last bytes never came
)

// recoveryStep is how often progress is told, in bytes.
const recoveryStep = 64 << 20

// goesOn tells whether a log whose last file is full goes on behind it.
func (r *recovery) goesOn(border int64) bool {
	if r.hint != nil {
		return true
	}
	for _, f := range r.layout.unused {
		if f.base == border && f.size == r.layout.segmentBytes {
			return true
		}
	}
	return false
}

// checkTail compares the bytes before the flushed offset with what the hint
// remembers of them.
func (r *recovery) checkTail(w *walker) error {
	h, first, end := r.hint, r.layout.files[0].base, r.layout.end()
	if h.Flushed > end {
		last := r.layout.files[len(r.layout.files)-1]
		r.damage = &CorruptError{
			Path: last.path, Offset: end, Kind: KindMissing,
			Detail: fmt.Sprintf("the log was on the disk up to offset %d; restore what follows, or remove %s to go on without it", h.Flushed, hintName),
		}
		return nil
	}
	if h.TailBytes == 0 || h.Flushed-h.TailBytes < first {
		return nil
	}
	b := make([]byte, h.TailBytes)
	if err := w.readAt(b, h.Flushed-h.TailBytes); err != nil {
		return err
	}
	if crc32.ChecksumIEEE(b) == h.TailCRC {
		return nil
	}
	// Which record it is takes a walk through the segment.
	at := h.Flushed - 1
	at -= at % r.layout.segmentBytes
	look := &recovery{disk: r.disk, layout: r.layout, hint: h, clean: true, logger: r.logger}
	if err := look.scan(w, at); err != nil {
		return err
	}
	r.damage = look.stopped
	if r.damage == nil || look.end >= h.Flushed {
		r.damage = &CorruptError{
			Path: w.path(h.Flushed - h.TailBytes), Offset: h.Flushed - h.TailBytes, Kind: KindCRC,
			Detail: fmt.Sprintf("%d bytes before the flushed offset %d are not what was written", h.TailBytes, h.Flushed),
		}
	}
	return nil
}
