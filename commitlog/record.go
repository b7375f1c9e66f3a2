package commitlog

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"net/netip"
	"strconv"
)

// Sizes of the record table, in bytes.
const (
	hostBytesV4 = 4 + 4
	hostBytesV6 = 16 + 4

	// recordFixedBytes is a V1 record with IPv4 hosts and without body, topic
	// and properties: the smallest record there is.
	recordFixedBytes = 91

	// fillerHeaderBytes is the smallest filler (END_FILE_MIN_BLANK_LENGTH): a
	// record is appended only if this much room is left behind it.
	fillerHeaderBytes = 8

	// clientFixedBytes is one message of a client's batch without its body and
	// properties.
	clientFixedBytes = 22

	topicBytesMaxV1    = math.MaxInt8
	topicBytesMaxV2    = math.MaxInt16
	propertiesBytesMax = math.MaxInt16
)

// Header is what a record says about itself, with the places of its variable
// parts. It holds no reference to the record's bytes.
type Header struct {
	Size, QueueID, Flag, SysFlag  int32
	Magic, BodyCRC                uint32
	QueueOffset, PhysicalOffset   int64
	BornTimestamp, StoreTimestamp int64 // milliseconds

	// Half-open ranges of bytes from the record's start.
	bodyAt, bodyEnd, topicAt, topicEnd, propertiesAt, propertiesEnd int32
}

// Body gives the body of the record b that the header was parsed from. It
// aliases b.
func (h *Header) Body(b []byte) []byte { return b[h.bodyAt:h.bodyEnd] }

// Topic gives the topic of the record b that the header was parsed from. It
// aliases b.
func (h *Header) Topic(b []byte) []byte { return b[h.topicAt:h.topicEnd] }

// Properties gives the properties' text of the record b that the header was
// parsed from. It aliases b.
func (h *Header) Properties(b []byte) []byte { return b[h.propertiesAt:h.propertiesEnd] }

// ParseHeader reads the header of the record at the start of b, which holds
// the whole record, and checks that its lengths add up. Nothing is allocated
// unless it fails: ErrFiller for a filler, or a *CorruptError. Pure.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	kind := h.parse(b)
	if kind != "" {
		return h, recordError(b, -1, kind, &h)
	}
	if h.Magic == MagicBlank {
		return h, ErrFiller
	}
	return h, nil
}

