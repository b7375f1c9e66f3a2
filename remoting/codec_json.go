package remoting

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseJSONHeader reads a header by hand: names in any order, the last of one
// name counts, unknown ones are skipped with all that is in them. As fastjson
// does, it takes numbers in quotes, null for nothing, and any value for a text.
// Fields are put into room as far as they fit.
func parseJSONHeader(header []byte, c *Command, room Ext) error {
	text := string(header)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	p := jsonText{s: text}
	p.space()
	p.need('{')
	for n := 0; ; n++ {
		name, more := p.member(n)
		if !more {
			break
		}
		switch name {
		case "code":
			c.Code = p.number(name)
		case "language":
			c.Language = p.text()
		case "version":
			c.Version = p.number(name)
		case "opaque":
			c.Opaque = p.number(name)
		case "flag":
			c.Flag = p.number(name)
		case "remark":
			c.Remark = p.text()
		case "extFields":
			if c.Ext == nil {
				c.Ext = room
			}
			c.Ext = p.fields(c.Ext)
		default:
			p.skip(0)
		}
	}
	if p.space(); p.why == "" && p.at < len(p.s) {
		p.fail("something follows the header")
	}
	if p.why != "" {
		return refuse(p.reason(), "header is no JSON of a command: %s at byte %d", p.why, p.at)
	}
	return nil
}

// jsonText is JSON that is being read. After the first mistake all methods
// return zero values, so that callers look once, at the end.
type jsonText struct {
	s       string
	at      int
	why     string // the first mistake; empty: none
	tooMany bool   // it is the number of fields
}

func (p *jsonText) reason() Reason {
	if p.tooMany {
		return HeaderFields
	}
	return HeaderJSON
}

func (p *jsonText) fail(why string) {
	if p.why == "" {
		p.why = why
	}
}

