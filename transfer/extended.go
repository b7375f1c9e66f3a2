package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Sizes and marks of the extended wire format.
const (
	// ExtendedHeaderBytes is what stands before each unit from the master.
	ExtendedHeaderBytes = 64
	// ExtendedReportBytes is what stands before each unit from the replica.
	ExtendedReportBytes = 40
	// DefaultExtendedFrameBytes is the largest body of an extended frame where a
	// configuration says 0.
	DefaultExtendedFrameBytes = 1 << 20

	helloAsked   = -1 // the replica's first report: does the master know more than plain?
	extendedMark = -2 // stands where a plain report's offset would
	notSaid      = -1
)

// unitKind is what a unit of the extended protocol is.
type unitKind uint16

const (
	unitLog     unitKind = 1 // log bytes or, without any, a heartbeat; from a replica: a report
	unitHello   unitKind = 2 // the payload is a Hello
	unitRefusal unitKind = 3 // the payload is a Refusal; the connection ends
	unitSums    unitKind = 4 // the payload is a Question; from a master: an Answer
)

// message tells whether a unit has a payload that is no log.
func (k unitKind) message() bool { return k >= unitHello && k <= unitSums }

// extendedHeader is the head of a unit from the master. Its first 12 bytes are
// a plain frame's, with offset -1 if it is no log:
//
//	offset 8 | bytes 4 | kind 2 | flags 2 | epoch 4 | CRC-32C of the others 4
//	epoch id 8 | epoch start 8 | confirmed 8 | end 8 | wall time 8
type extendedHeader struct {
	Frame
	kind   unitKind
	epoch  Epoch
	source Source
}

// Source is what a frame tells of the master at the moment it is sent.
type Source struct {
	Confirmed   int64 // up to where the master's puts are complete
	End         int64 // of the master's log
	Time        int64 // the master's clock, ms since 1970
	FlushWanted bool  // a put waits for bytes to be durable on replicas
	OnReplicas  bool  // puts that are complete are on replicas, too
}

const (
	flagFlushWanted = 1 << iota
	flagOnReplicas
)

// ErrUnit means a unit of the extended protocol that cannot be one.
var ErrUnit = errors.New("invalid unit of the extended protocol")

func appendExtendedHeader(dst []byte, h extendedHeader) []byte {
	from := len(dst)
	dst = AppendFrame(dst, h.Frame)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.kind))
	flags := uint16(0)
	if h.source.FlushWanted {
		flags |= flagFlushWanted
	}
	if h.source.OnReplicas {
		flags |= flagOnReplicas
	}
	dst = binary.BigEndian.AppendUint16(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.epoch.Number))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, h.epoch.ID)
	for _, v := range []int64{h.epoch.Start, h.source.Confirmed, h.source.End, h.source.Time} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	binary.BigEndian.PutUint32(dst[from+20:], headerSum(dst[from:], 20))
	return dst
}

// headerSum is the checksum of a head without the 4 bytes that hold it.
func headerSum(b []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, b[:at])
	return crc32.Update(sum, castagnoli, b[at+4:])
}

