package sim

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/haengine/haengine/transfer"
)

// proof is how far a log was compared with the histories, and with which of
// them it agrees.
type proof struct {
	started bool
	from    int64 // the log's start when the comparison began
	to      int64
	agrees  []bool // by history
}

// crowdMax is how many events may fall on one instant: more than any turn has,
// and far less than a spin.
const crowdMax = 1000

// check compares the world with what must hold; see the package comment.
func (w *World) check() {
	if w.clock.Crowd() > crowdMax {
		w.fail("%d events at one instant", w.clock.Crowd())
	}
	for _, n := range w.nodes {
		w.checkLog(n)
		w.checkQuorum(n)
		for _, s := range n.servers {
			w.checkSession(s)
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

// checkRefusal holds that a replica's first report may be out of place, because
// its master lost something, and a later one never is.
func (w *World) checkRefusal(s *server, err error) {
	var report *transfer.ReportError
	var refusal *transfer.RefusalError
	if errors.As(err, &refusal) && refusal.ByPeer && (len(w.histories) > 1 || refusal.Code == transfer.RefusedBehind) {
		return // it has met what another history wrote, or an upstream that lost its end and gets it again
	}
	if s.peer == nil || errors.As(err, &report) && report.First || errors.Is(err, transfer.ErrUnservable) {
		return
	}
	w.fail("%s refuses a report of %s: %v", s.node.name, s.peer.name, err)
}

// checkEnd holds that no frame of a server of ours is refused, and that logs of
// one history do not differ.
func (w *World) checkEnd(n *Node, err error) {
	var frame *transfer.FrameError
	if errors.As(err, &frame) || errors.Is(err, transfer.ErrDiverged) && len(w.histories) == 1 {
		w.fail("%s: %v", n.name, err)
	}
}

// checkQuorum compares the committed offset for each number of replicas with
// what that many of them ever held.
func (w *World) checkQuorum(n *Node) {
	var held []int64
	for _, r := range w.nodes {
		if r.upstream == n {
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

// checkLog compares what is new in a log with the histories.
func (w *World) checkLog(n *Node) {
	held := n.log.Range()
	p := &n.proof
	if !p.started || p.from != held.Min || held.End < p.to {
		*p = proof{started: true, from: held.Min, to: held.Min}
	}
	if p.to == held.End && len(p.agrees) == len(w.histories) {
		return
	}
	if len(p.agrees) != len(w.histories) {
		p.to = held.Min
		p.agrees = slices.Repeat([]bool{true}, len(w.histories))
	}
	ok := false
	for i := range p.agrees {
		h := w.history(i)
		p.agrees[i] = p.agrees[i] && int64(len(h)) >= held.End && bytes.Equal(h[p.to:held.End], n.log.View(p.to, int(held.End-p.to)))
		ok = ok || p.agrees[i]
	}
	if !ok {
		w.fail("%s: its log [%d, %d) is in no history from %d on", n.name, held.Min, held.End, p.to)
	}
	p.to = held.End
}
