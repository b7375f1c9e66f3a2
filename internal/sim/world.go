package sim

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// ViolationError is something that must not be.
type ViolationError struct {
	Seed uint64
	At   time.Duration
	Text string
}

func (v *ViolationError) Error() string {
	return fmt.Sprintf("seed %d at %v: %s", v.Seed, v.At, v.Text)
}

// World is a run: everything there is, and the first violation.
type World struct {
	cfg       Config
	clock     Clock
	random    *rand.Rand
	net       Network
	nodes     []*Node
	primary   *Node // whom the operator holds for the master
	sockets   []*Socket
	dials     map[string]int // connections made, by node
	appending bool
	calmed    bool
	scripted  bool // nobody repairs anything by himself
	failed    *ViolationError

	// What the checker knows.
	histories []*history
	pending   []*put // waits of processes that live
	done      []*put // returned OK
	lent      []loan
	looked    int            // of lent, last
	flips     map[int64]bool // offsets of bytes that a bad disk changed
	puts      int
	acked     int
	bodies    int
	sum       hash.Hash64 // of all that happened
}

// Result is what a run came to.
type Result struct {
	Events    int
	Bytes     int64 // of the master's log
	Histories int
	Puts      int           // appended
	Acked     int           // of them returned OK after a wait
	Time      time.Duration // simulated
	Settled   time.Duration // after the storm
	Sum       uint64        // of all that happened: the same seed gives the same
}

// Run runs a world and returns the first *ViolationError, or nil.
func Run(cfg Config) (r Result, err error) {
	w := newWorld(cfg.filled())
	defer func() {
		if p := recover(); p != nil {
			err = &ViolationError{Seed: cfg.Seed, At: w.clock.Now(), Text: fmt.Sprint("panic: ", p)}
			if cfg.Trace != nil {
				panic(p)
			}
		}
	}()
	w.clock.After(0, w.putSome)
	w.clock.After(0, w.storm)
	w.clock.After(0, w.operate)
	for w.failed == nil && w.clock.Step(w.cfg.Storm) {
		r.Events++
		w.check()
	}
	w.calm()
	limit := w.cfg.Storm + w.cfg.Settle
	w.clock.At(w.cfg.Storm+2*time.Second, func() { w.appending = false })
	for w.failed == nil && w.clock.Step(limit) {
		r.Events++
		w.check()
		if !w.appending && w.settled() {
			break
		}
	}
	w.atEnd()
	r.Bytes, r.Histories, r.Puts, r.Acked = w.primary.highest, len(w.histories), w.puts, w.acked
	r.Time, r.Settled, r.Sum = w.clock.Now(), w.clock.Now()-w.cfg.Storm, w.sum.Sum64()
	if w.failed != nil {
		return r, w.failed
	}
	return r, nil
}

func newWorld(cfg Config) *World {
	w := emptyWorld(cfg)
	w.primary = w.add("master", nil)
	for i := range cfg.Replicas {
		w.add("replica "+strconv.Itoa(i+1), w.primary)
	}
	if cfg.Cascade {
		w.add("cascade", w.nodes[1])
	}
	for _, n := range w.nodes {
		n.plain = !cfg.Extended || cfg.PlainMaster && n == w.primary
		w.clock.After(w.upTo(3*time.Second), n.start)
	}
	return w
}

// emptyWorld has no machine yet.
func emptyWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), appending: true,
		dials: map[string]int{}, flips: map[int64]bool{}, sum: fnv.New64a(),
	}
	w.net = Network{Clock: &w.clock, Random: w.random, GiveUp: transfer.DefaultHousekeeping}
	w.fair()
	return w
}

// add makes a machine, switched off.
func (w *World) add(name string, upstream *Node) *Node {
	n := &Node{world: w, name: name, upstream: upstream, disk: commitlog.NewTwin(w.random.Uint64())}
	w.nodes = append(w.nodes, n)
	return n
}

// segment is the size that logs have.
func (w *World) segment() int64 { return w.cfg.Segment }

// note adds what is there now to the sum of the run.
func (w *World) note() {
	var b [24]byte
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if at := [2]int64{n.log.EndOffset(), n.log.FlushedOffset()}; at != n.noted {
			n.noted = at
			b = appendInts(b, int64(w.clock.Now()), n.log.EndOffset(), n.log.FlushedOffset())
			_, _ = w.sum.Write(b[:]) // never fails
		}
	}
}

func appendInts(b [24]byte, list ...int64) [24]byte {
	for i, v := range list {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

// atEnd looks at all that there is once more.
func (w *World) atEnd() {
	if w.failed == nil && !w.settled() {
		w.fail("not settled: %s", w.describe())
	}
	w.checkLent(len(w.lent))
	for _, n := range w.nodes {
		if w.failed != nil {
			return
		}
		n.proof = proof{}
		w.checkLog(n)
		if !w.prefix(n, w.primary) {
			w.fail("%s has other bytes than %s in the end", n.name, w.primary.name)
		}
		w.checkQueues(n)
		w.checkTerms(n)
	}
	w.checkPromised()
}

func (w *World) settled() bool {
	for _, n := range w.nodes {
		if !n.up || n.paused || n.tainted || n.log.Writable() != nil || !n.settled() {
			return false
		}
	}
	return len(w.pending) == 0
}

// settled tells whether the node has its upstream's log and the upstream knows
// it.
func (n *Node) settled() bool {
	if n == n.world.primary {
		return n.slave == nil && n.log.DispatchedOffset() == n.log.EndOffset()
	}
	if n.slave == nil || n.upstream != n.world.upstreamOf(n) || !n.upstream.up {
		return false
	}
	end := n.world.primary.log.EndOffset()
	if n.log.EndOffset() != end || n.log.DispatchedOffset() != end {
		return false
	}
	for _, s := range n.upstream.servers {
		if s.peer == n && s.session.Acked() == end {
			return true
		}
	}
	return false
}

func (w *World) describe() string {
	text := ""
	for _, n := range w.nodes {
		text += fmt.Sprintf("%s up %v", n.name, n.up)
		if n.up {
			held := n.span()
			text += fmt.Sprintf(" [%d, %d) dispatched %d", held.Min, held.End, n.log.DispatchedOffset())
			if err := n.log.Writable(); err != nil {
				text += fmt.Sprintf(" %q", err)
			}
			if n.slave != nil {
				text += fmt.Sprintf(" follows %s %v %q", n.upstream.name, n.slave.follower.State(), n.slave.follower.Reason())
			}
		}
		text += "; "
	}
	return text
}

func (w *World) chance(oneIn int) bool { return w.random.IntN(oneIn) == 0 }

func (w *World) upTo(d time.Duration) time.Duration { return time.Duration(w.random.Int64N(int64(d))) }

func (w *World) fail(format string, args ...any) {
	if w.failed == nil {
		w.failed = &ViolationError{Seed: w.cfg.Seed, At: w.clock.Now(), Text: fmt.Sprintf(format, args...)}
	}
}

func (w *World) trace(format string, args ...any) {
	if w.cfg.Trace != nil {
		w.cfg.Trace(w.clock.Now(), fmt.Sprintf(format, args...))
	}
}
