package remoting

import (
	"math"
	"strconv"
	"strings"

	"github.com/haengine/haengine/engine"
)

// resetOffset has a group go on elsewhere in a topic (222): its members are told
// the offset of each queue (220), go there, and commit (Broker2Client.resetOffset).
// Nothing is stored here, since members would commit over it. A group without
// members is refused with ConsumerNotOnline: tools then commit for it.
func (a *admin) resetOffset(r *Request) {
	topic, err := r.Ext.Need("topic")
	var group string
	var at int64
	if err == nil {
		group, err = r.Ext.Need("group")
	}
	if err == nil {
		at, err = r.Ext.Int("timestamp", math.MinInt64, math.MaxInt64)
	}
	if err == nil {
		_, err = r.Ext.Need("isForce")
	}
	var queue int64
	if err == nil {
		queue, err = r.Ext.IntOr("queueId", math.MinInt32, math.MaxInt32, -1)
	}
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	if a.b.o.Engine.Role() == engine.Slave {
		r.ReplyCode(ServiceNotAvailable, "offsets are reset at the master, this broker follows it")
		return
	}
	c, ok := a.b.topics.Lookup(topic)
	if !ok {
		r.ReplyCode(SystemError, "[reset-offset] reset offset failed, no topic in this broker. topic=%s", topic)
		return
	}
	if _, online := a.b.clients.Consumers(group); online && queue >= 0 {
		r.ReplyCode(InvalidParameter, "group [%s] has members, who are told a time for all queues, not an offset for one", group)
		return
	}
	forced, name := r.Ext.Bool("isForce"), strings.Clone(group)
	form := appendReset
	if r.Language == "CPP" { // whose clients cannot read a map with queues as its keys
		form = appendResetList
	}
	a.b.pulls.later(r, func() {
		offsets, ok := a.newOffsets(r, &c, name, at, forced)
		if !ok {
			return
		}
		members := a.b.clients.TellMembers(name, Command{
			Code: CodeResetClientOffset,
			Ext:  Ext{{"topic", c.Name}, {"group", name}, {"isForce", "false"}}.WithInt("timestamp", at),
			Body: form(a, nil, c.Name, offsets),
		})
		if members == 0 {
			r.ReplyCode(ConsumerNotOnline, "Consumer not online, so can not reset offset, Group: %s Topic: %s Timestamp: %d", name, c.Name, at)
			return
		}
		a.b.o.Logger.Info("members of a group are told new offsets", "group", name, "topic", c.Name, "timestamp_ms", at, "members", members, "peer", r.Peer.RemoteAddr())
		r.Reply(&Command{Body: appendReset(a, nil, c.Name, offsets)})
	})
}

// newOffsets finds where each queue of a topic goes on for a time in ms, -1 being
// the end; unless it is forced no further than it is. It answers the request if it
// cannot.
func (a *admin) newOffsets(r *Request, c *TopicConfig, group string, at int64, forced bool) ([]int64, bool) {
	offsets := make([]int64, c.WriteQueues)
	for queue := range c.WriteQueues {
		if !a.goesOn(r, nil) {
			return nil, false
		}
		now, ok := a.b.offsets.Offset(group, c.Name, queue)
		if !ok {
			r.ReplyCode(SystemError, "THe consumer group <%s> not exist", group) // as RocketMQ says it
			return nil, false
		}
		var to int64
		var err error
		if at == -1 {
			_, to, _, err = a.b.o.Engine.VisibleBounds(c.Name, queue, a.b.o.Visible)
		} else {
			to, err = a.b.o.Engine.QueueOffsetAt(c.Name, queue, at, false, a.b.o.Visible)
		}
		if err != nil {
			r.ReplyCode(SystemError, "%v", err)
			return nil, false
		}
		if offsets[queue] = max(to, 0); !forced {
			offsets[queue] = min(offsets[queue], now)
		}
	}
	return offsets, true
}

// appendReset appends a ResetOffsetBody. See appendQueueKey for its keys.
func appendReset(a *admin, dst []byte, topic string, offsets []int64) []byte {
	dst = append(dst, `{"offsetTable":{`...)
	for queue, offset := range offsets {
		if queue > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(a.appendQueueKey(dst, topic, int32(queue)), offset, 10)
	}
	return append(dst, "}}"...)
}

// appendResetList appends a ResetOffsetBodyForC.
func appendResetList(a *admin, dst []byte, topic string, offsets []int64) []byte {
	dst = append(dst, `{"offsetTable":[`...)
	for queue, offset := range offsets {
		if queue > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(append(dst, `{"brokerName":`...), a.b.o.Name)
		dst = strconv.AppendInt(append(dst, `,"offset":`...), offset, 10)
		dst = strconv.AppendInt(append(dst, `,"queueId":`...), int64(queue), 10)
		dst = append(appendText(append(dst, `,"topic":`...), topic), '}')
	}
	return append(dst, "]}"...)
}
