package remoting

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// tagsOf reads a subscription's text, "A || B", and gives the hash codes of its
// tags, which is what consume queues hold of them. all tells that every message
// is wanted: the text is empty or "*". Two tags of one hash are told apart by the
// consumer, as RocketMQ's do (FilterAPI.buildSubscriptionData).
func tagsOf(text string) (tags []int32, all bool) {
	if text == "" || text == "*" {
		return nil, true
	}
	tags = make([]int32, 0, 1+strings.Count(text, "||"))
	for part := range strings.SplitSeq(text, "||") {
		if part = strings.Trim(part, javaSpace); part == "" {
			continue
		}
		if h := javaHash(part); !slices.Contains(tags, h) {
			tags = append(tags, h)
		}
	}
	return tags, false
}

// javaSpace is what Java's String.trim takes off: everything up to the space.
const javaSpace = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f "

// javaHash is String.hashCode: 31·h + unit over the UTF-16 code units, in 32 bits.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 && r <= utf8.MaxRune {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}
