package sim

import (
	"bytes"
	"time"

	"github.com/haengine/haengine/transfer"
)

// client drives a follower on one socket, as the engine's slave does.
type client struct {
	node   *Node
	socket *Socket
	out    []byte // what is left of a report

	preparing bool // the master's hello waits for its answer
	armed     time.Duration
}

// dial connects a node to its upstream, after the time that takes.
func (n *Node) dial() {
	w, life := n.world, n.life
	w.clock.After(w.net.delay(), func() {
		if n.life != life || n.client != nil {
			return
		}
		if !n.upstream.up || n.upstream.unreachable {
			n.ended(nil, ErrReset)
			return
		}
		a, b := w.net.Connect()
		c := &client{node: n, socket: a, armed: never}
		a.Serve(c)
		n.upstream.accept(b, n)
		w.sockets = append(w.sockets, a)
		n.client = c
		n.dials++
		now := w.clock.Now()
		n.follower.SetPeer(n.upstream.name, len(n.epochs) > 0 && !w.cfg.PlainMaster)
		report := n.follower.Begin(n.log.Range(), now)
		c.report(report, now)
		c.rearm()
	})
}

// ended plans the next dial after a connection, or after a failed one.
func (n *Node) ended(c *client, err error) {
	w := n.world
	n.client = nil
	w.checkEnd(n, err)
	if got, want := n.log.Discard(), n.follower.Unpublished(); got != want && c != nil {
		w.fail("%s: %d bytes behind the end, the follower says %d", n.name, got, want)
	}
	n.follower.Ended(err, w.clock.Now())
	next := n.backoff.Lost
	if s := n.follower.State(); s == transfer.FollowerDiverged || s == transfer.FollowerRefused {
		next = n.backoff.Refused
	}
	wait := next()
	w.trace("%s: %v: %s; again in %v", n.name, n.follower.State(), n.follower.Reason(), wait)
	life := n.life
	w.clock.After(wait, func() {
		if n.life == life && n.up {
			n.dial()
		}
	})
}

func (c *client) Readable() {
	for !c.socket.Over() && !c.preparing {
		took, err := c.receive()
		if err != nil {
			c.socket.Close(err)
			return
		}
		if took == 0 {
			break
		}
	}
	c.turn()
}

// receive reads once, to where the follower wants the bytes.
func (c *client) receive() (int, error) {
	n, w := c.node, c.node.world
	want := n.follower.Want()
	buf := make([]byte, min(want.Bytes, 700))
	got, err := c.socket.Read(buf)
	if got == 0 {
		return 0, err
	}
	buf = buf[:got]
	now := w.clock.Now()
	switch want.Kind {
	case transfer.WantHeader:
		if _, err := n.follower.Header(buf, n.log.Range(), now); err != nil {
			return got, err
		}
		if hello, ok := n.follower.Greeting(); ok {
			c.greeted(hello)
		}
		if e := n.follower.Epoch(); e.Number > 0 && (len(n.epochs) == 0 || e.Number > n.epochs[len(n.epochs)-1].Number) {
			n.addEpoch(e)
		}
		if base, ok := n.follower.StartOffset(); ok {
			n.start(base)
		}
	case transfer.WantCompare:
		own := n.log.View(want.Offset, got)
		equal := int64(0)
		for equal < int64(got) && own[equal] == buf[equal] {
			equal++
		}
		if bytes.Equal(own, buf) {
			return got, n.follower.Compared(equal, -1, now)
		}
		return got, n.follower.Compared(equal, want.Offset+equal, now)
	case transfer.WantStore:
		if err := n.log.Place(want.Offset, buf); err != nil {
			w.fail("%s: %v", n.name, err)
		}
		if publish := n.follower.Stored(int64(got), now); publish > 0 {
			n.log.Publish(publish)
			n.grew()
		}
	}
	return got, nil
}

// start gives an empty log its place.
func (n *Node) start(base int64) {
	if err := n.log.StartAt(base); err != nil {
		n.world.fail("%s: %v", n.name, err)
		return
	}
	if n.follower.SkipByte() {
		n.log.Append([]byte{0})
		n.grew()
	}
}

// turn reports and sets the timer after something happened.
func (c *client) turn() {
	if c.socket.Over() {
		return
	}
	n, now := c.node, c.node.world.clock.Now()
	if n.follower.State() == transfer.FollowerTransferring {
		n.backoff.Succeeded()
	}
	if report, ok := n.follower.FallBack(n.log.Range(), now); ok && len(c.out) == 0 {
		c.report(report, now)
	}
	if len(c.out) == 0 {
		n.follower.SetAcks(n.log.flushed, -1)
		if report, due := n.follower.NextReport(n.log.Range(), now); due {
			c.report(report, now)
		}
	}
	c.rearm()
}

func (c *client) report(offset int64, now time.Duration) {
	n := c.node
	if end := n.log.Range().End; offset > end && (end != 0 || offset != 1 && !n.follower.Extended()) {
		n.world.fail("%s reports %d, its log ends at %d", n.name, offset, end)
	}
	c.out = n.follower.AppendReport(nil, offset)
	n.follower.Reported(offset, now)
	c.Writable()
}

func (c *client) Writable() {
	for len(c.out) > 0 {
		n := c.socket.Write(c.out[:1+c.node.world.random.IntN(len(c.out))])
		if n == 0 {
			return
		}
		c.out = c.out[n:]
	}
}

func (c *client) rearm() {
	n, w := c.node, c.node.world
	at := n.follower.Deadline()
	if c.socket.Over() || at >= c.armed {
		return
	}
	c.armed = at
	w.clock.At(at, func() {
		if c.socket.Over() || c.armed != at {
			return
		}
		c.armed = never
		if err := n.follower.Expired(w.clock.Now()); err != nil {
			c.socket.Close(err)
			return
		}
		c.turn()
	})
}

func (c *client) Closed(err error) {
	if c.node.client == c {
		c.node.ended(c, err)
	}
}
