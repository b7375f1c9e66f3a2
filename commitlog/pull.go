package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// PullStatus says what a look at a queue came to (RocketMQ GetMessageStatus).
type PullStatus uint8

// The statuses. RocketMQ's OFFSET_FOUND_NULL, a unit that cannot be read, is an
// error of Pull's here: nothing is skipped because of it.
const (
	PullFound        PullStatus = iota // there are records
	PullNoMatch                        // units were looked at, and the filter wants none
	PullRemoving                       // their records are not in the log any more
	PullOverflowOne                    // the offset is the end, or not visible yet: nothing new
	PullOverflowFar                    // the offset is behind the end
	PullTooSmall                       // the offset is before the first
	PullEmptyQueue                     // the queue has had no record yet
	PullNoQueue                        // there is no such queue
	PullCold                           // Pull.HotOnly was set, and the next record is cold
	PullInterrupted                    // the log was cut meanwhile; ask again
	pullStatusNumber = iota
)

var pullNames = [pullStatusNumber]string{
	"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY",
	"OFFSET_TOO_SMALL", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE", "COLD", "LOG_WAS_CUT",
}

// String is RocketMQ's name of the status, if it has one.
func (s PullStatus) String() string {
	if int(s) < len(pullNames) {
		return pullNames[s]
	}
	return fmt.Sprintf("invalid(%d)", s)
}

// Pull is what a reader of a consume queue asks for.
type Pull struct {
	Queue QueueID
	From  int64 // queue offset of the first unit to look at
	// Tags are the tags codes that are wanted, their low 32 bits; nil: all.
	Tags []int32
	// Visible is an offset in the log: records that end behind it are not there.
	Visible int64
	// Messages and Bytes are how much is given at most, but always one record.
	Messages, Bytes int
	// Records before Cold are likely not in memory. They are read by a system
	// call, which costs other goroutines no processor, and fewer of them.
	Cold                    int64
	ColdMessages, ColdBytes int
	HotOnly                 bool // give none rather than a first one that is cold
}

// Pulled is what was found. Offsets are of the queue.
type Pulled struct {
	Status   PullStatus
	Messages int
	Next     int64 // where to go on
	Min, Max int64 // half-open: what is there, and visible
	// Last is the offset in the log of the last record that was given, or of the
	// first that was not because it is cold.
	Last int64
}

// pullScanMax bounds the units that one Pull looks at for those that its filter
// wants: 20 reads of the queue's files.
const pullScanMax = 20 * queueBufferBytes / queueUnitBytes

// pullBlock is how many units are looked at in one step.
const pullBlock = queueBufferBytes / queueUnitBytes

// errRecordGone means that retention was faster than a reader.
var errRecordGone = errors.New("record is gone")

var pullBlocks = sync.Pool{New: func() any { return new([pullBlock]QueueEntry) }}

// Pull appends the records of a range of a queue to dst, as they stand in the
// log, one behind the other, and returns the longer slice. Each is copied once,
// and was checked to be the one that the queue means; its checksum is left to
// the reader. What is not visible is neither given nor counted in Max.
//
// The error is about reading: ErrClosed, a *CorruptError, or the disk's. Records
// before the one that cannot be read are given first. It may read from the disk,
// so it is not for a loop. Any goroutine. RocketMQ DefaultMessageStore.getMessage.
func (l *Log) Pull(dst []byte, p *Pull) ([]byte, Pulled, error) {
	if l.gone.Load() {
		return dst, Pulled{Next: p.From}, ErrClosed
	}
	cuts, start := l.cuts.Load(), len(dst)
	dst, found, err := l.pull(dst, p)
	if cuts&1 != 0 || l.cuts.Load() != cuts {
		return dst[:start], Pulled{Status: PullInterrupted, Next: p.From, Min: found.Min, Max: found.Max}, nil
	}
	return dst, found, err
}

