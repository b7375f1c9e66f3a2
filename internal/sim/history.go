package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/haengine/haengine/commitlog"
)

// history is what a master's log once was, from offset 0 on, record by record.
// Only its owner goes on with it: every other master begins one of its own.
type history struct {
	owner  *Node
	bytes  []byte
	parsed int64            // records below were looked at
	ends   []int64          // of records, ascending
	next   map[string]int64 // by queue: the next queue offset
	stored int64            // store timestamp of the last record
}

// proof is how far a log was compared with the histories, and with which of
// them it agrees.
type proof struct {
	started bool
	from    int64 // the log's start when the comparison began
	to      int64
	agrees  []bool // by history
}

// bytes reads a node's whole log.
func (n *Node) bytes() []byte { return n.slice(n.log.MinOffset(), n.log.EndOffset()) }

func (n *Node) slice(from, to int64) []byte {
	b := make([]byte, to-from)
	if got, err := n.log.ReadAt(b, from); int64(got) < to-from {
		n.world.fail("%s: bytes %d to %d of its log cannot be read: %v", n.name, from, to, err)
	}
	return b
}

// newHistory is told that a node is a master from now on.
func (w *World) newHistory(n *Node) {
	end := n.log.EndOffset()
	for i, h := range w.histories {
		if h.owner == n && int64(len(h.bytes)) == end && w.checkLog(n) && n.proof.agrees[i] {
			n.history = i
			w.chosen(n)
			return
		}
	}
	h := &history{owner: n}
	if end > 0 && w.checkLog(n) {
		i := slices.Index(n.proof.agrees, true)
		h.bytes = bytes.Clone(w.histories[i].bytes[:end])
	}
	w.parse(h)
	n.history = len(w.histories)
	w.histories = append(w.histories, h)
	w.trace("history %d begins at %d with %s", n.history, end, n.name)
	w.chosen(n)
}

// chosen lets go of puts that the choice of this master has lost: it did not
// hold them, or had them in memory only.
func (w *World) chosen(n *Node) {
	if n != w.primary {
		return
	}
	h := w.histories[n.history]
	for _, p := range w.done {
		p.promised = p.promised && w.holds(h, p)
	}
	for _, p := range w.pending {
		p.promised = p.promised && w.holds(h, p)
	}
}

// holds tells whether a history has a put's bytes.
func (w *World) holds(h *history, p *put) bool {
	was := w.histories[p.history]
	if was == h {
		return true
	}
	return int64(len(h.bytes)) >= p.end && int64(len(was.bytes)) >= p.end && bytes.Equal(h.bytes[p.at:p.end], was.bytes[p.at:p.end])
}

// extend takes over what a master has appended.
func (w *World) extend(n *Node) {
	h := w.histories[n.history]
	if end := n.log.EndOffset(); end > int64(len(h.bytes)) {
		h.bytes = append(h.bytes, n.slice(int64(len(h.bytes)), end)...)
		w.parse(h)
	}
}

// parse looks at the records that are new in a history: each is whole and says
// where it stands, queue offsets go up by one, and store times do not go back.
func (w *World) parse(h *history) {
	if h.next == nil {
		h.next = map[string]int64{}
	}
	segment := w.segment()
	for h.parsed < int64(len(h.bytes)) {
		at, rest := h.parsed, h.bytes[h.parsed:]
		_, err := commitlog.CheckRecord(rest, at, true)
		if errors.Is(err, commitlog.ErrFiller) {
			h.parsed = at - at%segment + segment
			continue
		}
		if err != nil {
			w.fail("a record at offset %d of a master: %v", at, err)
			return
		}
		r, err := commitlog.DecodeRecord(rest[:binary.BigEndian.Uint32(rest)])
		if err != nil {
			w.fail("a record at offset %d of a master: %v", at, err)
			return
		}
		queue := fmt.Sprintf("%s/%d", r.Topic, r.QueueID)
		if r.QueueOffset != h.next[queue] {
			w.fail("the record at offset %d is %d in queue %s, want %d", at, r.QueueOffset, queue, h.next[queue])
		}
		if r.StoreTimestamp < h.stored {
			w.fail("the record at offset %d was stored at %d, the one before it at %d", at, r.StoreTimestamp, h.stored)
		}
		h.next[queue]++
		h.stored = r.StoreTimestamp
		h.parsed += int64(r.Size)
		h.ends = append(h.ends, h.parsed)
	}
}

