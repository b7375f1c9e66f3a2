package sim

import (
	"hash/crc32"
	"slices"
	"time"

	"github.com/haengine/haengine/transfer"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extended tells whether the node speaks the extended protocol.
func (n *Node) extended() bool {
	return n.world.cfg.Extended && !(n.world.cfg.PlainMaster && n.upstream == nil)
}

// hello is what the node says of itself.
func (n *Node) hello() transfer.Hello {
	return transfer.Hello{
		VersionMin: transfer.VersionMin, VersionMax: transfer.VersionMax, ReplicaID: n.name,
		SegmentBytes: n.log.segment, FrameBytes: int32(n.world.cfg.FrameBytes),
	}
}

// newTerm begins a term: a master does when it starts, since it may have lost
// what a replica holds. Numbers are the world's, as a coordinator gives them.
func (n *Node) newTerm() {
	n.world.terms++
	n.addEpoch(transfer.Epoch{Number: n.world.terms, ID: n.world.random.Uint64() | 1, Start: n.log.Range().End})
}

// addEpoch adds a term; one without records is replaced.
func (n *Node) addEpoch(e transfer.Epoch) {
	list := slices.Clone(n.epochs)
	if k := len(list); k > 0 && list[k-1].Start == e.Start {
		list = list[:k-1]
	}
	n.epochs = append(list, e)
}

// cutEpochs drops the terms that begin past the log's end.
func (n *Node) cutEpochs() {
	end := n.log.Range().End
	n.epochs = slices.DeleteFunc(slices.Clone(n.epochs), func(e transfer.Epoch) bool { return e.Start > end })
}

// soon does something of a node's a little later, as work off the loop is done.
func (w *World) soon(fn func()) {
	if w.chance(2) {
		fn()
		return
	}
	w.clock.After(w.upTo(50*time.Millisecond), fn)
}

// prove compares the tail that a replica's hello tells of.
func (s *server) prove(from, to int64) {
	if s.proving {
		return
	}
	s.proving = true
	w := s.node.world
	w.soon(func() {
		s.proving = false
		if s.socket.Over() {
			return
		}
		sum := crc32.Checksum(s.node.log.View(from, int(to-from)), castagnoli)
		if err := s.session.Prove(sum, w.clock.Now()); err != nil {
			w.fail("%s has %v", s.node.name, err)
			return
		}
		s.acknowledge()
		s.send()
	})
}

// end closes a connection with a reason, which the replica is told.
func (s *server) end(err error) {
	if words := s.session.LastWords(err); words != nil && len(s.out) == 0 {
		s.socket.Write(words)
	}
	s.socket.Close(err)
}

// greeted answers the master's hello, after our log was cut to what is common.
func (c *client) greeted(master transfer.Hello) {
	n, w := c.node, c.node.world
	c.preparing = true
	w.soon(func() {
		if c.socket.Over() || n.client != c {
			return
		}
		c.preparing = false
		own := n.hello()
		own.Log, own.Epochs = n.log.Range(), n.epochs
		keep, err := transfer.Align(own, master, 0)
		if err != nil {
			w.trace("%s does not follow: %v", n.name, err)
			c.out = append(c.out, n.follower.Refuse(err)...)
			c.Writable()
			c.socket.Close(err)
			return
		}
		if keep < own.Log.End && !own.Log.Empty() {
			n.cut(keep)
		}
		if transfer.Stale(own, master, keep) {
			n.epochs = slices.DeleteFunc(slices.Clone(n.epochs), func(e transfer.Epoch) bool { return e.Start >= keep })
		}
		own.Log, own.Epochs = n.log.Range(), n.epochs
		own.Start = own.Log.End
		if own.Log.Empty() {
			own.Start = master.Log.Min
		}
		own.TailFrom = min(max(own.Log.End-transfer.TailBytes, own.Log.Min, master.Log.Min), own.Log.End)
		own.TailSum = crc32.Checksum(n.log.View(own.TailFrom, int(own.Log.End-own.TailFrom)), castagnoli)
		c.out = append(c.out, n.follower.Answer(own, w.clock.Now())...)
		c.Writable()
		c.Readable()
	})
}

// cut truncates a replica's log, durably, and breaks with those that follow it.
func (n *Node) cut(to int64) {
	w := n.world
	w.trace("%s cuts [%d, %d)", n.name, to, n.log.Range().End)
	if len(w.histories) == 1 {
		w.fail("%s cuts its log to %d, and there is one history", n.name, to)
	}
	for _, s := range slices.Clone(n.servers) {
		s.end(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "the log is cut"})
	}
	n.log.Lose(to)
	n.log.Flush()
	n.cutEpochs()
	n.proof = proof{}
}
