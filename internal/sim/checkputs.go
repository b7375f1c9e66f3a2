package sim

import (
	"bytes"

	"github.com/haengine/haengine/commitlog"
)

// appended is told of a put inside the call that made it.
func (w *World) appended(p *put, a commitlog.Appended) {
	w.puts++
	w.pending = append(w.pending, p)
	p.promised = p.node == w.primary
	if h := w.histories[p.history]; a.Offset < int64(len(h.bytes)) {
		w.fail("%s puts at offset %d, its log held %d bytes", p.node.name, a.Offset, len(h.bytes))
	}
}

// checkPuts looks at the puts that wait: each ends by its deadline, and one that
// ends well is where it was to be.
func (w *World) checkPuts() {
	kept := w.pending[:0]
	for _, p := range w.pending {
		switch {
		case p.ended:
		case p.waits == 0:
			w.ended(p)
		default:
			kept = append(kept, p)
			if late := w.clock.Now() - max(p.deadline, p.node.awoke); late > 2*expiryTick && !p.node.paused {
				w.fail("%s: a put for offset %d waits %v past its deadline", p.node.name, p.end, late)
			}
		}
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// ended judges a put whose waits are over.
func (w *World) ended(p *put) {
	p.ended = true
	if p.failed || p.noReplica {
		return
	}
	n := p.node
	if n.slave == nil {
		w.extend(n)
	}
	if p.flush != nil && n.log.FlushedOffset() < p.end {
		w.fail("%s: a put that ends at %d is flushed, the log is up to %d", n.name, p.end, n.log.FlushedOffset())
	}
	holders := 0
	for _, r := range w.nodes {
		if r != n && w.held(r, p) {
			holders++
		}
	}
	if holders < p.replicas {
		w.fail("%s: a put that ends at %d is %v on %d replicas, it returned for %d", n.name, p.end, p.kind, holders, p.replicas)
	}
	if p.replicas > 0 || p.flush != nil {
		w.acked++
		w.done = append(w.done, p)
	}
}

// held tells whether a replica has, or had before its process ended, what a put
// relies on.
func (w *World) held(r *Node, p *put) bool {
	said := r.said[p.kind]
	if said.offset < p.end {
		return false
	}
	if !r.up || r.life != said.life {
		return true // it did when it said so; what it has now is its own affair
	}
	h := w.histories[p.history].bytes
	return r.log.EndOffset() >= p.end && (p.at < r.log.MinOffset() || bytes.Equal(r.slice(p.at, p.end), h[p.at:p.end]))
}

// checkPromised holds at the end that no put which returned OK is missing in the
// last master's log, unless the choice of that master has lost it.
func (w *World) checkPromised() {
	h := w.histories[w.primary.history]
	for _, p := range w.done {
		if p.promised && !w.holds(h, p) {
			w.fail("a put at offset %d that returned OK is not in the log of %s", p.at, w.primary.name)
		}
	}
}

// checkQueues holds at the end that each record is where its consume queue says.
func (w *World) checkQueues(n *Node) {
	next := map[commitlog.QueueID]int64{}
	for r, err := range n.log.Records(n.log.MinOffset()) {
		if err != nil {
			w.fail("%s: %v", n.name, err)
			return
		}
		id := commitlog.QueueID{Topic: r.Topic, ID: r.QueueID}
		var entry [1]commitlog.QueueEntry
		if got, err := n.log.ReadQueue(id, r.QueueOffset, entry[:]); err != nil || got != 1 || entry[0].Offset != r.PhysicalOffset {
			w.fail("%s: queue %s/%d has %+v at %d, the record is at %d (%v)", n.name, id.Topic, id.ID, entry[0], r.QueueOffset, r.PhysicalOffset, err)
			return
		}
		next[id] = r.QueueOffset + 1
	}
	for id, want := range next {
		if _, end, _ := n.log.QueueBounds(id); end != want {
			w.fail("%s: queue %s/%d ends at %d, want %d", n.name, id.Topic, id.ID, end, want)
		}
	}
}
