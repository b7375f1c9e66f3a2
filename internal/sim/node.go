package sim

import (
	"math"
	"slices"
	"time"

	"github.com/haengine/haengine/transfer"
)

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// Node is a machine: a log, the replicas it serves, and, unless it is the
// master, the node it follows.
type Node struct {
	world    *World
	name     string
	log      Log
	upstream *Node // nil: the master

	up          bool
	unreachable bool // dials fail
	dials       int  // connections made
	life        int  // counts starts and stops: what an earlier life planned is void
	servers     []*server
	client      *client
	follower    *transfer.Follower
	epochs      []transfer.Epoch // of its log, durable
	backoff     *transfer.Backoff
	quorum      *transfer.Quorum
	waking      bool

	highest int64 // the furthest end its log ever had
	proof   proof
}

// begin begins a life.
func (n *Node) begin() {
	n.up = true
	n.life++
	n.quorum = transfer.NewQuorum()
	n.cutEpochs()
	if n.upstream == nil {
		n.newTerm()
		return
	}
	n.follower = transfer.NewFollower(transfer.FollowerConfig{
		SegmentBytes: n.log.segment, OverlapBytes: n.world.cfg.OverlapBytes,
		Extended: n.extended(), PlainMemory: 5 * time.Second,
	})
	n.backoff = transfer.NewBackoff(n.world.random.Int64N)
	n.dial()
}

// crash ends a life. Peers are told or have to find out; what was not durable
// is lost or not.
func (n *Node) crash(tellPeers, lose bool) {
	w := n.world
	n.up = false
	n.life++
	if c := n.client; c != nil {
		n.client = nil
		c.socket.Break(true, tellPeers)
	}
	for _, s := range slices.Clone(n.servers) {
		s.socket.Break(true, tellPeers)
	}
	n.log.Discard()
	if end := n.log.Range().End; lose && n.log.flushed > n.log.min && n.log.flushed < end {
		to := n.log.flushed + w.random.Int64N(end-n.log.flushed)
		if n.upstream == nil {
			w.fork(to)
		}
		w.trace("%s loses [%d, %d)", n.name, to, end)
		n.log.Lose(to)
		n.proof = proof{}
	}
}

// grew wakes the servers that have nothing in their way, once for all that
// happens until then.
func (n *Node) grew() {
	n.highest = max(n.highest, n.log.Range().End)
	if n.waking {
		return
	}
	n.waking = true
	n.world.clock.After(time.Duration(n.world.random.Int64N(int64(time.Millisecond))), func() {
		n.waking = false
		for _, s := range slices.Clone(n.servers) {
			if !s.full {
				s.send()
			}
		}
	})
}

func (n *Node) forget(s *server) {
	n.servers = slices.DeleteFunc(n.servers, func(o *server) bool { return o == s })
}

// settled tells whether the node has its upstream's log and the upstream knows
// it; or, if there were two histories, that it says why it has not.
func (n *Node) settled() bool {
	end := n.world.nodes[0].log.Range().End
	if n.upstream == nil {
		return n.up
	}
	if n.log.Range().End == end {
		for _, s := range n.upstream.servers {
			if s.peer == n && s.session.Acked() == end {
				return true
			}
		}
	}
	if n.world.cfg.Extended && !n.world.cfg.PlainMaster {
		return false // there is always a way on
	}
	stopped := n.follower.State() >= transfer.FollowerStalled && n.follower.Reason() != ""
	return len(n.world.histories) > 1 && (stopped || !n.upstream.follows())
}

// follows tells whether the node is the master or gets data from it.
func (n *Node) follows() bool {
	return n.upstream == nil || n.follower.State() == transfer.FollowerTransferring && n.upstream.follows()
}