// parseExtendedHeader reads a head; b holds ExtendedHeaderBytes. Flags that are
// not known are ignored.
func parseExtendedHeader(b []byte) (extendedHeader, error) {
	h := extendedHeader{
		Frame: ParseFrame(b),
		kind:  unitKind(binary.BigEndian.Uint16(b[12:])),
		epoch: Epoch{
			Number: int32(binary.BigEndian.Uint32(b[16:])),
			ID:     binary.BigEndian.Uint64(b[24:]),
			Start:  int64(binary.BigEndian.Uint64(b[32:])),
		},
		source: Source{
			Confirmed:   int64(binary.BigEndian.Uint64(b[40:])),
			End:         int64(binary.BigEndian.Uint64(b[48:])),
			Time:        int64(binary.BigEndian.Uint64(b[56:])),
			FlushWanted: binary.BigEndian.Uint16(b[14:])&flagFlushWanted != 0,
			OnReplicas:  binary.BigEndian.Uint16(b[14:])&flagOnReplicas != 0,
		},
	}
	switch sum := binary.BigEndian.Uint32(b[20:]); {
	case sum != headerSum(b[:ExtendedHeaderBytes], 20):
		return h, fmt.Errorf("%w: wrong checksum of a frame's head", ErrUnit)
	case h.kind.message():
		if h.Offset != notSaid || h.Bytes <= 0 || h.Bytes > HelloBytesMax {
			return h, fmt.Errorf("%w: a message of %d bytes at offset %d", ErrUnit, h.Bytes, h.Offset)
		}
	case h.kind != unitLog:
		return h, fmt.Errorf("%w: of kind %d", ErrUnit, h.kind)
	case h.epoch.Number < 0 || h.epoch.Start < 0 || h.epoch.Start > h.Offset || h.source.Confirmed < 0 || h.source.Confirmed > h.source.End || h.source.End < h.End():
		return h, fmt.Errorf("%w: frame of %d bytes at offset %d: epoch %d from %d, confirmed %d, end %d",
			ErrUnit, h.Bytes, h.Offset, h.epoch.Number, h.epoch.Start, h.source.Confirmed, h.source.End)
	}
	return h, nil
}

// messageOf gives a unit of the master's that is no log.
func messageOf(kind unitKind, payload []byte) []byte {
	head := appendExtendedHeader(nil, extendedHeader{Frame: Frame{Offset: notSaid, Bytes: int32(len(payload))}, kind: kind})
	return append(head, payload...)
}

// extendedReport is the head of a unit from the replica:
//
//	-2 8 | received 8 | flushed 8 | damaged 8 | kind 2 | bytes of payload 2 | CRC-32C of what is before 4
type extendedReport struct {
	kind  unitKind
	acks  Acks
	bytes int // of payload
}

// Acks are what a replica says of its copy.
type Acks struct {
	Received int64 // one past the last byte it holds
	Flushed  int64 // one past the last that is checked and durable
	Damaged  int64 // offset of the first byte found to be wrong; -1: none
}

func appendExtendedReport(dst []byte, r extendedReport) []byte {
	from := len(dst)
	for _, v := range []int64{extendedMark, r.acks.Received, r.acks.Flushed, r.acks.Damaged} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.kind))
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.bytes))
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// parseExtendedReport reads a head; b holds ExtendedReportBytes.
func parseExtendedReport(b []byte) (extendedReport, error) {
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	r := extendedReport{
		kind:  unitKind(binary.BigEndian.Uint16(b[32:])),
		acks:  Acks{Received: at(8), Flushed: at(16), Damaged: at(24)},
		bytes: int(binary.BigEndian.Uint16(b[34:])),
	}
	message := r.kind.message()
	switch sum := binary.BigEndian.Uint32(b[36:]); {
	case sum != crc32.Checksum(b[:36], castagnoli) || at(0) != extendedMark:
		return r, fmt.Errorf("%w: wrong checksum of a report", ErrUnit)
	case !message && r.kind != unitLog:
		return r, fmt.Errorf("%w: of kind %d", ErrUnit, r.kind)
	case message != (r.bytes > 0) || r.bytes > HelloBytesMax:
		return r, fmt.Errorf("%w: of kind %d with %d bytes", ErrUnit, r.kind, r.bytes)
	case !message && (r.acks.Received < 0 || r.acks.Flushed < 0 || r.acks.Flushed > r.acks.Received || r.acks.Damaged < notSaid):
		return r, fmt.Errorf("%w: received %d, flushed %d, damaged %d", ErrUnit, r.acks.Received, r.acks.Flushed, r.acks.Damaged)
	}
	return r, nil
}

// appendReply appends a unit of the replica's that is no report.
func appendReply(dst []byte, kind unitKind, payload []byte) []byte {
	dst = appendExtendedReport(dst, extendedReport{kind: kind, acks: Acks{Damaged: notSaid}, bytes: len(payload)})
	return append(dst, payload...)
}
