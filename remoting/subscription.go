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
	hashes  []int32 // of the tags, in order; nil: all messages
	all     bool
}

// tagsMax bounds the tags of one subscription.
const tagsMax = 4096

// NewSubscription reads an expression (FilterAPI.buildSubscriptionData). An empty
// kind is TAG; the text of another kind is kept and matches all: whoever can not
// filter by it has to refuse it.
func NewSubscription(topic, text, kind string, version int64) Subscription {
	s := Subscription{Topic: topic, Text: text, Type: kind, Version: version}
	if kind == "" {
		s.Type = "TAG"
	}
	if s.Type != "TAG" || text == "" || text == "*" {
		s.all = true
		return s
	}
	for tag := range strings.SplitSeq(text, "||") {
		if tag = strings.TrimSpace(tag); tag != "" && len(s.Tags) < tagsMax {
			s.Tags = append(s.Tags, tag)
			s.hashes = append(s.hashes, engine.TagHash(tag))
		}
	}
	slices.Sort(s.hashes)
	s.hashes = slices.Compact(s.hashes)
	return s
}

// Matches tells whether a message with this tags code may be wanted: hashes
// collide, the client looks at the tags themselves. Of the code the low 32 bits
// count.
func (s *Subscription) Matches(tagsCode int64) bool {
	if s.all {
		return true
	}
	_, ok := slices.BinarySearch(s.hashes, int32(tagsCode))
	return ok
}