func (p *jsonText) space() {
	for p.at < len(p.s) {
		switch p.s[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end and after a mistake.
func (p *jsonText) peek() byte {
	if p.why != "" || p.at >= len(p.s) {
		return 0
	}
	return p.s[p.at]
}

func (p *jsonText) need(b byte) {
	if p.peek() != b {
		p.fail("want " + strconv.QuoteRune(rune(b)))
		return
	}
	p.at++
}

// member moves to the value of an object's next member, of which n were read.
func (p *jsonText) member(n int) (name string, more bool) {
	p.space()
	if p.peek() == '}' {
		p.at++
		return "", false
	}
	if n > 0 {
		p.need(',')
		p.space()
	}
	name = p.quoted()
	p.space()
	p.need(':')
	p.space()
	return name, p.why == ""
}

// fieldsAhead is how far to look for the number of fields. A header that names
// its fields again and again would have all that follows looked at each time.
const fieldsAhead = 4096

// fields reads an object of texts, into the room of those that a header had
// under the same name before.
func (p *jsonText) fields(before Ext) Ext {
	if p.peek() != '{' {
		p.null("an object of fields")
		return nil
	}
	p.at++
	x := before[:0]
	if cap(x) == 0 {
		// A field has four quotes, so that this is the right size for most headers.
		ahead := p.s[p.at:min(len(p.s), p.at+fieldsAhead)]
		x = make(Ext, 0, min(strings.Count(ahead, `"`)/4+1, 64))
	}
	for n := 0; ; n++ {
		if n < fieldsMax && p.why == "" {
			if f, ok := p.pair(n); ok {
				x = append(x, f)
				continue
			}
		}
		name, more := p.member(n)
		if !more {
			return x
		}
		if n == fieldsMax {
			p.tooMany = true
			p.fail("more than " + strconv.Itoa(fieldsMax) + " fields")
			return x
		}
		from := p.at
		if p.peek() == '"' {
			x = append(x, Field{name, p.quoted()})
		} else if p.skip(0); p.s[from:p.at] != "null" {
			x = append(x, Field{name, p.s[from:p.at]})
		}
	}
}

// pair reads a field as nearly all are, two texts without an escape or a space
// between them, and the comma before it. If it is not one, nothing is read.
func (p *jsonText) pair(n int) (f Field, ok bool) {
	s := p.s[p.at:]
	if n > 0 {
		if s == "" || s[0] != ',' {
			return f, false
		}
		s = s[1:]
	}
	colon := plainEnd(s)
	if colon == 0 || colon == len(s) || s[colon] != ':' {
		return f, false
	}
	value := s[colon+1:]
	end := plainEnd(value)
	if end == 0 {
		return f, false
	}
	p.at = len(p.s) - len(value) + end
	return Field{s[1 : colon-1], value[1 : end-1]}, true
}

// plainEnd is the length of the text in quotes that s begins with, 0 if there is
// none or something in it is escaped. Names and values are short: a loop is
// faster than a search for each of the two bytes.
func plainEnd(s string) int {
	if s == "" || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			return 0
		}
	}
	return 0
}

// text reads a text; whatever else is there is taken as it is written.
func (p *jsonText) text() string {
	if p.peek() == '"' {
		return p.quoted()
	}
	from := p.at
	if p.skip(0); p.s[from:p.at] == "null" {
		return ""
	}
	return p.s[from:p.at]
}

// number reads an int32.
func (p *jsonText) number(name string) int32 {
	// Digits and what ends them, as nearly all are.
	for i, plain := p.at, int32(0); i < len(p.s) && i < p.at+10; i++ {
		b := p.s[i]
		if (b == ',' || b == '}') && i > p.at {
			p.at = i
			return plain
		}
		if b -= '0'; b > 9 {
			break
		}
		plain = plain*10 + int32(b)
	}
	text := p.text()
	if text == "" {
		return 0 // null
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		p.fail(name + " is no 32-bit number")
	}
	return int32(n)
}

func (p *jsonText) null(want string) {
	from := p.at
	if p.skip(0); p.s[from:p.at] != "null" {
		p.fail("want " + want)
	}
}

// skip passes over one value with all that is in it.
func (p *jsonText) skip(depth int) {
	switch b := p.peek(); b {
	case '"':
		p.skipQuoted()
	case '{', '[':
		if depth == depthMax {
			p.fail("more than " + strconv.Itoa(depthMax) + " levels")
			return
		}
		p.at++
		if b == '{' {
			for n := 0; ; n++ {
				if _, more := p.member(n); !more {
					return
				}
				p.skip(depth + 1)
			}
		}
		p.skipItems(depth)
	default:
		from := p.at
		for isWord(p.peek()) {
			p.at++
		}
		if p.at == from {
			p.fail("want a value")
		}
	}
}

// skipItems passes over the rest of an array.
func (p *jsonText) skipItems(depth int) {
	for n := 0; p.why == ""; n++ {
		p.space()
		if p.peek() == ']' {
			p.at++
			return
		}
		if n > 0 {
			p.need(',')
			p.space()
		}
		p.skip(depth + 1)
	}
}

// isWord tells what numbers and the words true, false and null are made of.
func isWord(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '+' || b == '.'
}

// quoted reads a text in quotes. It is a part of the header unless something in
// it is escaped.
func (p *jsonText) quoted() string {
	if n := plainEnd(p.s[p.at:]); n > 0 && p.why == "" {
		p.at += n
		return p.s[p.at-n+1 : p.at-1]
	}
	from := p.at + 1
	escaped := p.skipQuoted()
	if p.why != "" {
		return ""
	}
	raw := p.s[from : p.at-1]
	if !escaped {
		return raw
	}
	return p.unescape(raw)
}

// skipQuoted passes over a text in quotes and tells whether something in it is
// escaped.
func (p *jsonText) skipQuoted() (escaped bool) {
	if p.need('"'); p.why != "" {
		return false
	}
	for i := p.at; i < len(p.s); i++ {
		switch p.s[i] {
		case '"':
			p.at = i + 1
			return escaped
		case '\\':
			escaped = true
			i++
		}
	}
	p.fail("a text does not end")
	return escaped
}

// unescape returns raw, which ends in no half escape, with its escapes replaced.
func (p *jsonText) unescape(raw string) string {
	var b strings.Builder
	b.Grow(max(len(raw)-5*strings.Count(raw, `\u`), 0)) // enough if they are of ASCII
	for {
		i := 0
		for i < len(raw) && raw[i] != '\\' {
			i++
		}
		b.WriteString(raw[:i])
		if i == len(raw) {
			return b.String()
		}
		e := raw[i+1]
		raw = raw[i+2:]
		switch e {
		case '"', '\\', '/':
			b.WriteByte(e)
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, ok := hexRune(raw)
			if !ok {
				p.fail(`want four hex digits after \u`)
				return ""
			}
			raw = raw[4:]
			if r < utf8.RuneSelf { // as what separates properties
				b.WriteByte(byte(r))
				continue
			}
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if strings.HasPrefix(raw, `\u`) {
					low, ok = hexRune(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					raw = raw[6:]
				} else {
					r = utf8.RuneError
				}
			}
			b.WriteRune(r)
		default:
			p.fail("unknown escape")
			return ""
		}
	}
}

// hexRune reads four hex digits.
func hexRune(s string) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for i := range 4 {
		switch b := s[i]; {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			r = r<<4 | rune(b|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
