package sim

import (
	"slices"
	"syscall"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// upstreamOf is whom a node is to follow, as the operator has it; nil: nobody.
func (w *World) upstreamOf(n *Node) *Node {
	switch {
	case n == w.primary:
		return nil
	case w.cfg.Cascade && n == w.nodes[len(w.nodes)-1] && w.nodes[1] != w.primary:
		return w.nodes[1]
	}
	return w.primary
}

// mayTurn tells whether a node can be told to change now.
func (n *Node) mayTurn() bool {
	return n.up && !n.paused && (n.slave == nil || !n.slave.working)
}

// operate does now and then what an operator does: a node that does not follow
// the master is told to, and one that says why it cannot go on is copied anew.
func (w *World) operate() {
	w.clock.After(time.Second+w.upTo(2*time.Second), w.operate)
	for _, n := range w.nodes {
		if !n.mayTurn() {
			continue
		}
		want := w.upstreamOf(n)
		switch {
		case n.upstream != want && n != w.primary && (w.calmed || w.chance(2)):
			n.demote(want)
		case n.tainted:
			w.verify(n)
		case n.damaged() >= 0 && n != w.primary, w.calmed && w.stuck(n):
			w.renew(n)
		}
	}
}

// stuck tells whether a replica cannot go on by itself, says so, and is right.
func (w *World) stuck(n *Node) bool {
	if n.slave == nil || n.upstream != w.upstreamOf(n) || !n.upstream.up || n.slave.client != nil && n.slave.follower.State() == transfer.FollowerTransferring {
		return false
	}
	if w.prefix(n, n.upstream) || n.slave.follower.Reason() == "" {
		return false
	}
	if n.plain || n.upstream.plain {
		return n.slave.follower.State() >= transfer.FollowerStalled
	}
	return w.conflict(n, n.upstream)
}

// conflict tells whether the extended protocol has no way on for a replica with
// other bytes than its master: two masters took one number, it wrote in a later
// term than its master's last, or it would lose what is known to be complete.
func (w *World) conflict(n, master *Node) bool {
	mine, theirs := n.log.Epochs(), master.log.Epochs()
	for len(mine) > 0 && mine[len(mine)-1].Start >= n.log.EndOffset() {
		mine = mine[:len(mine)-1]
	}
	if len(mine) == 0 || len(theirs) == 0 || mine[len(mine)-1].Number > theirs[len(theirs)-1].Number {
		return true
	}
	common := false
	for _, e := range mine {
		i := slices.IndexFunc(theirs, func(t commitlog.Epoch) bool { return t.Number == e.Number })
		if i >= 0 && theirs[i] != e {
			return true
		}
		common = common || i >= 0
	}
	return !common || n.log.Confirmed() > w.common(n, master)
}

// common is how far two logs are the same.
func (w *World) common(a, b *Node) int64 {
	from, end := max(a.log.MinOffset(), b.log.MinOffset()), min(a.log.EndOffset(), b.log.EndOffset())
	if from >= end {
		return from
	}
	x, y := a.slice(from, end), b.slice(from, end)
	for i := range x {
		if x[i] != y[i] {
			return from + int64(i)
		}
	}
	return end
}

// renew gives a node an empty disk, to copy its master's log.
func (w *World) renew(n *Node) {
	w.trace("%s is copied anew", n.name)
	if n.up {
		n.stopHard(true, false)
	}
	n.disk = commitlog.NewTwin(w.random.Uint64())
	n.claims = claims{highest: n.highest, said: n.said} // it did hold what it said, and its word may be on the way
	n.upstream = w.upstreamOf(n)
	w.clock.After(w.upTo(w.cfg.DownMax), n.start)
}

// promote makes a replica the master, as an operator would who has lost sight of
// the old one: that one may write on until it is told, and so may those that
// follow it.
func (w *World) promote() {
	next := w.any()
	if next == w.primary || !next.mayTurn() || next.slave == nil || next.log.EndOffset() == 0 || next.log.Writable() != nil || w.tainted(next) {
		return
	}
	before := w.primary
	w.primary = next
	if next.promote() != nil {
		w.primary = before
	}
}

// tainted tells whether a node may hold bytes that a bad disk changed.
func (w *World) tainted(n *Node) bool {
	return n.tainted || n.upstream != nil && n.upstream.tainted
}

// failSync has the next sync of a segment fail. The log takes no writes then,
// until it is opened again.
func (w *World) failSync() {
	n := w.any()
	if !n.up {
		return
	}
	w.trace("the next sync of %s fails", n.name)
	n.disk.Fail("sync", &commitlog.TwinFault{Err: syscall.EIO, Path: "/commitlog/", Times: 1})
}

// flipBit changes a byte of a message's body on the disk of a replica that is
// stopped for it.
func (w *World) flipBit() {
	n := w.any()
	if !n.mayTurn() || n == w.primary || n.slave == nil || n.log.Writable() != nil || n.tainted {
		return
	}
	for r, err := range n.log.Records(n.log.MinOffset()) {
		if err != nil {
			return
		}
		if len(r.Body) == 0 || !w.chance(20) || r.PhysicalOffset+int64(r.Size) > n.durable {
			continue
		}
		body := int64(88) // of a record whose hosts are IPv4
		at := r.PhysicalOffset + body + int64(w.random.IntN(len(r.Body)))
		path := n.log.SegmentPath(at)
		n.stopHard(true, true)
		if err := n.disk.Flip(path, at%w.segment(), byte(1<<w.random.IntN(8))); err != nil {
			w.fail("flip: %v", err)
		}
		w.trace("a byte at offset %d of %s changes on the disk", at, n.name)
		w.flips[at], n.tainted = true, true
		w.clock.After(w.upTo(w.cfg.DownMax), n.start)
		return
	}
}

// verify reads all records of a replica whose disk is bad: what was changed is
// found, if nobody has met it before.
func (w *World) verify(n *Node) {
	if n.log.Writable() == nil {
		for _, err := range n.log.Records(n.log.MinOffset()) {
			if err != nil {
				w.trace("%s: %v", n.name, err)
			}
		}
	}
	if n.log.Writable() != nil {
		w.renew(n)
		return
	}
	h := w.histories[slices.Index(n.proof.agrees, true)].bytes
	if low := n.log.MinOffset(); string(h[low:n.log.EndOffset()]) != string(n.bytes()) {
		w.fail("%s was read from end to end, and what its disk changed was not found", n.name)
	}
	n.tainted = false // what was changed has been cut
}
