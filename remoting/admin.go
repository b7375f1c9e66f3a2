package remoting

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/haengine/haengine/engine"
)

// admin answers administrators' tools, and slaves of RocketMQ's that follow
// topics, groups and offsets (AdminBrokerProcessor). What is not measured here is
// left out: tools show it as nothing.
type admin struct {
	b     *Broker
	began time.Time
}

func (a *admin) handle(m *Mux) {
	m.Handle(HandlerFunc(a.configuration), CodeGetAllTopicConfig, CodeGetAllGroups, CodeGetAllConsumerOffset)
	m.Handle(HandlerFunc(a.delayOffsets), CodeGetAllDelayOffset)
	m.Handle(HandlerFunc(requestModes), CodeGetAllRequestModes)
	m.Handle(HandlerFunc(checkConfig), CodeCheckClientConfig)
	m.Handle(HandlerFunc(absent), CodeQueryMessage, CodeEndTransaction, CodeGetTimerCheckpoint, CodeGetTimerMetrics)
	m.Handle(HandlerFunc(a.changeGroup), CodeUpdateGroup, CodeDeleteGroup)
	m.Handle(HandlerFunc(a.topicConfig), CodeGetTopicConfig)
	m.Handle(HandlerFunc(a.topicStats), CodeGetTopicStats)
	m.Handle(HandlerFunc(a.consumeStats), CodeGetConsumeStats)
	m.Handle(HandlerFunc(a.topicConsumers), CodeQueryTopicConsumers)
	m.Handle(HandlerFunc(a.connections), CodeGetConsumerConnections)
	m.Handle(HandlerFunc(a.resetOffset), CodeInvokeResetOffset)
	m.Handle(HandlerFunc(a.runtime), CodeGetBrokerRuntimeInfo)
	m.Handle(HandlerFunc(a.haStatus), CodeGetHAStatus)
}

// configuration answers with all of something: slaves take it over. They ask in
// pages, and take an answer that does not say how many there are for all.
func (a *admin) configuration(r *Request) {
	code := r.Code
	a.b.pulls.later(r, func() { // it may be megabytes: not for a loop
		var body []byte
		switch code {
		case CodeGetAllTopicConfig:
			body = a.b.topics.AppendJSON(nil)
		case CodeGetAllGroups:
			body = a.b.groups.AppendJSON(nil)
		case CodeGetAllConsumerOffset:
			body = a.b.offsets.AppendJSON(nil)
		}
		r.Reply(&Command{Body: body})
	})
}

func (a *admin) changeGroup(r *Request) {
	if a.b.o.Engine.Role() == engine.Slave {
		r.ReplyCode(ServiceNotAvailable, "groups are changed on the master, this broker follows it")
		return
	}
	done := func(err error) { replyChange(r, err) }
	if r.Code == CodeUpdateGroup {
		if len(r.Body) > smallBodyMax {
			r.ReplyCode(InvalidParameter, "a group of %d bytes, at most %d are read", len(r.Body), smallBodyMax)
			return
		}
		c, err := ParseGroupConfig(r.Body)
		if err != nil {
			done(err)
			return
		}
		a.b.groups.Update(c, done)
		return
	}
	name, err := r.Ext.Need("groupName")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	if r.Ext.Bool("cleanOffset") {
		a.b.offsets.Remove(name, "")
	}
	a.b.groups.Delete(name, done)
}

// topicOf gives the topic that a request names, or answers it.
func (a *admin) topicOf(r *Request) (TopicConfig, bool) {
	name, err := r.Ext.Need("topic")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return TopicConfig{}, false
	}
	c, ok := a.b.topics.Lookup(name)
	if !ok {
		r.ReplyCode(TopicNotExist, "topic[%s] not exist", name)
	}
	return c, ok
}

func (a *admin) topicConfig(r *Request) {
	if c, ok := a.topicOf(r); ok {
		r.Reply(&Command{Body: c.AppendJSON(nil)})
	}
}

