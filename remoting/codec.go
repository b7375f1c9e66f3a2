package remoting

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// Limits of what a peer may send.
const (
	// FrameBytesMax is the longest frame of RocketMQ's, with its length word
	// (NettySystemConfig: com.rocketmq.remoting.frameMaxLength).
	FrameBytesMax = 16 << 20
	// fieldsMax is far above what any request has: each field costs 32 bytes of
	// memory, so that a header of nothing but fields is a bomb.
	fieldsMax = 1024
	// depthMax is how deep objects and arrays may lie in what is skipped.
	depthMax = 64

	frameHead  = 8 // length and header word
	typeJSON   = 0
	typeBinary = 1
)

// frameBytes is a frame's length, length word included, as its first bytes say;
// head has at least four. It refuses a frame that cannot be read as early as the
// bytes allow.
func frameBytes(head []byte, bytesMax int) (int, error) {
	size := int64(binary.BigEndian.Uint32(head)) + 4
	switch {
	case size < frameHead:
		return 0, refuse(FrameTooShort, "a frame of length %d has no header word", size-4)
	case size > int64(bytesMax):
		return 0, refuse(FrameTooLong, "a frame of %d bytes, want at most %d", size, bytesMax)
	case len(head) < frameHead:
		return int(size), nil
	}
	word := binary.BigEndian.Uint32(head[4:])
	if kind := word >> 24; kind != typeJSON && kind != typeBinary {
		return 0, refuse(HeaderType, "header type %d, want 0 (JSON) or 1 (binary)", kind)
	}
	if n := int64(word & 0xFFFFFF); n > size-frameHead {
		return 0, refuse(HeaderTooLong, "a header of %d bytes in a frame of %d", n, size)
	}
	return int(size), nil
}

// ParseFrame reads one whole frame, as AppendFrame writes it. The command's
// fields are copies; its body is a part of the frame, nil if there is none. The
// error is a *RefusalError. Names and values share one string: who keeps one for
// long should clone it.
func ParseFrame(frame []byte, c *Command) error { return parseFrame(frame, c, nil) }

// parseFrame is ParseFrame that puts fields into room, as far as they fit.
func parseFrame(frame []byte, c *Command, room Ext) error {
	if len(frame) < frameHead {
		return refuse(FrameTooShort, "%d bytes are no frame", len(frame))
	}
	size, err := frameBytes(frame, FrameBytesMax)
	if err != nil {
		return err
	}
	if size != len(frame) {
		return refuse(FrameTooShort, "a frame of %d bytes says it has %d", len(frame), size)
	}
	*c = Command{}
	word := binary.BigEndian.Uint32(frame[4:])
	end := frameHead + int(word&0xFFFFFF)
	if word>>24 == typeBinary {
		err = parseBinaryHeader(frame[frameHead:end], c, room)
	} else {
		err = parseJSONHeader(frame[frameHead:end], c, room)
	}
	if err != nil {
		return err
	}
	if end < len(frame) {
		c.Body = frame[end:len(frame):len(frame)]
	}
	return nil
}

// stream is received bytes that were not used yet; a gnet.Conn is one.
type stream interface {
	Peek(n int) ([]byte, error)
	Discard(n int) (int, error)
	InboundBuffered() int
}

// nextFrame returns the stream's next frame, which stays there until it is
// discarded, or nil if it is not whole yet.
func nextFrame(s stream, bytesMax int) ([]byte, error) {
	have := s.InboundBuffered()
	if have < 4 {
		return nil, nil
	}
	head, err := s.Peek(min(have, frameHead))
	if err != nil {
		return nil, err
	}
	size, err := frameBytes(head, bytesMax)
	if err != nil || size > have {
		return nil, err
	}
	return s.Peek(size)
}

// AppendFrame appends a command as a frame with a JSON header, without a space
// in it, in the order of names that RocketMQ has. Text that is not UTF-8 gets
// U+FFFD. It does not look at the frame's length.
func AppendFrame(dst []byte, c *Command) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	switch {
	case c.fields != nil:
		dst = append(dst, `,"extFields":{`...)
		dst = append(dst, c.fields...)
		dst = append(dst, '}')
	case c.Ext != nil:
		dst = append(dst, `,"extFields":{`...)
		dst = appendJSONFields(dst, c.Ext)
		dst = append(dst, '}')
	}
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(c.Flag), 10)
	if c.Language != "" {
		dst = append(dst, `,"language":`...)
		dst = appendJSONText(dst, c.Language)
	}
	dst = append(dst, `,"opaque":`...)
	dst = strconv.AppendInt(dst, int64(c.Opaque), 10)
	if c.Remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendJSONText(dst, c.Remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(c.Version), 10)
	dst = append(dst, '}')
	header := len(dst) - at - frameHead
	dst = append(dst, c.Body...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(header))
	return dst
}

// appendJSONFields appends fields as they stand in an object.
func appendJSONFields(dst []byte, x Ext) []byte {
	for i := range x {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONText(dst, x[i].Name)
		dst = append(dst, ':')
		dst = appendJSONText(dst, x[i].Value)
	}
	return dst
}

const jsonHexDigits = "0123456789abcdef"

// plainJSON tells the bytes that stand for themselves in a text in quotes.
var plainJSON = func() (plain [256]bool) {
	for b := ' '; b < utf8.RuneSelf; b++ {
		plain[b] = b != '"' && b != '\\'
	}
	return plain
}()

// appendJSONText appends s in quotes.
func appendJSONText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		b := s[i]
		if plainJSON[b] {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		if b < ' ' {
			dst = append(dst, '\\', 'u', '0', '0', jsonHexDigits[b>>4], jsonHexDigits[b&15])
		} else {
			dst = append(dst, '\\', b)
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
