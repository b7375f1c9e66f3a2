package remoting

import (
	"errors"
	"math"
	"strings"

	"github.com/haengine/haengine/engine"
)

// lookUpCost is about what a look-up that is not answered keeps in memory.
const lookUpCost = 256

// lookUp answers questions about queues and records: 14, 29 to 33. What is known
// without a read is answered at once, the rest by the readers of what is cold
// (AdminBrokerProcessor, ConsumerManageProcessor, QueryMessageProcessor).
func (p *Pulls) lookUp(r *Request) {
	if r.Code == CodeViewMessageByID {
		offset, err := r.Ext.Int("offset", math.MinInt64, math.MaxInt64)
		if err != nil {
			r.ReplyCode(SystemError, "%v", err)
			return
		}
		p.later(r, func() { p.viewMessage(r, offset) })
		return
	}
	topic, err := r.Ext.Need("topic")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	id, err := r.Ext.Int("queueId", math.MinInt32, math.MaxInt32)
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	topic, queue := strings.Clone(topic), int32(id)
	switch r.Code {
	case CodeQueryConsumerOffset:
		p.queryOffset(r, topic, queue)
	case CodeGetMinOffset:
		first, _, _ := p.e.QueueBounds(topic, queue)
		replyNumber(r, "offset", first)
	case CodeGetMaxOffset:
		if _, end, _ := p.e.QueueBounds(topic, queue); p.o.Visible == engine.VisibleAppended && p.e.Role() != engine.Slave {
			replyNumber(r, "offset", end)
			return
		}
		p.later(r, func() {
			_, end, _, err := p.e.VisibleBounds(topic, queue, p.o.Visible)
			replyRead(r, "offset", end, err)
		})
	case CodeSearchOffsetByTime:
		at, err := r.Ext.Int("timestamp", math.MinInt64, math.MaxInt64)
		if err != nil {
			r.ReplyCode(SystemError, "%v", err)
			return
		}
		upper := strings.EqualFold(r.Ext.Text("boundaryType"), "UPPER")
		p.later(r, func() {
			offset, err := p.e.QueueOffsetAt(topic, queue, at, upper, p.o.Visible)
			replyRead(r, "offset", offset, err)
		})
	case CodeGetEarliestStoreTime:
		p.later(r, func() {
			at, _, ok, err := p.e.FirstStoreTime(topic, queue)
			if !ok {
				at = -1
			}
			replyRead(r, "timestamp", at, err)
		})
	}
}

// later has a look-up done by a reader.
func (p *Pulls) later(r *Request, do func()) {
	peer, err := p.reader(r.Peer, lookUpCost)
	if err != nil {
		r.ReplyCode(SystemBusy, "%v", err)
		return
	}
	r.Ext, r.Body = nil, nil
	p.cold.add(&peer.cold, taskFunc(func() {
		p.leave(peer, 1, lookUpCost)
		if p.closed.Load() || peer.gone.Load() {
			r.ReplyCode(SystemBusy, shuttingDown)
			return
		}
		do()
	}))
}

// viewMessage answers with the record at an offset in the log (33).
func (p *Pulls) viewMessage(r *Request, offset int64) {
	b, err := p.e.AppendRecord(nil, offset, p.o.Visible)
	if err != nil {
		r.ReplyCode(SystemError, "there is no message at offset %d: %v", offset, err)
		return
	}
	r.Reply(&Command{Body: b})
}

// queryOffset answers with a group's offset of a queue (14). A new group on a
// queue whose first message is still at hand begins with that one, whatever its
// consumers ask for: so does the real broker.
func (p *Pulls) queryOffset(r *Request, topic string, queue int32) {
	group, err := r.Ext.Need("consumerGroup")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	if offset, ok := p.o.Offsets.Offset(group, topic, queue); ok {
		replyNumber(r, "offset", offset)
		return
	}
	none := func() {
		r.ReplyCode(QueryNotFound, "group [%s] has no offset of topic [%s] queue %d yet", group, topic, queue)
	}
	first, end, _ := p.e.QueueBounds(topic, queue)
	zero, asked := r.Ext.Get("setZeroIfNotFound")
	if asked && !strings.EqualFold(zero, "true") || first > 0 || end == 0 {
		none()
		return
	}
	group = strings.Clone(group)
	p.later(r, func() {
		_, at, ok, err := p.e.FirstStoreTime(topic, queue)
		if err == nil && ok && at >= p.e.EndOffset()-p.o.NearBytes {
			replyNumber(r, "offset", 0)
			return
		}
		none()
	})
}

// commit stores a consumer's offset (15), asked for or not to answer.
func (p *Pulls) commit(r *Request) {
	group, err := r.Ext.Need("consumerGroup")
	var topic string
	var queue, offset int64
	if err == nil {
		topic, err = r.Ext.Need("topic")
	}
	if err == nil {
		queue, err = r.Ext.Int("queueId", math.MinInt32, math.MaxInt32)
	}
	if err == nil {
		offset, err = r.Ext.Int("commitOffset", math.MinInt64, math.MaxInt64)
	}
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	if _, ok := p.o.Group(group); !ok {
		r.ReplyCode(GroupNotExist, "subscription group [%s] does not exist", group)
		return
	}
	if _, _, ok := p.o.Topic(topic); !ok {
		r.ReplyCode(TopicNotExist, "topic [%s] does not exist", topic)
		return
	}
	switch err := p.o.Offsets.Commit(group, topic, int32(queue), offset, r.Peer); {
	case errors.Is(err, ErrField):
		r.ReplyCode(InvalidParameter, "%v", err)
	case err != nil:
		r.ReplyCode(SystemError, "%v", err)
	default:
		r.Reply(&Command{})
	}
}

func replyNumber(r *Request, name string, n int64) {
	r.Reply(&Command{Ext: Ext(nil).WithInt(name, n)})
}

func replyRead(r *Request, name string, n int64, err error) {
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	replyNumber(r, name, n)
}
