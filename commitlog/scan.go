package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
)

// ItemKind is what stands at a place of the log.
type ItemKind uint8

// What a scan meets.
const (
	ItemRecord ItemKind = iota // a good record
	ItemFiller                 // the filler at a segment's end
	ItemDamage                 // bytes that are neither
	ItemEnd                    // where the scan ended; always the last, and only there
)

// Item is one thing that stands in the log.
type Item struct {
	Kind    ItemKind
	Offset  int64         // of its first byte
	Size    int64         // bytes; for ItemEnd those of a record that is not all there yet
	Record  *Record       // of ItemRecord
	Err     *CorruptError // of ItemDamage
	Segment string        // path of the file that Offset is in

	// The first two words at Offset as they stand there, 0 where no file is.
	SizeWord  int32
	MagicWord uint32
}

const (
	// scanChunkBytes is how much a scan reads at once.
	scanChunkBytes = 256 << 10

	// scanHeadBytes is enough of a record to see whether it says that it
	// stands where it stands.
	scanHeadBytes = physicalOffsetAt + 8
)

// Scan goes through the log from one offset to another, or to the end that it
// has now, and goes on after damage at the next record that is good: right
// magic, lengths that add up, its own position and its checksum. It is given
// every byte of [from, to) as part of one item. A from inside a record begins
// at the next one. The records own their bytes. Any goroutine.
//
// The last item is ItemEnd, at the offset where nothing more was to be read:
// to, rounded up to a record's border, or the log's end, or the start of a
// record that is not all there yet.
func (l *Log) Scan(from, to int64) iter.Seq[Item] {
	s := &scanner{
		read: l.copyRange, peek: l.peek, path: l.SegmentPath,
		segmentBytes: l.segmentBytes.Load(), end: l.EndOffset(),
	}
	return scanItems(s, l.MinOffset(), from, to)
}

// scanItems is Scan for a log that begins at low.
func scanItems(s *scanner, low, from, to int64) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		s.to = min(to, s.end)
		s.at = max(from, low)
		if s.at > low {
			s.align(low)
		}
		for s.at < s.to {
			item := s.next()
			if item.Kind == ItemEnd {
				break
			}
			if !yield(item) {
				return
			}
			s.at = item.Offset + item.Size
		}
		yield(s.endItem())
	}
}

// peek copies what a segment's file has at an offset, also behind the end of
// the log, and says how many bytes that were.
func (l *Log) peek(dst []byte, from int64) int {
	s := l.list.Load().find(from)
	if s == nil || !s.acquire() {
		return 0
	}
	defer s.release()
	f, err := s.use()
	if err != nil {
		return 0
	}
	dst = dst[:min(int64(len(dst)), s.end()-from)]
	if err := f.read(from-s.base, dst); err != nil {
		return 0
	}
	return len(dst)
}

// scanner walks over the bytes of a log. Not for sharing.
type scanner struct {
	read         func(dst []byte, from int64) (int, error) // whole ranges below end
	peek         func(dst []byte, from int64) int          // what a file has, also behind end
	path         func(offset int64) string
	segmentBytes int64
	end, to      int64 // of the log, of the scan
	at           int64 // where the next item begins

	buf   []byte
	bufAt int64 // offset of buf[0]
}

// bytes gives n bytes of the log at an offset, below end and in one segment,
// or the error of reading them. They are valid until the next call.
func (s *scanner) bytes(at, n int64) ([]byte, error) {
	if at >= s.bufAt && at+n <= s.bufAt+int64(len(s.buf)) {
		return s.buf[at-s.bufAt:][:n], nil
	}
	want := min(max(n, scanChunkBytes), s.border(at)-at, s.end-at)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.bufAt = s.buf[:want], at
	got, err := s.read(s.buf, at)
	s.buf = s.buf[:got]
	if int64(got) >= n {
		return s.buf[:n], nil
	}
	if err == nil {
		err = ErrOutOfRange // the log was cut, or the segment removed
	}
	return nil, err
}

// border is the end of the segment that holds an offset.
func (s *scanner) border(at int64) int64 { return at - at%s.segmentBytes + s.segmentBytes }

// next tells what stands at s.at, which is below s.end.
func (s *scanner) next() Item {
	item := Item{Offset: s.at, Segment: s.path(s.at)}
	room := s.border(s.at) - s.at
	head, err := s.bytes(s.at, min(fillerHeaderBytes, room, s.end-s.at))
	if err != nil {
		return s.damage(item, s.unread(err))
	}
	if len(head) == fillerHeaderBytes {
		item.SizeWord = int32(binary.BigEndian.Uint32(head))
		item.MagicWord = binary.BigEndian.Uint32(head[4:])
	}
	size, kind := framedSize(head, room)
	switch {
	case kind != "":
		return s.damage(item, recordError(head, s.at, kind, &Header{}))
	case s.at+size > s.end:
		return s.partial(item, size)
	}
	if item.Size = size; item.MagicWord == MagicBlank {
		item.Kind = ItemFiller
		return item
	}
	b, err := s.bytes(s.at, size)
	if err != nil {
		return s.damage(item, s.unread(err))
	}
	if _, err := CheckRecord(b, s.at, true); err != nil {
		return s.damage(item, err)
	}
	r, err := DecodeRecord(b)
	if err != nil {
		return s.damage(item, err)
	}
	item.Record = &r
	return item
}

