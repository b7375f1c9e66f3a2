package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/remoting"
)

// ProducerOptions are how a producer sends. Zero values are defaults.
type ProducerOptions struct {
	Group       string        // empty: CLIENT_INNER_PRODUCER, which every broker takes
	Outstanding int           // messages on the way at most; 0: one for each queue
	Queue       int           // send to this queue only, if above 0 or FixedQueue is set
	FixedQueue  bool          // Queue counts, 0 too
	Patience    time.Duration // how long a message is tried that nobody has taken; 0: 10 s
	Timeout     time.Duration // for the answer to a message; 0: 10 s
	QueuesNew   int           // of a topic that its first message makes; 0: 4
}

// Sent is what became of a message.
type Sent struct {
	Status   Status
	Queue    Queue
	Offset   int64         // in the queue, when it is stored
	ID       string        // that the message carries (UNIQ_KEY)
	OffsetID string        // of its place in the log, when it is stored
	Address  string        // of the broker that answered, or did not
	Latency  time.Duration // of the last try
	Tries    int
}

// Producer sends to one topic, with several messages on the way at once.
//
// Order: with no more messages on the way than the topic has queues (the default),
// each queue has one at a time, and the messages that go to it are stored there in
// the order in which they were given. Queues take turns as they are free. With
// more, nothing is said of the order.
//
// A message is tried again only if it is certain that nobody has stored it: the
// connection could not be made, there is no master, or the broker said that it is
// busy. What was sent and not answered is NoAnswer, and is not sent again.
//
// All methods but Close may be called from any goroutine.
type Producer struct {
	c       *Client
	o       ProducerOptions
	topic   string
	ids     *uniqueIDs
	route   atomic.Pointer[producerRoute]
	refresh sync.Mutex // one asks for the route
	work    chan job
	workers sync.WaitGroup
	pending sync.WaitGroup
	mu      struct {
		sync.Mutex
		ends map[Queue]storedEnd // what was stored last in each queue
	}
}

// storedEnd is one past the last message that a producer knows to be in a queue.
type storedEnd struct {
	address string
	end     int64
}

// producerRoute is a route with the queues that a producer uses.
type producerRoute struct {
	route  *Route
	queues []Queue
	asked  time.Time
}

type job struct {
	ctx  context.Context
	m    *Message
	done func(Sent, error)
}

const (
	routeInterval = 30 * time.Second // RocketMQ's pollNameServerInterval
	retryLeast    = 20 * time.Millisecond
	retryMost     = time.Second
	queuesNew     = 4
)

// NewProducer makes a producer for a topic, which needs a route: of itself or, if
// brokers make topics at their first message, of the template. The caller must
// Close it.
func (c *Client) NewProducer(ctx context.Context, topic string, o ProducerOptions) (*Producer, error) {
	if wrong := remoting.ValidateTopic(topic); wrong != "" {
		return nil, errors.New(wrong)
	}
	o.Group = cmp.Or(o.Group, "CLIENT_INNER_PRODUCER")
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.QueuesNew = cmp.Or(o.QueuesNew, queuesNew)
	o.FixedQueue = o.FixedQueue || o.Queue > 0
	p := &Producer{c: c, o: o, topic: topic, ids: newUniqueIDs(), work: make(chan job)}
	p.mu.ends = map[Queue]storedEnd{}
	end := time.Now().Add(o.Patience)
	for wait := retryLeast; ; wait = min(2*wait, retryMost) {
		err := p.look(ctx, 0)
		if err == nil {
			break
		}
		if errors.Is(err, ErrNoTopic) || !time.Now().Add(wait).Before(end) || !pause(ctx, wait) {
			return nil, err
		}
	}
	n := o.Outstanding
	if n == 0 {
		n = len(p.route.Load().queues)
	}
	c.mu.Lock()
	c.mu.produce[o.Group]++
	c.mu.Unlock()
	for i := range n {
		p.workers.Go(func() { p.run(i) })
	}
	return p, nil
}

// Outstanding is how many messages may be on the way at once.
func (p *Producer) Outstanding() int { return cmp.Or(p.o.Outstanding, len(p.route.Load().queues)) }

