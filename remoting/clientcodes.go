package remoting

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
)

// Serve implements Handler for HEART_BEAT, UNREGISTER_CLIENT and
// GET_CONSUMER_LIST_BY_GROUP.
func (c *Clients) Serve(r *Request) {
	switch r.Code {
	case CodeHeartbeat:
		c.heartbeat(r)
	case CodeUnregisterClient:
		c.unregister(r)
	default:
		c.list(r)
	}
}

// heartbeat answers when the topics that the client's groups need are there: it
// looks for them in the route next.
func (c *Clients) heartbeat(r *Request) {
	h, err := parseHeartbeat(r.Body, &c.o)
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	missing, err := c.join(r, h)
	var topics []TopicConfig
	if err == nil && (c.o.Master == nil || c.o.Master()) {
		topics = c.retryTopics(h)
	}
	if err == nil {
		err = missing
	}
	answer := func() {
		if err != nil {
			r.ReplyCode(SystemError, "%v", err)
			return
		}
		r.Reply(&Command{Code: Success})
	}
	if len(topics) == 0 {
		answer()
		return
	}
	r.Body = nil // the connection's again when this returns
	var left atomic.Int32
	left.Store(int32(len(topics)))
	for _, topic := range topics {
		c.o.Topics.Create(topic, func(err error) {
			if err != nil {
				r.ReplyCode(SystemError, "make topic %s: %v", topic.Name, err)
			} else if left.Add(-1) == 0 {
				answer()
			}
		})
	}
}

// retryTopics are the retry topics of the client's groups that are not there.
func (c *Clients) retryTopics(h *heartbeat) []TopicConfig {
	var topics []TopicConfig
	for i := range h.Consumers {
		consumer := &h.Consumers[i]
		config, ok := c.o.Groups.Lookup(consumer.Group)
		if !ok || config.RetryQueues == 0 {
			continue
		}
		if _, ok := c.o.Topics.Lookup(config.RetryTopic()); ok {
			continue
		}
		topic := NewTopicConfig(config.RetryTopic(), config.RetryQueues)
		if consumer.Unit {
			topic.SysFlag = topicFlagUnitSub
		}
		topics = append(topics, topic)
	}
	return topics
}

