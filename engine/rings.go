package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// Expiry looks at the rings this often while puts wait. A deadline is met this
// late at most; an idle node is not woken at all.
const expiryTick = 20 * time.Millisecond

// Ticks without a waiter after which the expiry timer stops.
const expiryIdleTicks = 50

// ringKey is what a replica ring waits for.
type ringKey struct {
	kind     transfer.Kind
	replicas int
}

type replicaRing struct {
	ringKey
	ring *transfer.Ring
}

// rings holds one ring of waiters for the local flush and one for each (kind,
// count) of replica wait in use, so that none waits behind another's condition
// (RocketMQ GroupCommitService and GroupTransferService).
//
// Any goroutine; the list is replaced, never edited.
type rings struct {
	size    int
	flush   *transfer.Ring
	replica atomic.Pointer[[]replicaRing]
	mu      sync.Mutex // serialises growth of the list
	closed  bool       // guarded by mu: a ring made from now on is closed
}

func newRings(size int) *rings {
	r := &rings{size: size, flush: transfer.NewRing(size)}
	r.replica.Store(new([]replicaRing))
	return r
}

// replicaRingsMax bounds the memory of the rings: one stays once it is made.
const replicaRingsMax = 16

// forReplicas finds the ring for a wait, and makes it on first use. ErrRingFull:
// replicaRingsMax others are in use.
func (r *rings) forReplicas(kind transfer.Kind, replicas int) (*transfer.Ring, error) {
	key := ringKey{kind, replicas}
	if ring := find(*r.replica.Load(), key); ring != nil {
		return ring, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := *r.replica.Load()
	if ring := find(list, key); ring != nil {
		return ring, nil
	}
	if len(list) >= replicaRingsMax {
		return nil, fmt.Errorf("%w: %d settings of in-sync replicas were used since the start, restart to use another", ErrRingFull, len(list))
	}
	ring := transfer.NewRing(r.size)
	if r.closed {
		ring.Close(transfer.Expired)
	}
	grown := append(append([]replicaRing(nil), list...), replicaRing{key, ring})
	r.replica.Store(&grown)
	return ring, nil
}

func find(list []replicaRing, key ringKey) *transfer.Ring {
	for i := range list {
		if list[i].ringKey == key {
			return list[i].ring
		}
	}
	return nil
}

// replicated ends the replica waits that the quorum covers, and those that are
// late.
func (r *rings) replicated(q *transfer.Quorum, now time.Duration) {
	for _, rr := range *r.replica.Load() {
		rr.ring.Complete(q.Committed(rr.kind, rr.replicas), now)
	}
}

// flushed ends the flush waits up to offset, and those that are late.
func (r *rings) flushed(offset int64, now time.Duration) {
	r.flush.Complete(offset, now)
}

func (r *rings) waiting() int {
	n := r.flush.Len()
	for _, rr := range *r.replica.Load() {
		n += rr.ring.Len()
	}
	return n
}

// replicaAwaited tells whether a put waits for a replica.
func (r *rings) replicaAwaited() bool {
	for _, rr := range *r.replica.Load() {
		if rr.ring.Len() > 0 {
			return true
		}
	}
	return false
}

// flushedAwaited tells whether a put waits for bytes to be durable on replicas.
func (r *rings) flushedAwaited() bool {
	for _, rr := range *r.replica.Load() {
		if rr.kind == transfer.Flushed && rr.ring.Len() > 0 {
			return true
		}
	}
	return false
}

// expireReplicaWaits ends all waits for replicas now, as if they were late.
func (r *rings) expireReplicaWaits() {
	for _, rr := range *r.replica.Load() {
		rr.ring.Complete(-1, math.MaxInt64)
	}
}

// stop ends all waits now: what they wait for is not this node's to say any
// more.
func (r *rings) stop() {
	r.flush.Drain(transfer.Stopped)
	for _, rr := range *r.replica.Load() {
		rr.ring.Drain(transfer.Stopped)
	}
}

// restart lets offsets begin anew, after the log was cut. Nobody puts, and
// nobody waits.
func (r *rings) restart() {
	r.flush.Restart()
	for _, rr := range *r.replica.Load() {
		rr.ring.Restart()
	}
}

// close ends all waits as expired, and those that still come.
func (r *rings) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.flush.Close(transfer.Expired)
	for _, rr := range *r.replica.Load() {
		rr.ring.Close(transfer.Expired)
	}
}

// expiry ends waits at their deadline, whether or not anything else happens
// (RocketMQ's GroupTransferService looks every 10 ms; FlushDiskWatcher every
// millisecond). It ticks on a loop only while puts wait.
type expiry struct {
	ticking atomic.Bool // set by the put that finds it unset, cleared by the loop
	waker   *reactor.Waker
	timer   *reactor.Timer // loop-confined, as idle
	idle    int
	loop    *reactor.Loop
	waiting func() int
	tick    func(now time.Duration)
}

func newExpiry(loop *reactor.Loop, waiting func() int, tick func(now time.Duration)) *expiry {
	x := &expiry{loop: loop, waiting: waiting, tick: tick}
	x.timer = loop.NewTimer(x.run)
	x.waker = loop.NewWaker(func() { x.timer.ResetAt(loop.Now() + expiryTick) })
	return x
}

// arm makes sure that the timer ticks. Called after a waiter was pushed.
func (x *expiry) arm() {
	if !x.ticking.Load() && x.ticking.CompareAndSwap(false, true) {
		x.waker.Wake()
	}
}

func (x *expiry) run() {
	x.tick(x.loop.Now())
	if x.waiting() > 0 {
		x.idle = 0
	} else if x.idle++; x.idle >= expiryIdleTicks {
		x.idle = 0
		x.ticking.Store(false)
		// A put that pushed before the store above saw ticking set and did
		// not wake us; it is seen here.
		if x.waiting() == 0 || !x.ticking.CompareAndSwap(false, true) {
			return
		}
	}
	x.timer.ResetAt(x.loop.Now() + expiryTick)
}