func (l *Log) pull(dst []byte, p *Pull) ([]byte, Pulled, error) {
	qu := l.queues.lookup(p.Queue)
	if qu == nil {
		return dst, Pulled{Status: PullNoQueue}, nil
	}
	r, err := qu.visibleBounds(p)
	if err != nil || r.Status != PullFound {
		return dst, r, err
	}
	block := pullBlocks.Get().(*[pullBlock]QueueEntry)
	defer pullBlocks.Put(block)
	g := gathering{log: l, p: p, dst: dst, Pulled: r, min: l.MinOffset(), start: len(dst)}
	step := pullBlock
	if p.Tags == nil {
		step = min(step, max(p.Messages, 1))
	}
	for looked := 0; !g.full && g.Next < r.Max && looked < pullScanMax; {
		n, err := qu.read(g.Next, block[:min(int64(step), r.Max-g.Next)])
		if err == nil && n == 0 {
			break // cut meanwhile
		}
		if err == nil {
			looked += n
			err = g.take(block[:n])
		}
		if err != nil && g.Messages == 0 {
			if first, _ := qu.bounds(); first > g.Next || errors.Is(err, errRecordGone) {
				return dst, Pulled{Status: PullRemoving, Next: max(first, g.Next), Min: first, Max: r.Max}, nil
			}
			return dst, g.result(), err
		} else if err != nil {
			break // the next pull meets it first
		}
	}
	return g.dst, g.result(), nil
}

// visibleBounds gives the queue's visible range, and the status of an offset
// that is not in it.
func (qu *queue) visibleBounds(p *Pull) (Pulled, error) {
	first, end := qu.bounds()
	top, err := qu.visibleEnd(first, end, p.Visible)
	r := Pulled{Next: p.From, Min: first, Max: top}
	switch {
	case err != nil:
	case end == 0:
		r.Status, r.Next = PullEmptyQueue, 0
	case p.From < first:
		r.Status, r.Next = PullTooSmall, first
	case p.From > end:
		r.Status, r.Next = PullOverflowFar, top
	case p.From >= top:
		// Also what is there and not visible yet: who has been there comes again.
		r.Status = PullOverflowOne
	}
	return r, err
}

// visibleEnd is the index behind the last unit in [first, end) whose record
// ends at or before an offset. Where blank units hide the border it may be too
// high, but not above end.
func (qu *queue) visibleEnd(first, end, visible int64) (int64, error) {
	// The writer stores them in the other order.
	if qu.maxPhysical.Load() <= visible || first >= end {
		return max(first, end), nil
	}
	beyond := func(e QueueEntry) bool { return !e.blank() && e.Offset+int64(e.Size) > visible }
	// The border is near the end, most often.
	high := end
	for step := int64(1); ; step *= 4 {
		low := max(first, high-step)
		e, err := qu.entry(low)
		if err != nil {
			return first, err
		}
		if low == first || !beyond(e) {
			return qu.search(low, high, beyond)
		}
		high = low
	}
}

// gathering is a pull that is under way.
type gathering struct {
	log   *Log
	p     *Pull
	dst   []byte
	start int   // of the records in dst
	min   int64 // the log's first offset
	full  bool  // no further record is to be given
	gone  bool  // a record was not in the log any more
	Pulled
}

// take looks at units from Next on, and copies the records of those that are
// wanted. Next is then behind the last that was looked at.
func (g *gathering) take(units []QueueEntry) error {
	wanted, bytes, next := 0, len(g.dst)-g.start, g.Next
	count := g.Messages
	for i, e := range units {
		switch {
		case e.blank() || g.p.Tags != nil && !slices.Contains(g.p.Tags, int32(e.TagsCode)):
			next++
			continue
		case e.Offset < g.min:
			g.gone = true
			next++
			continue
		case e.Offset+int64(e.Size) > g.p.Visible:
			g.full = true
		case count == 0 && g.p.HotOnly && e.Offset < g.p.Cold:
			g.full, g.Status, g.Last = true, PullCold, e.Offset
		case g.limited(count, bytes, e):
			g.full = true
		}
		if g.full {
			break
		}
		units[wanted] = e
		units[wanted].TagsCode = g.Next + int64(i) // its index, for the check
		wanted++
		count++
		bytes += int(e.Size)
		next++
	}
	if err := g.copyRuns(units[:wanted], bytes-(len(g.dst)-g.start)); err != nil {
		return err
	}
	g.Next = next
	return nil
}