// Send sends a message and waits for what becomes of it. The error is nil only
// for SendOK; what is stored with a doubt, Sent.Status.Stored says.
func (p *Producer) Send(ctx context.Context, m *Message) (Sent, error) {
	type outcome struct {
		sent Sent
		err  error
	}
	result := make(chan outcome, 1)
	if err := p.Start(ctx, m, func(s Sent, err error) { result <- outcome{s, err} }); err != nil {
		return Sent{Status: NotSent}, err
	}
	r := <-result
	return r.sent, r.err
}

// Start sends a message and returns when it is on its way, which it waits for when
// as many as may be are. When ctx is over, it is not tried again, and the try that
// is under way comes to its end: what has become of it is known then. done is called once, from a goroutine of the producer's,
// unless Start fails, which it does only when ctx is over first. The message
// belongs to the producer until then.
func (p *Producer) Start(ctx context.Context, m *Message, done func(Sent, error)) error {
	p.pending.Add(1)
	select {
	case p.work <- job{ctx, m, done}:
		return nil
	case <-ctx.Done():
		p.pending.Done()
		return ctx.Err()
	}
}

// Wait waits until nothing is on the way.
func (p *Producer) Wait() { p.pending.Wait() }

// Settle waits until consumers can see all that was stored: brokers put messages into
// their queues, and show them, a moment after they have answered. The error is ctx's.
func (p *Producer) Settle(ctx context.Context) error {
	p.Wait()
	p.mu.Lock()
	ends := maps.Clone(p.mu.ends)
	p.mu.Unlock()
	for q, last := range ends {
		for wait := time.Millisecond; ; wait = min(2*wait, retryMost/10) {
			if end, err := p.c.resolve(ctx, last.address, q, Last()); err == nil && end >= last.end {
				break
			}
			if !pause(ctx, wait) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// Close waits until nothing is on the way, and ends the producer.
func (p *Producer) Close() {
	p.pending.Wait()
	close(p.work)
	p.workers.Wait()
	p.c.mu.Lock()
	if p.c.mu.produce[p.o.Group]--; p.c.mu.produce[p.o.Group] == 0 {
		delete(p.c.mu.produce, p.o.Group)
	}
	p.c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), p.c.o.Timeout)
	defer cancel()
	p.c.leave(ctx, "producerGroup", p.o.Group)
}

func (p *Producer) run(worker int) {
	for j := range p.work {
		sent, err := p.send(j.ctx, j.m, worker)
		j.done(sent, err)
		p.pending.Done()
	}
}

// look asks for the route if the one that is known is older than age.
func (p *Producer) look(ctx context.Context, age time.Duration) error {
	p.refresh.Lock()
	defer p.refresh.Unlock()
	if r := p.route.Load(); r != nil && time.Since(r.asked) <= age {
		return nil
	}
	route, err := p.c.Route(ctx, p.topic)
	if errors.Is(err, ErrNoTopic) {
		if p.route.Load() != nil {
			return nil // it is being made
		}
		route, err = p.templateRoute(ctx, err)
	}
	if err != nil {
		return err
	}
	queues := route.Writable()
	if p.o.FixedQueue {
		var fixed []Queue
		for _, q := range queues {
			if int(q.QueueID) == p.o.Queue {
				fixed = append(fixed, q)
			}
		}
		if len(fixed) == 0 && len(queues) > 0 {
			return fmt.Errorf("topic %s has no queue %d that takes messages: it has %d", p.topic, p.o.Queue, len(queues))
		}
		queues = fixed
	}
	if len(queues) == 0 {
		return noWritable(route)
	}
	p.route.Store(&producerRoute{route, queues, time.Now()})
	return nil
}

// templateRoute is the route of a topic that is not there yet: its first message
// has a broker make it.
func (p *Producer) templateRoute(ctx context.Context, unknown error) (*Route, error) {
	route, err := p.c.Route(ctx, remoting.TopicTemplate)
	if errors.Is(err, ErrNoTopic) {
		return nil, fmt.Errorf("%w, and no broker makes topics by itself", unknown)
	}
	if err != nil {
		return nil, err
	}
	route.Topic = p.topic
	for i := range route.Queues {
		q := &route.Queues[i]
		q.WriteQueues = min(q.WriteQueues, int32(p.o.QueuesNew))
	}
	return route, nil
}

// noWritable says why nobody takes messages of a topic.
func noWritable(r *Route) error {
	for i := range r.Queues {
		b := r.Broker(r.Queues[i].Broker)
		if b != nil && b.Master() == "" {
			return fmt.Errorf("topic %s: %w for broker %s: messages are read, and none can be sent until its master is back or a slave is promoted", r.Topic, ErrNoMaster, b)
		}
	}
	return fmt.Errorf("topic %s has no queue that takes messages (its perm forbids it, or it has none)", r.Topic)
}

// send tries until somebody has the message, it is certain that nobody takes it,
// or patience is over.
func (p *Producer) send(ctx context.Context, m *Message, worker int) (Sent, error) {
	sent := Sent{Status: NotSent, ID: p.ids.id()}
	text, err := m.properties(sent.ID)
	if err != nil {
		sent.Status = Status(CodeName(remoting.MessageIllegal))
		return sent, err
	}
	end := time.Now().Add(p.o.Patience)
	for wait := retryLeast; ; wait = min(2*wait, retryMost) {
		if looked := p.look(ctx, routeInterval); looked != nil {
			p.c.o.Logger.Debug("the route that is known stays", "topic", p.topic, "error", looked)
		}
		var again bool
		if again, err = p.try(ctx, m, text, worker, &sent); !again {
			return sent, err
		}
		if failed := p.look(ctx, retryLeast); errors.Is(failed, ErrNoMaster) {
			err = failed // which says more than that an address is not there
		}
		if ctx.Err() != nil || !time.Now().Add(wait).Before(end) || !pause(ctx, wait) {
			return sent, err
		}
	}
}

// try sends a message once; again tells that nobody has it and somebody may take it.
func (p *Producer) try(ctx context.Context, m *Message, properties string, worker int, sent *Sent) (again bool, err error) {
	r := p.route.Load()
	sent.Queue = r.queues[worker%len(r.queues)]
	sent.Address = r.route.Broker(sent.Queue.BrokerName).Master()
	sent.Tries++
	what := fmt.Sprintf("send to %s queue %d", p.topic, sent.Queue.QueueID)
	began := time.Now()
	answer, err := p.c.call(context.WithoutCancel(ctx), sent.Address, p.command(m, properties, sent.Queue), what, p.o.Timeout)
	sent.Latency = time.Since(began)
	var failed *CallError
	switch {
	case err != nil && !errors.As(err, &failed):
		return false, err
	case err != nil && !failed.Sent:
		p.c.o.Logger.Warn("the master cannot be reached; trying again", "address", sent.Address, "error", err)
		return true, err
	case answer == nil:
		sent.Status = NoAnswer
		return false, fmt.Errorf("%w; whether the message is stored is not known", err)
	}
	if status, ok := statuses[answer.Code]; ok {
		sent.Status, sent.OffsetID = status, answer.Ext.Text("msgId")
		sent.Offset, _ = strconv.ParseInt(answer.Ext.Text("queueOffset"), 10, 64)
		p.mu.Lock()
		if last := p.mu.ends[sent.Queue]; sent.Offset >= last.end {
			p.mu.ends[sent.Queue] = storedEnd{sent.Address, sent.Offset + 1}
		}
		p.mu.Unlock()
		return false, err
	}
	sent.Status = Status(CodeName(answer.Code))
	switch answer.Code {
	case remoting.SystemBusy, flowControl, remoting.ServiceNotAvailable, remoting.GoAway:
		p.c.o.Logger.Debug("refused for now; trying again", "address", sent.Address, "error", err)
		return true, err
	}
	return false, err
}

// command is SEND_MESSAGE_V2.
func (p *Producer) command(m *Message, properties string, q Queue) *remoting.Command {
	return &remoting.Command{Code: remoting.CodeSendMessageV2, Body: m.Body, Ext: remoting.Ext{
		{Name: "a", Value: p.o.Group}, {Name: "b", Value: p.topic}, {Name: "c", Value: remoting.TopicTemplate},
		{Name: "d", Value: strconv.Itoa(p.o.QueuesNew)}, {Name: "e", Value: strconv.Itoa(int(q.QueueID))},
		{Name: "f", Value: "0"}, {Name: "g", Value: strconv.FormatInt(time.Now().UnixMilli(), 10)},
		{Name: "h", Value: strconv.Itoa(int(m.Flag))}, {Name: "i", Value: properties}, {Name: "j", Value: "0"},
		{Name: "k", Value: "false"}, {Name: "m", Value: "false"}, {Name: "n", Value: q.BrokerName},
	}}
}

// pause waits; false: ctx is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
