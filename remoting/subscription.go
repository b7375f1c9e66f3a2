package remoting

import (
	"slices"
	"strings"

	"github.com/haengine/haengine/engine"
)

// Subscription is what a consumer group wants of a topic (RocketMQ
// SubscriptionData). It never changes.
type Subscription struct {
	Topic   string
	Text    string // as the client wrote it: "*", "" or tags with || between
	Type    string // TAG or SQL92
	Version int64  // the client's own: compare it with nothing of another client
	Tags    []string
	hashes  []int32 // of the tags, sorted; nil: all messages, empty: none
}

// tagsMax bounds the tags of one subscription.
const tagsMax = 4096

// NewSubscription reads an expression (FilterAPI.buildSubscriptionData). An empty
// kind is TAG; the text of another kind is kept and matches all: whoever can not
// filter by it has to refuse it. Of more than tagsMax tags all messages are
// wanted: the client looks at the tags itself, and must not miss one.
func NewSubscription(topic, text, kind string, version int64) Subscription {
	s := Subscription{Topic: topic, Text: text, Type: kind, Version: version}
	if kind == "" {
		s.Type = tagFilter
	}
	if s.Type != tagFilter || text == "" || text == "*" {
		return s
	}
	room := min(1+strings.Count(text, "||"), tagsMax)
	s.Tags, s.hashes = make([]string, 0, room), make([]int32, 0, room)
	for tag := range strings.SplitSeq(text, "||") {
		if tag = strings.Trim(tag, javaSpace); tag == "" {
			continue
		}
		if len(s.Tags) == tagsMax {
			s.Tags, s.hashes = nil, nil
			return s
		}
		s.Tags = append(s.Tags, tag)
		s.hashes = append(s.hashes, engine.TagHash(tag))
	}
	slices.Sort(s.hashes)
	s.hashes = slices.Compact(s.hashes)
	return s
}

// tagFilter is the kind of expressions that this broker filters by (ExpressionType).
const tagFilter = "TAG"

// javaSpace is what Java's String.trim takes off: everything up to the space.
const javaSpace = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f "
