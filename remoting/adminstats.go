package remoting

import (
	"slices"
	"strconv"
	"strings"
)

// The bodies of both statistics have objects as the keys of a map, which is no
// JSON and the only form that all of RocketMQ's versions read.

// appendQueueKey appends a MessageQueue as the key of a map.
func (a *admin) appendQueueKey(dst []byte, topic string, queue int32) []byte {
	dst = appendText(append(dst, `{"brokerName":`...), a.b.o.Name)
	dst = strconv.AppendInt(append(dst, `,"queueId":`...), int64(queue), 10)
	dst = appendText(append(dst, `,"topic":`...), topic)
	return append(dst, "}:"...)
}

func appendNumber(dst []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(dst, before...), n, 10)
}

// storeTime is when the message at a queue offset was stored, 0 if it is not there.
func (a *admin) storeTime(topic string, queue int32, offset int64) int64 {
	if offset < 0 {
		return 0
	}
	rec, err := a.b.o.Engine.GetByQueue(topic, queue, offset)
	if err != nil {
		return 0
	}
	return rec.StoreTimestamp
}

// goesOn tells whether the answer that body is the beginning of is worth more work,
// and answers otherwise: a group may have a thousand topics of 65,535 queues, of
// which nothing could be sent.
func (a *admin) goesOn(r *Request, body []byte) bool {
	switch {
	case a.b.pulls.closed.Load():
		r.ReplyCode(SystemBusy, shuttingDown)
	case len(body) > FrameBytesMax-statsRoom:
		r.ReplyCode(SystemError, "the answer would have more than a frame's %d bytes: ask for fewer topics", FrameBytesMax)
	default:
		return true
	}
	return false
}

// statsRoom is more than a queue takes in an answer, and its header.
const statsRoom = 4 << 10

// topicStats answers with the bounds of a topic's queues (TopicStatsTable).
func (a *admin) topicStats(r *Request) {
	c, ok := a.topicOf(r)
	if !ok {
		return
	}
	a.b.pulls.later(r, func() {
		body := []byte(`{"offsetTable":{`)
		for queue := range c.Queues() {
			if !a.goesOn(r, body) {
				return
			}
			from, to, _, err := a.b.o.Engine.VisibleBounds(c.Name, queue, a.b.o.Visible)
			if err != nil {
				r.ReplyCode(SystemError, "%v", err)
				return
			}
			if queue > 0 {
				body = append(body, ',')
			}
			body = a.appendQueueKey(body, c.Name, queue)
			body = appendNumber(body, `{"lastUpdateTimestamp":`, a.storeTime(c.Name, queue, to-1))
			body = appendNumber(body, `,"maxOffset":`, to)
			body = append(appendNumber(body, `,"minOffset":`, from), '}')
		}
		r.Reply(&Command{Body: append(body, `},"topicPutTps":0.0}`...)})
	})
}

// consumeStats answers with how far a group is in all its topics, or in one
// (ConsumeStats).
func (a *admin) consumeStats(r *Request) {
	group, err := r.Ext.Need("consumerGroup")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	topics := a.statsTopics(r.Ext, group)
	a.b.pulls.later(r, func() {
		body := []byte(`{"consumeTps":0.0,"offsetTable":{`)
		first := len(body)
		for _, topic := range topics {
			c, _ := a.b.topics.Lookup(topic) // one that is not there has no queues
			for queue := range c.ReadQueues {
				if !a.goesOn(r, body) {
					return
				}
				_, end, _, err := a.b.o.Engine.VisibleBounds(topic, queue, a.b.o.Visible)
				if err != nil {
					r.ReplyCode(SystemError, "%v", err)
					return
				}
				if len(body) > first {
					body = append(body, ',')
				}
				body = a.appendConsumed(body, group, topic, queue, end)
			}
		}
		r.Reply(&Command{Body: append(body, "}}"...)})
	})
}

// topicListSeparator stands between the topics of a request
// (GetConsumeStatsRequestHeader).
const topicListSeparator = ";"

// statsTopics are the topics that statistics of a group are asked of: a list, one
// that the group's members, if there are any, subscribe to, or all.
func (a *admin) statsTopics(x Ext, group string) []string {
	if list := x.Text("topicList"); list != "" {
		topics := strings.Split(list, topicListSeparator)
		slices.Sort(topics)
		return slices.Compact(topics)
	}
	topic := x.Text("topic")
	if topic == "" {
		return a.topicsOf(group)
	}
	online, ok := a.b.clients.Consumers(group)
	if ok && len(online.Subscriptions) > 0 && !slices.ContainsFunc(online.Subscriptions, func(s Subscription) bool { return s.Topic == topic }) {
		return nil
	}
	return []string{topic}
}

func (a *admin) appendConsumed(body []byte, group, topic string, queue int32, end int64) []byte {
	at, _ := a.b.offsets.Offset(group, topic, queue)
	at = max(at, 0)
	body = a.appendQueueKey(body, topic, queue)
	body = appendNumber(body, `{"brokerOffset":`, end)
	body = appendNumber(body, `,"consumerOffset":`, at)
	body = appendNumber(body, `,"lastTimestamp":`, a.storeTime(topic, queue, at-1))
	return append(appendNumber(body, `,"pullOffset":`, max(at, a.b.offsets.PullOffset(group, topic, queue))), '}')
}

// topicsOf are the topics that a group has offsets of or subscribes to; of those
// with offsets the ones that its members, if there are any, still subscribe to.
func (a *admin) topicsOf(group string) []string {
	topics := a.b.offsets.Topics(group)
	online, ok := a.b.clients.Consumers(group)
	if !ok || len(online.Subscriptions) == 0 {
		return topics
	}
	var now []string
	for _, s := range online.Subscriptions {
		now = append(now, s.Topic)
	}
	topics = append(slices.DeleteFunc(topics, func(t string) bool { return !slices.Contains(now, t) }), now...)
	slices.Sort(topics)
	return slices.Compact(topics)
}