// limited tells whether a record is one too many (isTheBatchFull).
func (g *gathering) limited(count, bytes int, e QueueEntry) bool {
	if count == 0 {
		return false
	}
	messages, most := g.p.Messages, g.p.Bytes
	if e.Offset < g.p.Cold {
		messages, most = min(messages, g.p.ColdMessages), min(most, g.p.ColdBytes)
	}
	return count >= messages || bytes+int(e.Size) > most
}

// copyRuns copies records; those that stand one behind the other in one piece.
// After an error what was copied before stands, and Next is the bad one's index.
func (g *gathering) copyRuns(units []QueueEntry, total int) error {
	g.dst = slices.Grow(g.dst, total)
	for len(units) > 0 {
		n, to := 1, units[0].Offset+int64(units[0].Size)
		for n < len(units) && units[n].Offset == to && units[n-1].Offset >= g.p.Cold == (units[n].Offset >= g.p.Cold) {
			to += int64(units[n].Size)
			n++
		}
		at := len(g.dst)
		g.dst = g.dst[:at+int(to-units[0].Offset)]
		err := g.log.copyRecords(g.dst[at:], units[0].Offset, units[0].Offset < g.p.Cold)
		for _, e := range units[:n] {
			if err == nil {
				err = checkPulled(g.dst[at:at+int(e.Size)], g.p.Queue, e)
			}
			if err != nil {
				g.dst, g.Next = g.dst[:at], e.TagsCode
				if e.Offset < g.log.MinOffset() { // retention was faster
					return errRecordGone
				}
				return fmt.Errorf("%s queue %d offset %d: %w", g.p.Queue.Topic, g.p.Queue.ID, e.TagsCode, err)
			}
			at += int(e.Size)
			g.Messages++
			g.Last = e.Offset
		}
		units = units[n:]
	}
	return nil
}

func (g *gathering) result() Pulled {
	switch {
	case g.Messages > 0:
		g.Status = PullFound
	case g.Status == PullCold:
	case g.gone:
		g.Status = PullRemoving
	case g.full:
		g.Status = PullOverflowOne // the next is not visible
	default:
		g.Status = PullNoMatch
	}
	return g.Pulled
}

// copyRecords fills dst from an offset on, inside one segment: from the mapping,
// or by a system call. A page that is not in memory keeps a thread waiting
// either way, but in the system call the runtime gives its processor to others.
func (l *Log) copyRecords(dst []byte, offset int64, cold bool) error {
	v, err := l.View(offset, offset+int64(len(dst)))
	if err != nil {
		return err
	}
	defer v.Release()
	if v.to-v.from < int64(len(dst)) {
		return l.outOfRange(offset, offset+int64(len(dst)))
	}
	if !cold {
		_, err = v.CopyTo(dst)
		return err
	}
	return v.readAt(dst)
}

// readAt fills dst with the view's first bytes by a system call.
func (v View) readAt(dst []byte) error {
	if n, err := v.file.file.ReadAt(dst, v.from-v.segment.base); n < len(dst) {
		return fmt.Errorf("read segment %s: %w", v.segment.path, err)
	}
	return nil
}

// checkPulled tells whether b is the record that a unit means; the unit's tags
// code is its index.
func checkPulled(b []byte, id QueueID, e QueueEntry) error {
	var h Header
	kind := h.check(b, e.Offset, false)
	if kind == "" && h.Magic == MagicBlank {
		kind = KindMagic
	}
	if kind != "" {
		return recordError(b, e.Offset, kind, &h)
	}
	if h.Size != e.Size || h.QueueID != id.ID || h.QueueOffset != e.TagsCode || !bytes.Equal(h.Topic(b), []byte(id.Topic)) {
		return &CorruptError{Offset: e.Offset, Kind: KindQueue, Detail: fmt.Sprintf(
			"the consume queue means record %d of %d bytes, there is record %d of %s queue %d with %d bytes",
			e.TagsCode, e.Size, h.QueueOffset, h.Topic(b), h.QueueID, h.Size)}
	}
	return nil
}
