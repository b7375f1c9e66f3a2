package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/haengine/haengine/remoting"
)

// Topics are the names of all topics that the name server knows, in order.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	var list struct {
		Topics []string `json:"topicList"`
	}
	if err := c.askNames(ctx, &remoting.Command{Code: remoting.CodeGetAllTopicsFromNames}, "list of topics", &list); err != nil {
		return nil, err
	}
	slices.Sort(list.Topics)
	return slices.Compact(list.Topics), nil
}

// TopicSettings are those of a topic at a broker (RocketMQ TopicConfig).
type TopicSettings struct {
	ReadQueues  int32             `json:"readQueueNums"`
	WriteQueues int32             `json:"writeQueueNums"`
	Perm        int32             `json:"perm"`
	Order       bool              `json:"order"`
	Attributes  map[string]string `json:"attributes"`
}

// String is for people.
func (s TopicSettings) String() string {
	return fmt.Sprintf("queues %d to read, %d to write, perm %s", s.ReadQueues, s.WriteQueues, PermText(s.Perm))
}

// PermText names what a topic's perm allows: rw, r, w or -.
func PermText(perm int32) string {
	text := ""
	if perm&remoting.PermRead != 0 {
		text += "r"
	}
	if perm&remoting.PermWrite != 0 {
		text += "w"
	}
	return cmp.Or(text, "-")
}

// QueueState is a queue's range of offsets.
type QueueState struct {
	Queue      Queue `json:"-"`
	MinOffset  int64 `json:"minOffset"`
	MaxOffset  int64 `json:"maxOffset"`           // one past the last message
	LastStored int64 `json:"lastUpdateTimestamp"` // when the last message was stored, ms; 0: there is none
}

// TopicState is a topic at one broker.
type TopicState struct {
	Broker   Broker
	Address  string // of the node that was asked: the master, or a slave without one
	Settings TopicSettings
	Queues   []QueueState
}

// Messages is how many the queues hold.
func (t *TopicState) Messages() (n int64) {
	for _, q := range t.Queues {
		n += q.MaxOffset - q.MinOffset
	}
	return n
}

