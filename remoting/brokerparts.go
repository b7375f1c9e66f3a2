package remoting

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/haengine/haengine/engine"
)

// brokerParts are what a broker's handlers work on. Those that were not opened
// are nil.
type brokerParts struct {
	topics  *Topics
	groups  *Groups
	offsets *Offsets
	clients *Clients
	locks   *Locks
	sends   *Sends
	pulls   *Pulls
}

// announceTimeout is how long a change of topics waits for name servers.
const announceTimeout = 2 * time.Second

// open opens the parts and makes their handlers.
func (b *Broker) open() (err error) {
	o := &b.o
	config := ConfigOptions{Dir: o.Store, Logger: o.Logger}
	master := func() bool { return o.Engine.Role() != engine.Slave }
	b.topics, err = OpenTopics(TopicsOptions{
		ConfigOptions: config, NoAutoCreate: o.NoAutoTopics, Cluster: o.Cluster, Broker: o.Name, Master: master,
		Deleted: func(topic string) { b.offsets.Remove("", topic) }, // as RocketMQ's (cleanOffsetByTopic)
	})
	if err != nil {
		return err
	}
	b.topics.OnChange(b.topicsChanged)
	if b.groups, err = OpenGroups(GroupsOptions{ConfigOptions: config, NoAutoCreate: o.NoAutoGroups}); err != nil {
		return err
	}
	b.offsets, err = OpenOffsets(OffsetsOptions{File: filepath.Join(o.Store, "config", "consumerOffset.json"), Logger: o.Logger})
	if err != nil {
		return err
	}
	b.clients = NewClients(ClientsOptions{Groups: b.groups, Topics: b.topics, Master: master, Logger: o.Logger})
	b.locks = NewLocks(o.Logger)
	b.sends = NewSends(SendsOptions{Engine: o.Engine, Topics: b.topics, Groups: b.groups, Locked: b.locks.Held, Logger: o.Logger})
	b.pulls, err = NewPulls(o.Engine, PullOptions{
		Topic: b.readable, Group: b.readers, Subscription: b.clients.subscription, Offsets: b.offsets,
		Visible: o.Visible, SlaveReads: o.SlaveReads, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	b.traffic.now = b.counts
	b.handle()
	return nil
}

func (b *Broker) handle() {
	b.mux.Handle(b.sends, CodeSendMessage, CodeSendMessageV2, CodeSendBatch, CodeConsumerSendBack, CodeSendReply, CodeSendReplyV2)
	b.mux.Handle(b.clients, CodeHeartbeat, CodeUnregisterClient, CodeGetConsumerList)
	b.mux.Handle(b.topics, CodeUpdateTopic, CodeDeleteTopic)
	b.pulls.Handle(&b.mux)
	b.locks.Handle(&b.mux)
	(&admin{b: b, began: time.Now()}).handle(&b.mux)
}

// readable is a topic as pulls need it.
func (b *Broker) readable(name string) (queues, perm int32, ok bool) {
	c, ok := b.topics.Lookup(name)
	return c.ReadQueues, c.Perm, ok
}

// readers is a group as pulls need it.
func (b *Broker) readers(name string) (PullGroup, bool) {
	c, ok := b.groups.Lookup(name)
	return PullGroup{ConsumeEnable: c.ConsumeEnable, Broadcast: c.ConsumeBroadcastEnable, SlowBroker: c.WhichBrokerWhenSlow, Broker: c.BrokerID}, ok
}

// topicsLogged is how many of the topics that changed at once a line names: there may
// be thousands.
const topicsLogged = 5

// topicsChanged tells name servers, before the one who asked for the change is
// answered: it asks them for the route next.
func (b *Broker) topicsChanged(changed []string) {
	ctx, cancel := context.WithTimeout(context.Background(), announceTimeout)
	defer cancel()
	if err := b.Announce(ctx); err != nil && !errors.Is(err, ErrClosed) {
		b.o.Logger.Warn("name servers do not know of changed topics yet", "topics", changed[:min(len(changed), topicsLogged)], "number", len(changed), "error", err)
	}
}

// closeParts ends what answers, once nobody asks any more.
func (b *Broker) closeParts() error {
	if b.sends != nil {
		b.sends.Close()
	}
	if b.clients != nil {
		b.clients.Close()
	}
	if b.topics != nil {
		b.topics.Close()
	}
	if b.groups != nil {
		b.groups.Close()
	}
	if b.offsets != nil {
		return b.offsets.Close()
	}
	return nil
}
