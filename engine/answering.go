package engine

import (
	"errors"

	"github.com/haengine/haengine/transfer"
)

// answer computes the checksums that a peer asks for, off the loop: the bytes
// may have to be read from the disk. One question of all peers at a time, so that
// those who ask take no more of the disk than one reader does.
func (r *replica) answer(q transfer.Question) {
	if r.proving {
		return
	}
	r.proving = true
	r.e.background.Add(1)
	go func() {
		defer r.e.background.Done()
		a := r.e.sums(q, r.left.Load)
		r.host.loop.Post(func() {
			r.proving = false
			if r.over {
				return // also when the log is cut meanwhile: all connections end first
			}
			now := r.host.loop.Now()
			r.session.AnswerQuestion(a, now)
			r.send(now)
		})
	}()
}

// sums answers a question that is within the limits, unless whoever asked it is
// gone when its turn comes.
func (e *Engine) sums(q transfer.Question, gone func() bool) transfer.Answer {
	e.answering.Lock()
	defer e.answering.Unlock()
	a := transfer.Answer{Log: e.served(), Sums: make([]uint32, 0, q.Sums())}
	for n := range int(q.Sums()) {
		if e.closed.Load() || gone() {
			return transfer.Answer{Log: a.Log, Code: transfer.AnswerUnread, Text: ErrClosed.Error()}
		}
		sum, err := e.log.Checksum(q.PieceAt(n))
		if err != nil {
			return transfer.Answer{Log: e.served(), Code: transfer.AnswerUnread, Text: err.Error()}
		}
		a.Sums = append(a.Sums, sum)
	}
	return a
}

// farewell logs the end of a connection that was never a replica.
func (r *replica) farewell(err error) {
	const text = "HA connection ended before a valid first report"
	peer, reason := r.address.String(), sentence(err)
	if kind := unproven(r.session, err); kind != "" {
		r.e.opts.Metrics.Unproven(kind)
		r.e.steady.warn("peer-unproven "+kind, "HA peer refused: no proof of a shared secret", "peer", peer, "kind", kind, "reason", reason)
		return
	}
	if r.session.Asks() && !errors.Is(err, transfer.ErrRefused) {
		r.e.opts.Logger.Debug("a peer that compared logs is gone", "peer", peer, "reason", reason)
		return
	}
	r.e.steady.warn("peer-refused", text, "peer", peer, "reason", reason)
}
