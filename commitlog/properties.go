package commitlog

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Separators of the properties text (RocketMQ MessageDecoder).
const (
	nameValueSeparator = "\x01"
	propertySeparator  = "\x02"
)

// Names that the store looks at (RocketMQ MessageConst).
const (
	propertyTags          = "TAGS"
	propertyWait          = "WAIT"
	propertyDelay         = "DELAY"
	propertyMultiDispatch = "INNER_MULTI_DISPATCH"
)

// EncodeProperties gives the properties text with the names in sorted order
// and a separator after the last value (MessageDecoder
// .messageProperties2String, whose order is a hash map's). Names and values
// must not hold the separators U+0001 and U+0002; an empty name or value is
// written and skipped again when read.
func EncodeProperties(pairs map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		b.WriteString(name)
		b.WriteString(nameValueSeparator)
		b.WriteString(pairs[name])
		b.WriteString(propertySeparator)
	}
	return b.String()
}

// ParseProperties reads the properties text by the rules of MessageDecoder
// .string2messageProperties: a part without a name, a separator and a value is
// skipped, the last separator may be missing, and a later value wins. The
// result is never nil.
func ParseProperties(s string) map[string]string {
	pairs := make(map[string]string)
	for len(s) > 0 {
		var part string
		part, s = cutProperty(s)
		if name, value, ok := splitProperty(part); ok {
			pairs[name] = value
		}
	}
	return pairs
}

// findProperty gives a property's last value without an allocation.
func findProperty(s, name string) (value string, ok bool) {
	for len(s) > 0 {
		var part string
		part, s = cutProperty(s)
		if n := len(name); n == 0 || len(part) <= n+1 || part[n] != nameValueSeparator[0] || part[:n] != name {
			continue // most parts, without a search in them
		}
		if found, v, good := splitProperty(part); good && found == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// cutProperty splits off the part before the next separator.
func cutProperty(s string) (part, rest string) {
	part, rest, _ = strings.Cut(s, propertySeparator)
	return part, rest
}

// splitProperty splits a part into name and value; neither may be empty.
func splitProperty(part string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(part, nameValueSeparator)
	return name, value, ok && name != "" && value != ""
}

// tagsCode gives the consume queue's tags code: Java's String.hashCode of the
// TAGS value, sign-extended; 0 without one (MessageExtBrokerInner
// .tagsString2tagsCode).
func tagsCode(properties string) int64 {
	tags, ok := findProperty(properties, propertyTags)
	if !ok {
		return 0
	}
	return int64(javaHash(tags))
}

// javaHash is String.hashCode of the text that Java decodes from UTF-8 bytes:
// 31·h + unit over the UTF-16 code units, in 32 bits.
func javaHash(s string) int32 {
	var h int32
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := javaRune(s[i:])
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}

// javaRune decodes one rune as Java's String(bytes, UTF_8) does. Malformed
// bytes become one U+FFFD for each longest part that could have begun a rune,
// where Go would give one for each byte; an encoded surrogate is one part.
func javaRune(s string) (r rune, size int) {
	var b [utf8.UTFMax]byte
	n := copy(b[:], s)
	r, size = utf8.DecodeRune(b[:n])
	if r != utf8.RuneError || size != 1 {
		return r, size
	}
	second := func(low, high byte) bool { return n > 1 && b[1] >= low && b[1] <= high }
	third := n > 2 && b[2]&0xC0 == 0x80
	switch first := b[0]; {
	case first == 0xE0 && second(0xA0, 0xBF),
		first >= 0xE1 && first <= 0xEF && first != 0xED && second(0x80, 0xBF),
		first == 0xED && second(0x80, 0xBF):
		if first == 0xED && b[1] >= 0xA0 && third {
			return utf8.RuneError, 3
		}
		return utf8.RuneError, 2
	case first == 0xF0 && second(0x90, 0xBF),
		first >= 0xF1 && first <= 0xF3 && second(0x80, 0xBF),
		first == 0xF4 && second(0x80, 0x8F):
		if third {
			return utf8.RuneError, 3
		}
		return utf8.RuneError, 2
	}
	return utf8.RuneError, 1
}
