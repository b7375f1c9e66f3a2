package sim

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"syscall"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// claims is what a node said and showed of its log in all its lives.
type claims struct {
	proof   proof
	said    [2]claim // by transfer.Kind: the highest offset, since the last cut
	highest int64    // the furthest end its log ever had
	durable int64    // what it showed to be on its disk
	noted   [2]int64 // end and flushed offset, as in the sum of the run
	tainted bool     // a byte on its disk was changed
}

// claim is an offset that a replica acknowledged, and in which life.
type claim struct {
	offset int64
	life   int
}

// reported notes what a replica is about to say.
func (k *claims) reported(c *client, offset int64) {
	n, f := c.node, c.slave.follower
	end := n.log.EndOffset()
	if offset > end && (end != 0 || offset != 1 && !f.Extended()) {
		n.world.fail("%s reports %d, its log ends at %d", n.name, offset, end)
	}
	k.highest = max(k.highest, end) // its power may be gone before anybody looks
	if offset < 0 || end == 0 {
		return
	}
	k.say(n, transfer.Received, offset)
	if f.Extended() {
		k.say(n, transfer.Flushed, min(n.durableNow(), offset))
	}
	if n.world.cfg.Ack == transfer.Flushed && offset > max(n.log.FlushedOffset(), 1) && f.State() == transfer.FollowerTransferring && !f.Extended() {
		n.world.fail("%s acknowledges %d, and %d is on its disk", n.name, offset, n.log.FlushedOffset())
	}
}

// answered notes what a replica's hello says.
func (k *claims) answered(c *client, held transfer.Range) {
	k.say(c.node, transfer.Received, held.End)
}

func (k *claims) say(n *Node, kind transfer.Kind, offset int64) {
	if offset < k.said[kind].offset {
		return
	}
	grown := offset > k.said[kind].offset
	k.said[kind] = claim{offset, n.life}
	if kind == transfer.Flushed && grown {
		k.durable = max(k.durable, offset)
		n.world.checkSound(n, offset)
		if n.world.chance(40) {
			n.world.checkSurvives(n, offset)
		}
	}
}

// checkSound holds that what came damaged is not acknowledged as flushed.
func (w *World) checkSound(n *Node, to int64) {
	i := slices.Index(n.proof.agrees, true)
	for at := range w.flips {
		if !n.tainted && i >= 0 && at >= n.log.MinOffset() && at < to && n.slice(at, at+1)[0] != w.histories[i].bytes[at] {
			w.fail("%s acknowledges %d as flushed, and the byte at %d came damaged", n.name, to, at)
		}
	}
}

// cut notes that the log was cut.
func (k *claims) cut(to int64) {
	for i := range k.said {
		k.said[i].offset = min(k.said[i].offset, to)
	}
	k.durable = min(k.durable, to)
}

// crowdMax is how many events may fall on one instant: more than any turn has,
// and far less than a spin.
const crowdMax = 1000

// check compares the world with what must hold; see the package comment.
func (w *World) check() {
	if w.clock.Crowd() > crowdMax {
		w.fail("%d events at one instant", w.clock.Crowd())
	}
	w.checkLent(1)
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if n.disk.Off() {
			w.trace("%s: the power went", n.name)
			if n.slave == nil && len(w.histories) > 0 {
				w.extend(n) // what it published at this very moment may be on its disk
			}
			n.stopHard(w.chance(2), true)
			w.clock.After(w.upTo(w.cfg.DownMax), n.start)
			continue
		}
		w.checkNode(n)
	}
	w.checkPuts()
	w.note()
}

func (w *World) checkNode(n *Node) {
	if n.slave == nil && len(w.histories) > 0 && n.log.Writable() == nil {
		w.extend(n)
	}
	if !w.checkLog(n) {
		return
	}
	end, flushed := n.log.EndOffset(), n.log.FlushedOffset()
	n.highest = max(n.highest, end)
	if low := n.log.MinOffset(); flushed > end || flushed < low && end > low {
		w.fail("%s: flushed %d of a log from %d to %d", n.name, flushed, low, end)
	}
	if n.slave != nil {
		flushed = n.durableNow()
	}
	n.durable = max(n.durable, flushed)
	w.checkEpochs(n)
	w.checkQuorum(n)
	for _, s := range n.servers {
		w.checkSession(s)
	}
}

// checkEpochs holds that numbers and starts both grow, and none lies beyond
// the end.
func (w *World) checkEpochs(n *Node) {
	last := commitlog.Epoch{Number: -1, Start: -1}
	for _, e := range n.log.Epochs() {
		if e.Number <= last.Number || e.Start <= last.Start || e.Start > n.log.EndOffset() {
			w.fail("%s: epoch %d from %d after epoch %d from %d in a log to %d", n.name, e.Number, e.Start, last.Number, last.Start, n.log.EndOffset())
		}
		last = e
	}
}

