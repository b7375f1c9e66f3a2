package remoting

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Backlogged is a Peer that knows how many bytes were handed to it and are not
// with its kernel yet. Pulls of one that has too many wait until it has taken
// them. Any goroutine.
type Backlogged interface{ Backlog() int64 }

// pullPeer is a connection that reads.
type pullPeer struct {
	peer      Peer
	hot, cold lanePeer
	gone      atomic.Bool
	reading   atomic.Int64       // bytes of answers that are being made
	held      map[*pull]struct{} // guarded by holds.mu
	pulls     int                // unanswered, guarded by Pulls.mu
	watched   bool               // OnClose was called; guarded by Pulls.mu
}

// enter counts a pull, or refuses one too many.
func (p *Pulls) enter(q *pull) error {
	peer, err := p.reader(q.r.Peer, q.cost)
	q.peer = peer
	return err
}

// reader finds the state of a connection, and counts a request of a size in
// memory that is not answered yet; leave ends that.
func (p *Pulls) reader(peer Peer, cost int64) (*pullPeer, error) {
	p.mu.Lock()
	s := p.peers[peer]
	if s == nil {
		s = &pullPeer{peer: peer, held: map[*pull]struct{}{}}
		room := func() bool { return s.gone.Load() || p.closed.Load() || p.backlog(s) < p.o.PeerBytes }
		s.hot.room, s.cold.room = room, room
	}
	var err error
	switch {
	case p.closed.Load():
		err = errors.New(shuttingDown)
	case s.pulls >= p.o.PeerPulls:
		err = fmt.Errorf("[OVERLOAD] this connection has %d reads that are not answered", s.pulls)
	case p.pulls >= p.o.Pulls || p.bytes+cost > p.o.PullBytes:
		err = fmt.Errorf("[OVERLOAD] this broker has %d reads that are not answered", p.pulls)
	}
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	p.peers[peer] = s
	s.pulls++
	p.pulls++
	p.bytes += cost
	watched := s.watched
	s.watched = true
	p.mu.Unlock()
	if !watched {
		peer.OnClose(func() { p.left(s) })
	}
	return s, nil
}

// backlog is how many bytes of answers a connection has not taken yet.
func (p *Pulls) backlog(s *pullPeer) int64 {
	n := s.reading.Load()
	if b, ok := s.peer.(Backlogged); ok {
		n += b.Backlog()
	}
	return n
}

// leave ends what reader counted, of n requests that cost so much together.
func (p *Pulls) leave(s *pullPeer, n int, cost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.pulls -= n
	p.pulls -= n
	p.bytes -= cost
}

// left forgets a connection that is over, and whom it had waiting.
func (p *Pulls) left(s *pullPeer) {
	s.gone.Store(true)
	p.mu.Lock()
	delete(p.peers, s.peer)
	p.mu.Unlock()
	p.holds.drop(s) // what it has in a lane is left out when its turn comes
}
