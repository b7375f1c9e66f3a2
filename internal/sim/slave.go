package sim

import (
	"errors"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// slave follows a master, on one connection after another, as the engine's does
// (slave.go there).
type slave struct {
	node     *Node
	master   *Node
	follower *transfer.Follower
	backoff  *transfer.Backoff
	client   *client // nil between connections

	confirmed  int64          // up to where the master said its puts to be complete; -1: it does not
	onReplicas bool           // and that these are on replicas
	epoch      transfer.Epoch // the last that our log has
	working    bool           // work off the loop goes on
	dialLater  bool           // when it is done
	broken     error          // the log's trouble: no further connection
	over       bool
}

// follow makes the node a slave of another.
func (n *Node) follow(master *Node) error {
	if n.term() != "" { // what it began as a master is over
		if err := n.noteTerm(""); err != nil {
			return err
		}
	}
	cfg := &n.world.cfg
	n.upstream = master
	s := &slave{
		node: n, master: master, confirmed: -1,
		backoff: transfer.NewBackoff(n.world.random.Int64N),
		follower: transfer.NewFollower(transfer.FollowerConfig{
			SegmentBytes: n.log.SegmentBytes(), OverlapBytes: cfg.OverlapBytes, FrameBytesLimit: 64 << 20,
			Extended: !n.plain, PlainMemory: 5 * time.Second,
		}),
	}
	n.slave = s
	if err := n.log.Writable(); err != nil {
		s.trouble(err)
	}
	s.dial()
	return nil
}

// stop ends the connection and lets go of the log.
func (s *slave) stop() {
	s.over = true
	if s.client != nil {
		s.client.socket.Close(ErrClosed)
	}
}

// trouble ends replication: what this log holds from here on cannot be trusted.
func (s *slave) trouble(err error) {
	s.broken = err
	if s.client != nil {
		s.client.refuse(&transfer.RefusalError{Code: transfer.RefusedDamaged, Text: err.Error()})
	}
}

// acknowledged is what the slave reports to have received.
func (s *slave) acknowledged() transfer.Range {
	r := s.node.span()
	if s.node.world.cfg.Ack == transfer.Flushed {
		r.End = s.node.durableNow()
	}
	return r
}

// durableNow is up to where a replica's log is checked and on its disk.
func (n *Node) durableNow() int64 { return min(n.log.FlushedOffset(), n.log.DispatchedOffset()) }

// dial connects to the master, after the time that takes.
func (s *slave) dial() {
	n, w := s.node, s.node.world
	if s.over || s.broken != nil {
		return
	}
	if s.working {
		s.dialLater = true
		return
	}
	n.after(w.net.delay(), func() {
		if s.over || s.broken != nil || s.client != nil {
			return
		}
		if w.cfg.Ack == transfer.Flushed {
			if err := n.log.Flush(); err != nil { // the first report acknowledges, too
				s.unreachable(err)
				return
			}
		}
		if !s.master.up || s.master.unreachable {
			s.unreachable(ErrReset)
			return
		}
		a, b := w.net.Connect()
		c := &client{slave: s, node: n, socket: a, armed: never}
		n.serve(a, c)
		b.Serve(idle{})
		s.client = c
		s.master.offer(b, n)
		w.sockets = append(w.sockets, a)
		w.dials[n.name]++
		now := w.clock.Now()
		s.follower.SetPeer(s.master.name, len(n.terms) > 0)
		c.report(s.follower.Begin(n.span(), now), now)
		c.rearm()
	})
}

func (s *slave) unreachable(err error) {
	s.follower.Ended(err, s.node.world.clock.Now())
	s.lost(err)
}

// ended is told that a connection is over: what was received past the published
// end is zeroed before anyone is told an offset.
func (s *slave) ended(c *client, err error) {
	n, w := s.node, s.node.world
	s.client = nil
	w.checkEnd(n, err)
	if want := s.follower.Unpublished(); int64(c.unpublished) != want {
		w.fail("%s: %d bytes behind the end, the follower says %d", n.name, c.unpublished, want)
	}
	if c.unpublished > 0 {
		if derr := n.log.Discard(c.unpublished); derr != nil {
			s.broken = derr
		}
	}
	s.follower.Ended(err, w.clock.Now())
	if s.over || s.broken != nil {
		return
	}
	s.lost(err)
}

// lost plans the next dial: soon after a loss, later after a refusal.
func (s *slave) lost(err error) {
	n, w := s.node, s.node.world
	wait := s.backoff.Lost
	var refusal *transfer.RefusalError
	switch state := s.follower.State(); {
	case errors.As(err, &refusal) && refusal.Code == transfer.RefusedStopping:
	case refusal != nil, state == transfer.FollowerDiverged, state == transfer.FollowerRefused,
		errors.Is(err, commitlog.ErrReadOnly), errors.Is(err, commitlog.ErrCorrupt), errors.Is(err, commitlog.ErrSegmentUnavailable):
		wait = s.backoff.Refused
	}
	d := wait()
	why := s.follower.Reason()
	if why == "" || s.follower.State() == transfer.FollowerConnecting {
		why = err.Error()
	}
	w.trace("%s: %v: %s; again in %v", n.name, s.follower.State(), why, d)
	n.after(d, s.dial)
}

// raise takes over a larger value.
func raise(v *int64, to int64) { *v = max(*v, to) }

// heard takes over what a frame says of the master. A new term is in our list,
// durably, before a byte of it is in our log.
func (c *client) heard() {
	s, n := c.slave, c.node
	source := s.follower.Source()
	s.confirmed, s.onReplicas = source.Confirmed, source.OnReplicas
	if source.OnReplicas {
		n.log.NoteConfirmed(min(source.Confirmed, n.log.EndOffset()))
	}
	if e := s.follower.Epoch(); e.Number > s.epoch.Number {
		s.epoch = e
		c.pauseFor(func() (func(), error) {
			return func() {}, errors.Join(n.noteEpoch(e.Number), n.addEpoch(commitlog.Epoch(e)))
		})
	}
}

// pauseFor does work off the loop and takes no byte of this connection until
// what it returns has run. If the connection ends first, the next dial waits for
// the work: it may be cutting the log.
func (c *client) pauseFor(work func() (then func(), err error)) {
	s, n := c.slave, c.node
	c.preparing, s.working = true, true
	n.soon(func() {
		then, err := work()
		s.working = false
		if s.dialLater {
			s.dialLater = false
			s.dial()
		}
		if s.client != c {
			return
		}
		c.preparing = false
		if err != nil {
			c.refuse(err)
			return
		}
		then()
		if s.client == c {
			c.Readable()
		}
	})
}

// refuse ends the connection with a reason, which a haengine master is told
// first.
func (c *client) refuse(why error) {
	if !errors.Is(why, transfer.ErrRefused) { // the disk's
		why = &transfer.RefusalError{Code: transfer.RefusedDamaged, Text: why.Error()}
	}
	if words := c.slave.follower.Refuse(why); words != nil && len(c.out) == 0 {
		c.socket.Write(words)
	}
	c.socket.Close(why)
}

// damaged is where damage was found in our log; -1: nowhere.
func (n *Node) damaged() int64 {
	var damage *commitlog.CorruptError
	if err := n.log.Writable(); err != nil && errors.As(err, &damage) {
		return damage.Offset
	}
	return -1
}
