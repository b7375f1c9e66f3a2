package sim

import (
	"strings"
	"testing"
	"time"
)

// Each rule of the checker is broken once by hand: a checker that cannot fail
// proves nothing.
func TestCheckerSeesEachViolation(t *testing.T) {
	tests := []struct {
		name   string
		breaks func(w *World)
		want   string
	}{
		{"a byte changed", func(w *World) { w.nodes[1].log.bytes[len(w.nodes[1].log.bytes)-1] ^= 1 }, "is in no history"},
		{"a byte too many", func(w *World) { w.nodes[1].log.Append(make([]byte, 1<<20)) }, "is in no history"},
		{"held less than acked", func(w *World) { w.nodes[1].highest = 2 }, "they held 2"},
		{"a stray replica", func(w *World) { w.nodes[0].servers[0].peer = nil }, "a stray client is a replica"},
		{"a spin", func(w *World) {
			for range crowdMax + 2 {
				w.clock.After(0, func() {})
			}
		}, "events at one instant"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(Config{Seed: 3}.filled())
			w.appendSome()
			for w.clock.Step(10 * time.Second) {
				w.check()
			}
			if w.failed != nil || len(w.nodes[0].servers) != 1 || w.nodes[1].log.Range().End < 1000 {
				t.Fatalf("before: %v, %s", w.failed, w.describe())
			}
			w.nodes[1].proof = proof{}
			test.breaks(w)
			for w.failed == nil && w.clock.Step(11*time.Second) {
				w.check()
			}
			if w.failed == nil || !strings.Contains(w.failed.Text, test.want) {
				t.Errorf("%v, want %q", w.failed, test.want)
			}
		})
	}
}
