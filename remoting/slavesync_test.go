package remoting

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The first reason why a slave's copy fails may be a connection that broke, and the
// one that stays another.
func TestASlaveSaysAgainWhyItDoesNotFollow(t *testing.T) {
	text := &logText{}
	s := newMasterSync(&Broker{o: BrokerOptions{Logger: slog.New(slog.NewTextHandler(text, nil))}})
	now := time.Unix(1000, 0)
	said := func(what string) int { return strings.Count(text.String(), what) }
	for range 13 { // two minutes
		reason := "too long"
		if said("broken pipe") == 0 {
			reason = "broken pipe"
		}
		s.note(errors.New(reason), now)
		now = now.Add(syncInterval)
	}
	if said("broken pipe") != 1 || said("too long") != 2 {
		t.Errorf("in two minutes it is said:\n%s", text.String())
	}
	s.note(nil, now)
	s.note(nil, now)
	if said("follow the master again") != 1 {
		t.Errorf("that it follows is said:\n%s", text.String())
	}
	s.note(errors.New("once more"), now)
	if said("once more") != 1 {
		t.Error("the next time that it fails is not said at once")
	}
}