// checkTerms holds at the end that a replica knows no epoch with a byte that the
// master has not. It may lack some: RocketMQ's protocol does not carry them, so
// that where it is spoken only nobody's are another's.
func (w *World) checkTerms(n *Node) {
	if !w.cfg.Extended || w.cfg.PlainMaster {
		return
	}
	for _, e := range n.log.Epochs() {
		if e.Start < n.log.EndOffset() && !slices.Contains(w.primary.log.Epochs(), e) {
			w.fail("%s has epoch %d from offset %d, the master has %v", n.name, e.Number, e.Start, w.primary.log.Epochs())
		}
	}
}

func (w *World) checkSession(s *server) {
	acked, sent := s.session.Acked(), s.session.SentOffset()
	switch {
	case s.peer == nil:
		if s.session.Started() || acked != 0 {
			w.fail("a stray client is a replica of %s and acked %d", s.node.name, acked)
		}
	case acked > sent:
		w.fail("%s acked %d to %s, which sent up to %d", s.peer.name, acked, s.node.name, sent)
	case acked > max(s.peer.highest, 1):
		w.fail("%s acked %d to %s and never held more than %d", s.peer.name, acked, s.node.name, s.peer.highest)
	case sent > max(s.node.highest, 1):
		w.fail("%s sent %s up to %d and never held more than %d", s.node.name, s.peer.name, sent, s.node.highest)
	}
}

// checkQuorum compares the committed offset for each number of replicas with
// what that many of them ever held.
func (w *World) checkQuorum(n *Node) {
	if len(n.servers) == 0 {
		return
	}
	var held []int64
	for _, r := range w.nodes {
		if r != n {
			held = append(held, max(r.highest, 1))
		}
	}
	slices.SortFunc(held, func(a, b int64) int { return cmp.Compare(b, a) })
	for i, most := range held {
		if got := n.quorum.Committed(transfer.Received, i+1); got > most {
			w.fail("%s: committed %d on %d replicas, they held %d", n.name, got, i+1, most)
		}
	}
}

// checkRefusal holds that a replica's first report may be out of place, because
// its master lost something, and a later one never is.
func (w *World) checkRefusal(s *server, err error) {
	var report *transfer.ReportError
	var refusal *transfer.RefusalError
	if errors.As(err, &refusal) && refusal.ByPeer && (len(w.histories) > 1 || len(w.flips) > 0 || refusal.Code != transfer.RefusedDiverged && refusal.Code != transfer.RefusedProtocol) {
		return // it has met what another history wrote, or an upstream that lost its end and gets it again
	}
	if s.peer == nil || errors.As(err, &report) && report.First || errors.Is(err, transfer.ErrUnservable) {
		return
	}
	if errors.As(err, &refusal) && slices.Contains([]transfer.RefusalCode{transfer.RefusedRange, transfer.RefusedCluster, transfer.RefusedSegments}, refusal.Code) {
		return // an upstream that lost its end, or a node that a script has set up otherwise
	}
	w.fail("%s refuses a report of %s: %v", s.node.name, s.peer.name, err)
}

// checkUnproved holds that a replica whose log is ours is not sent away.
func (w *World) checkUnproved(s *server, err error) {
	if s.peer == nil || !s.peer.up || len(w.flips) > 0 || !errors.Is(err, transfer.ErrDiverged) {
		return
	}
	if w.prefix(s.peer, s.node) {
		w.fail("%s takes the log of %s for another one, and it is the same: %v", s.node.name, s.peer.name, err)
	}
}

// checkUnread holds that what a session was told to send can be read.
func (w *World) checkUnread(s *server, err error) {
	if len(w.flips) == 0 {
		w.fail("%s: %v", s.node.name, err)
	}
}

// checkEnd holds that no frame of a server of ours is refused, and that logs of
// one history do not differ.
func (w *World) checkEnd(n *Node, err error) {
	var frame *transfer.FrameError
	if errors.As(err, &frame) || errors.Is(err, transfer.ErrDiverged) && len(w.histories) == 1 && len(w.flips) == 0 {
		w.fail("%s: %v", n.name, err)
	}
}

// mayFail holds that a log fails for a reason.
func (w *World) mayFail(n *Node, err error) {
	var damage *commitlog.CorruptError
	switch {
	case n.disk.Off(), errors.Is(err, syscall.EIO) && w.cfg.DiskFaults, errors.Is(err, syscall.ENOSPC) && w.cfg.DiskFaults:
	case errors.As(err, &damage) && len(w.flips) > 0:
	default:
		w.fail("%s fails: %v", n.name, err)
	}
}

