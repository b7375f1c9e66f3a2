package main

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Records are printed as RocketMQ's own tools print them: text decoded as
// java.lang.String decodes UTF-8, keys in the order of java.util.TreeMap, and
// strings escaped as fastjson2 escapes them. Two dumps of one log can then be
// compared with cmp, whoever made them.

// appendJSONString writes s as fastjson2 does: the quote, the backslash and
// the characters below U+0020 are escaped, all others stand as they are,
// U+007F, U+2028 and the HTML characters too.
func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			if c < 0x20 {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
				continue
			}
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// javaText decodes bytes as new String(b, UTF_8) does: each maximal part of a
// broken sequence becomes one U+FFFD, and so does a surrogate written in three
// bytes, where Go would write one for every byte.
func javaText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var text strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = brokenBytes(b)
		}
		text.WriteRune(r)
		b = b[n:]
	}
	return text.String()
}

// brokenBytes is how many bytes of the broken sequence at the start of b one
// replacement character stands for.
func brokenBytes(b []byte) int {
	var want int
	low, high := byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 2
	case c == 0xE0:
		want, low = 3, 0xA0
	case c >= 0xE1 && c <= 0xEF: // 0xED included: Java takes a surrogate's three bytes as one
		want = 3
	case c == 0xF0:
		want, low = 4, 0x90
	case c >= 0xF1 && c <= 0xF3:
		want = 4
	case c == 0xF4:
		want, high = 4, 0x8F
	default:
		return 1
	}
	n := 1
	for n < want && n < len(b) && b[n] >= low && b[n] <= high {
		n, low, high = n+1, 0x80, 0xBF
	}
	return n
}

// sortedJavaKeys gives the keys of m in the order of java.lang.String, which
// compares UTF-16 code units: U+1F680 comes before U+FF01.
func sortedJavaKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if x, y, ok := firstDifferentRunes(a, b); ok {
			return slices.Compare(utf16.Encode([]rune{x}), utf16.Encode([]rune{y}))
		}
		return cmp.Compare(len(a), len(b))
	})
	return keys
}

// firstDifferentRunes gives the runes at the first place where a and b differ;
// ok is false when one is the start of the other.
func firstDifferentRunes(a, b string) (x, y rune, ok bool) {
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			return x, y, true
		}
		a, b = a[n:], b[m:]
	}
	return 0, 0, false
}

// javaHash is java.lang.String.hashCode, sign-extended.
func javaHash(s string) int64 {
	var h int32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return int64(h)
}
