package remoting

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// Bits of a pull's sysFlag (PullSysFlag).
const (
	pullCommits      = 1 // commitOffset is to be stored
	pullSuspends     = 2 // it may wait for a message
	pullSubscription = 4 // the subscription stands in the header
)

// PullOptions are the settings of Pulls. The functions must be given and must
// not block; any goroutine calls them. RocketMQ's names stand in parentheses.
type PullOptions struct {
	// Topic gives a topic's read queues and perm bits.
	Topic func(name string) (readQueues, perm int32, ok bool)
	// Group gives a subscription group, which it may make.
	Group func(name string) (PullGroup, bool)
	// Subscription gives what a group's members said in their heartbeats, and
	// whether they broadcast.
	Subscription func(group, topic string) (s Subscription, broadcast, ok bool)
	Offsets      *Offsets

	Visible     engine.Visible
	SlaveReads  bool // a slave serves (slaveReadEnable)
	NotReadable bool // this broker serves nobody (brokerPermission without 4)

	// HotBytes: what is less than this behind the log's end is read where nobody has
	// to wait for a disk; 0: 256 MiB.
	HotBytes int64
	// NearBytes: a new group begins with the first message of a queue if that is less
	// than this behind the log's end, and a consumer that is further behind is sent to
	// a slave; 0: 40 % of the machine's memory (accessMessageInMemoryMaxRatio).
	NearBytes    int64
	Messages     int // of one answer at most; 0: 32 (maxTransferCountOnMessageInMemory)
	Bytes        int // but always one message; 0: 256 KiB (maxTransferBytesOnMessageInMemory)
	ColdMessages int // the same of what is cold; 0: 8
	ColdBytes    int // 0: 64 KiB

	Readers     int           // goroutines that read what is hot; 0: 4
	ColdReaders int           // and what is cold; 0: 4
	PeerPulls   int           // unanswered pulls of one connection at most; 0: 16,384
	PeerBytes   int64         // bytes of answers that one connection has not taken yet, above which no read is begun for it; 0: 8 MiB
	Pulls       int           // unanswered pulls at most; 0: 262,144
	PullBytes   int64         // and of memory for them; 0: 128 MiB
	RetryPause  time.Duration // how long a message that was sent back stays away at most; 0: 10 s
	HoldLongest time.Duration // the longest that a pull is held, whatever it asks for; 0: 60 s
	Logger      *slog.Logger
}

// PullGroup is what a pull has to know of a subscription group.
type PullGroup struct {
	ConsumeEnable bool
	Broadcast     bool  // its members may (consumeBroadcastEnable)
	SlowBroker    int64 // whichBrokerWhenConsumeSlowly
	Broker        int64 // brokerId
}