// DescribeTopic asks each broker of a topic for its settings and queues.
func (c *Client) DescribeTopic(ctx context.Context, topic string) ([]TopicState, error) {
	route, err := c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	var all []TopicState
	for i := range route.Brokers {
		t := TopicState{Broker: route.Brokers[i]}
		err := c.onNode(ctx, &t.Broker, func(addr string) error {
			t.Address = addr
			return c.describeTopic(ctx, topic, &t)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (c *Client) describeTopic(ctx context.Context, topic string, t *TopicState) error {
	settings, err := c.topicSettings(ctx, t.Address, topic)
	if err != nil {
		return err
	}
	t.Settings = settings
	answer, err := c.call(ctx, t.Address, &remoting.Command{Code: remoting.CodeGetTopicStats, Ext: remoting.Ext{{Name: "topic", Value: topic}}}, "queues of topic "+topic, 0)
	if err != nil {
		return err
	}
	var stats struct {
		Offsets queueTable[QueueState] `json:"offsetTable"`
	}
	if err := readJSON(answer.Body, "queues of topic "+topic, &stats); err != nil {
		return err
	}
	t.Queues = nil
	for q, s := range stats.Offsets {
		s.Queue = q
		t.Queues = append(t.Queues, s)
	}
	slices.SortFunc(t.Queues, func(a, b QueueState) int { return compareQueues(a.Queue, b.Queue) })
	return nil
}

// topicSettings asks a broker for a topic's settings; those of 4.9 give all topics'
// only. The error's code is remoting.TopicNotExist if it has no such topic.
func (c *Client) topicSettings(ctx context.Context, addr, topic string) (s TopicSettings, err error) {
	what := "settings of topic " + topic
	answer, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeGetTopicConfig, Ext: remoting.Ext{{Name: "topic", Value: topic}, {Name: "lo", Value: "true"}}}, what, 0)
	if err == nil {
		return s, readJSON(answer.Body, what, &s)
	}
	if codeOf(err) != remoting.RequestCodeNotSupported {
		return s, err
	}
	if answer, err = c.call(ctx, addr, &remoting.Command{Code: remoting.CodeGetAllTopicConfig}, what, 0); err != nil {
		return s, err
	}
	var all struct {
		Topics map[string]TopicSettings `json:"topicConfigTable"`
	}
	if err := readJSON(answer.Body, what, &all); err != nil {
		return s, err
	}
	s, ok := all.Topics[topic]
	if !ok {
		return s, &CallError{Address: addr, What: what, Sent: true, Err: &remoting.ResponseError{Code: remoting.TopicNotExist, Remark: "it is not among the broker's topics"}}
	}
	return s, nil
}

// onNode does something at a broker's master or, if that does not answer, at a slave.
func (c *Client) onNode(ctx context.Context, b *Broker, do func(addr string) error) error {
	var errs []error
	for _, addr := range b.inOrder() {
		err := do(addr)
		if err == nil || codeOf(err) >= 0 || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// masters are the addresses of all brokers' masters; a broker without one is an error.
func (c *Client) masters(ctx context.Context) ([]string, error) {
	brokers, err := c.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range brokers {
		if brokers[i].Master() == "" {
			return nil, fmt.Errorf("%w for broker %s: only a master takes changes", ErrNoMaster, &brokers[i])
		}
		all = append(all, brokers[i].Master())
	}
	return all, nil
}

// CreateTopic makes a topic with so many queues at the masters of all brokers.
// created are the addresses where it was not there before; where it is there
// with other settings, that is an error and nothing is changed anywhere.
func (c *Client) CreateTopic(ctx context.Context, topic string, s TopicSettings) (created []string, err error) {
	masters, err := c.masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, addr := range masters {
		there, err := c.topicSettings(ctx, addr, topic)
		switch {
		case codeOf(err) == remoting.TopicNotExist:
			created = append(created, addr)
			continue
		case err != nil:
			return nil, err
		}
		if there.ReadQueues != s.ReadQueues || there.WriteQueues != s.WriteQueues || there.Perm != s.Perm {
			return nil, fmt.Errorf("topic %s is there already at %s, with %v; not changed to %v", topic, addr, there, s)
		}
	}
	for _, addr := range created {
		if err := c.updateTopic(ctx, addr, topic, s); err != nil {
			return nil, err
		}
	}
	return created, nil
}

func (c *Client) updateTopic(ctx context.Context, addr, topic string, s TopicSettings) error {
	_, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeUpdateTopic, Ext: remoting.Ext{
		{Name: "topic", Value: topic}, {Name: "defaultTopic", Value: remoting.TopicTemplate}, {Name: "topicFilterType", Value: "SINGLE_TAG"},
		{Name: "readQueueNums", Value: strconv.Itoa(int(s.ReadQueues))}, {Name: "writeQueueNums", Value: strconv.Itoa(int(s.WriteQueues))},
		{Name: "perm", Value: strconv.Itoa(int(s.Perm))}, {Name: "topicSysFlag", Value: "0"},
		{Name: "order", Value: strconv.FormatBool(s.Order)}, {Name: "attributes", Value: ""},
	}}, "create topic "+topic, 0)
	return err
}

// DeleteTopic removes a topic from the masters of all brokers and from all name
// servers, in this order. A name server that does not answer is an error: it would
// go on telling clients of the topic.
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return err
	}
	ext := remoting.Ext{{Name: "topic", Value: topic}}
	for _, addr := range masters {
		if _, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeDeleteTopic, Ext: ext}, "delete topic "+topic, 0); err != nil {
			return err
		}
	}
	var errs []error
	for _, addr := range c.o.NameServers {
		_, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeDeleteTopicInNames, Ext: ext}, "delete topic "+topic+" from name server", 0)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TopicGroups are the groups that read a topic or have, in order.
func (c *Client) TopicGroups(ctx context.Context, topic string, brokers []TopicState) ([]string, error) {
	var all []string
	for i := range brokers {
		answer, err := c.call(ctx, brokers[i].Address, &remoting.Command{Code: remoting.CodeQueryTopicConsumers, Ext: remoting.Ext{{Name: "topic", Value: topic}}}, "groups of topic "+topic, 0)
		if err != nil {
			return nil, err
		}
		var list struct {
			Groups []string `json:"groupList"`
		}
		if err := json.Unmarshal(plainJSON(answer.Body), &list); err != nil {
			return nil, fmt.Errorf("groups of topic %s: %w", topic, err)
		}
		all = append(all, list.Groups...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
