package engine

import (
	"sync"
	"sync/atomic"
)

// EventKind names what happened.
type EventKind uint8

// The kinds of events.
const (
	ReplicaJoined    EventKind = iota // a replica made its first valid report
	ReplicaLeft                       // its connection ended; Err says why
	ReplicaInSync                     // its lag fell below MaxLag
	ReplicaOutOfSync                  // its lag reached MaxLag
	StateChanged                      // the node's state; State holds it
	MasterChanged                     // a slave's view of its master; Master holds its state's name
	DiskTrouble                       // damage or a failed fsync; Err says which
	RoleChanged                       // the node's role; Role holds it, Offset the log's end
	LogCut                            // a slave's log was cut to Offset, where the master's history leaves it
	LogDiffers                        // a comparison found that a slave's log is not its master's at Offset
)

var eventNames = names{
	"replica-joined", "replica-left", "replica-in-sync", "replica-out-of-sync",
	"state-changed", "master-changed", "disk-trouble", "role-changed", "log-cut", "log-differs",
}

// String is the kind's name.
func (k EventKind) String() string { return eventNames.of(int(k)) }

// Event is one thing that happened. Fields that do not belong to its kind are
// zero.
type Event struct {
	Kind    EventKind
	Replica string // address
	State   State
	Role    Role
	Master  string
	Offset  int64
	Err     error
	Missed  int // events that this subscriber lost before this one, its channel being full
}

// events hands each event to every subscriber without waiting for any.
type events struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{} // guarded by mu
	over bool                     // guarded by mu: no event will come any more
	some atomic.Bool              // whether subs is not empty: the cheap test before the lock is taken
}

type subscriber struct {
	ch     chan Event
	missed int // guarded by events.mu
}

func (es *events) subscribe(buffer int) (<-chan Event, func()) {
	s := &subscriber{ch: make(chan Event, max(buffer, 1))}
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.over {
		close(s.ch)
		return s.ch, func() {}
	}
	if es.subs == nil {
		es.subs = map[*subscriber]struct{}{}
	}
	es.subs[s] = struct{}{}
	es.some.Store(true)
	return s.ch, sync.OnceFunc(func() { es.remove(s) })
}

func (es *events) remove(s *subscriber) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if _, ok := es.subs[s]; ok {
		delete(es.subs, s)
		close(s.ch)
	}
	es.some.Store(len(es.subs) > 0)
}

func (es *events) send(e Event) {
	if !es.some.Load() {
		return
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	for s := range es.subs {
		e.Missed = s.missed
		select {
		case s.ch <- e:
			s.missed = 0
		default:
			s.missed++
		}
	}
}

func (es *events) close() {
	es.mu.Lock()
	defer es.mu.Unlock()
	for s := range es.subs {
		close(s.ch)
	}
	es.subs, es.over = nil, true
	es.some.Store(false)
}
