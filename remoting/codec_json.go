package remoting

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// parseJSONHeader reads a header by hand: names in any order, the last of one
// name counts, unknown ones are skipped with all that is in them. As fastjson
// does, it takes numbers in quotes, null for nothing, and any value for a text.
// Fields are put into room as far as they fit.
func parseJSONHeader(header []byte, c *Command, room Ext) error {
	text := bytes.Clone(header)
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	p := jsonText{b: text}
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
	if p.space(); p.why == "" && p.at < len(p.b) {
		p.fail("something follows the header")
	}
	if p.why != "" {
		return refuse(p.reason(), "header is no JSON of a command: %s at byte %d", p.why, p.at)
	}
	return nil
}

// jsonText is JSON that is being read. After the first mistake all methods
// return zero values, so that callers look once, at the end.
//
// Texts that were read are pieces of b, in which escapes are replaced where they
// stand: nothing looks at such a piece of b again but through its text.
type jsonText struct {
	b       []byte
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
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end and after a mistake.
func (p *jsonText) peek() byte {
	if p.why != "" || p.at >= len(p.b) {
		return 0
	}
	return p.b[p.at]
}

func (p *jsonText) need(b byte) {
	if p.peek() != b {
		p.fail("want " + strconv.QuoteRune(rune(b)))
		return
	}
	p.at++
}

// view is b as a text. b must not change from here on.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// member moves to the value of an object's next member, of which n were read.
func (p *jsonText) member(n int) (name string, more bool) {
	if p.lastMember(n) {
		return "", false
	}
	name = p.quoted()
	return name, p.colon()
}

// lastMember tells whether an object of which n members were read ends here, and
// moves to the name of the next one if it does not.
func (p *jsonText) lastMember(n int) bool {
	p.space()
	if p.peek() == '}' {
		p.at++
		return true
	}
	if n > 0 {
		p.need(',')
		p.space()
	}
	return false
}

// colon moves from a name to its value.
func (p *jsonText) colon() bool {
	p.space()
	p.need(':')
	p.space()
	return p.why == ""
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
		ahead := p.b[p.at:min(len(p.b), p.at+fieldsAhead)]
		x = make(Ext, 0, min(bytes.Count(ahead, []byte{'"'})/4+1, 64))
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
		if p.peek() == '"' {
			x = append(x, Field{name, p.quoted()})
		} else if raw := p.raw(); raw != "null" {
			x = append(x, Field{name, raw})
		}
	}
}

// pair reads a field as nearly all are, two texts without a space between them,
// and the comma before it. If it is not one, nothing is read.
func (p *jsonText) pair(n int) (f Field, ok bool) {
	b, name := p.b, p.at
	if n > 0 {
		if name == len(b) || b[name] != ',' {
			return f, false
		}
		name++
	}
	colon := plainEnd(b, name)
	if colon == 0 || colon+1 >= len(b) || b[colon] != ':' || b[colon+1] != '"' {
		return f, false
	}
	p.at = colon + 1
	return Field{view(b[name+1 : colon-1]), p.quoted()}, true
}

// plainEnd is where the text in quotes ends that begins at from, 0 if there is
// none or something in it is escaped. Names and values are short: a loop is
// faster than a search for each of the two bytes.
func plainEnd(b []byte, from int) int {
	if from >= len(b) || b[from] != '"' {
		return 0
	}
	for i, c := range b[from+1:] {
		switch c {
		case '"':
			return from + i + 2
		case '\\':
			return 0
		}
	}
	return 0
}

// raw is the next value as it is written.
func (p *jsonText) raw() string {
	from := p.at
	p.skip(0)
	return view(p.b[from:p.at])
}

// text reads a text; whatever else is there is taken as it is written.
func (p *jsonText) text() string {
	if p.peek() == '"' {
		return p.quoted()
	}
	if raw := p.raw(); raw != "null" {
		return raw
	}
	return ""
}

// number reads an int32.
func (p *jsonText) number(name string) int32 {
	// Digits and what ends them, as nearly all are.
	for i, plain := p.at, int32(0); i < len(p.b) && i < p.at+10; i++ {
		b := p.b[i]
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
	if p.raw() != "null" {
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
			for n := 0; !p.lastMember(n); n++ {
				if p.skipQuoted(); !p.colon() {
					return
				}
				p.skip(depth + 1)
			}
			return
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

// quoted reads a text in quotes.
func (p *jsonText) quoted() string {
	if end := plainEnd(p.b, p.at); end > 0 && p.why == "" {
		from := p.at + 1
		p.at = end
		return view(p.b[from : end-1])
	}
	if p.need('"'); p.why != "" {
		return ""
	}
	b, from := p.b, p.at
	to, i := from, from // what is read at i is written at to
	for i < len(b) {
		switch c := b[i]; c {
		case '"':
			p.at = i + 1
			return view(b[from:to])
		case '\\':
			w, r := p.unescape(to, i+1)
			if p.why != "" {
				return ""
			}
			to, i = w, r
		default:
			b[to] = c
			to++
			i++
		}
	}
	p.fail("a text does not end")
	return ""
}

// skipQuoted passes over a text in quotes.
func (p *jsonText) skipQuoted() {
	if p.need('"'); p.why != "" {
		return
	}
	for i := p.at; i < len(p.b); i++ {
		switch p.b[i] {
		case '"':
			p.at = i + 1
			return
		case '\\':
			i++
		}
	}
	p.fail("a text does not end")
}

// unescape writes at to what the escape means that goes on at i, behind its
// backslash, and returns where to go on: no escape is shorter than what it means.
func (p *jsonText) unescape(to, i int) (int, int) {
	b := p.b
	if i == len(b) {
		return to, i
	}
	c := b[i]
	i++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := hexRune(b[i:])
		if !ok {
			p.fail(`want four hex digits after \u`)
			return to, i
		}
		i += 4
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if bytes.HasPrefix(b[i:], []byte(`\u`)) {
				low, ok = hexRune(b[i+2:])
			}
			if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
				i += 6
			} else {
				r = utf8.RuneError
			}
		}
		return to + utf8.EncodeRune(b[to:i], r), i
	default:
		p.fail("unknown escape")
	}
	b[to] = c
	return to + 1, i
}

// hexRune reads four hex digits.
func hexRune(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for i := range 4 {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
