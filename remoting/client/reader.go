package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// ReaderOptions say what is read. Topic must be given; zero values of the others
// are defaults.
type ReaderOptions struct {
	Topic string
	Tags  string   // "A || B"; empty: all messages
	From  Position // where a queue is begun; with a group only one that the group has no offset of
	// Queues are read, and no others; nil: all. Not with a group.
	Queues []int32
	// Group is the consumer group that is joined: its members share the queues,
	// and its offsets are kept by the brokers. Empty: all queues are read, and
	// nothing is kept.
	Group string
	// Follow has the reader wait for messages at the end, and read queues that are
	// made later; without it, it ends where each queue ended when it was begun.
	Follow   bool
	Patience time.Duration // how long a queue may make no progress unless Follow is set; 0: 10 s
}

// toolsGroup is the group that RocketMQ's own tools read with; every broker has it
// (MixAll.TOOLS_CONSUMER_GROUP).
const toolsGroup = "TOOLS_CONSUMER"

// Reader reads the messages of a topic, from all its queues and brokers: what there
// is when it begins in the order of store time, as far as the queues keep to it,
// and later messages as they come. Of one queue, messages are always in order.
//
// Each queue is read from its master, and from a slave when there is no master that
// answers; the route is asked for again, so that it goes back. A slave that is
// behind its master is waited for.
//
// Next, Consumed and Close are called by one goroutine.
//
// RocketMQ: DefaultLitePullConsumer.
type Reader struct {
	c      *Client
	o      ReaderOptions
	group  string // that brokers are told
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	ready  chan struct{} // capacity 1: a stint has something, or the set of them has changed
	wake   chan struct{} // capacity 1: balance again
	opened time.Time     // its ms are the version of its subscription, too

	mu struct {
		sync.Mutex
		stints  map[Queue]*stint
		joined  bool // the group has been balanced once
		closed  bool
		routes  map[string]*Route // by topic, as last known
		asked   time.Time         // when they were asked for
		refused map[string]time.Time
	}
}

// OpenReader begins to read. The caller must Close the reader.
func (c *Client) OpenReader(ctx context.Context, o ReaderOptions) (*Reader, error) {
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Tags = cmp.Or(o.Tags, "*")
	if wrong := remoting.ValidateTopic(o.Topic); wrong != "" {
		return nil, errors.New(wrong)
	}
	if o.Group != "" {
		if wrong := remoting.ValidateGroup(o.Group); wrong != "" {
			return nil, errors.New(wrong)
		}
		if o.Queues != nil {
			return nil, errors.New("a group shares out its queues by itself: name a group or queues, not both")
		}
	}
	r := &Reader{
		c: c, o: o, group: cmp.Or(o.Group, toolsGroup), ready: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		opened: time.Now(),
	}
	r.mu.stints, r.mu.routes, r.mu.refused = map[Queue]*stint{}, map[string]*Route{}, map[string]time.Time{}
	route, err := c.Route(ctx, o.Topic)
	if err != nil {
		return nil, err
	}
	r.mu.routes[o.Topic], r.mu.asked = route, time.Now()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if o.Group != "" {
		if err := r.join(ctx); err != nil {
			r.cancel()
			return nil, err
		}
		return r, nil
	}
	queues := r.wants(route)
	if len(queues) == 0 {
		r.cancel()
		if o.Queues != nil {
			return nil, fmt.Errorf("topic %s, %s: there is none to read; it has %d", o.Topic, queueNumbers(o.Queues), len(route.Readable()))
		}
		return nil, fmt.Errorf("topic %s has no queue that can be read (its perm forbids it, or it has none)", o.Topic)
	}
	r.mu.joined = true
	for _, q := range queues {
		r.begin(q, r.o.From, -1, nil)
	}
	return r, nil
}

// wants are the queues of a route that a reader without a group reads.
func (r *Reader) wants(route *Route) []Queue {
	queues := route.Readable()
	if r.o.Queues == nil {
		return queues
	}
	return slices.DeleteFunc(queues, func(q Queue) bool { return !slices.Contains(r.o.Queues, q.QueueID) })
}

// grow begins the queues that a reader without a group has not seen before: what is
// in them came after it had begun, but for a broker that was away then.
func (r *Reader) grow(route *Route) {
	from := r.o.From
	if from.kind == positionLast || from.kind == positionOffset {
		from = At(r.opened)
	}
	for _, q := range r.wants(route) {
		r.begin(q, from, -1, nil)
	}
}

