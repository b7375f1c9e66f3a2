package remoting

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lockTime is how long a lock lasts after it was last asked for
// (REBALANCE_LOCK_MAX_LIVE_TIME); clients ask every 20 s and believe in it for 30.
const lockTime = time.Minute

// locksMax bounds the queues that are locked, lockBatchMax and lockBytesMax those
// of one request, which is read on an event loop.
const (
	locksMax     = 1 << 18
	lockBatchMax = 1 << 14
	lockBytesMax = 4 << 20
)

// Locks are which client of a group consumes which queue, for consumers that keep
// the order (41, 42). They live in memory: after a restart clients ask again
// within 20 s. A slave gives them, too, as RocketMQ's does outside of its strict
// mode: clients ask none but a master, and what a slave gave is of use when it has
// become one. Any goroutine. RocketMQ: RebalanceLockManager.
type Locks struct {
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	groups map[string]map[QueueName]queueLock
	count  int
	swept  time.Time
}

// QueueName names a queue as clients do (MessageQueue).
type QueueName struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

type queueLock struct {
	client string
	until  time.Time
}

// lockBody is the body of both requests (LockBatchRequestBody).
type lockBody struct {
	ClientID      string      `json:"clientId"`
	ConsumerGroup string      `json:"consumerGroup"`
	Queues        []QueueName `json:"mqSet"`
}

// tooLong gives a name that is longer than any may be; "" if there is none. Locks
// keep their names, so that their number alone bounds nothing.
func (b *lockBody) tooLong() string {
	switch {
	case len(b.ClientID) > clientIDMax:
		return b.ClientID
	case len(b.ConsumerGroup) > groupTopicNameMax:
		return b.ConsumerGroup
	}
	for i := range b.Queues {
		if q := &b.Queues[i]; len(q.Topic) > groupTopicNameMax {
			return q.Topic
		} else if len(q.BrokerName) > groupTopicNameMax {
			return q.BrokerName
		}
	}
	return ""
}

// NewLocks makes a table without locks. A nil logger is the default one.
func NewLocks(logger *slog.Logger) *Locks {
	if logger == nil {
		logger = slog.Default()
	}
	return &Locks{now: time.Now, logger: logger, groups: map[string]map[QueueName]queueLock{}}
}

// Handle makes l the handler of its codes.
func (l *Locks) Handle(m *Mux) { m.Handle(l, CodeLockBatch, CodeUnlockBatch) }

// Serve implements Handler.
func (l *Locks) Serve(r *Request) {
	var b lockBody
	if len(r.Body) > lockBytesMax {
		r.ReplyCode(InvalidParameter, "a lock request of %d bytes, at most %d are read", len(r.Body), lockBytesMax)
		return
	}
	if err := json.Unmarshal(r.Body, &b); err != nil {
		r.ReplyCode(SystemError, "the body of a lock request: %v", err)
		return
	}
	if b.ClientID == "" || b.ConsumerGroup == "" || len(b.Queues) > lockBatchMax {
		r.ReplyCode(InvalidParameter, "a lock request needs clientId, consumerGroup and at most %d queues, it has %d", lockBatchMax, len(b.Queues))
		return
	}
	if long := b.tooLong(); long != "" {
		r.ReplyCode(InvalidParameter, "a lock request with a name of %d bytes: %.40s…", len(long), long)
		return
	}
	if r.Code == CodeUnlockBatch {
		l.Unlock(b.ConsumerGroup, b.ClientID, b.Queues)
		r.Reply(&Command{})
		return
	}
	held := struct {
		Queues []QueueName `json:"lockOKMQSet"`
	}{l.Lock(b.ConsumerGroup, b.ClientID, b.Queues)}
	body, err := json.Marshal(held)
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	r.Reply(&Command{Body: body})
}

// Lock gives a client those of the queues that no other one of its group holds,
// for another minute, and returns them.
func (l *Locks) Lock(group, client string, queues []QueueName) []QueueName {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.sweepLocked(now)
	of := l.groups[group]
	if of == nil {
		of = map[QueueName]queueLock{}
		l.groups[group] = of
	}
	held := make([]QueueName, 0, len(queues))
	for _, q := range queues {
		old, ok := of[q]
		if ok && old.client != client && now.Before(old.until) {
			continue
		}
		if !ok {
			if l.count >= locksMax {
				l.logger.Warn("too many queues are locked, another one is not", "group", group, "topic", q.Topic, "queue", q.QueueID, "locks", l.count)
				continue
			}
			l.count++
		} else if old.client != client {
			l.logger.Warn("a queue's lock was over and goes to another client", "group", group, "topic", q.Topic, "queue", q.QueueID, "from", old.client, "to", client)
		}
		of[q] = queueLock{client: client, until: now.Add(lockTime)}
		held = append(held, q)
	}
	if len(of) == 0 {
		delete(l.groups, group)
	}
	return held
}

// Unlock takes back those of the queues that the client holds.
func (l *Locks) Unlock(group, client string, queues []QueueName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.groups[group]
	for _, q := range queues {
		if old, ok := of[q]; ok && old.client == client {
			delete(of, q)
			l.count--
		}
	}
	if of != nil && len(of) == 0 {
		delete(l.groups, group)
	}
}

// Held tells whether a client of a group holds a queue now: then a normal send to
// the group's retry topic goes to its dead-letter queue.
func (l *Locks) Held(group string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, lock := range l.groups[group] {
		if now.Before(lock.until) {
			return true
		}
	}
	return false
}

// sweepLocked forgets, once in a while, what is long over.
func (l *Locks) sweepLocked(now time.Time) {
	if now.Sub(l.swept) < lockTime {
		return
	}
	l.swept = now
	for group, of := range l.groups {
		for q, lock := range of {
			if !now.Before(lock.until) {
				delete(of, q)
				l.count--
			}
		}
		if len(of) == 0 {
			delete(l.groups, group)
		}
	}
}

// String names the queue for people.
func (q QueueName) String() string { return fmt.Sprintf("%s/%s/%d", q.BrokerName, q.Topic, q.QueueID) }
