package sim

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// store is where a node's log is on its disk.
const store = "/store"

// Node is a machine: a disk that stays, and while it is up a process with a log
// in the role of a master or of a slave. It mirrors the engine: what stands
// there in engine.go, roles.go and options is here.
type Node struct {
	world    *World
	name     string
	cluster  string // of its store; empty: of none
	segment  int64  // size of its segments; 0: as all have
	plain    bool   // speaks RocketMQ's protocol only
	disk     *commitlog.Twin
	upstream *Node // whom it follows; nil: a master

	up          bool
	life        int           // counts starts and stops: what an earlier life planned is void
	paused      bool          // the process does nothing for a while
	held        []func()      // what came meanwhile
	unreachable bool          // dials fail
	skew        time.Duration // of its wall clock

	process // of this life
	claims  // of all lives
}

// process is what a node has in memory.
type process struct {
	log     *commitlog.Log
	terms   []transfer.Epoch
	quorum  *transfer.Quorum
	rings   *rings
	servers []*server
	backlog []*Socket // connections that a paused process has not accepted
	slave   *slave    // nil on a master

	confirmed int64 // highest confirmed offset of a master

	working  bool          // a step of its workers is planned
	waking   bool          // a look at its senders is planned
	ticking  bool          // a look at late puts is planned
	told     told          // by the log's callbacks, not yet looked at
	awoke    time.Duration // when a pause ended last
	shut     bool          // connections are not taken
	resized  bool          // the log may be shorter at the next look
	history  int           // the one that a master writes
	troubled error
}

// told is what the log's callbacks said: they must not call it.
type told struct{ flushed, dispatched, segment bool }

// start begins a life.
func (n *Node) start() {
	w := n.world
	if n.up {
		return
	}
	n.up = true
	n.life++
	n.process = process{quorum: transfer.NewQuorum(), rings: newRings(w.cfg.RingSize)}
	l, err := commitlog.Open(n.options())
	if err == nil {
		n.log = l
		w.opened(n)
		err = n.takeRole()
	}
	if err != nil {
		w.trace("%s does not start: %v", n.name, err)
		if !n.excused(err) {
			w.fail("%s does not start: %v", n.name, err)
		}
		n.stopHard(true, n.disk.Off())
		w.clock.After(w.upTo(2*time.Second), n.start)
		return
	}
	n.every(n.flushInterval(), func() { n.work(commitlog.IntervalWorker) })
	n.every(time.Second, func() { n.work(commitlog.KeeperWorker) })
	n.stir()
}

// excused tells whether a failure is one that an injected fault explains.
func (n *Node) excused(err error) bool {
	return n.disk.Off() || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) || n.troubled != nil
}

func (n *Node) takeRole() error {
	n.confirmed = n.log.MinOffset()
	n.loadTerms()
	if n.upstream != nil {
		return n.follow(n.upstream)
	}
	if n.log.Writable() != nil {
		return nil
	}
	if err := n.startEpoch(); err != nil {
		return err
	}
	n.world.newHistory(n)
	return nil
}

func (n *Node) flushInterval() time.Duration { return 500 * time.Millisecond }

func (n *Node) options() commitlog.Options {
	w, cfg, life := n.world, &n.world.cfg, n.life
	o := commitlog.Options{
		Dir: store, Disk: n.disk, SegmentBytes: cfg.Segment, QueueFileBytes: 2000, Preallocate: cfg.Preallocate, PopulateBytes: cfg.Segment / 4,
		FlushPages: 1, Limits: commitlog.Limits{BodyBytes: 3000}, Logger: w.logger(n),
		Manual: true, Monotonic: w.monotonic, Now: func() time.Time { return w.monotonic().Add(n.skew) },
		OnFlushed:      func(int64) { n.told.flushed = true; n.stir() },
		OnDispatched:   func(int64) { n.told.dispatched = true; n.stir() },
		OnSegmentReady: func() { n.told.segment = true; n.stir() },
		OnTrouble: func(err error) {
			if n.life == life {
				n.trouble(err)
			}
		},
	}
	if n.segment > 0 {
		o.SegmentBytes = n.segment
	}
	if cfg.SyncFlush {
		o.Flush = commitlog.SyncFlush
	}
	return o
}

// monotonic is the simulated time as a clock shows it.
func (w *World) monotonic() time.Time {
	return time.UnixMilli(1_700_000_000_000).Add(w.clock.Now())
}

func (w *World) logger(n *Node) *slog.Logger {
	if w.cfg.Trace == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(traceWriter{w, n}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey { // the real one
				return slog.Attr{}
			}
			return a
		},
	}))
}

type traceWriter struct {
	w *World
	n *Node
}

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.cfg.Trace(t.w.clock.Now(), t.n.name+" logs "+string(b))
	return len(b), nil
}

// stir plans a step of the log's workers.
func (n *Node) stir() {
	if n.working {
		return
	}
	n.working = true
	n.after(n.world.upTo(2*time.Millisecond), func() {
		n.working = false
		n.work(commitlog.RollerWorker, commitlog.WindowWorker, commitlog.FlushWorker, commitlog.DispatchWorker, commitlog.TroubleWorker)
	})
}

