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
	Queues      []int32       // of each broker; they are sent to, and no others; nil: all
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
// Order: unless Outstanding is set, each queue has one message on the way, and the
// messages that go to it are stored there in the order in which they were given.
// Queues take turns as they are free. When brokers come or go, what is being tried
// again then may be stored behind what was given after it. With Outstanding, nothing
// is said of the order.
//
// A message is tried again only if it is certain that nobody has stored it: it has
// not left, or the broker said that it does not take messages now. What was sent
// and not answered is NoAnswer, and is not sent again.
//
// Any goroutine, but that nothing is started while another one waits in Wait or
// Settle.
type Producer struct {
	c       *Client
	o       ProducerOptions
	topic   string
	ids     *uniqueIDs
	route   atomic.Pointer[producerRoute]
	looking looking
	trouble trouble
	turn    atomic.Uint32
	work    chan job
	ctx     context.Context // over when the producer or its client is closed
	cancel  context.CancelFunc
	workers sync.WaitGroup
	pending sync.WaitGroup
	mu      struct {
		sync.Mutex
		closed bool
		ends   map[Queue]storedEnd // what was stored last in each queue
	}
}

// ErrProducerClosed means that a message was started after Close.
var ErrProducerClosed = errors.New("the producer is closed")

// storedEnd is one past the last message that a producer knows to be in a queue.
type storedEnd struct {
	address string
	end     int64
}

type job struct {
	ctx  context.Context
	m    *Message
	done func(Sent, error)
}

const (
	retryLeast = 20 * time.Millisecond
	retryMost  = time.Second
	queuesNew  = 4
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
	if o.Outstanding < 0 || o.QueuesNew < 0 {
		return nil, fmt.Errorf("%d messages on the way and %d queues of a new topic: want 0 or more", o.Outstanding, o.QueuesNew)
	}
	p := &Producer{c: c, o: o, topic: topic, ids: newUniqueIDs(), work: make(chan job)}
	p.mu.ends = map[Queue]storedEnd{}
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if err := p.firstLook(ctx); err != nil {
		p.cancel()
		return nil, err
	}
	c.mu.Lock()
	c.mu.produce[o.Group]++
	c.mu.Unlock()
	p.workers.Go(p.keepLooking)
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
// is under way comes to its end: what has become of it is known then.
//
// done is called once, from a goroutine of the producer's, unless Start fails, which
// it does only when ctx is over first or the producer is closed. The message belongs
// to the producer until then.
func (p *Producer) Start(ctx context.Context, m *Message, done func(Sent, error)) error {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return ErrProducerClosed
	}
	p.pending.Add(1)
	p.mu.Unlock()
	var err error
	select {
	case p.work <- job{ctx, m, done}:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.ctx.Done(): // the client was closed before its producers
		err = ErrProducerClosed
	}
	p.pending.Done()
	return err
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

// Close waits until nothing is on the way, and ends the producer. What is started
// afterwards is refused with ErrProducerClosed.
func (p *Producer) Close() {
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.closed = true
	p.mu.Unlock()
	p.pending.Wait()
	if closed {
		return
	}
	p.cancel()
	p.workers.Wait()
	p.c.mu.Lock()
	p.c.mu.produce[p.o.Group]--
	last := p.c.mu.produce[p.o.Group] == 0
	if last {
		delete(p.c.mu.produce, p.o.Group)
	}
	p.c.mu.Unlock()
	if !last { // others of this client's are still in the group
		return
	}
	ctx, cancel := context.WithTimeout(p.c.ctx, p.c.o.Timeout)
	defer cancel()
	p.c.leave(ctx, "producerGroup", p.o.Group)
}

// run sends what is started, one after the other. Of a route that has fewer queues
// than there were, those that are left have one message on the way each, too.
func (p *Producer) run(worker int) {
	for {
		r, work := p.route.Load(), p.work
		if p.o.Outstanding == 0 && worker >= len(r.queues) {
			work = nil
		}
		select {
		case j := <-work:
			sent, err := p.send(j.ctx, j.m, worker)
			j.done(sent, err)
			p.pending.Done()
			if sent.Status == NoAnswer { // there may be another master by now
				_ = p.look(p.ctx, retryMost) // without an answer the route stays
			}
		case <-r.replaced:
		case <-p.ctx.Done():
			return
		}
	}
}

// send tries until somebody has the message, it is certain that nobody takes it,
// or patience is over.
func (p *Producer) send(ctx context.Context, m *Message, worker int) (Sent, error) {
	sent := Sent{Status: NotSent, ID: p.ids.id(time.Now())}
	text, err := m.properties(sent.ID)
	if err != nil {
		sent.Status = Status(CodeName(remoting.MessageIllegal))
		return sent, err
	}
	end := time.Now().Add(p.o.Patience)
	for wait := retryLeast; ; wait = min(2*wait, retryMost) {
		var again bool
		if again, err = p.try(ctx, m, text, worker, &sent); !again {
			if sent.Status != NoAnswer {
				p.trouble.over(p.c.o.Logger)
			}
			return sent, err
		}
		if failed := p.look(ctx, retryLeast); errors.Is(failed, ErrNoMaster) {
			err = failed // which says more than that an address is not there
		}
		p.trouble.failed(p.c.o.Logger, p.o.Patience, err)
		if ctx.Err() != nil || !time.Now().Add(wait).Before(end) || !pause(ctx, wait) {
			return sent, err
		}
	}
}

// try sends a message once; again tells that nobody has it and somebody may take it.
func (p *Producer) try(ctx context.Context, m *Message, properties string, worker int, sent *Sent) (again bool, err error) {
	r := p.route.Load()
	if p.o.Outstanding > 0 { // few on the way reach all queues, too
		worker = int(p.turn.Add(1) - 1)
	}
	sent.Queue = r.queues[worker%len(r.queues)]
	sent.Address = r.route.Broker(sent.Queue.BrokerName).Master()
	sent.Tries++
	what := fmt.Sprintf("send to %s queue %d", p.topic, sent.Queue.QueueID)
	began := time.Now()
	answer, err := p.c.call(context.WithoutCancel(ctx), sent.Address, p.command(m, properties, sent.Queue), what, p.o.Timeout)
	sent.Latency = time.Since(began)
	var failed *CallError
	var refused *remoting.RefusalError
	switch {
	case err != nil && !errors.As(err, &failed):
		return false, err
	case errors.As(err, &refused) && !failed.Sent: // it is longer than a frame may be
		sent.Status = Status(CodeName(remoting.MessageIllegal))
		return false, err
	case err != nil && !failed.Sent:
		sent.Status = NotSent
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
