package commitlog

import (
	"encoding/binary"
	"math"
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
	magic := MagicV1
	if len(m.Topic) > topicBytesMaxV1 {
		magic = MagicV2
	}
	dst = appendInt32(dst, int32(size))
	dst = binary.BigEndian.AppendUint32(dst, magic)
	dst = binary.BigEndian.AppendUint32(dst, bodyCRC(m.Body))
	dst = appendInt32(dst, m.QueueID)
	dst = appendInt32(dst, m.Flag)
	dst = appendInt64(dst, m.QueueOffset)
	dst = appendInt64(dst, m.PhysicalOffset)
	dst = appendInt32(dst, m.storedSysFlag())
	dst = appendInt64(dst, m.BornTimestamp)
	dst = appendHost(dst, m.BornHost)
	dst = appendInt64(dst, m.StoreTimestamp)
	dst = appendHost(dst, m.StoreHost)
	dst = appendInt32(dst, m.ReconsumeTimes)
	dst = appendInt64(dst, m.PreparedTransactionOffset)
	dst = appendInt32(dst, int32(len(m.Body)))
	dst = append(dst, m.Body...)
	if magic == MagicV2 {
		dst = append(dst, byte(len(m.Topic)>>8))
	}
	dst = append(dst, byte(len(m.Topic)))
	dst = append(dst, m.Topic...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
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

func appendHost(dst []byte, h Host) []byte {
	if h.isV6() {
		a := h.Addr.As16()
		dst = append(dst, a[:]...)
	} else {
		a := h.v4()
		dst = append(dst, a[:]...)
	}
	return appendInt32(dst, h.Port)
}
