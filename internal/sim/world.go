package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/haengine/haengine/transfer"
)

// Config is a run. The zero value of a size or a time is a default.
type Config struct {
	Seed         uint64
	Replicas     int           // of the master
	Cascade      bool          // one more replica follows the first one
	Fork         bool          // the master may crash and lose what was not durable: a second history
	HistoryFirst bool          // an empty replica that reports 0 gets the whole log
	Extended     bool          // all nodes speak the extended protocol if the peer does
	PlainMaster  bool          // but for the first one
	Failover     bool          // now and then another node becomes the master
	Segment      int64         // bytes
	OverlapBytes int64         // what a replica compares again
	FrameBytes   int           // largest body
	Rate         int64         // bytes a second to a live replica on a session; 0: no limit
	CatchUpRate  int64         // the same to one that is catching up
	CatchUpBytes int64         // behind by more it is; 0: the protocol's own
	Storm        time.Duration // how long faults come
	Settle       time.Duration // how long it may take until all is well after that
	Trace        func(at time.Duration, text string)
}

func (c Config) filled() Config {
	c.Replicas = max(c.Replicas, 1)
	if c.Segment == 0 {
		c.Segment = 4096
	}
	if c.OverlapBytes == 0 {
		c.OverlapBytes = 256
	}
	if c.FrameBytes == 0 {
		c.FrameBytes = 1000
	}
	if c.Storm == 0 {
		c.Storm = 60 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 3 * time.Minute
	}
	return c
}

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
	nodes     []*Node // the first is the master
	sockets   []*Socket
	histories [][]byte // what the master's log once was; the last is its log now
	appending bool
	terms     int32 // the last that was begun
	failed    *ViolationError
}

// Result is what a run came to.
type Result struct {
	Events    int
	Bytes     int64 // of the master's log
	Histories int
	Settled   time.Duration // after the storm
}

// Run runs a world and returns the first *ViolationError, or nil.
func Run(cfg Config) (Result, error) {
	w := newWorld(cfg.filled())
	r := Result{}
	w.clock.After(0, w.appendSome)
	w.clock.After(0, w.flushSome)
	w.clock.After(0, w.storm)
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
	if w.failed == nil && !w.settled() {
		w.fail("not settled: %s", w.describe())
	}
	r.Bytes, r.Histories = w.nodes[0].log.Range().End, len(w.histories)
	r.Settled = w.clock.Now() - w.cfg.Storm
	if w.failed != nil {
		return r, w.failed
	}
	return r, nil
}

func newWorld(cfg Config) *World {
	w := &World{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), histories: [][]byte{nil}, appending: true}
	w.net = Network{Clock: &w.clock, Random: w.random}
	w.fair()
	add := func(name string, upstream *Node) {
		w.nodes = append(w.nodes, &Node{world: w, name: name, upstream: upstream, log: Log{segment: cfg.Segment}})
	}
	add("master", nil)
	for i := range cfg.Replicas {
		add("replica "+strconv.Itoa(i+1), w.nodes[0])
	}
	if cfg.Cascade {
		add("cascade", w.nodes[1])
	}
	for _, n := range w.nodes {
		n.quorum = transfer.NewQuorum()
		w.clock.After(w.upTo(3*time.Second), func() {
			if n.life == 0 {
				n.begin()
			}
		})
	}
	return w
}

// appendSome puts a record into the master's log, now and then a large one. The
// byte at an offset is a function of offset and history, different in each, and
// the first is 0.
func (w *World) appendSome() {
	if !w.appending {
		return
	}
	if m := w.nodes[0]; m.up {
		n := 1 + w.random.IntN(300)
		if w.chance(20) {
			n *= 20
		}
		b := w.bytesFor(m.log.Range().End, n)
		m.log.Append(b)
		m.grew()
	}
	w.clock.After(w.upTo(100*time.Millisecond), w.appendSome)
}

// bytesFor gives what the present history has at an offset.
func (w *World) bytesFor(from int64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if p := uint64(from) + uint64(i); p > 0 {
			b[i] = byte(p*0x9e3779b97f4a7c15>>40) + byte(len(w.histories))
		}
	}
	return b
}

// flushSome makes some node's log durable.
func (w *World) flushSome() {
	w.nodes[w.random.IntN(len(w.nodes))].log.Flush()
	if w.appending {
		w.clock.After(w.upTo(500*time.Millisecond), w.flushSome)
	}
}

// fork begins a new history at an offset: the master is about to lose the rest.
func (w *World) fork(at int64) {
	w.histories[len(w.histories)-1] = bytes.Clone(w.nodes[0].log.bytes)
	w.histories = append(w.histories, nil)
	w.trace("history %d begins at %d", len(w.histories), at)
}

// history returns the bytes of a history from offset 0 on.
func (w *World) history(i int) []byte {
	if i == len(w.histories)-1 {
		return w.nodes[0].log.bytes
	}
	return w.histories[i]
}

func (w *World) settled() bool {
	for _, n := range w.nodes {
		if !n.up || !n.settled() {
			return false
		}
	}
	return true
}

func (w *World) describe() string {
	text := ""
	for _, n := range w.nodes {
		held := n.log.Range()
		text += fmt.Sprintf("%s up %v [%d, %d)", n.name, n.up, held.Min, held.End)
		if n.follower != nil {
			text += fmt.Sprintf(" %v %q", n.follower.State(), n.follower.Reason())
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
