package remoting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/haengine/haengine/engine"
)

// sendBack takes a message that a consumer could not consume: it goes to the
// group's retry topic, or to its dead-letter topic after too many times
// (AbstractSendMessageProcessor.consumerSendMsgBack). RocketMQ delays it by a
// level that grows with each time; here it comes back after a short pause, with the
// level in its DELAY property: see retryPause.
//
// The message has to be read from the log, which may have to read the disk: a
// goroutine does that.
func (s *Sends) sendBack(r *Request) {
	if s.o.Engine.Role() == engine.Slave {
		s.refuse(r, ServiceNotAvailable, "this broker is a slave and takes no messages: send to its master")
		return
	}
	if s.sends.stopping() {
		s.refused(r, errStopping)
		return
	}
	r.Body = nil // there is none to keep
	select {
	case s.backs <- r:
	default:
		s.refuse(r, SystemBusy, "broker busy, start flow control for a while: %d messages that were sent back wait to be read", cap(s.backs))
	}
}

func (s *Sends) readBacks(ctx context.Context) {
	for {
		select {
		case r := <-s.backs:
			s.readBack(r)
		case <-ctx.Done():
			for {
				select {
				case r := <-s.backs:
					s.refused(r, errStopping)
				default:
					return
				}
			}
		}
	}
}

// backHeader is the header of CONSUMER_SEND_MSG_BACK
// (ConsumerSendMsgBackRequestHeader).
type backHeader struct {
	group  string
	offset int64 // of the message in the log
	level  int32 // negative: to the dead-letter topic; 0: as the broker thinks
	most   int32 // times; -1: as the group says
	unit   bool
}

func (h *backHeader) parse(x Ext) error {
	var err error
	if h.group, err = x.Need("group"); err != nil {
		return err
	}
	if h.offset, err = x.Int("offset", 0, 1<<63-1); err != nil {
		return err
	}
	level, err := x.Int("delayLevel", -1<<31, 1<<31-1)
	if err != nil {
		return err
	}
	most, err := x.IntOr("maxReconsumeTimes", -1<<31, 1<<31-1, -1)
	h.level, h.most, h.unit = int32(level), int32(most), x.Bool("unitMode")
	return err
}

func (s *Sends) readBack(r *Request) {
	var h backHeader
	if err := h.parse(r.Ext); err != nil {
		s.refuse(r, SystemError, "%v", err)
		return
	}
	group, ok := s.o.Groups.Lookup(h.group)
	if !ok {
		s.refuse(r, GroupNotExist, "subscription group not exist, %s", h.group)
		return
	}
	if group.RetryQueues <= 0 { // the group does not want it again
		r.Reply(&Command{Code: Success, Ext: s.about})
		return
	}
	// The topic is there before the message is read, so that it is read once.
	if !s.backTopic(r, &h, group.RetryTopic(), group.RetryQueues) {
		return
	}
	rec, err := s.o.Engine.Get(h.offset)
	if err != nil {
		s.refuse(r, SystemError, "look message by offset failed, %d: %v", h.offset, err)
		return
	}
	topic, _ := s.o.Topics.Lookup(group.RetryTopic())
	if topic.Name != "" && topic.Perm&PermWrite == 0 {
		s.refuse(r, NoPermission, "the topic[%s] sending message is forbidden", topic.Name)
		return
	}
	most := group.RetryMax
	if h.most >= 0 {
		most = h.most
	}
	m := rec.Message
	m.Properties = backProperties(&rec)
	if rec.ReconsumeTimes >= most || h.level < 0 {
		if !s.backTopic(r, &h, group.DLQTopic(), 1) {
			return
		}
		m.Topic, m.QueueID = group.DLQTopic(), 0
		m.Properties = setProperty(m.Properties, propertyDelay, "0")
	} else {
		if h.level == 0 {
			h.level = 3 + rec.ReconsumeTimes
		}
		m.Topic, m.QueueID = group.RetryTopic(), rand.Int32N(retryQueues(&topic, &group))
		m.Properties = setProperty(m.Properties, propertyDelay, strconv.Itoa(int(h.level)))
	}
	m.ReconsumeTimes = rec.ReconsumeTimes + 1
	m.PreparedTransactionOffset = 0
	s.putBack(r, &m)
}

// retryQueues is how many queues of a retry topic get messages: only those that
// consumers look at. A group may have been given more since its topic was made, and
// RocketMQ's broker then puts messages where nobody reads them.
func retryQueues(topic *TopicConfig, group *GroupConfig) int32 {
	if topic.ReadQueues <= 0 {
		return group.RetryQueues
	}
	return min(group.RetryQueues, topic.ReadQueues)
}

// backTopic makes sure that a topic is there; if not, the request is served again
// when it is.
func (s *Sends) backTopic(r *Request, h *backHeader, name string, queues int32) bool {
	if _, ok := s.o.Topics.Lookup(name); ok {
		return true
	}
	c := NewTopicConfig(name, queues)
	if h.unit {
		c.SysFlag = topicFlagUnitSub
	}
	s.afterCreate(r, c)
	return false
}

// backProperties gives a message's properties as it comes again: where it was
// first, and that nobody waits for it.
func backProperties(rec *engine.Record) string {
	text := rec.Properties
	if v, ok := engine.FindProperty(text, propertyRetryTopic); !ok || v == "" {
		text = setProperty(text, propertyRetryTopic, rec.Topic)
	}
	if v, ok := engine.FindProperty(text, propertyOriginID); !ok || v == "" {
		text = setProperty(text, propertyOriginID, rec.OffsetMsgID())
	}
	for _, name := range []string{propertyRealTopic, propertyRealQueue} { // of an earlier delay
		if _, ok := engine.FindProperty(text, name); ok {
			text = setProperty(text, name, "")
		}
	}
	return setProperty(text, propertyWait, "false")
}

func (s *Sends) putBack(r *Request, m *engine.Message) {
	id, err := s.sends.take(int64(len(m.Body) + len(m.Properties)))
	if err != nil {
		s.refused(r, err)
		return
	}
	w := &s.sends.all[id]
	w.r, w.back = r, true
	o := outgoings.Get().(*outgoing)
	o.message = *m
	if err := s.sends.put(id, o); err != nil {
		s.sends.giveBack(id)
		s.refused(r, err)
	}
	o.release()
}

// storedBack answers when the message is there again; what is in doubt has the
// client send it once more itself.
func (s *Sends) storedBack(w *pendingSend, r engine.PutResult, err error) {
	a := &Command{Code: Success, Ext: s.about}
	if r.Status != engine.PutOK {
		a.Code, a.Remark = SystemError, fmt.Sprintf("%s: %v", r.Status, err)
	}
	w.r.Reply(a)
}