func (o *PullOptions) setDefaults() {
	or(&o.HotBytes, 256<<20)
	if o.NearBytes == 0 {
		o.NearBytes = nearBytes()
	}
	or(&o.Messages, 32)
	or(&o.Bytes, 256<<10)
	or(&o.ColdMessages, 8)
	or(&o.ColdBytes, 64<<10)
	or(&o.Readers, 4)
	or(&o.ColdReaders, 4)
	or(&o.PeerPulls, 16<<10)
	or(&o.PeerBytes, 8<<20)
	or(&o.Pulls, 256<<10)
	or(&o.PullBytes, 128<<20)
	or(&o.RetryPause, retryPause)
	or(&o.HoldLongest, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Pulls answers those who read queues: pulls (11, 361), which may be held until
// there is something, and look-ups in queues (see lookup.go). RocketMQ:
// PullMessageProcessor, PullRequestHoldService.
//
// What is other than there, on purpose:
//
//   - The version of a subscription is not compared with the heartbeat's (code
//     25): clients raise it and may heartbeat much later.
//   - A held pull is answered at its time, not up to 5 s later, and with
//     PullRetryImmediately and an offset to go on from if there were messages
//     that it does not want.
//   - On a slave, a pull that may wait and whose offset is outside of what the
//     slave has is held; sent back at once it would come again at once. It is not
//     sent back either because the master lives: the answer says where that is.
//   - A unit of a queue that cannot be read, or means no record, is a SystemError,
//     and is not skipped.
//   - An offset behind what is visible but not behind the queue's end is no wrong
//     one: the consumer was further than a master that lost its replicas shows.
type Pulls struct {
	e       *engine.Engine
	o       PullOptions
	hot     *lane
	cold    *lane
	holds   holds
	closed  atomic.Bool
	unwatch func()
	traffic pullTraffic

	mu    sync.Mutex
	peers map[Peer]*pullPeer // those with a pull or a look-up that is not answered
	pulls int                // unanswered
	bytes int64              // estimate of what they keep in memory
}

// pull is one request. It belongs to whoever works on it: the loop, a reader, or
// holds, one after the other.
type pull struct {
	r     *Request
	peer  *pullPeer
	topic string
	group PullGroup
	queue int32
	from  int64 // as it was asked for
	next  int64 // where to look next; above from after messages that the filter does not want
	tags  []int32
	most  int // messages
	bytes int // of the answer
	cost  int64
	wait  bool // may be held
	again bool // it was held
	last  engine.Pulled
	owner *Pulls
	cold  bool // it is read where cold reads are

	deadline time.Time // when it is answered whatever there is
	due      time.Time // before that there is nothing for it; zero: look when its queue has grown. Written by a reader
	parked   bool      // held for its time, whatever comes; guarded by holds.mu, as below
	at       int       // in holds.due; -1: it is not held
}

// NewPulls begins to serve readers of an engine's log, of which it becomes the
// watcher; only one can be. Close ends it.
func NewPulls(e *engine.Engine, o PullOptions) (*Pulls, error) {
	o.setDefaults()
	p := &Pulls{e: e, o: o, peers: map[Peer]*pullPeer{}}
	p.holds.init(p)
	stop, err := e.Watch(o.Visible, p.holds.grown)
	if err != nil {
		return nil, err
	}
	p.unwatch = stop
	p.hot = newLane(o.Readers, max(1, o.Readers/2), p.holds.stalled)
	p.cold = newLane(o.ColdReaders, 1, p.holds.stalled)
	p.holds.start()
	return p, nil
}

// Handle makes p the handler of its codes.
func (p *Pulls) Handle(m *Mux) {
	m.Handle(p, CodePullMessage, CodeLitePullMessage)
	m.Handle(HandlerFunc(p.lookUp), CodeSearchOffsetByTime, CodeGetMaxOffset, CodeGetMinOffset,
		CodeGetEarliestStoreTime, CodeViewMessageByID, CodeQueryConsumerOffset)
	m.Handle(HandlerFunc(p.commit), CodeUpdateConsumerOffset)
}

// Close stops serving: pulls and look-ups that are held or wait are refused, as
// those that come.
func (p *Pulls) Close() {
	if p.closed.Swap(true) {
		return
	}
	p.unwatch()
	p.holds.stop()
	p.hot.stop()
	p.cold.stop()
}

// Serve implements Handler, for pulls.
func (p *Pulls) Serve(r *Request) {
	h, err := parsePull(r.Ext)
	if err != nil {
		r.ReplyCode(SystemError, "%v", err)
		return
	}
	q, code, err := p.admit(r, &h)
	if err != nil {
		r.ReplyCode(code, "%v", err)
		return
	}
	if o := p.o.Offsets; o != nil {
		o.NotePulled(h.group, h.topic, h.queue, h.from)
		if h.flags&pullCommits != 0 {
			if err := o.Commit(h.group, h.topic, h.queue, h.commit, r.Peer); err != nil {
				p.o.Logger.Warn("an offset that came with a pull is not stored", "group", h.group, "topic", h.topic, "queue", h.queue, "error", err)
			}
		}
	}
	if err := p.enter(q); err != nil {
		r.ReplyCode(SystemBusy, "%v", err)
		return
	}
	first, end, ok := p.e.QueueBounds(q.topic, q.queue)
	if q.wait && q.from == end {
		q.last = engine.Pulled{Status: engine.PullOverflowOne, Next: end, Min: first, Max: end}
		if !ok {
			q.last.Status = engine.PullNoQueue
		}
		p.holds.add(q)
		return
	}
	p.hot.add(&q.peer.hot, q)
}

// admit checks a pull in the real broker's order. The error is told to the
// client with the code.
func (p *Pulls) admit(r *Request, h *pullHeader) (*pull, int32, error) {
	if p.e.Role() == engine.Slave && !p.o.SlaveReads {
		return nil, SystemBusy, fmt.Errorf("[REJECTREQUEST] this broker is a slave that serves no reads")
	}
	if p.o.NotReadable {
		return nil, NoPermission, fmt.Errorf("this broker may not be pulled from")
	}
	group, ok := p.o.Group(h.group)
	if !ok {
		return nil, GroupNotExist, fmt.Errorf("subscription group [%s] does not exist", h.group)
	}
	if !group.ConsumeEnable {
		return nil, NoPermission, fmt.Errorf("subscription group [%s] may not consume", h.group)
	}
	queues, perm, ok := p.o.Topic(h.topic)
	if !ok {
		return nil, TopicNotExist, fmt.Errorf("topic [%s] does not exist", h.topic)
	}
	if perm&PermRead == 0 {
		return nil, NoPermission, fmt.Errorf("topic [%s] may not be pulled from", h.topic)
	}
	if h.queue < 0 || h.queue >= queues {
		return nil, InvalidParameter, fmt.Errorf("queue %d of topic [%s]: it has read queues 0 to %d, group [%s]", h.queue, h.topic, queues-1, h.group)
	}
	wanted, code, err := p.wanted(h, &group)
	if err != nil {
		return nil, code, err
	}
	// What is kept of the header are copies: the header may be part of a frame.
	q := &pull{
		r: r, topic: strings.Clone(h.topic), group: group, queue: h.queue, from: h.from, next: h.from, tags: wanted,
		most: min(max(int(h.most), 1), p.o.Messages), bytes: p.o.Bytes, owner: p, at: -1,
	}
	if h.bytes > 0 {
		q.bytes = min(q.bytes, int(h.bytes))
	}
	if h.flags&pullSuspends != 0 {
		wait := time.Duration(min(max(h.suspend, 0), int64(p.o.HoldLongest/time.Millisecond))) * time.Millisecond
		if wait == 0 {
			wait = time.Second // who names no time would ask again at once
		}
		q.wait, q.deadline = true, time.Now().Add(wait)
	}
	q.cost = pullCost + int64(len(q.topic)+4*len(wanted))
	r.Ext, r.Body = nil, nil
	return q, 0, nil
}

// wanted gives the hashes of the tags that a pull wants, nil: all.
func (p *Pulls) wanted(h *pullHeader, group *PullGroup) (tags []int32, code int32, err error) {
	var s Subscription
	if h.flags&pullSubscription != 0 {
		s = NewSubscription(h.topic, h.subscription, h.kind, 0)
	} else {
		var broadcast, ok bool
		s, broadcast, ok = p.o.Subscription(h.group, h.topic)
		if broadcast && !group.Broadcast {
			return nil, NoPermission, fmt.Errorf("the consumer group[%s] can not consume by broadcast way", h.group)
		}
		if !ok {
			return nil, SubscriptionNotExist, fmt.Errorf("group [%s] has no member that has subscribed to topic [%s]", h.group, h.topic)
		}
	}
	if s.Type != tagFilter {
		return nil, SystemError, noFilter(s.Type)
	}
	return s.hashes, 0, nil
}

// noFilter says that a broker cannot filter by a kind of expression.
func noFilter(kind string) error {
	return fmt.Errorf("this broker does not filter messages by %.40s, only by %s", kind, tagFilter)
}

// pullCost is about what an unanswered pull keeps in memory without its texts.
const pullCost = 512

const shuttingDown = "this broker is shutting down"