// work has workers of the log do what they have to, in a drawn order, and looks
// at what they told.
func (n *Node) work(workers ...commitlog.Worker) {
	n.world.random.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	for _, worker := range workers {
		n.log.Work(worker)
	}
	if n.log.Writable() != nil {
		n.log.Work(commitlog.TroubleWorker)
	}
	n.hear()
}

// hear does what the engine's callbacks of the log do.
func (n *Node) hear() {
	t := n.told
	n.told = told{}
	if t.flushed {
		n.rings.flush.Complete(n.log.FlushedOffset(), n.world.clock.Now())
	}
	if t.dispatched && n.slave != nil {
		n.grew()
	}
	if s := n.slave; s != nil && s.client != nil {
		if t.flushed || t.dispatched {
			s.client.turn()
		}
		if t.segment && s.client != nil {
			s.client.resume()
		}
	}
}

// trouble is told by the log: it takes no more writes until a restart.
func (n *Node) trouble(err error) {
	w := n.world
	w.trace("%s is read-only: %v", n.name, err)
	n.troubled = err
	n.rings.flush.Close(transfer.Failed)
	if n.slave != nil {
		n.slave.trouble(err)
	}
	w.mayFail(n, err)
	if !w.scripted {
		w.clock.After(time.Second+w.upTo(3*time.Second), n.repair)
	}
}

// stopHard ends a life without a word to the log. Peers are told or have to
// find out. If the power was cut, what was not synced is lost or not.
func (n *Node) stopHard(tellPeers, power bool) {
	n.world.stopped(n)
	n.up, n.paused, n.held = false, false, nil
	n.life++
	n.breakAll(tellPeers)
	n.disk.Fail("sync", nil)
	if power {
		n.disk.Crash()
	} else {
		n.disk.Kill()
	}
	n.log = nil
}

func (n *Node) breakAll(tellPeers bool) {
	if s := n.slave; s != nil && s.client != nil {
		c := s.client
		s.client, s.over = nil, true
		c.socket.Break(false, tellPeers)
		c.socket.over = true
	}
	for _, s := range slices.Clone(n.servers) {
		s.socket.Break(false, tellPeers)
		s.socket.over = true
	}
	for _, b := range n.backlog {
		b.Break(false, tellPeers)
	}
	n.servers, n.backlog = nil, nil
}

// stopClean ends a life as a daemon does that is asked to.
func (n *Node) stopClean() {
	if n.slave != nil {
		n.slave.stop()
	}
	for _, s := range slices.Clone(n.servers) {
		s.end(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "this node stops"})
	}
	n.rings.close()
	err := n.log.Close()
	off := n.disk.Off()
	if err != nil && !n.excused(err) {
		n.world.fail("%s: %v", n.name, err)
	}
	if err == nil && !off && n.log.FlushedOffset() != n.log.EndOffset() && n.troubled == nil {
		n.world.fail("%s stopped and flushed %d of %d", n.name, n.log.FlushedOffset(), n.log.EndOffset())
	}
	n.world.stopped(n)
	n.up, n.paused, n.held = false, false, nil
	n.life++
	n.breakAll(true)
	if off {
		n.disk.Crash()
	}
	n.log = nil
}

// at does something of this life's at a time, or when a pause is over.
func (n *Node) at(at time.Duration, do func()) {
	life := n.life
	n.world.clock.At(at, func() {
		if n.life == life {
			n.do(do)
		}
	})
}

func (n *Node) after(d time.Duration, do func()) { n.at(n.world.clock.Now()+d, do) }

// soon does something a little later, as work off the loop is done.
func (n *Node) soon(do func()) {
	d := time.Duration(0)
	if n.world.chance(2) {
		d = n.world.upTo(50 * time.Millisecond)
	}
	n.after(d, do)
}

func (n *Node) every(d time.Duration, do func()) {
	n.after(d, func() {
		do()
		n.every(d, do)
	})
}

// do runs something now, or when a pause is over.
func (n *Node) do(do func()) {
	if n.paused {
		n.held = append(n.held, do)
		return
	}
	do()
}

// pause keeps the process from doing anything for a while.
func (n *Node) pause(d time.Duration) {
	if n.paused || !n.up {
		return
	}
	n.paused = true
	life := n.life
	n.world.clock.After(d, func() {
		if n.life == life {
			n.resume()
		}
	})
}

func (n *Node) resume() {
	n.paused, n.awoke = false, n.world.clock.Now()
	held, life := n.held, n.life
	n.held, n.backlog = nil, nil
	for _, do := range held {
		if n.life == life {
			do()
		}
	}
}

// span is what the log holds.
func (n *Node) span() transfer.Range {
	return transfer.Range{Min: n.log.MinOffset(), End: n.log.EndOffset()}
}

// served is what replicas may be sent: a slave passes on whole, checked records
// only.
func (n *Node) served() transfer.Range {
	r := n.span()
	if n.slave != nil {
		r.End = n.log.DispatchedOffset()
	}
	return r
}

// grew wakes the servers that have nothing in their way, once for all that
// happens until then.
func (n *Node) grew() {
	if n.waking {
		return
	}
	n.waking = true
	n.after(n.world.upTo(time.Millisecond), func() {
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
