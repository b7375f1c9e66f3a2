package main

import (
	"testing"
	"time"
)

func TestAPauseOfTheBrokersIsNotMadeUpFor(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct{ due, now, want time.Duration }{
		{0, 0, 10 * time.Millisecond},
		{0, 2 * time.Millisecond, 10 * time.Millisecond},  // a timer was late
		{0, 30 * time.Millisecond, 10 * time.Millisecond}, // very late
		{0, time.Minute, time.Minute + 10*time.Millisecond},
	} {
		if got := nextDue(start.Add(c.due), 10*time.Millisecond, start.Add(c.now)).Sub(start); got != c.want {
			t.Errorf("due at %v, sent at %v: the next is due at %v, want %v", c.due, c.now, got, c.want)
		}
	}
}