// opened is told that a log was opened again: what was shown to be on the disk
// is there, whatever happened.
func (w *World) opened(n *Node) {
	want := w.border(n, n.durable)
	n.proof = proof{}
	n.resized = true
	info := n.log.Info()
	w.trace("%s opens: %d to %d, clean %v, epochs %v", n.name, n.log.MinOffset(), n.log.EndOffset(), info.CleanShutdown, n.log.Epochs())
	if info.Damage != nil {
		if !n.tainted && len(w.flips) == 0 {
			w.fail("%s finds damage: %v", n.name, info.Damage)
		}
		return
	}
	if n.tainted && n.log.EndOffset() < n.durable {
		// What its disk changed stands above the note of what was on it: the log
		// ends at the first bad byte, and it comes again.
		n.claims.cut(n.log.EndOffset())
		want = n.durable
	}
	if n.log.EndOffset() < want {
		w.fail("%s: its log ends at %d, and %d was on its disk", n.name, n.log.EndOffset(), n.durable)
	}
	if len(w.histories) > 0 {
		w.checkLog(n)
	}
}

// stopped is told that a process is about to end: what it knows of its puts
// goes with it.
func (w *World) stopped(n *Node) {
	w.checkPuts()
	w.pending = slices.DeleteFunc(w.pending, func(p *put) bool { return p.node == n })
}

// checkSurvives cuts the power of a copy of a node's disk: what was said to be
// on it must be there.
func (w *World) checkSurvives(n *Node, to int64) {
	if n.disk.Off() || n.tainted {
		return
	}
	disk := n.disk.Clone(w.random.Uint64())
	disk.Crash()
	l := w.look(disk)
	if l == nil {
		return
	}
	to = w.border(n, to)
	if l.EndOffset() < to {
		w.fail("%s: after a power cut now its log ends at %d, %d was on its disk", n.name, l.EndOffset(), to)
		return
	}
	low := max(l.MinOffset(), n.log.MinOffset())
	b := make([]byte, to-low)
	if got, _ := l.ReadAt(b, low); got < len(b) || !w.same(n.slice(low, to), b, low) {
		w.fail("%s: after a power cut now the bytes below %d are others", n.name, to)
	}
}

// look opens the log of a copied disk.
func (w *World) look(disk *commitlog.Twin) *commitlog.Log {
	o := (&Node{world: w, disk: disk}).options()
	o.OnFlushed, o.OnDispatched, o.OnSegmentReady, o.OnTrouble = nil, nil, nil, nil
	l, err := commitlog.Open(o)
	if err != nil {
		w.fail("a copy of a disk does not open: %v", err)
		return nil
	}
	return l
}

// checkCut holds that a cut is durable, and that what was cut is kept.
func (w *World) checkCut(n *Node, before []byte, to, known int64, aside string) {
	kept, err := n.disk.ReadFile(aside)
	if cut := before[to-n.log.MinOffset():]; err != nil || !bytes.Equal(kept, cut) {
		w.fail("%s: %d bytes were cut at %d, %d are kept in %q (%v)", n.name, len(cut), to, len(kept), aside, err)
	}
	if len(w.histories) == 1 && len(w.flips) == 0 {
		w.fail("%s cuts its log to %d, and there is one history", n.name, to)
	}
	if to < known {
		w.fail("%s cuts its log to %d, and knows puts up to %d to be complete", n.name, to, known)
	}
	if n.disk.Off() || !w.chance(2) {
		return
	}
	disk := n.disk.Clone(w.random.Uint64())
	disk.Crash()
	if l := w.look(disk); l != nil && l.EndOffset() > to {
		w.fail("%s: cut to %d, and after a power cut its log ends at %d", n.name, to, l.EndOffset())
	}
}

// loan is memory of a log that was given to a socket.
type loan struct {
	node   *Node
	offset int64
	memory []byte
	bytes  []byte
}

// lend notes bytes that the kernel may still read after they were sent.
func (w *World) lend(n *Node, offset int64, b []byte) {
	if len(w.lent) >= 64 {
		w.lent = w.lent[1:]
	}
	w.lent = append(w.lent, loan{n, offset, b, bytes.Clone(b)})
}

// checkLent holds that published bytes are never changed in place.
func (w *World) checkLent(count int) {
	for range min(count, len(w.lent)) {
		w.looked = (w.looked + 1) % len(w.lent)
		if l := &w.lent[w.looked]; !bytes.Equal(l.memory, l.bytes) {
			w.fail("%s: bytes that were sent from offset %d have changed in place", l.node.name, l.offset)
		}
	}
}
