package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/haengine/haengine/engine"
)

// Codes of request-reply messages, which are refused.
const (
	CodeSendReply   = 324
	CodeSendReplyV2 = 325
)

// SendsOptions are the settings of Sends. Engine, Topics and Groups must be given.
type SendsOptions struct {
	Engine *engine.Engine
	Topics *Topics
	Groups *Groups
	// Locked tells whether a group holds locks on queues: messages that such a
	// group sends to its retry topic go to the dead-letter topic, as it consumes
	// in order. nil: no group does.
	Locked func(group string) bool

	Pending      int    // sends under way at once; 0: 16384 (sendThreadPoolQueueCapacity)
	PendingBytes int64  // of their bodies and properties; 0: 256 MiB
	SendBacks    int    // messages sent back that wait to be read; 0: 1024
	Region       string // told to clients; empty: DefaultRegion (regionId)
	Logger       *slog.Logger
}

// Sends takes messages from producers, and from consumers that could not consume
// them (SendMessageProcessor). Serve does not block: it appends to the log, and
// one goroutine answers what the disk and the replicas have confirmed. Another
// one reads the messages that consumers send back.
//
// A send that finds too many others under way is answered with SystemBusy.
type Sends struct {
	o      SendsOptions
	sends  *pendings
	about  Ext        // what every answer says of the broker; nobody appends to it
	answer sendAnswer // of the goroutine that answers
	backs  chan *Request
	stop   context.CancelFunc
	done   sync.WaitGroup

	messages atomic.Int64 // that were stored
	refusals atomic.Int64 // requests that were not
}

// NewSends begins to take messages. The caller must Close it.
func NewSends(o SendsOptions) *Sends {
	if o.Pending == 0 {
		o.Pending = 16384
	}
	if o.PendingBytes == 0 {
		o.PendingBytes = 256 << 20
	}
	if o.SendBacks == 0 {
		o.SendBacks = 1024
	}
	if o.Region == "" {
		o.Region = "DefaultRegion"
	}
	if o.Locked == nil {
		o.Locked = func(string) bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Sends{
		o: o, sends: newPendings(o.Engine, o.Pending, o.PendingBytes), backs: make(chan *Request, o.SendBacks),
		about: Ext{{"MSG_REGION", o.Region}, {"TRACE_ON", "true"}},
	}
	s.about = s.about[:2:2]
	s.answer.about = appendJSONFields([]byte{','}, s.about)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.sends.run(ctx, s.stored) })
	s.done.Go(func() { s.readBacks(ctx) })
	return s
}

// Close refuses further sends and waits until those under way are answered, which
// their timeouts bound.
func (s *Sends) Close() {
	s.sends.close()
	s.stop()
	s.done.Wait()
}

// Outstanding is how many sends have not been answered.
func (s *Sends) Outstanding() int { return s.sends.puts.Outstanding() }

// Serve implements Handler for SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE,
// CONSUMER_SEND_MSG_BACK, and for the reply messages, which it refuses.
func (s *Sends) Serve(r *Request) {
	switch r.Code {
	case CodeConsumerSendBack:
		s.sendBack(r)
	case CodeSendReply, CodeSendReplyV2:
		s.refuse(r, RequestCodeNotSupported, " request type %d not supported: this broker does not carry reply messages", r.Code)
	default:
		s.send(r)
	}
}

// refuse answers a send that was not stored.
func (s *Sends) refuse(r *Request, code int32, format string, args ...any) {
	s.refusals.Add(1)
	r.Reply(&Command{Code: code, Remark: fmt.Sprintf(format, args...), Ext: s.about})
}

func (s *Sends) send(r *Request) {
	if s.o.Engine.Role() == engine.Slave { // before anything is made for it
		s.refuse(r, ServiceNotAvailable, "this broker is a slave and takes no messages: send to its master")
		return
	}
	var h sendHeader
	if err := h.parse(r.Ext); err != nil {
		s.refuse(r, SystemError, "%v", err)
		return
	}
	topic, ok := s.topic(r, &h)
	if !ok {
		return
	}
	o := outgoings.Get().(*outgoing)
	defer o.release()
	var p sendProperties
	if err := p.parse(h.properties); err != nil {
		s.refuse(r, MessageIllegal, "%v", err)
		return
	}
	if r.Code == CodeSendBatch || h.batch {
		ok = s.batch(r, &h, &p, &topic, o)
	} else {
		ok = s.single(r, &h, &p, &topic, o)
	}
	if ok {
		s.put(r, o, &p)
	}
}