// partial judges a record whose last bytes are not below the end: on a replica
// it is still coming, unless what is there cannot be its beginning.
func (s *scanner) partial(item Item, size int64) Item {
	if n := s.end - s.at; n >= scanHeadBytes && item.MagicWord != MagicBlank {
		b, err := s.bytes(s.at, scanHeadBytes)
		if err != nil {
			return s.damage(item, s.unread(err))
		}
		if p := int64(binary.BigEndian.Uint64(b[physicalOffsetAt:])); p != s.at {
			h := Header{PhysicalOffset: p}
			return s.damage(item, recordError(b, s.at, KindPosition, &h))
		}
		longer := recordError(b, s.at, KindLengths, &Header{})
		if s.resync(s.at+1, s.end) < s.end { // another one stands where it should go on
			return s.damage(item, longer)
		}
	}
	item.Kind, item.Size = ItemEnd, size
	return item
}

// endItem tells what stands where the scan ended.
func (s *scanner) endItem() Item {
	item := Item{Kind: ItemEnd, Offset: s.at, Segment: s.path(s.at)}
	if s.at < s.end && s.at >= s.to {
		// The scan was asked to end before the log does.
		item.Size = 0
	} else {
		item.Size = s.end - s.at
	}
	var head [fillerHeaderBytes]byte
	if s.peek(head[:], s.at) == len(head) {
		item.SizeWord = int32(binary.BigEndian.Uint32(head[:]))
		item.MagicWord = binary.BigEndian.Uint32(head[4:])
	}
	return item
}

// unread makes damage of bytes that could not be read.
func (s *scanner) unread(err error) *CorruptError {
	var bad *CorruptError
	if errors.As(err, &bad) {
		return bad
	}
	return &CorruptError{Offset: s.at, Kind: KindFault, Detail: err.Error()}
}

// damage makes an item of the bytes from s.at to the next good record, the
// segment's filler, the next segment, or the end of the log.
func (s *scanner) damage(item Item, err error) Item {
	bad := s.unread(err)
	bad.Path = item.Segment
	item.Kind, item.Err, item.Record = ItemDamage, bad, nil
	item.Size = s.resync(s.at+1, min(s.border(s.at), s.end)) - s.at
	return item
}

// magicPrefix is what both record magics begin with.
var magicPrefix = []byte{0xDA, 0xA3, 0x20}

// resync finds the first offset in [from, limit) where something good stands,
// or limit, which is a segment's border or the end of the log.
func (s *scanner) resync(from, limit int64) int64 {
	for at := from; at < limit; {
		n := min(scanChunkBytes, limit-at)
		b, err := s.bytes(at, n)
		if err != nil {
			return limit // the rest of the segment cannot be read either
		}
		i := s.candidate(b)
		if i < 0 {
			// What begins in the last bytes ends in the next piece.
			at = max(at+1, at+n-fillerHeaderBytes+1)
			continue
		}
		at += int64(i)
		if s.good(at, limit) {
			return at
		}
		at++
	}
	return limit
}

// candidate gives the first place in b where a record or a filler may begin,
// or -1.
func (s *scanner) candidate(b []byte) int {
	if len(b) < fillerHeaderBytes {
		return -1
	}
	record := bytes.Index(b[4:], magicPrefix)
	var blank [4]byte
	binary.BigEndian.PutUint32(blank[:], MagicBlank)
	filler := bytes.Index(b[4:], blank[:])
	if record < 0 || (filler >= 0 && filler < record) {
		return filler
	}
	return record
}

// good says whether a record, or the segment's filler, stands at an offset.
func (s *scanner) good(at, limit int64) bool {
	if limit-at < fillerHeaderBytes {
		return false
	}
	head, err := s.bytes(at, min(scanHeadBytes, limit-at))
	if err != nil {
		return false
	}
	size, kind := framedSize(head, s.border(at)-at)
	if kind != "" {
		return false
	}
	if binary.BigEndian.Uint32(head[4:]) == MagicBlank {
		return true
	}
	// The position first: no long read for a chance find.
	if len(head) < scanHeadBytes || int64(binary.BigEndian.Uint64(head[physicalOffsetAt:])) != at || at+size > limit {
		return false
	}
	b, err := s.bytes(at, size)
	if err != nil {
		return false
	}
	_, err = CheckRecord(b, at, true)
	return err == nil
}

// align moves s.at to the first border at or after it, if it is inside a
// record. The borders are found from the segment's start; low is the log's.
func (s *scanner) align(low int64) {
	from := s.at
	if from >= s.end {
		return
	}
	if s.good(from, min(s.border(from), s.end)) {
		return
	}
	s.at = max(from-from%s.segmentBytes, low)
	for s.at < from {
		item := s.next()
		if item.Kind == ItemEnd {
			s.at = max(s.at, from)
			return
		}
		if item.Kind == ItemDamage && item.Offset+item.Size > from {
			s.at = from // inside damage: the rest of it is shown
			return
		}
		s.at = item.Offset + item.Size
	}
}