func (a *admin) topicConsumers(r *Request) {
	topic, err := r.Ext.Need("topic")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	groups := append(a.b.clients.Subscribers(topic), a.b.offsets.Groups(topic)...)
	slices.Sort(groups)
	body := []byte(`{"groupList":[`)
	for i, group := range slices.Compact(groups) {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendText(body, group)
	}
	r.Reply(&Command{Body: append(body, "]}"...)})
}

// connections answers with a group's members and what they subscribe to
// (ConsumerConnection).
func (a *admin) connections(r *Request) {
	group, err := r.Ext.Need("consumerGroup")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	g, ok := a.b.clients.Consumers(group)
	if !ok {
		r.ReplyCode(ConsumerNotOnline, "the consumer group[%s] not online", group)
		return
	}
	type connection struct {
		Address  string `json:"clientAddr"`
		ID       string `json:"clientId"`
		Language string `json:"language"`
		Version  int32  `json:"version"`
	}
	type subscription struct {
		ClassFilterMode bool     `json:"classFilterMode"`
		Codes           []int32  `json:"codeSet"`
		Type            string   `json:"expressionType"`
		Text            string   `json:"subString"`
		Version         int64    `json:"subVersion"`
		Tags            []string `json:"tagsSet"`
		Topic           string   `json:"topic"`
	}
	body := struct {
		Connections   []connection            `json:"connectionSet"`
		From          string                  `json:"consumeFromWhere"`
		Type          string                  `json:"consumeType"`
		Model         string                  `json:"messageModel"`
		Subscriptions map[string]subscription `json:"subscriptionTable"`
	}{From: g.From, Type: g.Type, Model: g.Model, Subscriptions: map[string]subscription{}}
	for _, c := range g.Connections {
		body.Connections = append(body.Connections, connection{c.Address, c.ClientID, c.Language, c.Version})
	}
	for _, s := range g.Subscriptions {
		body.Subscriptions[s.Topic] = subscription{
			Codes: append([]int32{}, s.hashes...), Type: s.Type, Text: s.Text, Version: s.Version, Tags: append([]string{}, s.Tags...), Topic: s.Topic,
		}
	}
	replyJSON(r, body)
}

func replyJSON(r *Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	r.Reply(&Command{Body: body})
}

// haStatus answers with who replicates from whom (HARuntimeInfo).
func (a *admin) haStatus(r *Request) {
	type connection struct {
		Address   string `json:"addr"`
		Diff      int64  `json:"diff"`
		InSync    bool   `json:"inSync"`
		Acked     int64  `json:"slaveAckOffset"`
		Next      int64  `json:"transferFromWhere"`
		PerSecond int64  `json:"transferredByteInSecond"`
	}
	type client struct {
		LastRead    int64  `json:"lastReadTimestamp"`
		LastWrite   int64  `json:"lastWriteTimestamp"`
		Master      string `json:"masterAddr,omitempty"`
		FlushOffset int64  `json:"masterFlushOffset"`
		MaxOffset   int64  `json:"maxOffset"`
		PerSecond   int64  `json:"transferredByteInSecond"`
	}
	var body struct {
		Client      client       `json:"haClientRuntimeInfo"`
		Connections []connection `json:"haConnectionInfo"`
		InSync      int          `json:"inSyncSlaveNums"`
		Master      bool         `json:"master"`
		MaxOffset   int64        `json:"masterCommitLogMaxOffset"`
	}
	s := a.b.o.Engine.Status()
	body.Connections = []connection{}
	if s.Master != nil {
		body.Client.Master, body.Client.MaxOffset = s.Master.Address, s.MaxOffset
		replyJSON(r, body)
		return
	}
	body.Master, body.MaxOffset = true, s.MaxOffset
	for i := range s.Replicas {
		c := &s.Replicas[i]
		body.Connections = append(body.Connections, connection{
			c.Address, s.MaxOffset - c.AckedOffset, c.InSync, c.AckedOffset, c.AckedOffset, int64(c.BytesPerSecond),
		})
		if c.InSync {
			body.InSync++
		}
	}
	replyJSON(r, body)
}
