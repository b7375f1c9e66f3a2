package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// ReadAt copies the log's bytes from an offset on into dst, across segments,
// guarded against faults. It ends at EndOffset with io.EOF, as io.ReaderAt
// does. [ErrOutOfRange]: from is outside [MinOffset, EndOffset].
func (l *Log) ReadAt(dst []byte, from int64) (int, error) {
	n, err := l.copyRange(dst, from)
	if err == nil && n < len(dst) {
		err = io.EOF
	}
	return n, err
}

// copyRange is ReadAt to whom the end of the log is no error.
func (l *Log) copyRange(dst []byte, from int64) (int, error) {
	n := 0
	for n < len(dst) {
		at := from + int64(n)
		if at == l.end.Load() {
			return n, nil
		}
		v, err := l.View(at, at+int64(len(dst)-n))
		if err != nil {
			return n, err
		}
		m, err := v.CopyTo(dst[n:])
		v.Release()
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Read returns the record that begins at offset, checked with its body's
// checksum. [ErrOutOfRange]: no record begins there: outside the log, behind
// its last whole record, or at a filler. A *CorruptError: something else stands
// there, which is damage only if a record is known to begin there.
func (l *Log) Read(offset int64) (Record, error) {
	b, err := l.readRecord(nil, offset)
	if err != nil {
		return Record{}, err
	}
	return DecodeRecord(b)
}

// readRecord reads and checks the record at offset into buf, growing it, and
// returns the record's bytes.
func (l *Log) readRecord(buf []byte, offset int64) ([]byte, error) {
	v, err := l.View(offset, offset+l.segmentBytes.Load())
	if err != nil {
		return nil, err
	}
	defer v.Release()
	have := v.to - v.from
	var head [fillerHeaderBytes]byte
	if _, err := v.CopyTo(head[:]); err != nil {
		return nil, err
	}
	size := recordSizeWord(head[:])
	switch magic := binary.BigEndian.Uint32(head[4:]); {
	case have < fillerHeaderBytes:
		return nil, fmt.Errorf("offset %d: %w: only the beginning of a record is there", offset, ErrOutOfRange)
	case magic == MagicBlank:
		return nil, &fillerError{offset: offset, next: v.segment.end()}
	case magic != MagicV1 && magic != MagicV2 || size < recordFixedBytes || size > v.segment.end()-offset:
		size = min(have, fillerHeaderBytes) // CheckRecord says what is wrong with it
	case size > have:
		return nil, fmt.Errorf("offset %d: %w: only %d bytes of %d are there", offset, ErrOutOfRange, have, size)
	}
	// The length is that of a record inside this segment; it was not checked
	// further, so what it makes us allocate is bounded by the lengths in it.
	if size > readUnchecked {
		if err := v.checkLengths(size); err != nil {
			return nil, err
		}
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := v.CopyTo(buf); err != nil {
		return nil, err
	}
	if _, err := CheckRecord(buf, offset, true); err != nil {
		return nil, l.badRecord(v.segment, offset, err)
	}
	return buf, nil
}

// readUnchecked is how large a size word is believed: a record of RocketMQ's
// default limits. Beyond it the lengths inside are looked at first.
const readUnchecked = DefaultBodyBytes + recordOverheadBytes

// checkLengths fails unless the lengths inside the record at the view's start
// add up to its size.
func (v View) checkLengths(size int64) error {
	err := lengthsAddUp(size, func(b []byte, at int64) error {
		return v.file.read(v.from-v.segment.base+at, b)
	})
	var bad *CorruptError
	if errors.As(err, &bad) && bad.Kind == KindFault {
		return v.log.faulted(err)
	}
	if bad != nil {
		bad.Path, bad.Offset = v.segment.path, v.from
	}
	return err
}

// lengthsAddUp reads the lengths of a record with its few bytes around them,
// so that nothing is allocated by a size that is not one.
func lengthsAddUp(size int64, read func(b []byte, at int64) error) error {
	bad := &CorruptError{Kind: KindLengths, Detail: fmt.Sprintf("size word %d", size)}
	var head [recordFixedBytes + 2*(hostBytesV6-hostBytesV4)]byte
	if size < int64(len(head)) {
		return nil
	}
	if err := read(head[:], 0); err != nil {
		return err
	}
	h := Header{
		Magic:   binary.BigEndian.Uint32(head[4:]),
		SysFlag: int32(binary.BigEndian.Uint32(head[sysFlagAt:])),
	}
	born, store := h.hostBytes()
	at := int64(48 + born + 8 + store + 4 + 8)
	body := int64(int32(binary.BigEndian.Uint32(head[at:])))
	at += 4 + body
	var word [2]byte
	if body < 0 || at+2 > size {
		return bad
	}
	if err := read(word[:], at); err != nil {
		return err
	}
	topic := int64(int8(word[0]))
	at++
	if h.Magic == MagicV2 {
		topic = int64(int16(binary.BigEndian.Uint16(word[:])))
		at++
	}
	at += topic
	if topic < 0 || at+2 > size {
		return bad
	}
	if err := read(word[:], at); err != nil {
		return err
	}
	properties := int64(int16(binary.BigEndian.Uint16(word[:])))
	if properties < 0 || at+2+properties != size {
		return bad
	}
	return nil
}

// fillerError says that a segment ends at an offset with a filler.
type fillerError struct{ offset, next int64 }

// Error names where the log goes on.
func (e *fillerError) Error() string {
	return fmt.Sprintf("offset %d: %v: the segment's filler; the log goes on at %d", e.offset, ErrOutOfRange, e.next)
}

// Unwrap gives ErrOutOfRange and ErrFiller.
func (e *fillerError) Unwrap() []error { return []error{ErrOutOfRange, ErrFiller} }

// badRecord names the file in an error of CheckRecord. A record that stands
// where it says and whose body is not what was written is damage, whoever asks;
// of other bytes only their owner can tell whether a record should be there.
func (l *Log) badRecord(s *segment, offset int64, err error) error {
	var bad *CorruptError
	if !errors.As(err, &bad) {
		return err
	}
	bad.Path, bad.Offset = s.path, offset
	if bad.Kind == KindCRC && offset < l.flushed.Load() {
		l.damage(bad)
	}
	return bad
}

// Records iterates over the whole records from an offset on, which must be a
// record's or a segment's beginning, up to where the log ends now. Fillers are
// skipped. It stops at damage with a *CorruptError, and before the beginning
// of a record at the end of a replica's log without an error.
func (l *Log) Records(from int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		end := l.end.Load()
		var buf []byte
		for at := from; at < end; {
			b, err := l.readRecord(buf, at)
			var filler *fillerError
			switch {
			case errors.As(err, &filler):
				at = filler.next
				continue
			case errors.Is(err, ErrOutOfRange) && at >= l.MinOffset() && at != from:
				return // a replica's unfinished last record
			case err != nil:
				yield(Record{}, err)
				return
			}
			buf = b
			r, err := DecodeRecord(b)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
			at += int64(r.Size)
		}
	}
}
