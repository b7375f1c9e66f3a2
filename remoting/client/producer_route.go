package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/haengine/haengine/remoting"
)

// routeInterval is RocketMQ's pollNameServerInterval.
const routeInterval = 30 * time.Second

// ErrNoQueue means that a topic has no queue that takes messages, or none of those
// that were asked for.
var ErrNoQueue = errors.New("no queue takes messages")

// producerRoute is a route with the queues that a producer uses.
type producerRoute struct {
	route    *Route
	queues   []Queue
	replaced chan struct{} // closed when there is another one
}

// looking is the last question for a route; its lock is held while one is asked.
type looking struct {
	sync.Mutex
	at      time.Time
	err     error
	workers int // that run
}

// firstLook finds a route, for as long as Patience if time may help.
func (p *Producer) firstLook(ctx context.Context) error {
	end := time.Now().Add(p.o.Patience)
	for wait := retryLeast; ; wait = min(2*wait, retryMost) {
		err := p.look(ctx, 0)
		if err == nil {
			p.trouble.over(p.c.o.Logger)
			return nil
		}
		if hopeless(err) || ctx.Err() != nil {
			return err
		}
		p.trouble.failed(p.c.o.Logger, p.o.Patience, err)
		if !time.Now().Add(wait).Before(end) || !pause(ctx, wait) {
			return err
		}
	}
}

// keepLooking asks for the route now and then. Sends do not wait for it: a name
// server that does not answer is no reason not to send.
func (p *Producer) keepLooking() {
	tick := time.NewTicker(routeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			return
		}
		if err := p.look(p.ctx, retryMost); err != nil {
			p.c.o.Logger.Debug("the route that is known stays", "topic", p.topic, "error", err)
		}
	}
}

// look asks for the route unless that was done so lately; the error is then the
// last one's.
func (p *Producer) look(ctx context.Context, lately time.Duration) error {
	p.looking.Lock()
	defer p.looking.Unlock()
	if time.Since(p.looking.at) > lately {
		p.looking.err = p.ask(ctx)
		p.looking.at = time.Now()
	}
	return p.looking.err
}

func (p *Producer) ask(ctx context.Context) error {
	old := p.route.Load()
	route, err := p.c.Route(ctx, p.topic)
	if errors.Is(err, ErrNoTopic) {
		if old != nil {
			return nil // it is being made
		}
		route, err = p.templateRoute(ctx, err)
	}
	if err != nil {
		return err
	}
	queues := route.Writable()
	if len(queues) == 0 {
		return noWritable(route)
	}
	if p.o.Queues != nil {
		last := slices.MaxFunc(queues, func(a, b Queue) int { return int(a.QueueID) - int(b.QueueID) })
		queues = slices.DeleteFunc(queues, func(q Queue) bool { return !slices.Contains(p.o.Queues, q.QueueID) })
		if len(queues) == 0 {
			return fmt.Errorf("topic %s, %s: %w: it has 0 to %d", p.topic, queueNumbers(p.o.Queues), ErrNoQueue, last.QueueID)
		}
	}
	p.route.Store(&producerRoute{route, queues, make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
	for ; p.looking.workers < p.Outstanding(); p.looking.workers++ {
		worker := p.looking.workers
		p.workers.Go(func() { p.run(worker) })
	}
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
	return fmt.Errorf("topic %s: %w (its perm forbids it, or it has none)", r.Topic, ErrNoQueue)
}
