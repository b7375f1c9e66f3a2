package sim

import (
	"strings"
	"testing"
	"time"
)

// Each rule of the checker is broken once by hand: a checker that cannot fail
// proves nothing.
func TestCheckerSeesEachViolation(t *testing.T) {
	flip := func(n *Node, at int64) {
		v, err := n.log.View(at, at+1)
		if err != nil {
			t.Fatal(err)
		}
		v.Bytes()[0] ^= 1
		v.Release()
	}
	tests := []struct {
		name   string
		breaks func(w *World, master, replica *Node)
		want   string
	}{
		{"a byte of a copy changed", func(_ *World, _, r *Node) { flip(r, 700); r.proof = proof{} }, "is in no history"},
		{"a byte that was sent changed", func(w *World, m, _ *Node) { flip(m, w.lent[len(w.lent)-1].offset) }, "have changed in place"},
		{"a log cut without a handshake", func(w *World, _, r *Node) {
			if _, err := r.log.Truncate(w.histories[0].ends[2]); err != nil {
				t.Error(err)
			}
		}, "without a cut"},
		{"held less than acked", func(_ *World, _, r *Node) { r.highest = 2 }, "they held 2"},
		{"a stray replica", func(_ *World, m, _ *Node) { m.servers[0].peer = nil }, "a stray client is a replica"},
		{"a spin", func(w *World, _, _ *Node) {
			for range crowdMax + 2 {
				w.clock.After(0, func() {})
			}
		}, "events at one instant"},
		{"a put that nobody ends", func(w *World, m, _ *Node) {
			w.pending = append(w.pending, &put{node: m, life: m.life, waits: 1, deadline: w.clock.Now() - time.Minute})
		}, "past its deadline"},
		{"a put that nobody holds", func(w *World, m, _ *Node) {
			w.pending = append(w.pending, &put{node: m, life: m.life, replicas: 2, end: 100})
		}, "on 1 replicas, it returned for 2"},
		{"a put that was not flushed", func(w *World, m, _ *Node) {
			w.pending = append(w.pending, &put{node: m, life: m.life, flush: m.rings.flush, end: m.log.EndOffset() + 1})
		}, "is flushed, the log is up to"},
		{"a queue with a hole", func(w *World, _, _ *Node) {
			for queue := range w.histories[0].next {
				w.histories[0].next[queue]++
			}
		}, "in queue"},
		{"a store time that goes back", func(w *World, _, _ *Node) { w.histories[0].stored = 1 << 60 }, "was stored at"},
		{"a durable byte that is lost", func(_ *World, _, r *Node) {
			r.durable = r.log.EndOffset() + 1<<20
			r.stopHard(true, true)
			r.start()
		}, "was on its disk"},
		{"an acknowledgement of what is in memory", func(w *World, _, r *Node) {
			for w.border(r, r.log.EndOffset()) <= r.log.FlushedOffset() && w.clock.Step(11*time.Second) {
				w.check()
			}
			for range 20 { // what was not synced may survive
				w.checkSurvives(r, r.log.EndOffset())
			}
		}, "after a power cut now"},
		{"a promise that was broken", func(w *World, m, _ *Node) {
			w.histories = append(w.histories, &history{bytes: make([]byte, 1000)})
			w.done = append(w.done, &put{node: m, history: 1, end: 1000, promised: true})
			w.checkPromised()
		}, "that returned OK is not in the log"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(Config{Seed: 3, Replicas: 1}.filled())
			w.putSome()
			for w.clock.Step(10 * time.Second) {
				w.check()
			}
			master, replica := w.nodes[0], w.nodes[1]
			if w.failed != nil || len(master.servers) != 1 || replica.log.EndOffset() < 1000 {
				t.Fatalf("before: %v, %s", w.failed, w.describe())
			}
			test.breaks(w, master, replica)
			for w.failed == nil && w.clock.Step(11*time.Second) {
				w.check()
			}
			if w.failed == nil || !strings.Contains(w.failed.Text, test.want) {
				t.Errorf("%v, want %q", w.failed, test.want)
			}
		})
	}
}
