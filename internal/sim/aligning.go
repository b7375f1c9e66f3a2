package sim

import (
	"fmt"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// hello is what the node says of itself.
func (n *Node) hello() transfer.Hello {
	return transfer.Hello{
		VersionMin: transfer.VersionMin, VersionMax: transfer.VersionMax, ClusterID: n.cluster, ReplicaID: n.name,
		SegmentBytes: n.log.SegmentBytes(), FrameBytes: int32(n.world.cfg.FrameBytes),
	}
}

// loadTerms takes over the log's epochs after they have changed.
func (n *Node) loadTerms() {
	own := n.log.Epochs()
	n.terms = make([]transfer.Epoch, len(own))
	for i, o := range own {
		n.terms[i] = transfer.Epoch(o)
	}
}

// addEpoch begins a term in the log, durably.
func (n *Node) addEpoch(e commitlog.Epoch) error {
	defer n.loadTerms()
	return n.log.AppendEpoch(e)
}

func lastOf(list []transfer.Epoch) transfer.Epoch {
	if len(list) == 0 {
		return transfer.Epoch{}
	}
	return list[len(list)-1]
}

// greeted answers the master's hello, after our log was cut to what is common.
func (c *client) greeted(master transfer.Hello) {
	c.pauseFor(func() (func(), error) {
		own, err := c.align(master)
		return func() {
			c.slave.epoch = lastOf(own.Epochs)
			answer := c.slave.follower.Answer(own, c.node.world.clock.Now())
			c.node.claims.answered(c, own.Log)
			c.out = append(c.out, answer...)
			c.flush()
		}, err
	})
}

// align makes our log a part of the master's history, and gives the hello that
// says so (the engine's aligning.go).
func (c *client) align(master transfer.Hello) (transfer.Hello, error) {
	n := c.node
	own := n.hello()
	own.Log, own.Epochs = n.span(), n.terms
	keep, err := transfer.Align(own, master, n.log.Confirmed())
	if err != nil {
		return own, err
	}
	if err := n.noteEpoch(lastOf(master.Epochs).Number); err != nil {
		return own, err
	}
	if keep < own.Log.End || transfer.Stale(own, master, keep) {
		if err := n.cut(keep, own.Log.End); err != nil {
			return own, err
		}
	}
	if own.Log.Empty() {
		return c.beginAt(own, master)
	}
	own.Log, own.Epochs = n.span(), n.terms
	own.Start = own.Log.End
	own.TailFrom = min(max(own.Log.End-transfer.TailBytes, own.Log.Min, master.Log.Min), own.Log.End)
	own.TailSum, err = n.log.Checksum(own.TailFrom, own.Log.End)
	return own, err
}

// beginAt chooses where an empty log begins: at the master's first byte.
func (c *client) beginAt(own, master transfer.Hello) (transfer.Hello, error) {
	n := c.node
	if own.SegmentBytes != master.SegmentBytes {
		if n.world.cfg.Segment != 0 {
			return own, &transfer.RefusalError{Code: transfer.RefusedSegments, Text: fmt.Sprintf("the master has segments of %d bytes, we were told to use %d", master.SegmentBytes, own.SegmentBytes)}
		}
		if err := n.log.AdoptSegmentBytes(master.SegmentBytes); err != nil {
			return own, err
		}
		own.SegmentBytes = master.SegmentBytes
	}
	own.Start = master.Log.Min
	if err := n.log.StartAt(own.Start); err != nil {
		return own, err
	}
	n.loadTerms()
	own.Log, own.Epochs = n.span(), n.terms
	own.TailFrom = own.Log.End
	return own, nil
}

// cut truncates a replica's log, durably, and breaks with those that follow it.
func (n *Node) cut(to, end int64) error {
	w := n.world
	n.shut = true
	n.endAll(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "the log is cut"})
	defer func() { n.shut = false }()
	before, known := n.bytes(), n.log.Confirmed()
	aside, err := n.log.Truncate(to)
	n.resized = true
	if err != nil {
		n.claims.cut(min(to, n.log.EndOffset())) // or at the next opening
		return fmt.Errorf("cut to offset %d: %w", to, err)
	}
	n.loadTerms()
	if to == end {
		return nil // only terms without a byte
	}
	w.trace("%s cuts [%d, %d)", n.name, to, end)
	n.claims.cut(to)
	n.confirmed = min(n.confirmed, to)
	w.checkCut(n, before, to, known, aside)
	return nil
}

// endAll ends all connections of replicas for a reason.
func (n *Node) endAll(why error) {
	for len(n.servers) > 0 {
		n.servers[0].end(why)
	}
}