// topic finds the send's topic by the checks that RocketMQ's broker makes, in its
// order (AbstractSendMessageProcessor.msgCheck). If it is not there and may be
// made, the send is served again when it is.
func (s *Sends) topic(r *Request, h *sendHeader) (TopicConfig, bool) {
	if wrong := ValidateTopic(h.topic); wrong != "" {
		s.refuse(r, InvalidParameter, "%s", wrong)
		return TopicConfig{}, false
	}
	if sendForbidden(h.topic) {
		s.refuse(r, NoPermission, "Sending message to topic[%s] is forbidden.", h.topic)
		return TopicConfig{}, false
	}
	c, ok := s.o.Topics.Lookup(h.topic)
	if !ok {
		s.makeTopic(r, h)
		return c, false
	}
	if h.queueID >= c.Queues() || h.queueID < 0 && c.WriteQueues <= 0 {
		s.refuse(r, InvalidParameter, "request queueId[%d] is illegal, topic %s has %d read and %d write queues. Producer: %v",
			h.queueID, c.Name, c.ReadQueues, c.WriteQueues, r.Peer.RemoteAddr())
		return c, false
	}
	if h.queueID < 0 {
		h.queueID = rand.Int32N(c.WriteQueues)
	}
	return c, true
}

func (s *Sends) makeTopic(r *Request, h *sendHeader) {
	retry := strings.HasPrefix(h.topic, RetryPrefix)
	sysFlag := int32(0)
	if h.unit && retry {
		sysFlag = topicFlagUnitSub
	} else if h.unit {
		sysFlag = topicFlagUnit
	}
	c, err := s.o.Topics.fromTemplate(h.topic, h.template, h.templateQueues, sysFlag)
	if err != nil && retry {
		c, err = NewTopicConfig(h.topic, 1), nil
		c.SysFlag = sysFlag
	}
	if err != nil {
		s.refuse(r, TopicNotExist, "topic[%s] not exist, apply first please! %v", h.topic, err)
		return
	}
	s.afterCreate(r, c)
}

// waitingBytes is what a request that waits costs besides its body.
const waitingBytes = 512

// afterCreate serves the request again when a topic is there. Its body is kept
// until then.
func (s *Sends) afterCreate(r *Request, c TopicConfig) {
	held := int64(len(r.Body)) + waitingBytes
	if !s.sends.reserve(held) {
		s.refuse(r, SystemBusy, "%v", errFlow)
		return
	}
	r.Body = bytes.Clone(r.Body)
	s.o.Topics.Create(c, func(err error) {
		s.sends.bytes.Add(-held)
		if err != nil {
			s.refuse(r, SystemError, "make topic %s: %v", c.Name, err)
			return
		}
		s.Serve(r)
	})
}

// single makes the message of a send of one.
func (s *Sends) single(r *Request, h *sendHeader, p *sendProperties, topic *TopicConfig, o *outgoing) bool {
	name, queueID, properties := h.topic, h.queueID, h.properties
	retry := strings.HasPrefix(h.topic, RetryPrefix)
	if retry {
		config, dead, ok := s.retries(r, h)
		if !ok {
			return false
		}
		if dead {
			name, queueID = config.DLQTopic(), 0
			c, there := s.o.Topics.Lookup(name)
			if !there {
				s.afterCreate(r, NewTopicConfig(name, 1))
				return false
			}
			topic = &c
			if p.delay > 0 {
				properties = setProperty(properties, propertyDelay, "0")
			}
		}
	}
	if !s.supported(r, h, p, retry) {
		return false
	}
	if len(r.Body) == 0 {
		s.refuse(r, MessageIllegal, "the message has no body")
		return false
	}
	if p.pop {
		properties = setProperty(properties, propertyPop, "")
	}
	o.message = s.message(r, h, topic)
	o.message.Topic, o.message.QueueID, o.message.Properties, o.message.Body = name, queueID, properties, r.Body
	o.message.Flag = h.flag
	return true
}