// Next gives the next message. The error is io.EOF at the end, unless Follow is
// set; ctx's; or why it cannot go on.
func (r *Reader) Next(ctx context.Context) (*Received, error) {
	for {
		m, err := r.TryNext()
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-r.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryNext is Next without waiting: it gives nil if it is not known yet which message
// is the next.
func (r *Reader) TryNext() (*Received, error) {
	m, err := r.first()
	if m != nil {
		m.decode()
	}
	return m, err
}

// first takes the message that is the next, if that is known yet.
func (r *Reader) first() (*Received, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var least *stint
	over := r.mu.joined
	for _, s := range r.mu.stints {
		s.fill()
		switch {
		case len(s.heads) > 0:
			if least == nil || before(s.heads[0], least.heads[0]) {
				least = s
			}
			over = false
		case s.over:
		case s.failed != nil:
			return nil, s.failed
		default:
			over = false
			if s.behind() {
				return nil, nil // what it has may come first
			}
		}
	}
	if least == nil {
		if over && !r.o.Follow {
			return nil, io.EOF
		}
		return nil, nil
	}
	m := least.heads[0]
	least.heads[0] = nil // what is inflated of it goes when the caller lets it go
	least.heads = least.heads[1:]
	least.out++
	return m, nil
}

// before orders messages by when they were stored.
func before(a, b *Received) bool {
	return cmp.Or(cmp.Compare(a.StoreTimestamp, b.StoreTimestamp), cmp.Compare(a.Broker, b.Broker),
		cmp.Compare(a.PhysicalOffset, b.PhysicalOffset)) < 0
}

// Consumed says once that a message was dealt with: a group goes on behind it. Messages
// of one queue are said in order. Without a group nothing is kept.
func (r *Reader) Consumed(m *Received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.stints[m.queue] == m.stint { // it may be another member's by now
		m.stint.consumed = max(m.stint.consumed, m.QueueOffset+1)
		m.stint.out--
		m.stint.settle()
	}
}

// Close ends the reader. With a group it stores how far that is, and leaves it; the
// error says what could not be stored; ErrSlaveCommit, that only a slave has it.
func (r *Reader) Close(ctx context.Context) error {
	r.mu.Lock()
	closed := r.mu.closed
	r.mu.closed = true // nothing begins from here on
	r.mu.Unlock()
	r.cancel()
	r.ended.Wait()
	if r.o.Group == "" || closed {
		return nil
	}
	err := r.commit(ctx, true)
	r.leave(ctx)
	return err
}

// begin reads a queue from an offset; -1: from where the group is or, without one,
// from a position. It takes the place of another stint, nil being none: if that is
// not there any more, the queue has been given up or begun again, and nothing is done.
func (r *Reader) begin(q Queue, position Position, from int64, instead *stint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || r.mu.stints[q] != instead {
		return
	}
	if instead != nil {
		instead.cancel()
	}
	s := &stint{r: r, queue: q, position: position, next: from, consumed: from, end: -1, batches: make(chan batch, 1)}
	s.ctx, s.cancel = context.WithCancel(r.ctx)
	r.mu.stints[q] = s // with from: an administrator's word is stored even if nothing comes there
	r.ended.Go(s.run)
	signal(r.ready)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tagsOf are the tags of a subscription's text; nil: all messages.
func tagsOf(text string) []string {
	if text == "" || text == "*" {
		return nil
	}
	var tags []string
	for tag := range strings.SplitSeq(text, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// wanted filters by tags as consumers do: brokers compare hashes only.
func (r *Reader) wanted(m *Received) bool {
	tags := tagsOf(r.o.Tags)
	if tags == nil || m.Topic != r.o.Topic {
		return true
	}
	tag, _ := m.Property(propertyTags)
	return slices.Contains(tags, tag)
}

func (r *Reader) subscriptions() []subscription {
	var all []subscription
	r.mu.Lock()
	topics := slices.Sorted(maps.Keys(r.mu.routes))
	r.mu.Unlock()
	if retry := remoting.RetryPrefix + r.o.Group; !slices.Contains(topics, retry) {
		topics = append(topics, retry) // it is there after the first heartbeat
	}
	for _, topic := range topics {
		s := subscription{Topic: topic, Text: "*", Type: "TAG", Version: r.opened.UnixMilli(), Tags: []string{}, Codes: []int32{}}
		if topic == r.o.Topic {
			s.Text = r.o.Tags
			for _, tag := range tagsOf(r.o.Tags) {
				s.Tags, s.Codes = append(s.Tags, tag), append(s.Codes, engine.TagHash(tag))
			}
		}
		all = append(all, s)
	}
	return all
}
