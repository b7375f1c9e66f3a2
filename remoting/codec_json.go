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
func parseJSONHeader(header []byte, c *Command) error {
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
	if x == nil {
		// A field has four quotes, so that this is the right size for most headers.
		ahead := p.s[p.at:min(len(p.s), p.at+fieldsAhead)]
		x = make(Ext, 0, min(strings.Count(ahead, `"`)/4+1, 64))
	}
	for n := 0; ; n++ {
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
// escaped. The next quote is looked for once only: between here and there may be
// millions of escapes.
func (p *jsonText) skipQuoted() (escaped bool) {
	if p.need('"'); p.why != "" {
		return false
	}
	for quote := -1; ; {
		if quote < p.at {
			i := strings.IndexByte(p.s[p.at:], '"')
			if i < 0 {
				p.fail("a text does not end")
				return escaped
			}
			quote = p.at + i
		}
		slash := strings.IndexByte(p.s[p.at:quote], '\\')
		if slash < 0 {
			p.at = quote + 1
			return escaped
		}
		escaped = true
		p.at += slash + 2 // at most one past the quote, if that is what is escaped
	}
}

// unescape returns raw, which ends in no half escape, with its escapes replaced.
func (p *jsonText) unescape(raw string) string {
	var b strings.Builder
	b.Grow(len(raw))
	for {
		i := strings.IndexByte(raw, '\\')
		if i < 0 {
			b.WriteString(raw)
			return b.String()
		}
		b.WriteString(raw[:i])
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
