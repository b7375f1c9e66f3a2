package remoting

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSubscriptionsMatchTagsAsClientsMeanThem(t *testing.T) {
	const tagA, tagB = 2598919, 2598920 // Java's hashes of TagA and TagB
	for text, want := range map[string][]int32{
		"*": nil, "": nil, "TagA": {tagA}, " TagA || TagB ": {tagA, tagB}, "TagB||": {tagB}, "||": {}, "*||A": {42, 65},
		" A || B ||A||": {65, 66}, "\u00a0A": {160*31 + 65}, "ü💚": {(252*31+0xD83D)*31 + 0xDC9A},
	} {
		s := NewSubscription("t", text, "", 0)
		if (s.hashes == nil) != (want == nil) || !slices.Equal(s.hashes, want) || s.Type != "TAG" {
			t.Errorf("%q: %+v, want %v", text, s, want)
		}
	}
	if s := NewSubscription("t", "a > 1", "SQL92", 0); s.hashes != nil || s.Type != "SQL92" {
		t.Errorf("another kind: %+v", s)
	}
}

// A client filters again by tags, so that it must be given rather too much.
func TestOfTooManyTagsAllMessagesAreWanted(t *testing.T) {
	var text strings.Builder
	for i := range tagsMax {
		text.WriteString(strconv.Itoa(i) + "||")
	}
	if s := NewSubscription("t", text.String(), "", 0); len(s.Tags) != tagsMax {
		t.Errorf("%d of %d tags", len(s.Tags), tagsMax)
	}
	if s := NewSubscription("t", text.String()+"last", "", 0); s.hashes != nil || s.Tags != nil {
		t.Errorf("one more is %d tags", len(s.Tags))
	}
}
