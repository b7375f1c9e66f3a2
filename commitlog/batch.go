package commitlog

import (
	"encoding/binary"
	"fmt"
)

// DecodeClientBatch reads the body of a client's batch: for each message its
// size, magic, checksum, flag, body length, body, properties length and
// properties. Flag, Body and Properties are set, the rest is the request's.
// The bodies alias the argument. It fails with an error that wraps
// ErrMessageIllegal; a negative or too large length is one. Pure.
//
// RocketMQ MessageDecoder.decodeMessages; magic and checksum are not looked at
// there either.
func DecodeClientBatch(body []byte) ([]Message, error) {
	var messages []Message
	for at := 0; at < len(body); {
		m, size, err := decodeClientMessage(body[at:])
		if err != nil {
			return nil, fmt.Errorf("message %d at byte %d of the batch: %w", len(messages), at, err)
		}
		messages = append(messages, m)
		at += size
	}
	if len(messages) == 0 {
		return nil, fmt.Errorf("%w: a batch of no messages", ErrMessageIllegal)
	}
	return messages, nil
}

// decodeClientMessage reads the first message of b.
func decodeClientMessage(b []byte) (m Message, size int, err error) {
	if len(b) < clientFixedBytes {
		return m, 0, fmt.Errorf("%w: %d bytes are left, a message has at least %d", ErrMessageIllegal, len(b), clientFixedBytes)
	}
	stated := int64(int32(binary.BigEndian.Uint32(b)))
	if stated < clientFixedBytes || stated > int64(len(b)) {
		return m, 0, fmt.Errorf("%w: size %d, want %d to %d", ErrMessageIllegal, stated, clientFixedBytes, len(b))
	}
	b = b[:stated]
	m.Flag = int32(binary.BigEndian.Uint32(b[12:]))
	body := int64(int32(binary.BigEndian.Uint32(b[16:])))
	if body < 0 || body > stated-clientFixedBytes {
		return m, 0, fmt.Errorf("%w: body of %d bytes in a message of %d", ErrMessageIllegal, body, stated)
	}
	m.Body = b[20 : 20+body : 20+body]
	properties := int64(int16(binary.BigEndian.Uint16(b[20+body:])))
	if properties != stated-clientFixedBytes-body {
		return m, 0, fmt.Errorf("%w: properties of %d bytes in a message of %d with a body of %d",
			ErrMessageIllegal, properties, stated, body)
	}
	m.Properties = string(b[22+body:])
	return m, int(stated), nil
}

// AppendClientMessage appends one message of a client's batch: flag, body and
// properties (RocketMQ MessageDecoder.encodeMessage). The properties must fit
// their 16-bit length. Pure.
func AppendClientMessage(dst []byte, m *Message) []byte {
	dst = appendInt32(dst, int32(clientFixedBytes+len(m.Body)+len(m.Properties)))
	dst = appendInt64(dst, 0) // magic and checksum, which nobody reads
	dst = appendInt32(dst, m.Flag)
	dst = appendInt32(dst, int32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
}
