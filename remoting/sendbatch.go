package remoting

import (
	"slices"
	"strconv"
	"strings"

	"github.com/haengine/haengine/engine"
)

// batch makes the messages of a batch. Unlike RocketMQ's broker it does not append
// the header's properties to those of each message: they hold a second UNIQ_KEY,
// which would give all messages of the batch the same id at the consumer.
func (s *Sends) batch(r *Request, h *sendHeader, p *sendProperties, topic *TopicConfig, o *outgoing) bool {
	switch {
	case len(h.topic) > topicNameMax:
		s.refuse(r, MessageIllegal, "message topic length too long %d", len(h.topic))
		return false
	case strings.HasPrefix(h.topic, RetryPrefix):
		s.refuse(r, MessageIllegal, "batch request does not support retry group %s", h.topic)
		return false
	case len(r.Body) > s.o.Engine.MaxBody():
		s.refuse(r, MessageIllegal, "a batch of %d bytes, at most %d are taken", len(r.Body), s.o.Engine.MaxBody())
		return false
	}
	if !s.supported(r, h, p, false) {
		return false
	}
	messages, err := engine.DecodeClientBatch(r.Body)
	if err != nil {
		s.refuse(r, MessageIllegal, "%v", err)
		return false
	}
	common := s.message(r, h, topic)
	firstWaits := true
	for i := range messages {
		m := &messages[i]
		var own sendProperties
		if err := own.parse(m.Properties); err != nil {
			s.refuse(r, MessageIllegal, "message %d of the batch: %v", i, err)
			return false
		}
		if !s.supported(r, h, &own, false) {
			return false
		}
		if i == 0 {
			firstWaits = !own.noWait
		}
		flag, properties, body := m.Flag, m.Properties, m.Body
		if own.pop {
			properties = setProperty(properties, propertyPop, "")
		}
		*m = common
		m.Flag, m.Properties, m.Body = flag, properties, body
		o.batch = append(o.batch, m)
	}
	if p.noWait == firstWaits { // the put asks the first message, RocketMQ's the header
		messages[0].Properties = setProperty(messages[0].Properties, propertyWait, strconv.FormatBool(!p.noWait))
	}
	o.messages = messages
	o.batch = slices.Clip(o.batch)
	return true
}
