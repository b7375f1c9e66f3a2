package commitlog

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// The magic words of the format. V1 and V2 differ only in the width of the
// topic length (RocketMQ MessageDecoder, MessageVersion, CommitLog).
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB
	MagicBlank uint32 = 0xCBD43194
)

// Bits of SysFlag that the store looks at (RocketMQ MessageSysFlag). The other
// bits are the client's.
const (
	FlagTransactionMask     int32 = 0x00C
	FlagTransactionPrepared int32 = 0x004
	FlagTransactionCommit   int32 = 0x008
	FlagTransactionRollback int32 = 0x00C
	FlagBornHostV6          int32 = 0x010
	FlagStoreHostV6         int32 = 0x020
	FlagInnerBatch          int32 = 0x080
)

// Host is an address and a port as a record stores them. The zero Host is
// written as 0.0.0.0 with port 0.
type Host struct {
	Addr netip.Addr
	Port int32
}

// String gives "address|port". An IPv6 address is written in full, without
// "::", as Java's Inet6Address.getHostAddress does.
func (h Host) String() string {
	var b []byte
	if !h.isV6() {
		a := h.v4()
		for i, octet := range a {
			if i > 0 {
				b = append(b, '.')
			}
			b = strconv.AppendUint(b, uint64(octet), 10)
		}
	} else {
		a := h.Addr.As16()
		for i := 0; i < 16; i += 2 {
			if i > 0 {
				b = append(b, ':')
			}
			b = strconv.AppendUint(b, uint64(a[i])<<8|uint64(a[i+1]), 16)
		}
	}
	b = append(b, '|')
	return string(strconv.AppendInt(b, int64(h.Port), 10))
}

// isV6 says whether the record holds 16 bytes of address. An IPv4-mapped
// address is stored as it is, so that decoding and encoding give the same
// bytes; whoever takes addresses from a socket unmaps them.
func (h Host) isV6() bool { return h.Addr.Is6() }

// v4 gives the 4 bytes of an IPv4 host, zeros for the zero Host.
func (h Host) v4() (a [4]byte) {
	if h.Addr.Is4() {
		a = h.Addr.As4()
	}
	return a
}

// size gives the bytes that the host takes in a record.
func (h Host) size() int {
	if h.isV6() {
		return hostBytesV6
	}
	return hostBytesV4
}

// Message is what a producer gives and what a record holds.
type Message struct {
	Topic   string
	QueueID int32
	Flag    int32 // the user's, not interpreted
	SysFlag int32 // see the Flag constants; the host bits follow the hosts

	// Properties is RocketMQ's text: name, U+0001, value, U+0002, and so on.
	// The bytes are stored as they are: order and last separator are not
	// canonical. EncodeProperties makes them.
	Properties string
	Body       []byte

	BornTimestamp             int64 // milliseconds; 0: now
	BornHost                  Host  // zero: the store's host
	ReconsumeTimes            int32
	PreparedTransactionOffset int64

	// Set by the log at the append, read when a record is decoded.
	StoreTimestamp int64 // milliseconds
	StoreHost      Host
	QueueOffset    int64 // index in the consume queue
	PhysicalOffset int64 // of the record's first byte in the log
}

// Record is a decoded record. It owns its bytes.
type Record struct {
	Message
	Size    int32  // the whole record's bytes in the log
	Magic   uint32 // MagicV1 or MagicV2
	BodyCRC uint32 // as stored: CRC-32 (IEEE) of the body, top bit cleared
}

// Property gives the value of a property, and whether the message has it.
// The rules are ParseProperties'; nothing is allocated.
func (m *Message) Property(name string) (string, bool) {
	return findProperty(m.Properties, name)
}

// WaitStore says whether a put of this message waits for the disk and the
// replicas: the WAIT property, true when absent (RocketMQ
// Message.isWaitStoreMsgOK).
func (m *Message) WaitStore() bool {
	v, ok := findProperty(m.Properties, propertyWait)
	return !ok || strings.EqualFold(v, "true")
}

// Queued says whether the message takes a place in its consume queue: a
// prepared or rolled back transaction message does not.
func (m *Message) Queued() bool { return queued(m.SysFlag) }

// OffsetMsgID gives RocketMQ's offset message id: upper-case hexadecimal of
// the store host's address, its port and the physical offset (MessageDecoder
// .createMessageId).
func (r *Record) OffsetMsgID() string {
	b := make([]byte, hostBytesV6, hostBytesV6+8)
	b = appendInt64(b[:putHost(b, r.StoreHost)], r.PhysicalOffset)
	return strings.ToUpper(hex.EncodeToString(b))
}
