package remoting

import "time"

// raiseFresh is how young the last message of a topic may be for the topic to be
// one that this broker has not heard of yet, and not one that was deleted: some
// turns of the copy from the master.
const raiseFresh = 6 * syncInterval

// raiseTopics makes what the log holds readable on a broker that has become a
// master: topics are copied from a master every few seconds, so that it may have
// messages in queues, and of topics, that it was not told of. RocketMQ leaves them
// where nobody reads.
func (b *Broker) raiseTopics() {
	needed := map[string]int32{}
	for _, q := range b.o.Engine.Queues() {
		if !IsSystemTopic(q.Topic) && ValidateTopic(q.Topic) == "" {
			needed[q.Topic] = max(needed[q.Topic], q.ID+1)
		}
	}
	for topic, queues := range needed {
		c, there := b.topics.Lookup(topic)
		if there && c.ReadQueues >= queues || !there && !b.freshTopic(topic, queues) {
			continue
		}
		b.topics.raise(topic, queues, func(err error) {
			log := b.o.Logger.With("topic", topic, "queues", queues)
			if err != nil {
				log.Warn("the log has more queues of a topic than its settings, which could not be raised; update the topic", "error", err)
				return
			}
			log.Info("a topic has the queues that the log has: this node was not told of them before it became master")
		})
	}
}

// freshTopic tells whether a message of the topic was stored a short time ago.
func (b *Broker) freshTopic(topic string, queues int32) bool {
	least := time.Now().Add(-raiseFresh).UnixMilli()
	for queue := range queues {
		_, to, ok := b.o.Engine.QueueBounds(topic, queue)
		if !ok || to == 0 {
			continue
		}
		if last, err := b.o.Engine.GetByQueue(topic, queue, to-1); err == nil && last.StoreTimestamp >= least {
			return true
		}
	}
	return false
}

// raise lets so many queues of a topic be read. A topic that is not there is made.
func (t *Topics) raise(name string, queues int32, done func(error)) {
	t.alter(name, func(c TopicConfig, there bool) (TopicConfig, error) {
		if !there {
			return NewTopicConfig(name, queues), nil
		}
		c.ReadQueues = max(c.ReadQueues, queues)
		return c, nil
	}, done)
}