// checkLog compares what is new in a log with the histories; true: it is part
// of one.
func (w *World) checkLog(n *Node) bool {
	held := n.span()
	p := &n.proof
	if held.End < p.to && !n.resized {
		w.fail("%s: its log ended at %d and ends at %d without a cut", n.name, p.to, held.End)
	}
	if !p.started || p.from != held.Min || held.End < p.to {
		*p = proof{started: true, from: held.Min, to: held.Min}
	}
	n.resized = false
	if p.to == held.End && len(p.agrees) == len(w.histories) {
		return slices.Contains(p.agrees, true) || held.End == held.Min
	}
	if len(p.agrees) != len(w.histories) {
		p.to = held.Min
		p.agrees = slices.Repeat([]bool{true}, len(w.histories))
	}
	news := n.slice(p.to, held.End)
	ok := held.End == held.Min
	for i, h := range w.histories {
		p.agrees[i] = p.agrees[i] && int64(len(h.bytes)) >= held.End && w.same(h.bytes[p.to:held.End], news, p.to)
		ok = ok || p.agrees[i]
	}
	if !ok && w.fooled(n) {
		w.trace("%s was fooled: it had few bytes to compare", n.name)
		w.renew(n)
		return false
	}
	if !ok {
		w.fail("%s: its log [%d, %d) is in no history from %d on%s", n.name, held.Min, held.End, p.to, w.difference(n))
	}
	p.to = held.End
	return ok
}

// fooled tells whether RocketMQ's protocol let a replica mix two histories: it
// compares from the start of the log's last segment at most, and there stood so
// little that two masters may well have written the same: a record's size and
// magic, and not its checksum.
func (w *World) fooled(n *Node) bool {
	return n.slave != nil && n.slave.client != nil && n.slave.client.began && n.slave.client.overlap < 12 && len(w.histories) > 1
}

// difference says where a log leaves each history.
func (w *World) difference(n *Node) string {
	text, own := "", n.bytes()
	for i, h := range w.histories {
		at := 0
		for low := n.log.MinOffset(); at < len(own) && low+int64(at) < int64(len(h.bytes)) && h.bytes[low+int64(at)] == own[at]; {
			at++
		}
		text += fmt.Sprintf("; it leaves history %d, which ends at %d, at %d", i, len(h.bytes), n.log.MinOffset()+int64(at))
	}
	return text
}

// same compares bytes at an offset, but for those that a bad disk changed.
func (w *World) same(want, got []byte, at int64) bool {
	if bytes.Equal(want, got) {
		return true
	}
	if len(w.flips) == 0 || len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !w.flips[at+int64(i)] {
			return false
		}
	}
	return true
}

// border is where the last record that is whole ends below an offset of a node's
// log, by the histories that it was last found to be of: a replica's bytes end
// anywhere, and its log after a restart where a record does.
func (w *World) border(n *Node, to int64) int64 {
	for i, of := range n.proof.agrees {
		if h := w.histories[i]; of && h.parsed >= to {
			k, found := slices.BinarySearch(h.ends, to)
			if found {
				return to
			}
			if k > 0 {
				return h.ends[k-1]
			}
			return 0
		}
	}
	return to
}

// prefix tells whether a log is the beginning of another.
func (w *World) prefix(n, of *Node) bool {
	from, end := max(n.log.MinOffset(), of.log.MinOffset()), n.log.EndOffset()
	if from > end || end > of.log.EndOffset() {
		return from > end && n.log.EndOffset() == n.log.MinOffset()
	}
	return bytes.Equal(n.slice(from, end), of.slice(from, end))
}
