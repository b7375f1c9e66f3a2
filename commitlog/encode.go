package commitlog

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/haengine/haengine/internal/invariant"
)

// RecordSize gives the bytes that the message takes in the log. It fails with
// a *LimitError when a length does not fit its field. Pure.
func RecordSize(m *Message) (int, error) {
	if n := len(m.Topic); n > topicBytesMaxV2 {
		return 0, &LimitError{What: "topic", Value: int64(n), Max: topicBytesMaxV2, sentinel: ErrMessageIllegal}
	}
	if n := len(m.Properties); n > propertiesBytesMax {
		return 0, &LimitError{What: "properties", Value: int64(n), Max: propertiesBytesMax, sentinel: ErrPropertiesTooLong}
	}
	n := recordFixedBytes + m.BornHost.size() + m.StoreHost.size() - 2*hostBytesV4 +
		len(m.Body) + len(m.Topic) + len(m.Properties)
	if len(m.Topic) > topicBytesMaxV1 {
		n++
	}
	if n > math.MaxInt32 {
		return 0, &LimitError{What: "record", Value: int64(n), Max: math.MaxInt32, sentinel: ErrMessageIllegal}
	}
	return n, nil
}

// AppendRecord appends the record of m to dst. Every field is m's, except that
// the host bits of the flags follow the hosts, and that size, magic (V2 for a
// topic of more than 127 bytes) and checksum follow the content. The lengths
// must fit, as RecordSize tells; no other limit is looked at. Pure, and
// without an allocation if dst has the room.
//
// RocketMQ MessageExtEncoder.encode.
func AppendRecord(dst []byte, m *Message) []byte {
	size, err := RecordSize(m)
	if err != nil {
		panic("commitlog: AppendRecord: " + err.Error())
	}
	return appendRecord(dst, m, size)
}

// appendRecord is AppendRecord for a message whose RecordSize is known.
func appendRecord(dst []byte, m *Message, size int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	magic := MagicV1
	if len(m.Topic) > topicBytesMaxV1 {
		magic = MagicV2
	}
	b := dst[at:]
	binary.BigEndian.PutUint32(b, uint32(size))
	binary.BigEndian.PutUint32(b[4:], magic)
	binary.BigEndian.PutUint32(b[8:], bodyCRC(m.Body))
	binary.BigEndian.PutUint32(b[12:], uint32(m.QueueID))
	binary.BigEndian.PutUint32(b[16:], uint32(m.Flag))
	binary.BigEndian.PutUint64(b[queueOffsetAt:], uint64(m.QueueOffset))
	binary.BigEndian.PutUint64(b[physicalOffsetAt:], uint64(m.PhysicalOffset))
	binary.BigEndian.PutUint32(b[sysFlagAt:], uint32(m.storedSysFlag()))
	binary.BigEndian.PutUint64(b[40:], uint64(m.BornTimestamp))
	b = b[48+putHost(b[48:], m.BornHost):]
	binary.BigEndian.PutUint64(b, uint64(m.StoreTimestamp))
	b = b[8+putHost(b[8:], m.StoreHost):]
	binary.BigEndian.PutUint32(b, uint32(m.ReconsumeTimes))
	binary.BigEndian.PutUint64(b[4:], uint64(m.PreparedTransactionOffset))
	binary.BigEndian.PutUint32(b[12:], uint32(len(m.Body)))
	b = b[16+copy(b[16:], m.Body):]
	if magic == MagicV2 {
		b[0], b = byte(len(m.Topic)>>8), b[1:]
	}
	b[0] = byte(len(m.Topic))
	b = b[1+copy(b[1:], m.Topic):]
	binary.BigEndian.PutUint16(b, uint16(len(m.Properties)))
	invariant.Check(len(b) == 2+len(m.Properties), "a record is not of the size that was asked for it")
	copy(b[2:], m.Properties)
	return dst
}

// storedSysFlag is SysFlag with the host bits that the hosts ask for.
func (m *Message) storedSysFlag() int32 {
	f := m.SysFlag &^ (FlagBornHostV6 | FlagStoreHostV6)
	if m.BornHost.isV6() {
		f |= FlagBornHostV6
	}
	if m.StoreHost.isV6() {
		f |= FlagStoreHostV6
	}
	return f
}

// Places of the fields that only the append section knows. The first three are
// the same in every record; the store timestamp stands behind the born host.
const (
	queueOffsetAt    = 20
	physicalOffsetAt = 28
	sysFlagAt        = 36
)

// patchRecord sets in an encoded record what is known only once it has its
// place: queue offset, physical offset and store timestamp (milliseconds).
// Nothing of it is under the body's checksum.
func patchRecord(record []byte, queueOffset, physicalOffset, storeTimestamp int64) {
	binary.BigEndian.PutUint64(record[queueOffsetAt:], uint64(queueOffset))
	binary.BigEndian.PutUint64(record[physicalOffsetAt:], uint64(physicalOffset))
	at := 48 + hostBytesV4
	if int32(binary.BigEndian.Uint32(record[sysFlagAt:]))&FlagBornHostV6 != 0 {
		at = 48 + hostBytesV6
	}
	binary.BigEndian.PutUint64(record[at:], uint64(storeTimestamp))
}

// AppendFiller appends the 8-byte header of the filler that takes the rest of
// a segment: remaining bytes, the header included, at least 8. What follows
// the header in the segment may be anything.
func AppendFiller(dst []byte, remaining int) []byte {
	return binary.BigEndian.AppendUint32(appendInt32(dst, int32(remaining)), MagicBlank)
}

func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

// putHost writes a host to the start of b and says how much it took.
func putHost(b []byte, h Host) int {
	if h.isV6() {
		a := h.Addr.As16()
		copy(b, a[:])
		binary.BigEndian.PutUint32(b[16:], uint32(h.Port))
		return hostBytesV6
	}
	a := h.v4()
	copy(b, a[:])
	binary.BigEndian.PutUint32(b[4:], uint32(h.Port))
	return hostBytesV4
}