// join takes a heartbeat in. A consumer group that is not there and may not be
// made is left out and is what missing says; the rest of the heartbeat counts.
func (c *Clients) join(r *Request, h *heartbeat) (missing, err error) {
	m, fresh, err := c.seen(r, h.ClientID)
	if err != nil {
		return nil, err
	}
	if fresh { // outside of the lock: it runs at once if the connection is over
		r.Peer.OnClose(func() { c.gone(m.peer) })
	}
	for i := range h.Consumers {
		if _, ok := c.o.Groups.Lookup(h.Consumers[i].Group); !ok {
			missing = fmt.Errorf("group %s is not there and cannot be made", h.Consumers[i].Group)
			h.Consumers[i].Group = ""
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.peers[m.peer] != m {
		return nil, errors.New("the connection is over")
	}
	for _, p := range h.Producers {
		if !m.producers[p.Group] && !c.roomLocked(m) {
			return nil, c.fullLocked(m)
		}
		if c.mu.producers[p.Group] == nil {
			c.mu.producers[p.Group] = map[Peer]*client{}
		}
		c.mu.producers[p.Group][m.peer] = m
		m.producers[p.Group] = true
	}
	for i := range h.Consumers {
		consumer := &h.Consumers[i]
		if consumer.Group == "" {
			continue
		}
		if !m.consumers[consumer.Group] && !c.roomLocked(m) {
			return nil, c.fullLocked(m)
		}
		c.consumesLocked(m, consumer, h.WithoutSub)
	}
	return missing, nil
}

// seen gives the client of a connection, and whether it was not known.
func (c *Clients) seen(r *Request, id string) (m *client, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m = c.mu.peers[r.Peer]
	more := len(r.Body)
	if m != nil {
		more = max(0, more-m.held)
	}
	if c.mu.held+more > c.o.HeldBytes {
		return nil, false, fmt.Errorf("%w: this broker keeps %d bytes of heartbeats", ErrTooMany, c.o.HeldBytes)
	}
	if m == nil {
		if len(c.mu.peers) >= c.o.Clients {
			return nil, false, fmt.Errorf("%w: this broker keeps %d clients", ErrTooMany, c.o.Clients)
		}
		m = &client{peer: r.Peer, consumers: map[string]bool{}, producers: map[string]bool{}}
		c.mu.peers[r.Peer] = m
		fresh = true
	}
	if m.id != "" && m.id != id { // several instances over one connection: the last one speaks for it
		for group := range m.consumers {
			c.changedLocked(group)
		}
	}
	m.held += more
	c.mu.held += more
	m.id, m.language, m.version, m.seen = id, r.Language, r.Version, c.o.Now()
	return m, fresh, nil
}

func (c *Clients) roomLocked(m *client) bool {
	return len(m.consumers)+len(m.producers) < 2*c.o.GroupsPerClient
}

func (c *Clients) fullLocked(m *client) error {
	return fmt.Errorf("%w: client %s has been in %d groups without leaving one", ErrTooMany, m.id, len(m.consumers)+len(m.producers))
}

// consumesLocked takes in one group of a heartbeat (ConsumerGroupInfo). Members
// are told of a new member and of topics that came or went. Not of another
// expression for a topic: two members that differ would have all of them balance
// with each heartbeat.
func (c *Clients) consumesLocked(m *client, h *consumerHeartbeat, withoutSub bool) {
	g := c.mu.consumers[h.Group]
	if g == nil {
		g = &consumerGroup{members: map[Peer]*client{}, subscriptions: map[string]subscribed{}}
		c.mu.consumers[h.Group] = g
	}
	g.kind, g.model, g.from = h.Type, h.Model, h.From
	if !m.consumers[h.Group] {
		m.consumers[h.Group] = true
		g.members[m.peer] = m
		c.changedLocked(h.Group)
	}
	if withoutSub {
		return
	}
	wanted := make(map[string]bool, len(h.Subscriptions))
	for _, s := range h.Subscriptions {
		wanted[s.Topic] = true
		old, there := g.subscriptions[s.Topic]
		switch {
		case !there:
			c.changedLocked(h.Group)
		case old.client == m.id && s.Version < old.Version:
			continue // overtaken; the versions of two clients say nothing of each other
		case old.Text == s.Text && (old.Type == s.Type || s.Type == ""):
			old.client, old.Version = m.id, s.Version
			g.subscriptions[s.Topic] = old
			continue
		}
		g.subscriptions[s.Topic] = subscribed{NewSubscription(s.Topic, s.Text, s.Type, s.Version), m.id}
	}
	if len(wanted) < len(g.subscriptions) {
		maps.DeleteFunc(g.subscriptions, func(topic string, _ subscribed) bool { return !wanted[topic] })
		c.changedLocked(h.Group)
	}
}

// unregister ends what a client says that it ends. One that is not known is no
// error: it may have expired.
func (c *Clients) unregister(r *Request) {
	if _, err := r.Ext.Need("clientID"); err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	c.mu.Lock()
	if m := c.mu.peers[r.Peer]; m != nil {
		if group := r.Ext.Text("producerGroup"); m.producers[group] {
			c.leaveProducersLocked(m, group)
		}
		if group := r.Ext.Text("consumerGroup"); m.consumers[group] {
			c.leaveConsumersLocked(m, group)
		}
	}
	c.mu.Unlock()
	r.Reply(&Command{Code: Success})
}

// list answers with a group's client ids; a client that gets none keeps the
// queues that it has.
func (c *Clients) list(r *Request) {
	group, err := r.Ext.Need("consumerGroup")
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	ids := c.Members(group)
	if len(ids) == 0 {
		r.ReplyCode(SystemError, "no consumer for this group, %s", group)
		return
	}
	body := []byte(`{"consumerIdList":[`)
	for i, id := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendText(body, id)
	}
	r.Reply(&Command{Code: Success, Body: append(body, "]}"...)})
}
