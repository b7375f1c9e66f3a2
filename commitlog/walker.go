package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// walker reads records of segment files that are not yet a log.
type walker struct {
	disk   Disk
	layout *layout

	file File // of base; nil: none is open
	base int64
	buf  []byte // bytes [at, at+len(buf)) of the log
	at   int64
}

// walkBytes is how much is read at once: larger than most records, and small
// enough to stay in the core's cache between the copy and the checksum.
const walkBytes = 512 << 10

func (w *walker) close() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}

func (w *walker) path(offset int64) string {
	return w.layout.files[(offset-w.layout.files[0].base)/w.layout.segmentBytes].path
}

// open opens the segment that holds offset.
func (w *walker) open(offset int64) error {
	base := offset - offset%w.layout.segmentBytes
	if w.file != nil && w.base == base {
		return nil
	}
	w.close()
	w.buf = w.buf[:0]
	file, err := w.disk.Open(w.path(offset), false)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	w.file, w.base = file, base
	return nil
}

// readAt fills b from an offset, across segments.
func (w *walker) readAt(b []byte, offset int64) error {
	for len(b) > 0 {
		if err := w.open(offset); err != nil {
			return err
		}
		part := b[:min(int64(len(b)), w.base+w.layout.segmentBytes-offset)]
		if _, err := w.file.ReadAt(part, offset-w.base); err != nil {
			return fmt.Errorf("read segment %s at byte %d: %w", w.path(offset), offset-w.base, err)
		}
		b, offset = b[len(part):], offset+int64(len(part))
	}
	return nil
}

// peek gives at least n bytes from an offset on, in one segment.
func (w *walker) peek(offset, n int64) ([]byte, error) {
	if err := w.open(offset); err != nil {
		return nil, err
	}
	if have := w.at + int64(len(w.buf)) - offset; offset >= w.at && have >= n {
		return w.buf[offset-w.at:], nil
	}
	want := min(max(n, walkBytes), w.base+w.layout.segmentBytes-offset)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, 0, want)
	}
	w.buf, w.at = w.buf[:want], offset
	if _, err := w.file.ReadAt(w.buf, offset-w.base); err != nil {
		w.buf = w.buf[:0]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read segment %s at byte %d: %w", w.path(offset), offset-w.base, err)
	}
	return w.buf, nil
}

// check reads what stands at an offset: the header of a good record or of a
// filler, or what is wrong. An error is the disk's.
func (w *walker) check(offset int64) (h Header, bad *CorruptError, err error) {
	room := w.layout.segmentBytes - offset%w.layout.segmentBytes
	if room < fillerHeaderBytes {
		return h, w.describe(offset, KindShort, &h), nil
	}
	head, err := w.peek(offset, fillerHeaderBytes)
	if err != nil {
		return h, nil, err
	}
	size, magic := recordSizeWord(head), binary.BigEndian.Uint32(head[4:])
	kind := ""
	switch {
	case magic == MagicBlank && (size < fillerHeaderBytes || size > room):
		kind = KindFiller
	case magic == MagicBlank:
		h.Magic, h.Size = magic, int32(size)
		return h, nil, nil
	case magic != MagicV1 && magic != MagicV2:
		kind = KindMagic
	case size < recordFixedBytes || size > room:
		kind = KindLengths
	case size > walkBytes:
		// Nothing is allocated by a size that is not a record's.
		err = lengthsAddUp(size, func(b []byte, at int64) error { return w.readAt(b, offset+at) })
		if errors.As(err, &bad) {
			kind = bad.Kind
		} else if err != nil {
			return h, nil, err
		}
	}
	if kind == "" {
		record, err := w.peek(offset, size)
		if err != nil {
			return h, nil, err
		}
		if kind = h.check(record[:size], offset, true); kind == "" {
			return h, nil, nil
		}
	}
	return h, w.describe(offset, kind, &h), nil
}

// sectorBytes is what a disk writes or loses as one, at least.
const sectorBytes = 512

// lostSector looks for a sector that a power cut took out of a good record's
// topic or properties: RocketMQ's checksum covers the body only, and its
// lengths may add up all the same. What is in one sector would be nothing but
// zeros there.
func (w *walker) lostSector(offset int64, h *Header) (*CorruptError, error) {
	record, err := w.peek(offset, int64(h.Size))
	if err != nil {
		return nil, err
	}
	position := offset % w.layout.segmentBytes
	for _, span := range [][2]int32{{h.topicAt, h.topicEnd}, {h.propertiesAt, h.propertiesEnd}} {
		for from := int64(span[0]); from < int64(span[1]); {
			to := min(int64(span[1]), from+sectorBytes-(position+from)%sectorBytes)
			if zeros(record[from:to]) {
				return &CorruptError{
					Path: w.path(offset), Offset: offset, Kind: KindTorn,
					Detail: fmt.Sprintf("bytes %d to %d of the record are zero", from, to),
				}, nil
			}
			from = to
		}
	}
	return nil, nil
}

// unfinished looks for the last bytes of a record that never came: a replica
// died while it received them, so that what its segment was made with stands
// there and behind. With the body whole the lengths add up all the same, and the
// record would be another one than its master's. No topic or properties that we
// take have a zero byte (Limits.Validate).
func (w *walker) unfinished(offset int64, h *Header) (*CorruptError, error) {
	size := int64(h.Size)
	record, err := w.peek(offset, size)
	if err != nil {
		return nil, err
	}
	from, to := h.propertiesAt, h.propertiesEnd
	if from == to {
		from, to = h.topicAt, h.topicEnd
	}
	if from == to || record[to-1] != 0 || offset+size == w.layout.end() {
		return nil, nil
	}
	behind := make([]byte, min(fillerHeaderBytes, w.layout.segmentBytes-(offset+size)%w.layout.segmentBytes))
	if err := w.readAt(behind, offset+size); err != nil || !zeros(behind) {
		return nil, err
	}
	missing := to
	for missing > from && record[missing-1] == 0 {
		missing--
	}
	return &CorruptError{
		Path: w.path(offset), Offset: offset, Kind: KindUnfinished,
		Detail: fmt.Sprintf("bytes %d to %d of the record are zero, and so is what follows", missing, size),
	}, nil
}

// zeros tells whether there is nothing else in b.
func zeros(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// describe makes the error for what stands at an offset.
func (w *walker) describe(offset int64, kind string, h *Header) *CorruptError {
	e := &CorruptError{Offset: offset, Kind: kind}
	if b, err := w.peek(offset, min(fillerHeaderBytes, w.layout.segmentBytes-offset%w.layout.segmentBytes)); err == nil {
		if kind == KindCRC || kind == KindPosition {
			if full, err := w.peek(offset, int64(h.Size)); err == nil {
				b = full[:h.Size]
			}
		}
		e = recordError(b, offset, kind, h)
	}
	e.Path = w.path(offset)
	return e
}