// retries looks at a send to a group's retry topic: it goes to the dead-letter
// topic if it was retried too often (handleRetryAndDLQ).
func (s *Sends) retries(r *Request, h *sendHeader) (config GroupConfig, dead, ok bool) {
	group := strings.TrimPrefix(h.topic, RetryPrefix)
	config, ok = s.o.Groups.Lookup(group)
	if !ok {
		s.refuse(r, GroupNotExist, "subscription group not exist, %s", group)
		return config, false, false
	}
	most := config.RetryMax
	if h.maxReconsumeTimes >= 0 {
		most = h.maxReconsumeTimes
	}
	return config, h.reconsumeTimes > most || s.o.Locked(group), true
}

// supported refuses what this broker cannot do yet, rather than doing it wrong. A
// delay on the way to a retry topic is not waited for, as with a message that is
// sent back.
func (s *Sends) supported(r *Request, h *sendHeader, p *sendProperties, retry bool) bool {
	prepared := p.transaction && !(h.reconsumeTimes > 0 && p.delay > 0) // a retry of one is an ordinary message
	switch {
	case prepared || h.sysFlag&engine.FlagTransactionMask != 0:
		s.refuse(r, NoPermission, "this broker takes no transaction messages")
	case p.timer != "":
		s.refuse(r, SystemError, "this broker delivers no message at a set time (property %s): the wheel timer is not enabled", p.timer)
	case p.delay > 0 && !retry:
		s.refuse(r, MessageIllegal, "this broker does not delay messages yet (property DELAY is %d)", p.delay)
	case p.innerBatch || h.sysFlag&engine.FlagInnerBatch != 0:
		s.refuse(r, MessageIllegal, "this broker has no topics for inner batches")
	default:
		return true
	}
	return false
}

// message gives what all messages of a request have in common.
func (s *Sends) message(r *Request, h *sendHeader, topic *TopicConfig) engine.Message {
	m := engine.Message{
		Topic: h.topic, QueueID: h.queueID, SysFlag: h.sysFlag, BornTimestamp: h.bornTimestamp,
		BornHost: hostOf(r.Peer), StoreHost: s.o.Engine.StoreHost(), ReconsumeTimes: h.reconsumeTimes,
	}
	if topic.FilterType == filterMultiTag {
		m.SysFlag |= 2
	}
	return m
}

// hostOf is a peer's address as records have it.
func hostOf(p Peer) engine.Host {
	a := p.RemoteAddr()
	return engine.Host{Addr: a.Addr().Unmap().WithZone(""), Port: int32(a.Port())}
}

// put appends what was made of a request.
func (s *Sends) put(r *Request, o *outgoing, p *sendProperties) {
	held := int64(len(r.Body) + len(o.message.Properties))
	id, err := s.sends.take(held)
	if err != nil {
		s.refused(r, err)
		return
	}
	w := &s.sends.all[id]
	w.r, w.unique, w.queueID = r, p.unique, o.message.QueueID
	if len(o.batch) > 0 {
		w.queueID = o.batch[0].QueueID
		for _, m := range o.batch {
			size, _ := engine.RecordSize(m) // the put refuses what has none
			w.sizes = append(w.sizes, int32(size))
		}
	}
	r.Body = nil // the connection's again when Serve returns
	if err := s.sends.put(id, o); err != nil {
		s.sends.giveBack(id)
		s.refused(r, err)
	}
}

// refused answers a send that was not appended.
func (s *Sends) refused(r *Request, err error) {
	var put *engine.PutError
	switch {
	case errors.Is(err, errFlow) || errors.Is(err, engine.ErrRingFull):
		s.refuse(r, SystemBusy, "broker busy, start flow control for a while: %v", err)
	case errors.As(err, &put):
		s.refuse(r, codeOf(put.Status), "%v", err)
	default:
		s.refuse(r, ServiceNotAvailable, "service not available now: %v", err)
	}
}
