package transfer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// Kind says what a replica's word is worth: the bytes are in its memory, or
// they are on its disk. The two are never mixed: one kind's answer does not
// release a waiter of the other.
type Kind uint8

const (
	// Received bytes are in the replica's page cache. It is all that a plain
	// RocketMQ slave tells its master.
	Received Kind = iota
	// Flushed bytes are durable on the replica.
	Flushed

	kinds = 2
)

// String returns the kind as the command line and the status page spell it.
func (k Kind) String() string {
	switch k {
	case Received:
		return "received"
	case Flushed:
		return "flushed"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Limits of one Quorum.
const (
	ReplicasMax = 64  // distinct identities
	MembersMax  = 256 // connections, several of which may share an identity
)

// ErrQuorumFull means a replica could not be counted because the quorum is at
// one of its limits.
var ErrQuorumFull = errors.New("quorum full")

// QuorumFullError says which replica was refused and which limit was met.
type QuorumFullError struct {
	Identity string
	What     string // "replicas" or "connections"
	Limit    int
}

func (e *QuorumFullError) Error() string {
	return fmt.Sprintf("replica %s cannot be counted: already %d %s, the most there may be",
		e.Identity, e.Limit, e.What)
}

// Unwrap returns ErrQuorumFull.
func (e *QuorumFullError) Unwrap() error { return ErrQuorumFull }

// unknown is the acknowledged offset of a member that has not said one.
const unknown = -1

// Quorum turns what each replica says it holds into the offset that enough
// replicas hold. There is no cached answer: each question names its kind and
// count and is answered from the acknowledgements themselves.
//
// A replica is an identity, not a connection: the members (connections) of one
// identity count together, once, with the highest acknowledgement among those
// that live. A member that has acknowledged nothing yet counts nowhere, so a
// connection that only opened changes no answer.
//
// Every method may be called from any goroutine, and none but Join and Leave
// takes a lock or allocates. Source: RocketMQ HAService.push2SlaveMaxOffset
// and inSyncSlavesCount, which count connections.
type Quorum struct {
	// roster is replaced, never edited; readers load it and go on without a lock.
	roster atomic.Pointer[roster]
	mu     sync.Mutex // held by Join and Leave while they replace roster
}

// roster is a frozen picture of who is connected.
type roster struct {
	replicas []replica
	members  int
}

// replica is one identity and its live connections.
type replica struct {
	identity string
	members  []*Member
	unnamed  bool // its identity is only where it connects from
	hidden   bool // and a named one connects from there, too
}

// Member is one connection's place in the quorum. Its two offsets have one
// writer, the loop that owns the connection, and a cache line to themselves.
type Member struct {
	_        cpu.CacheLinePad
	acked    [kinds]atomic.Int64 // by Kind; unknown until said
	_        cpu.CacheLinePad
	identity string // set by Join, as host
	host     string // where it connects from; empty: not known
}

// NewQuorum returns a quorum without members.
func NewQuorum() *Quorum {
	q := &Quorum{}
	q.roster.Store(&roster{})
	return q
}

// Join makes a place for one connection of the replica named identity, from a
// host that may be empty. The place counts nowhere until its first Ack. It
// returns a *QuorumFullError at ReplicasMax identities or MembersMax connections,
// and changes nothing then.
func (q *Quorum) Join(identity, host string) (*Member, error) {
	return q.join(identity, host, false)
}

// JoinUnnamed is Join for a connection that does not say whose it is: the host is
// its identity. It counts nowhere while a named replica is connected from the same
// host, because it may be that one once more.
func (q *Quorum) JoinUnnamed(host string) (*Member, error) { return q.join(host, host, true) }

func (q *Quorum) join(identity, host string, unnamed bool) (*Member, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.roster.Load()
	if old.members >= MembersMax {
		return nil, &QuorumFullError{Identity: identity, What: "connections", Limit: MembersMax}
	}
	m := &Member{identity: identity, host: host}
	for k := range m.acked {
		m.acked[k].Store(unknown)
	}
	next := &roster{replicas: slices.Clone(old.replicas), members: old.members + 1}
	if i := old.find(identity); i >= 0 {
		// Clip makes append copy, so that no reader of the old roster sees
		// its slice grow.
		next.replicas[i].members = append(slices.Clip(next.replicas[i].members), m)
	} else {
		if len(old.replicas) >= ReplicasMax {
			return nil, &QuorumFullError{Identity: identity, What: "replicas", Limit: ReplicasMax}
		}
		next.replicas = append(next.replicas, replica{identity: identity, members: []*Member{m}, unnamed: unnamed})
	}
	next.hide()
	q.roster.Store(next)
	return m, nil
}

// Leave takes a connection out: what it acknowledged no longer counts, and
// committed offsets may fall. A second Leave of the same member does nothing.
func (q *Quorum) Leave(m *Member) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.roster.Load()
	i := old.find(m.identity)
	if i < 0 {
		return
	}
	j := slices.Index(old.replicas[i].members, m)
	if j < 0 {
		return
	}
	next := &roster{replicas: slices.Clone(old.replicas), members: old.members - 1}
	if len(old.replicas[i].members) == 1 {
		next.replicas = slices.Delete(next.replicas, i, i+1)
	} else {
		next.replicas[i].members = slices.Delete(slices.Clone(old.replicas[i].members), j, j+1)
	}
	next.hide()
	q.roster.Store(next)
}

// hide marks the unnamed replicas that may be a named one. The roster is not
// shared yet.
func (s *roster) hide() {
	for i := range s.replicas {
		r := &s.replicas[i]
		r.hidden = r.unnamed && slices.ContainsFunc(s.replicas, func(o replica) bool {
			return !o.unnamed && slices.ContainsFunc(o.members, func(m *Member) bool { return m.host == r.identity })
		})
	}
}

// Hidden tells whether a replica counts nowhere because a named one is connected
// from the same host. Any goroutine.
func (q *Quorum) Hidden(identity string) bool {
	all := q.roster.Load()
	i := all.find(identity)
	return i >= 0 && all.replicas[i].hidden
}

// Committed returns the offset up to which at least replicas distinct replicas
// hold the log in the given kind, or -1 if fewer than that many have said
// anything of the kind. It falls only when a member leaves. For a count below
// one there is nothing to ask the replicas, and the answer is -1 too.
func (q *Quorum) Committed(kind Kind, replicas int) int64 {
	if replicas < 1 || replicas > ReplicasMax {
		return unknown
	}
	var top [ReplicasMax]int64 // the highest acks seen, descending
	n := 0                     // how many of top are set: at most replicas
	all := q.roster.Load().replicas
	for i := range all {
		ack := all[i].acked(kind)
		if ack == unknown || (n == replicas && ack <= top[n-1]) {
			continue
		}
		if n < replicas {
			n++
		}
		j := n - 1
		for ; j > 0 && top[j-1] < ack; j-- {
			top[j] = top[j-1]
		}
		top[j] = ack
	}
	if n < replicas {
		return unknown
	}
	return top[n-1]
}

// InSync returns how many distinct replicas have received all but less than
// maxLag bytes of a log that ends at end. Source: RocketMQ HAService.isSlaveOK
// with haMaxGapNotInSync.
func (q *Quorum) InSync(end, maxLag int64) int {
	n := 0
	all := q.roster.Load().replicas
	for i := range all {
		if ack := all[i].acked(Received); ack != unknown && end-ack < maxLag {
			n++
		}
	}
	return n
}

// Replicas returns how many distinct replicas have acknowledged anything of
// the kind, however little.
func (q *Quorum) Replicas(kind Kind) int {
	n := 0
	all := q.roster.Load().replicas
	for i := range all {
		if all[i].acked(kind) != unknown {
			n++
		}
	}
	return n
}

// CanGive reports whether any connected replica acknowledges in this kind. A
// put that waits for a kind nobody gives would only wait for its deadline.
func (q *Quorum) CanGive(kind Kind) bool { return q.Replicas(kind) > 0 }

// Ack records what the replica says it holds on this connection: one past its
// last byte received, and one past its last byte made durable, or -1 where it
// does not say. An offset below an earlier one of this connection is ignored
// (Session refuses such a report before it gets here), and flushed counts no
// further than received. Loop-confined.
func (m *Member) Ack(received, flushed int64) {
	raiseOwn(&m.acked[Received], received)
	raiseOwn(&m.acked[Flushed], min(flushed, m.acked[Received].Load()))
}

// Acked returns what this connection acknowledged in the kind, or -1. Any
// goroutine.
func (m *Member) Acked(kind Kind) int64 { return m.acked[kind].Load() }

// Identity returns the replica this connection belongs to.
func (m *Member) Identity() string { return m.identity }

// raiseOwn lifts a cell that only the caller writes. It does not store an
// equal value: a heartbeat must not take the cache line from its readers.
func raiseOwn(cell *atomic.Int64, to int64) {
	if to > cell.Load() {
		cell.Store(to)
	}
}

// acked returns the replica's highest live acknowledgement in the kind.
func (r *replica) acked(kind Kind) int64 {
	ack := int64(unknown)
	if r.hidden {
		return ack
	}
	for _, m := range r.members {
		ack = max(ack, m.acked[kind].Load())
	}
	return ack
}

// find returns the index of the replica named identity, or -1.
func (s *roster) find(identity string) int {
	return slices.IndexFunc(s.replicas, func(r replica) bool { return r.identity == identity })
}
