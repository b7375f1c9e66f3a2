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
	faults := []func(){w.breakOne, w.breakOne, w.silenceOne, w.closeOne, w.weather, w.partition, w.stray, w.twice, w.stopOne, w.stopOne}
	for _, f := range []struct {
		on bool
		do func()
	}{
		{w.cfg.Failover, w.promote}, {w.cfg.DiskFaults, w.fillDisk}, {w.cfg.DiskFaults, w.failSync},
		{w.cfg.BitFlips, w.flipBit}, {w.cfg.Pauses, w.pauseOne}, {w.cfg.Jumps, w.jump},
	} {
		if f.on {
			faults = append(faults, f.do)
		}
	}
	faults[w.random.IntN(len(faults))]()
	w.clock.After(w.upTo(2*time.Second), w.storm)
}

// calm ends what faults left in place.
func (w *World) calm() {
	w.trace("calm")
	w.calmed = true
	w.fair()
	for _, n := range w.nodes {
		n.unreachable = false
		w.mend(n)
	}
}

// mend gives a node a good disk, and its process its time.
func (w *World) mend(n *Node) {
	n.disk.SetCapacity(0)
	n.disk.Fail("sync", nil)
	n.disk.PowerOffAfter(-1)
	if n.up && n.paused {
		n.resume()
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
		w.net.PieceMax = 1 + w.random.IntN(200)
		w.clock.After(w.upTo(2*time.Second), w.fair) // many events
	case 3:
		w.net.Room = 100 + w.random.IntN(3000)
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

// any draws a node.
func (w *World) any() *Node { return w.nodes[w.random.IntN(len(w.nodes))] }

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
	n := w.any()
	n.unreachable = true
	w.clock.After(w.upTo(5*time.Second), func() { n.unreachable = false })
}

// stopOne ends a node's process: it is asked to stop, killed, or its power goes,
// now or at a step on the disk that is to come.
func (w *World) stopOne() {
	n := w.any()
	if !n.up {
		return
	}
	power := n != w.primary && n.slave != nil || w.cfg.Fork
	switch k := w.random.IntN(6); {
	case k == 0 && n.mayTurn():
		w.trace("%s is stopped", n.name)
		n.stopClean()
	case k == 1 || !power:
		w.trace("%s is killed", n.name)
		n.stopHard(w.chance(2), n.disk.Off())
	case k < 4:
		w.trace("%s loses its power", n.name)
		n.stopHard(w.chance(2), true)
	default:
		after := w.random.IntN(60)
		w.trace("%s will lose its power after %d operations", n.name, after)
		n.disk.PowerOffAfter(after)
		return
	}
	w.clock.After(w.upTo(w.cfg.DownMax), n.start)
}

// fillDisk leaves a disk little room for a while.
func (w *World) fillDisk() {
	n := w.any()
	used, _, _ := n.disk.Usage(store)
	w.trace("the disk of %s is full", n.name)
	n.disk.SetCapacity(used + int64(w.random.IntN(20000)))
	w.clock.After(w.upTo(10*time.Second), func() { n.disk.SetCapacity(0) })
}

// pauseOne stops a process for seconds: it comes back and knows of nothing.
func (w *World) pauseOne() {
	n, d := w.any(), w.upTo(30*time.Second)
	if w.chance(2) {
		d = w.upTo(2 * time.Second)
	}
	w.trace("%s does nothing for %v", n.name, d)
	n.pause(d)
}

// jump sets a wall clock, by an hour at most.
func (w *World) jump() {
	n := w.any()
	n.skew = w.upTo(2*time.Hour) - time.Hour
	w.trace("the clock of %s is %v off", n.name, n.skew)
}

// stray connects a client to a node that is no replica: it sends what is no
// first report, and perhaps stays.
func (w *World) stray() {
	n := w.any()
	if !n.up {
		return
	}
	a, b := w.net.Connect()
	a.Serve(idle{})
	b.Serve(idle{})
	n.offer(b, nil)
	junk := [][]byte{
		nil,
		[]byte("GET / HTTP/1.1\r\nHost: ha\r\n\r\n"),
		{0x16, 3, 1, 0, 0xa5, 1, 0, 0, 0xa1, 3, 3},
		{0, 0, 0},
		transfer.AppendReport(nil, -1),
		transfer.AppendReport(nil, -2),
		transfer.AppendReport(nil, n.log.EndOffset()+1+int64(w.random.IntN(1<<20))<<12),
		{0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2},
	}
	a.Write(junk[w.random.IntN(len(junk))])
	if w.chance(2) {
		a.Close(ErrClosed)
	}
}

// twice connects a replica once more beside its connection: it says what it
// holds, and reads nothing.
func (w *World) twice() {
	r := w.any()
	if !r.up || r.slave == nil || !r.upstream.up || r.log.EndOffset() == 0 {
		return
	}
	offset := r.slave.acknowledged().End
	if offset == 0 || r.slave.follower.State() != transfer.FollowerTransferring {
		return
	}
	w.trace("%s has a second connection, at %d", r.name, offset)
	a, b := w.net.Connect()
	a.Serve(idle{})
	b.Serve(idle{})
	r.upstream.offer(b, r)
	a.Write(transfer.AppendReport(nil, offset))
}

// idle is a client that reads nothing and does nothing.
type idle struct{}

func (idle) Readable()    {}
func (idle) Writable()    {}
func (idle) Closed(error) {}
