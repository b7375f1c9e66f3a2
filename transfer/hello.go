package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"unicode"
	"unicode/utf8"
)

// Versions of the extended protocol that this build speaks.
const (
	VersionMin = 1
	VersionMax = 1
)

// Limits of a hello.
const (
	HelloBytesMax  = 48 << 10
	helloEpochsMax = 1000 // the newest go out; RocketMQ's own limit
	helloNameMax   = 255  // bytes of an id
	// TailBytes is how much of its end a replica proves to have by checksum.
	TailBytes = 64 << 10
)

// castagnoli is the polynomial of all checksums on the wire.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hello is what a node says of itself before any log moves. Both directions
// use one form; a field that a side has no use for is zero.
type Hello struct {
	VersionMin, VersionMax uint16
	ClusterID              string // empty: not set, which goes with any
	ReplicaID              string
	SegmentBytes           int64
	Log                    Range
	Epochs                 []Epoch // ascending
	FrameBytes             int32   // largest body that is sent, or taken

	// Questions is how much a question for checksums may ask of this node; zero
	// says that it answers none. The master's alone.
	Questions QuestionLimits

	// The replica's alone.
	Start    int64  // the first byte it wants; its log's end if it has one
	TailFrom int64  // the bytes [TailFrom, Log.End) have the checksum TailSum
	TailSum  uint32 // CRC-32C; of no bytes if TailFrom is the end
}

// Tags of a hello's fields. A tag that is not known is skipped by its length.
const (
	tagCluster = iota + 1
	tagReplica
	tagSegment
	tagLog
	tagEpochs
	tagFrame
	tagStart
	tagTail
	tagQuestions
	tagNonce // of an opening, which has none of those above; see openingPayload
	tagProof // the last, where both ends have a secret; see transcript
)

const (
	helloMagic  = 0x68616531 // "hae1"
	epochBytes  = 20
	fieldHeader = 4
)

// ErrHello means a hello that is not one; see the error around it.
var ErrHello = errors.New("invalid hello")

// AppendHello appends a hello's payload:
//
//	magic 4 | lowest version 2 | highest version 2 | fields | CRC-32C of all before 4
//	field: tag 2 | bytes 2 | value
//
// The head that stands before it depends on the direction; see ExtendedHeader
// and ExtendedReport.
func AppendHello(dst []byte, h Hello) []byte {
	from := len(dst)
	dst = appendHelloHead(dst, h.VersionMin, h.VersionMax)
	dst = appendField(dst, tagCluster, []byte(h.ClusterID))
	dst = appendField(dst, tagReplica, []byte(h.ReplicaID))
	dst = appendInts(dst, tagSegment, h.SegmentBytes)
	dst = appendInts(dst, tagLog, h.Log.Min, h.Log.End)
	epochs := h.Epochs[max(len(h.Epochs)-helloEpochsMax, 0):]
	value := make([]byte, 0, len(epochs)*epochBytes)
	for _, e := range epochs {
		value = binary.BigEndian.AppendUint32(value, uint32(e.Number))
		value = binary.BigEndian.AppendUint64(value, e.ID)
		value = binary.BigEndian.AppendUint64(value, uint64(e.Start))
	}
	dst = appendField(dst, tagEpochs, value)
	dst = appendInts(dst, tagFrame, int64(h.FrameBytes))
	dst = appendInts(dst, tagStart, h.Start)
	dst = appendInts(dst, tagTail, h.TailFrom, int64(h.TailSum))
	if h.Questions != (QuestionLimits{}) {
		dst = appendInts(dst, tagQuestions, h.Questions.Sums, h.Questions.Bytes)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

func appendHelloHead(dst []byte, low, high uint16) []byte {
	dst = binary.BigEndian.AppendUint32(dst, helloMagic)
	dst = binary.BigEndian.AppendUint16(dst, low)
	return binary.BigEndian.AppendUint16(dst, high)
}

func appendField(dst []byte, tag uint16, value []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, tag)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(value)))
	return append(dst, value...)
}

