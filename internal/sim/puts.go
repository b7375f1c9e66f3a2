package sim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// ringKey is what a ring of replica waits is for.
type ringKey struct {
	kind     transfer.Kind
	replicas int
}

type replicaRing struct {
	ringKey
	ring *transfer.Ring
}

// rings holds the waits of a master's puts, as the engine's rings do.
type rings struct {
	size    int
	flush   *transfer.Ring
	replica []replicaRing
}

func newRings(size int) *rings { return &rings{size: size, flush: transfer.NewRing(size)} }

func (r *rings) forReplicas(key ringKey) *transfer.Ring {
	for _, rr := range r.replica {
		if rr.ringKey == key {
			return rr.ring
		}
	}
	ring := transfer.NewRing(r.size)
	r.replica = append(r.replica, replicaRing{key, ring})
	return ring
}

func (r *rings) replicated(q *transfer.Quorum, now time.Duration) {
	for _, rr := range r.replica {
		rr.ring.Complete(q.Committed(rr.kind, rr.replicas), now)
	}
}

func (r *rings) waiting() int {
	n := r.flush.Len()
	for _, rr := range r.replica {
		n += rr.ring.Len()
	}
	return n
}

func (r *rings) flushedAwaited() bool {
	for _, rr := range r.replica {
		if rr.kind == transfer.Flushed && rr.ring.Len() > 0 {
			return true
		}
	}
	return false
}

func (r *rings) expireReplicaWaits() {
	for _, rr := range r.replica {
		rr.ring.Complete(-1, math.MaxInt64)
	}
}

func (r *rings) restart() {
	r.flush.Restart()
	for _, rr := range r.replica {
		rr.ring.Restart()
	}
}

func (r *rings) close() {
	r.flush.Close(transfer.Expired)
	for _, rr := range r.replica {
		rr.ring.Close(transfer.Expired)
	}
}

// expiryTick is how often a master looks for late puts, and so how late a
// deadline is met at most.
const expiryTick = 20 * time.Millisecond

// put is what a simulated producer did, and what became of it.
type put struct {
	node      *Node
	life      int
	history   int
	at, end   int64
	kind      transfer.Kind
	replicas  int // it waits for; 0: for none
	flush     *transfer.Ring
	replica   *transfer.Ring
	deadline  time.Duration
	waits     int
	failed    bool
	noReplica bool
	ended     bool
	promised  bool // it has to be in the last history
}

// Sequenced takes the put's tickets inside the append section.
func (p *put) Sequenced(end int64) {
	if p.replica != nil {
		p.replica.Push(p, end, p.deadline)
	}
	if p.flush != nil {
		p.flush.Push(p, end, p.deadline)
	}
	p.end = end
}

// Completed takes the outcome of one wait.
func (p *put) Completed(_ *transfer.Ring, o transfer.Outcome) {
	p.failed = p.failed || o != transfer.Done
	p.waits--
	if p.waits < 0 {
		p.node.world.fail("a put's wait ended twice")
	}
}

// produce puts a message and waits as asked: for replicas many replicas in a
// kind, and for the local flush. The error says that nothing was written.
func (n *Node) produce(m *commitlog.Message, key ringKey, flush bool) (*put, error) {
	w := n.world
	if n.slave != nil {
		return nil, errNotMaster
	}
	if err := n.log.Writable(); err != nil {
		return nil, err
	}
	e, err := n.log.Encode(m)
	if err != nil {
		return nil, err
	}
	defer e.Release()
	p := &put{node: n, life: n.life, history: n.history, kind: key.kind, replicas: key.replicas, deadline: w.clock.Now() + w.cfg.PutTimeout}
	if inSync := n.quorum.InSync(n.log.EndOffset(), 1<<20); key.replicas > 0 {
		if inSync == 0 || !n.quorum.CanGive(key.kind) {
			p.noReplica, p.replicas = true, 0
		} else {
			p.replica = n.rings.forReplicas(key)
		}
	}
	if flush {
		p.flush = n.rings.flush
	}
	for i, ring := range []*transfer.Ring{p.replica, p.flush} {
		if ring == nil {
			continue
		}
		if !ring.Reserve() {
			if i == 1 && p.replica != nil {
				p.replica.Cancel()
			}
			return nil, errRingFull
		}
		p.waits++
	}
	a, err := n.log.Append(e, p)
	if err != nil {
		for _, ring := range []*transfer.Ring{p.replica, p.flush} {
			if ring != nil {
				ring.Cancel()
			}
		}
		return nil, err
	}
	p.at = a.Offset
	if p.end != a.EndOffset {
		w.fail("%s: a put was sequenced at %d and ends at %d", n.name, p.end, a.EndOffset)
	}
	w.appended(p, a)
	if flush {
		n.log.RequestFlush(a.EndOffset)
	}
	n.stir()
	n.grew()
	n.tick()
	return p, nil
}

var (
	errNotMaster = errors.New("not a master")
	errRingFull  = errors.New("too many puts wait")
)

// tick looks at late puts as long as some wait.
func (n *Node) tick() {
	if n.ticking {
		return
	}
	n.ticking = true
	n.after(expiryTick, func() {
		n.ticking = false
		n.complete()
		if n.rings.waiting() > 0 {
			n.tick()
		}
	})
}

// putSome has a producer put something to a master that it knows of.
func (w *World) putSome() {
	if !w.appending {
		return
	}
	w.clock.After(w.upTo(w.cfg.PutEvery), w.putSome)
	n := w.primary
	if w.chance(4) {
		n = w.nodes[w.random.IntN(len(w.nodes))]
	}
	if !n.up || n.paused || n.slave != nil {
		return
	}
	size := w.random.IntN(300)
	if w.chance(20) {
		size *= 8
	}
	topic := []string{"orders", "payments"}[w.random.IntN(2)]
	m := &commitlog.Message{Topic: topic, QueueID: int32(w.random.IntN(2)), Body: w.body(size)}
	if w.chance(2) {
		m.Properties = commitlog.EncodeProperties(map[string]string{"KEYS": strconv.Itoa(w.bodies), "TAGS": "a"})
	}
	key := ringKey{kind: w.cfg.Ack}
	if w.cfg.Copies > 1 && !w.chance(4) {
		key.replicas = w.cfg.Copies - 1
		if w.chance(3) { // its own
			key = ringKey{kind: transfer.Kind(w.random.IntN(2)), replicas: 1 + w.random.IntN(w.cfg.Copies-1)}
		}
	}
	if _, err := n.produce(m, key, w.cfg.SyncFlush && !w.chance(4)); err != nil {
		if errors.Is(err, commitlog.ErrSegmentUnavailable) || errors.Is(err, errRingFull) || n.log.Writable() != nil || n.disk.Off() {
			return
		}
		w.fail("%s refuses a put: %v", n.name, err)
	}
}

// body is what a message says: its number, and something of a length.
func (w *World) body(size int) []byte {
	w.bodies++
	b := fmt.Appendf(nil, "%d ", w.bodies)
	for i := range size {
		b = append(b, byte('a'+(w.bodies*7+i)%26))
	}
	return b
}