// parse is ParseHeader with the kind of damage instead of an error; a filler
// sets only Size and Magic. On damage Size is what the size word says if the
// record can have that size, and 0 otherwise.
func (h *Header) parse(b []byte) (kind string) {
	if len(b) < fillerHeaderBytes {
		return KindShort
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	h.Magic = binary.BigEndian.Uint32(b[4:])
	switch h.Magic {
	case MagicBlank:
		if size < fillerHeaderBytes || size > int64(len(b)) {
			return KindFiller
		}
		h.Size = int32(size)
		return ""
	case MagicV1, MagicV2:
	default:
		return KindMagic
	}
	if size < recordFixedBytes {
		return KindLengths
	}
	if size > int64(len(b)) {
		return KindShort
	}
	h.Size = int32(size)
	return h.parseRecord(b[:size])
}

// parseRecord reads the record that b is, of at least recordFixedBytes.
func (h *Header) parseRecord(b []byte) (kind string) {
	size := int64(len(b))
	h.BodyCRC = binary.BigEndian.Uint32(b[8:])
	h.QueueID = int32(binary.BigEndian.Uint32(b[12:]))
	h.Flag = int32(binary.BigEndian.Uint32(b[16:]))
	h.QueueOffset = int64(binary.BigEndian.Uint64(b[20:]))
	h.PhysicalOffset = int64(binary.BigEndian.Uint64(b[28:]))
	h.SysFlag = int32(binary.BigEndian.Uint32(b[36:]))
	h.BornTimestamp = int64(binary.BigEndian.Uint64(b[40:]))
	born, store := h.hostBytes()
	topicLengthBytes := int64(1)
	if h.Magic == MagicV2 {
		topicLengthBytes = 2
	}
	// What a record of these hosts and this magic needs at least.
	if size < recordFixedBytes+int64(born-hostBytesV4+store-hostBytesV4)+topicLengthBytes-1 {
		return KindLengths
	}
	at := int64(48 + born)
	h.StoreTimestamp = int64(binary.BigEndian.Uint64(b[at:]))
	at += 8 + int64(store) + 4 + 8
	body := int64(int32(binary.BigEndian.Uint32(b[at:])))
	at += 4
	if body < 0 || at+body+topicLengthBytes > size {
		return KindLengths
	}
	h.bodyAt, h.bodyEnd = int32(at), int32(at+body)
	at += body
	var topic int64
	if h.Magic == MagicV2 {
		topic = int64(int16(binary.BigEndian.Uint16(b[at:])))
	} else {
		topic = int64(int8(b[at]))
	}
	at += topicLengthBytes
	if topic < 0 || at+topic+2 > size {
		return KindLengths
	}
	h.topicAt, h.topicEnd = int32(at), int32(at+topic)
	at += topic
	properties := int64(int16(binary.BigEndian.Uint16(b[at:])))
	at += 2
	if properties < 0 || at+properties != size {
		return KindLengths
	}
	h.propertiesAt, h.propertiesEnd = int32(at), int32(size)
	return ""
}

// hostBytes gives the widths of the born host and the store host.
func (h *Header) hostBytes() (born, store int) {
	born, store = hostBytesV4, hostBytesV4
	if h.SysFlag&FlagBornHostV6 != 0 {
		born = hostBytesV6
	}
	if h.SysFlag&FlagStoreHostV6 != 0 {
		store = hostBytesV6
	}
	return born, store
}

// framedSize says how many bytes stand together at the start of b with room
// bytes left in the segment: a record's or a filler's size, or the first words
// of either if not even they are there. It tells what cannot become a record
// before all of its bytes are there.
func framedSize(b []byte, room int64) (size int64, kind string) {
	if room < fillerHeaderBytes {
		return 0, KindShort
	}
	if len(b) < fillerHeaderBytes {
		return fillerHeaderBytes, ""
	}
	size = int64(int32(binary.BigEndian.Uint32(b)))
	switch binary.BigEndian.Uint32(b[4:]) {
	case MagicBlank:
		if size != room {
			return size, KindFiller
		}
	case MagicV1, MagicV2:
		if size < recordFixedBytes || size > room {
			return size, KindLengths
		}
	default:
		return size, KindMagic
	}
	return size, ""
}

// crcHolds says whether the body of the record b has the stored checksum.
// RocketMQ does not look at the checksum of an empty body.
func (h *Header) crcHolds(b []byte) bool {
	return h.bodyAt == h.bodyEnd || bodyCRC(h.Body(b)) == h.BodyCRC
}

// bodyCRC is RocketMQ's UtilAll.crc32: the top bit is always clear.
func bodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

// CheckRecord checks what stands at the start of b, the bytes from there to
// the end of the segment (or as many as there are): the lengths add up, the
// record says that it is at position (not looked at if negative), and with crc
// that the body has its checksum. It gives the record's size, or a filler's
// with ErrFiller, or a *CorruptError without a path. The size that comes with
// KindPosition and KindCRC leads past the record; it is 0 for the other kinds.
// Nothing is allocated unless it is damage. Pure.
//
// RocketMQ CommitLog.checkMessageAndReturnSize, which does not compare the
// position.
func CheckRecord(b []byte, position int64, crc bool) (size int, err error) {
	var h Header
	if kind := h.check(b, position, crc); kind != "" {
		if kind == KindPosition || kind == KindCRC {
			size = int(h.Size)
		}
		return size, recordError(b, position, kind, &h)
	}
	if h.Magic == MagicBlank {
		return int(h.Size), ErrFiller
	}
	return int(h.Size), nil
}

// check is CheckRecord with the kind of damage instead of an error.
func (h *Header) check(b []byte, position int64, crc bool) (kind string) {
	if kind := h.parse(b); kind != "" || h.Magic == MagicBlank {
		return kind
	}
	if position >= 0 && h.PhysicalOffset != position {
		return KindPosition
	}
	if crc && !h.crcHolds(b) {
		return KindCRC
	}
	return ""
}

// recordError puts the numbers to a kind of damage at the start of b.
func recordError(b []byte, position int64, kind string, h *Header) *CorruptError {
	e := &CorruptError{Offset: max(position, 0), Kind: kind}
	if len(b) < fillerHeaderBytes {
		e.Detail = strconv.Itoa(len(b)) + " bytes are left"
		return e
	}
	size, magic := int32(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
	switch kind {
	case KindPosition:
		e.Detail = "the record says offset " + strconv.FormatInt(h.PhysicalOffset, 10)
	case KindCRC:
		e.Detail = "CRC-32 is " + hexWord(bodyCRC(h.Body(b))) + ", stored is " + hexWord(h.BodyCRC)
	default:
		e.Detail = "size word " + strconv.Itoa(int(size)) + ", magic " + hexWord(magic) +
			", " + strconv.Itoa(len(b)) + " bytes to look at"
	}
	return e
}

// hexWord writes a word as the fixtures and RocketMQ's tools do.
func hexWord(w uint32) string {
	s := strconv.FormatUint(uint64(w), 16)
	return "0x" + "00000000"[len(s):] + s
}

// DecodeRecord reads the record at the start of b, which holds at least that
// record. Body, topic and properties are copies. It looks at the structure
// only, not at the position or the checksum (CheckRecord does), and fails as
// ParseHeader. Pure.
func DecodeRecord(b []byte) (Record, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Record{}, err
	}
	born, store := h.hostBytes()
	r := Record{Size: h.Size, Magic: h.Magic, BodyCRC: h.BodyCRC}
	r.Topic = string(h.Topic(b))
	r.QueueID, r.Flag, r.SysFlag = h.QueueID, h.Flag, h.SysFlag
	r.Properties = string(h.Properties(b))
	r.Body = append([]byte{}, h.Body(b)...)
	r.BornTimestamp, r.StoreTimestamp = h.BornTimestamp, h.StoreTimestamp
	r.QueueOffset, r.PhysicalOffset = h.QueueOffset, h.PhysicalOffset
	r.BornHost = decodeHost(b[48 : 48+born])
	at := 56 + born
	r.StoreHost = decodeHost(b[at : at+store])
	at += store
	r.ReconsumeTimes = int32(binary.BigEndian.Uint32(b[at:]))
	r.PreparedTransactionOffset = int64(binary.BigEndian.Uint64(b[at+4:]))
	return r, nil
}

// decodeHost reads an address of 4 or 16 bytes and its port.
func decodeHost(b []byte) Host {
	addr, _ := netip.AddrFromSlice(b[:len(b)-4]) // 4 or 16 bytes: always an address
	return Host{Addr: addr, Port: int32(binary.BigEndian.Uint32(b[len(b)-4:]))}
}