func appendInts(dst []byte, tag uint16, values ...int64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, tag)
	dst = binary.BigEndian.AppendUint16(dst, uint16(8*len(values)))
	for _, v := range values {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

// ParseHello reads a payload and checks each field. Fields of later versions
// are skipped. The error wraps ErrHello.
func ParseHello(b []byte) (Hello, error) {
	var h Hello
	seen, err := helloFields(b, h.field)
	if err != nil {
		return h, err
	}
	h.VersionMin, h.VersionMax = binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	for tag := uint16(tagReplica); tag <= tagFrame; tag++ {
		if !seen[tag] {
			return h, fmt.Errorf("%w: field %d is missing", ErrHello, tag)
		}
	}
	return h, h.check()
}

// helloFields checks what holds a payload together and gives each field to take.
func helloFields(b []byte, take func(tag uint16, v []byte) error) (seen map[uint16]bool, err error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b) != helloMagic {
		return nil, fmt.Errorf("%w: %d bytes without its magic number", ErrHello, len(b))
	}
	if !sealed(b) {
		return nil, fmt.Errorf("%w: wrong checksum", ErrHello)
	}
	seen = map[uint16]bool{}
	for rest := b[8 : len(b)-4]; len(rest) > 0; {
		if len(rest) < fieldHeader {
			return nil, fmt.Errorf("%w: %d bytes behind its last field", ErrHello, len(rest))
		}
		tag, n := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		rest = rest[fieldHeader:]
		if n > len(rest) {
			return nil, fmt.Errorf("%w: field %d of %d bytes, %d are there", ErrHello, tag, n, len(rest))
		}
		if seen[tag] {
			return nil, fmt.Errorf("%w: field %d comes twice", ErrHello, tag)
		}
		seen[tag] = true
		if err := take(tag, rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return seen, nil
}

func (h *Hello) field(tag uint16, v []byte) error {
	switch tag {
	case tagCluster, tagReplica:
		if len(v) > helloNameMax || !utf8.Valid(v) || bytes.ContainsFunc(v, unprintable) {
			return fmt.Errorf("%w: field %d is no printable name of at most %d bytes", ErrHello, tag, helloNameMax)
		}
		if tag == tagCluster {
			h.ClusterID = string(v)
		} else {
			h.ReplicaID = string(v)
		}
		return nil
	case tagEpochs:
		return h.epochs(v)
	}
	var to []*int64
	var frame, sum int64
	switch tag {
	case tagSegment:
		to = []*int64{&h.SegmentBytes}
	case tagLog:
		to = []*int64{&h.Log.Min, &h.Log.End}
	case tagFrame:
		to = []*int64{&frame}
	case tagStart:
		to = []*int64{&h.Start}
	case tagTail:
		to = []*int64{&h.TailFrom, &sum}
	case tagQuestions:
		to = []*int64{&h.Questions.Sums, &h.Questions.Bytes}
	default:
		return nil
	}
	if len(v) != 8*len(to) {
		return fmt.Errorf("%w: field %d of %d bytes, want %d", ErrHello, tag, len(v), 8*len(to))
	}
	for i, p := range to {
		*p = int64(binary.BigEndian.Uint64(v[8*i:]))
		if *p < 0 || *p > offsetMax {
			return fmt.Errorf("%w: field %d has the value %d", ErrHello, tag, *p)
		}
	}
	if frame > math.MaxInt32 || sum > math.MaxUint32 {
		return fmt.Errorf("%w: field %d has the value %d", ErrHello, tag, max(frame, sum))
	}
	switch tag {
	case tagFrame:
		h.FrameBytes = int32(frame)
	case tagTail:
		h.TailSum = uint32(sum)
	}
	return nil
}

// unprintable tells what must not come from a peer into logs and terminals.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func (h *Hello) epochs(v []byte) error {
	if len(v)%epochBytes != 0 || len(v)/epochBytes > helloEpochsMax {
		return fmt.Errorf("%w: %d bytes of epochs", ErrHello, len(v))
	}
	for ; len(v) > 0; v = v[epochBytes:] {
		e := Epoch{int32(binary.BigEndian.Uint32(v)), binary.BigEndian.Uint64(v[4:]), int64(binary.BigEndian.Uint64(v[12:]))}
		last := Epoch{Start: -1}
		if n := len(h.Epochs); n > 0 {
			last = h.Epochs[n-1]
		}
		if e.Number <= last.Number || e.Start <= last.Start || e.Start > offsetMax {
			return fmt.Errorf("%w: epoch %d at offset %d behind epoch %d at offset %d", ErrHello, e.Number, e.Start, last.Number, last.Start)
		}
		h.Epochs = append(h.Epochs, e)
	}
	return nil
}

// check looks at what the fields say together.
func (h *Hello) check() error {
	switch {
	case h.VersionMin < 1 || h.VersionMax < h.VersionMin:
		return fmt.Errorf("%w: versions %d to %d", ErrHello, h.VersionMin, h.VersionMax)
	case h.ReplicaID == "":
		return fmt.Errorf("%w: no replica id", ErrHello)
	case h.SegmentBytes <= 0:
		return fmt.Errorf("%w: segments of %d bytes", ErrHello, h.SegmentBytes)
	case h.Log.End < h.Log.Min:
		return fmt.Errorf("%w: a log from %d to %d", ErrHello, h.Log.Min, h.Log.End)
	case h.FrameBytes <= 0:
		return fmt.Errorf("%w: frames of %d bytes", ErrHello, h.FrameBytes)
	case (h.Questions.Sums == 0) != (h.Questions.Bytes == 0):
		return fmt.Errorf("%w: questions for %d checksums of %d bytes", ErrHello, h.Questions.Sums, h.Questions.Bytes)
	case h.TailFrom > h.Log.End || h.Log.End-h.TailFrom > TailBytes && h.TailFrom != 0 || h.TailFrom != 0 && h.TailFrom < h.Log.Min:
		return fmt.Errorf("%w: a tail from %d of a log from %d to %d", ErrHello, h.TailFrom, h.Log.Min, h.Log.End)
	}
	return nil
}

// version returns the highest version that both ends speak; 0: none.
func version(a, b Hello) uint16 {
	v := min(a.VersionMax, b.VersionMax)
	if v < max(a.VersionMin, b.VersionMin) {
		return 0
	}
	return v
}

// sameCluster tells whether two ids may be one cluster's: an id that is not set
// goes with any.
func sameCluster(a, b string) bool { return a == b || a == "" || b == "" }
