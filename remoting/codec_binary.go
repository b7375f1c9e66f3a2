package remoting

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// languages are RocketMQ's numbers of them (LanguageCode).
var languages = []string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// parseBinaryHeader reads RocketMQ's own header format (RocketMQSerializable):
//
//	at      bytes  field
//	0       2      code
//	2       1      language
//	3       2      version
//	5       4      opaque
//	9       4      flag
//	13      4      remark bytes r
//	17      r      remark
//	17 + r  4      ext bytes e
//	21 + r  e      fields: int16 name bytes, name, int32 value bytes, value
//
// Fields are put into room as far as they fit.
func parseBinaryHeader(header []byte, c *Command, room Ext) error {
	text := string(header)
	b := binaryText{s: text}
	c.Code = int32(int16(b.word(2, "code")))
	if l := int(b.word(1, "language")); l < len(languages) {
		c.Language = languages[l]
	}
	c.Version = int32(int16(b.word(2, "version")))
	c.Opaque = int32(b.word(4, "opaque"))
	c.Flag = int32(b.word(4, "flag"))
	c.Remark = b.text(4, "remark")
	rest := int64(int32(b.word(4, "ext length")))
	if b.err == nil && rest != int64(len(text)-b.at) {
		return refuse(HeaderBinary, "ext fields of %d bytes, where the header has %d", rest, len(text)-b.at)
	}
	for b.err == nil && b.at < len(text) {
		if len(c.Ext) == fieldsMax {
			return refuse(HeaderFields, "more than %d fields", fieldsMax)
		}
		if c.Ext == nil {
			c.Ext = room[:0]
			if cap(c.Ext) == 0 {
				c.Ext = make(Ext, 0, 16)
			}
		}
		name := b.text(2, "field name")
		c.Ext = append(c.Ext, Field{name, b.text(4, "field value")})
	}
	return b.err
}

// binaryText is a binary header that is being read, up to the first mistake.
type binaryText struct {
	s   string
	at  int
	err error
}

// word reads a big-endian number of n bytes.
func (b *binaryText) word(n int, what string) uint32 {
	if b.err != nil {
		return 0
	}
	if b.at+n > len(b.s) {
		b.err = refuse(HeaderBinary, "header of %d bytes ends in its %s", len(b.s), what)
		return 0
	}
	var w uint32
	for range n {
		w = w<<8 | uint32(b.s[b.at])
		b.at++
	}
	return w
}

// text reads a text after its length of n bytes.
func (b *binaryText) text(n int, what string) string {
	size := int64(int32(b.word(n, what)))
	if n == 2 {
		size = int64(int16(size))
	}
	if b.err != nil {
		return ""
	}
	if size < 0 || size > int64(len(b.s)-b.at) {
		b.err = refuse(HeaderBinary, "%s of %d bytes, where the header has %d", what, size, len(b.s)-b.at)
		return ""
	}
	from := b.at
	b.at += int(size)
	s := b.s[from:b.at]
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// AppendBinaryFrame is AppendFrame with RocketMQ's binary header. Codes and
// versions are 16 bits there, names at most 32,767 bytes.
func AppendBinaryFrame(dst []byte, c *Command) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Code))
	language := slices.Index(languages, c.Language)
	if language < 0 {
		language = slices.Index(languages, "OTHER")
	}
	dst = append(dst, byte(language))
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Remark)))
	dst = append(dst, c.Remark...)
	ext := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range c.Ext {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(c.Ext[i].Name)))
		dst = append(dst, c.Ext[i].Name...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Ext[i].Value)))
		dst = append(dst, c.Ext[i].Value...)
	}
	binary.BigEndian.PutUint32(dst[ext:], uint32(len(dst)-ext-4))
	binary.BigEndian.PutUint32(dst[at+4:], typeBinary<<24|uint32(len(dst)-at-frameHead))
	dst = append(dst, c.Body...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
