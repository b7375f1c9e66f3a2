package remoting

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const queuesMax = 65535 // of a topic, for whoever makes one by hand

// Serve implements Handler for UPDATE_AND_CREATE_TOPIC and DELETE_TOPIC_IN_BROKER
// (AdminBrokerProcessor). The answer comes when the change is durable.
func (t *Topics) Serve(r *Request) {
	name := r.Ext.Text("topic")
	switch wrong := ValidateTopic(name); {
	case wrong != "":
		r.ReplyCode(InvalidParameter, "%s", wrong)
		return
	case IsSystemTopic(name):
		r.ReplyCode(InvalidParameter, "The topic[%s] is conflict with system topic.", name)
		return
	case t.o.Master != nil && !t.o.Master():
		r.ReplyCode(ServiceNotAvailable, "topics are changed on the master, this broker follows it")
		return
	}
	done := func(err error) { replyChange(r, err) }
	if r.Code == CodeDeleteTopic {
		name = strings.Clone(name) // the frame's until it is answered
		t.Delete(name, func(err error) {
			if err == nil && t.o.Deleted != nil {
				t.o.Deleted(name)
			}
			done(err)
		})
		return
	}
	c, err := topicOf(r.Ext)
	if err != nil {
		replyChange(r, err)
		return
	}
	attributes := r.Ext.Text("attributes")
	t.alter(name, func(old TopicConfig, there bool) (TopicConfig, error) {
		var err error
		made := c
		made.Attributes, err = alterAttributes(old.Attributes, attributes, there)
		return made, err
	}, done)
}

// replyChange answers with the outcome of a change of the configuration.
func replyChange(r *Request, err error) {
	switch {
	case err == nil:
		r.Reply(&Command{Code: Success})
	case errors.Is(err, ErrConfigClosed):
		r.ReplyCode(ServiceNotAvailable, "%v", err)
	case errors.Is(err, errParameter):
		r.ReplyCode(InvalidParameter, "%v", err)
	default:
		r.ReplyCode(SystemError, "%v", err)
	}
}

var errParameter = errors.New("invalid parameter")

// topicOf reads the topic of an update's header, without its attributes.
func topicOf(x Ext) (TopicConfig, error) {
	c := TopicConfig{Name: x.Text("topic"), FilterType: x.Text("topicFilterType"), Order: x.Bool("order")}
	var errs []error
	number := func(name string, most int64) int32 {
		n, err := x.Int(name, 0, most)
		errs = append(errs, err)
		return int32(n)
	}
	c.ReadQueues, c.WriteQueues = number("readQueueNums", queuesMax), number("writeQueueNums", queuesMax)
	c.Perm = number("perm", 15)
	flags, err := x.IntOr("topicSysFlag", 0, 1<<31-1, 0)
	c.SysFlag = int32(flags)
	if err = errors.Join(append(errs, err)...); err != nil {
		return c, err
	}
	if c.FilterType != filterSingleTag && c.FilterType != filterMultiTag {
		return c, fmt.Errorf("%w: topicFilterType is %q, want %s or %s", errParameter, c.FilterType, filterSingleTag, filterMultiTag)
	}
	return c, nil
}

// The attributes that topics may have (TopicAttributes), with the values that
// this broker can keep to; nil: any.
var topicAttributes = map[string][]string{
	"queue.type":     {"SimpleCQ"},
	"cleanup.policy": {"DELETE"},
	"message.type":   {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"},
}

// alterAttributes applies "+name=value,-name" to a topic's attributes
// (AttributeParser, AttributeUtil).
func alterAttributes(old map[string]string, text string, there bool) (map[string]string, error) {
	if strings.TrimSpace(text) == "" {
		return old, nil
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, pair := strings.Cut(strings.TrimSpace(part), "=")
		adds, removes := strings.HasPrefix(name, "+"), strings.HasPrefix(name, "-")
		if adds != pair || adds == removes {
			return nil, fmt.Errorf("%w: attribute %q, want +name=value or -name", errParameter, part)
		}
		name = name[1:]
		values, known := topicAttributes[name]
		if !known {
			return nil, fmt.Errorf("%w: attribute %q is not known", errParameter, name)
		}
		if removes {
			if !there {
				return nil, fmt.Errorf("%w: a new topic has no attribute %q to remove", errParameter, name)
			}
			delete(next, name)
			continue
		}
		if values != nil && !slices.Contains(values, value) {
			return nil, fmt.Errorf("%w: attribute %s=%s is not supported, only %s", errParameter, name, value, strings.Join(values, ", "))
		}
		next[name] = value
	}
	return next, nil
}
