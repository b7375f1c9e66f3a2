package remoting

import (
	"strconv"
	"time"

	"github.com/haengine/haengine/engine"
)

// run reads what a pull asks for, on a goroutine of its lane, and answers it or
// has it held.
func (q *pull) run() {
	p := q.owner
	if q.peer.gone.Load() || p.closed.Load() {
		q.stop()
		return
	}
	q.peer.reading.Add(int64(q.bytes))
	defer q.peer.reading.Add(-int64(q.bytes))
	ask := engine.Pull{
		Queue: engine.QueueID{Topic: q.topic, ID: q.queue}, From: q.next, Tags: q.tags,
		Messages: q.most, Bytes: q.bytes, ColdMessages: p.o.ColdMessages, ColdBytes: p.o.ColdBytes,
		Cold: p.e.EndOffset() - p.o.HotBytes, HotOnly: !q.cold,
	}
	body, found, err := p.e.Pull(nil, &ask, p.o.Visible)
	if err != nil {
		p.o.Logger.Warn("a pull cannot be served", "topic", q.topic, "queue", q.queue, "queue_offset", q.next, "error", err)
		p.leave(q.peer, 1, q.cost)
		q.r.ReplyCode(SystemError, "%v", err)
		return
	}
	body = q.pause(body, &found)
	q.last = found
	passed := found.Status == engine.PullNoMatch && q.again // it goes on waiting for one that it wants
	if (passed || found.Status == engine.PullOverflowOne) && found.Next > q.next {
		q.next = found.Next
	}
	switch {
	case found.Status == engine.PullCold:
		q.cold = true
		p.cold.add(&q.peer.cold, q)
	case (passed || q.mayWait()) && time.Now().Before(q.deadline):
		p.holds.add(q)
	default:
		q.answer(body)
	}
}

// stop ends a pull of a broker that shuts down, or of a connection that is over.
func (q *pull) stop() {
	q.owner.leave(q.peer, 1, q.cost)
	q.r.ReplyCode(SystemBusy, shuttingDown)
}

// mayWait tells whether a pull that found nothing is held. On a slave that is
// also one whose offset is outside of what the slave has: sent back at once it
// would come again at once, and the slave gets there, or the master comes back.
func (q *pull) mayWait() bool {
	if !q.wait {
		return false
	}
	code := pullCode(q.last.Status, q.from)
	if code == PullOffsetMoved && q.onSlave() {
		q.parked = q.last.Status == engine.PullTooSmall
		return true
	}
	return code == PullNotFound
}

func (q *pull) onSlave() bool { return q.owner.e.Role() == engine.Slave }

// pullCode gives the response code of a status (DefaultPullMessageResultHandler).
func pullCode(s engine.PullStatus, from int64) int32 {
	switch s {
	case engine.PullFound:
		return Success
	case engine.PullNoMatch, engine.PullRemoving, engine.PullInterrupted:
		return PullRetryImmediately
	case engine.PullOverflowOne:
		return PullNotFound
	case engine.PullNoQueue, engine.PullEmptyQueue:
		if from == 0 {
			return PullNotFound
		}
	}
	return PullOffsetMoved
}

// answer ends a pull with what was found last.
func (q *pull) answer(body []byte) {
	p, found := q.owner, q.last
	code, next := pullCode(found.Status, q.from), found.Next
	if code == PullOffsetMoved && q.onSlave() {
		// A slave may be behind: it resets nobody's offset.
		code, next = PullRetryImmediately, q.from
	}
	if code == PullNotFound && next > q.from {
		code, found.Status = PullRetryImmediately, engine.PullNoMatch // what was passed over while it was held
	}
	c := &Command{Code: code, Remark: found.Status.String(), Body: body}
	c.Ext = pullResponse(p.suggest(q, &found), next, found.Min, found.Max)
	p.traffic.answered(&found)
	p.leave(q.peer, 1, q.cost)
	q.r.Reply(c)
}

// suggest says from which broker the consumer is to pull next.
func (p *Pulls) suggest(q *pull, found *engine.Pulled) int64 {
	behind := found.Status == engine.PullFound && p.e.EndOffset()-found.Last > p.o.NearBytes
	switch {
	case p.o.SlaveReads && behind:
		return q.group.SlowBroker
	case p.o.SlaveReads && !q.onSlave():
		return q.group.Broker
	}
	return 0
}

// pullResponse makes the header of an answer (PullMessageResponseHeader). The
// texts of its numbers share one piece of memory.
func pullResponse(broker, next, low, high int64) Ext {
	var space [4 * 20]byte
	b := space[:0]
	var ends [4]int
	for i, n := range [...]int64{broker, next, low, high} {
		b = strconv.AppendInt(b, n, 10)
		ends[i] = len(b)
	}
	text := string(b)
	return Ext{
		{"suggestWhichBrokerId", text[:ends[0]]},
		{"nextBeginOffset", text[ends[0]:ends[1]]},
		{"minOffset", text[ends[1]:ends[2]]},
		{"maxOffset", text[ends[2]:]},
	}
}
