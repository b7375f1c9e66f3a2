package sim

import (
	"slices"
	"time"

	"github.com/haengine/haengine/transfer"
)

// storm makes faults one after another until the storm is over.
func (w *World) storm() {
	if w.clock.Now() >= w.cfg.Storm {
		return
	}
	faults := []func(){w.breakOne, w.breakOne, w.silenceOne, w.closeOne, w.weather, w.partition, w.crashOne, w.stray}
	if w.cfg.Failover {
		faults = append(faults, w.promote)
	}
	faults[w.random.IntN(len(faults))]()
	w.clock.After(w.upTo(2*time.Second), w.storm)
}

// calm ends what faults left in place.
func (w *World) calm() {
	w.trace("calm")
	w.fair()
	for _, n := range w.nodes {
		n.unreachable = false
	}
}

// fair is good weather: a local network.
func (w *World) fair() {
	w.net.DelayMin, w.net.DelayMax = 50*time.Microsecond, 500*time.Microsecond
	w.net.PieceMax, w.net.Room = 1500, 64<<10
}

// weather changes the network's delays, cuts and room.
func (w *World) weather() {
	switch w.random.IntN(4) {
	case 0:
		w.fair()
	case 1:
		w.net.DelayMax = w.net.DelayMin + w.upTo(300*time.Millisecond)
	case 2:
		w.net.PieceMax = 1 + w.random.IntN(20)
	case 3:
		w.net.Room = 1 + w.random.IntN(3000)
	}
}

// one draws a connection that is open on both sides.
func (w *World) one() *Socket {
	w.sockets = slices.DeleteFunc(w.sockets, func(s *Socket) bool { return s.Over() && s.peer.Over() })
	if len(w.sockets) == 0 {
		return nil
	}
	s := w.sockets[w.random.IntN(len(w.sockets))]
	if w.chance(2) {
		return s.peer
	}
	return s
}

func (w *World) breakOne() {
	if s := w.one(); s != nil {
		this, peer := w.chance(2), w.chance(2)
		w.trace("a connection breaks; told %v, %v", this, peer)
		s.Break(this, peer)
	}
}

func (w *World) silenceOne() {
	if s := w.one(); s != nil {
		d := w.upTo(40 * time.Second)
		if w.chance(2) {
			d = w.upTo(time.Second)
		}
		w.trace("one direction is silent for %v", d)
		s.Silence(d)
	}
}

func (w *World) closeOne() {
	if s := w.one(); s != nil {
		w.trace("a connection is closed")
		s.Close(ErrClosed)
	}
}

// partition keeps others from connecting to a node for a while.
func (w *World) partition() {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	n.unreachable = true
	w.clock.After(w.upTo(5*time.Second), func() { n.unreachable = false })
}

func (w *World) crashOne() {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	if !n.up {
		return
	}
	lose := n.upstream != nil || w.cfg.Fork
	tell := w.chance(2)
	w.trace("%s crashes; peers told %v", n.name, tell)
	n.crash(tell, lose)
	w.clock.After(w.upTo(3*time.Second), func() {
		if !n.up { // a change of masters may have been sooner
			n.begin()
		}
	})
}

// promote makes a replica the master, as an operator or a coordinator would who
// has lost sight of the old one: that one may have written on meanwhile, and
// comes back later. All others follow the new one, and so will it.
func (w *World) promote() {
	old, next := w.nodes[0], w.nodes[1+w.random.IntN(len(w.nodes)-1)]
	if !old.up || !next.up || next.log.Range().Empty() {
		return
	}
	if w.chance(2) {
		old.log.Append(w.bytesFor(old.log.Range().End, 1+w.random.IntN(2000)))
	}
	w.fork(next.log.Range().End)
	w.trace("%s is promoted at %d, %s ends at %d", next.name, next.log.Range().End, old.name, old.log.Range().End)
	for _, n := range w.nodes {
		n.crash(w.chance(2), false)
		n.upstream = next
	}
	next.upstream, next.follower = nil, nil
	i := slices.Index(w.nodes, next)
	w.nodes[0], w.nodes[i] = next, old
	next.begin()
	for _, n := range w.nodes[1:] {
		w.clock.After(w.upTo(3*time.Second), func() {
			if !n.up {
				n.begin()
			}
		})
	}
}

// stray connects a client to a node that is no replica: it sends what is no
// first report, and perhaps stays.
func (w *World) stray() {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	if !n.up {
		return
	}
	a, b := w.net.Connect()
	a.Serve(idle{})
	n.accept(b, nil)
	junk := [][]byte{
		nil,
		[]byte("GET / HTTP/1.1\r\nHost: ha\r\n\r\n"),
		{0x16, 3, 1, 0, 0xa5, 1, 0, 0, 0xa1, 3, 3},
		{0, 0, 0},
		transfer.AppendReport(nil, -1),
		transfer.AppendReport(nil, -2),
		transfer.AppendReport(nil, n.log.Range().End+1+int64(w.random.IntN(1<<20))<<12),
		{0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2},
	}
	a.Write(junk[w.random.IntN(len(junk))])
	if w.chance(2) {
		a.Close(ErrClosed)
	}
}

// idle is a client that reads nothing and does nothing.
type idle struct{}

func (idle) Readable()    {}
func (idle) Writable()    {}
func (idle) Closed(error) {}
