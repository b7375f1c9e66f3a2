package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	// patience is how long what has to come may take.
	patience = 120 * time.Second
	// silence is how long nothing has to come where nothing may.
	silence = 8 * time.Second
)

var (
	background = context.Background()
	instances  atomic.Int64
)

// instance names a client that shares its connections with no other.
func instance() string { return fmt.Sprintf("interop-%d-%d", os.Getpid(), instances.Add(1)) }

// cluster is where name servers lead to, with the clients that scenarios share.
type cluster struct {
	servers []string
	master  string // its address: topics are made there
	mu      sync.Mutex
	shared  rocketmq.Producer
	admins  admin.Admin
}

func (c *cluster) resolver() primitive.NsResolver { return primitive.NewPassthroughResolver(c.servers) }

func (c *cluster) newProducer(group string, o ...producer.Option) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(c.resolver()), producer.WithGroupName(group), producer.WithInstanceName(instance()), producer.WithRetry(2),
		producer.WithSendMsgTimeout(20 * time.Second), producer.WithQueueSelector(producer.NewManualQueueSelector()),
	}, o...)...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

func (c *cluster) producer() (rocketmq.Producer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared != nil {
		return c.shared, nil
	}
	p, err := c.newProducer("interop-go-producer")
	if err == nil {
		c.shared = p
	}
	return p, err
}

func (c *cluster) admin() (admin.Admin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.admins != nil {
		return c.admins, nil
	}
	a, err := admin.NewAdmin(admin.WithResolver(c.resolver()))
	if err == nil {
		c.admins = a
	}
	return a, err
}

// place is where a scenario runs: names that no other run has. What it opened ends
// with it.
type place struct {
	*cluster
	topic, group string
	ends         []func() error
}

func newPlace(c *cluster, name string) *place {
	return &place{cluster: c, topic: name, group: name + "-group"}
}

func (p *place) close() {
	for _, end := range slices.Backward(p.ends) {
		_ = end() // it was for the scenario only
	}
}

func (p *place) createTopic(topic string, queues int) error {
	a, err := p.admin()
	if err != nil {
		return err
	}
	create := func() bool { // its time of 5 s is too short when the machine is busy
		err = a.CreateTopic(background, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(p.master), admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues))
		return err == nil
	}
	if !until(create) {
		return fmt.Errorf("create %s: %w", topic, err)
	}
	if !until(func() bool { q, err := p.queues(topic); return err == nil && len(q) == queues }) {
		return fmt.Errorf("%s has no route", topic)
	}
	return nil
}

// queues of a topic, in order.
func (p *place) queues(topic string) ([]*primitive.MessageQueue, error) {
	a, err := p.admin()
	if err != nil {
		return nil, err
	}
	q, err := a.FetchPublishMessageQueues(background, topic)
	slices.SortFunc(q, func(a, b *primitive.MessageQueue) int { return cmp.Compare(a.QueueId, b.QueueId) })
	return q, err
}

func body(n int) []byte { return []byte("body " + strconv.Itoa(n)) }

func number(m *primitive.MessageExt) int {
	n, err := strconv.Atoi(strings.TrimPrefix(string(m.Body), "body "))
	if err != nil {
		return -1
	}
	return n
}

func (p *place) message(n int) *primitive.Message {
	return primitive.NewMessage(p.topic, body(n)).WithTag("tag").WithKeys([]string{"key-" + strconv.Itoa(n)})
}

// send sends the messages [from, to), to the queues in turn.
func (p *place) send(from, to int) error {
	out, err := p.producer()
	if err != nil {
		return err
	}
	queues, err := p.queues(p.topic)
	if err != nil {
		return err
	}
	for n := from; n < to; n++ {
		m := p.message(n)
		m.Queue = queues[n%len(queues)]
		r, err := out.SendSync(background, m)
		if err == nil && r.Status != primitive.SendOK {
			err = fmt.Errorf("send ended with status %d", r.Status)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reader is a pull consumer that reads what it is told to.
func (p *place) reader(topic, group string) (rocketmq.PullConsumer, error) {
	c, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(p.resolver()), consumer.WithGroupName(group), consumer.WithInstance(instance()))
	if err != nil {
		return nil, err
	}
	if err := c.Assign(topic, nil); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p.ends = append(p.ends, c.Shutdown)
	return c, nil
}

// read reads a topic from its beginning: all there is, and until there are count
// messages.
func (p *place) read(topic string, count int) ([]*primitive.MessageExt, error) {
	var c rocketmq.PullConsumer
	var err error
	until(func() bool { // the topic may have no route yet
		c, err = p.reader(topic, p.group+"-reader-"+instance())
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	queues, err := p.queues(topic)
	if err != nil {
		return nil, err
	}
	// A pull at the end of a queue waits there for 20 s, and takes no context: each
	// queue has its goroutine, which is left behind.
	r := &reading{ends: map[int]bool{}}
	p.ends = append(p.ends, func() error { r.stopped.Store(true); return nil })
	for _, q := range queues {
		go r.follow(c, q)
	}
	done := until(func() bool { return r.complete(count) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !done {
		return r.found, errors.Join(r.err, fmt.Errorf("%s has %d messages, want %d", topic, len(r.found), count))
	}
	return slices.Clone(r.found), nil
}

// reading is what was read of a topic so far.
type reading struct {
	stopped atomic.Bool
	mu      sync.Mutex
	found   []*primitive.MessageExt
	ends    map[int]bool // queues that had more at the last look: false
	err     error
}

func (r *reading) follow(c rocketmq.PullConsumer, q *primitive.MessageQueue) {
	for offset := int64(0); !r.stopped.Load(); {
		pulled, err := c.PullFrom(background, q, offset, 32)
		r.mu.Lock()
		if r.err = err; err == nil && pulled.Status == primitive.PullFound {
			r.found = append(r.found, pulled.GetMessageExts()...)
			offset = pulled.NextBeginOffset
			r.ends[q.QueueId] = offset >= pulled.MaxOffset
		}
		r.mu.Unlock()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (r *reading) complete(count int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.ends {
		if !end {
			return false
		}
	}
	return len(r.found) >= count
}

func until(so func() bool) bool { return within(patience, so) }

// within polls until it is so; false if it is not in time.
func within(limit time.Duration, so func() bool) bool {
	for end := time.Now().Add(limit); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
