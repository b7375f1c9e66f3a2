package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/remoting"
)

// node chooses where a queue is read: the node that was suggested, the master, or
// the slave with the smallest id; of those that answered lately if there is one.
func (r *Reader) node(ctx context.Context, q Queue, prefer int64) (addr string, id int64, err error) {
	r.refresh(ctx, routeInterval)
	r.mu.Lock()
	defer r.mu.Unlock()
	route := r.mu.routes[q.Topic]
	if route == nil {
		return "", 0, fmt.Errorf("topic %s: %w", q.Topic, ErrNoTopic)
	}
	b := route.Broker(q.BrokerName)
	if b == nil || len(b.Nodes) == 0 {
		return "", 0, fmt.Errorf("broker %s is not registered any more", q.BrokerName)
	}
	best, bestAddr, found := int64(0), "", false
	for i, addr := range b.Nodes {
		better := !found || rank(i, prefer) < rank(best, prefer)
		if time.Now().Before(r.mu.refused[addr]) {
			continue
		}
		if better {
			best, bestAddr, found = i, addr, true
		}
	}
	if !found { // all failed lately: the master is asked again
		if b.Master() != "" {
			return b.Master(), 0, nil
		}
		for i, addr := range b.Nodes {
			if !found || i < best {
				best, bestAddr, found = i, addr, true
			}
		}
	}
	return bestAddr, best, nil
}

// hasMaster tells whether a master is registered for a queue.
func (r *Reader) hasMaster(q Queue) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	route := r.mu.routes[q.Topic]
	if route == nil {
		return false
	}
	b := route.Broker(q.BrokerName)
	return b != nil && b.Master() != ""
}

// rank orders a broker's nodes by where to read.
func rank(id, prefer int64) int64 {
	if id == prefer {
		return -1
	}
	return id
}

// answered notes whether an address answers.
func (r *Reader) answered(addr string, err error) {
	var failed *CallError
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		if _, ok := r.mu.refused[addr]; ok {
			delete(r.mu.refused, addr)
			r.c.o.Logger.Info("reading again", "address", addr)
		}
	case r.ctx.Err() != nil && errors.Is(err, remoting.ErrClosed): // by the reader's own end
	case errors.As(err, &failed) && codeOf(err) < 0 && !errors.Is(err, context.Canceled):
		if time.Now().After(r.mu.refused[addr]) {
			r.c.o.Logger.Warn("a broker's node does not answer", "address", addr, "error", err)
		}
		r.mu.refused[addr] = time.Now().Add(refusedFor)
	}
}

// refresh asks for routes that are older than age. One that cannot be asked for
// stays.
func (r *Reader) refresh(ctx context.Context, age time.Duration) {
	r.mu.Lock()
	if time.Since(r.mu.asked) < age {
		r.mu.Unlock()
		return
	}
	r.mu.asked = time.Now()
	topics := make([]string, 0, len(r.mu.routes))
	for topic := range r.mu.routes {
		topics = append(topics, topic)
	}
	r.mu.Unlock()
	for _, topic := range topics {
		route, err := r.c.Route(ctx, topic)
		if err != nil {
			r.c.o.Logger.Debug("the route that is known stays", "topic", topic, "error", err)
			continue
		}
		r.mu.Lock()
		r.mu.routes[topic] = route
		r.mu.Unlock()
		if r.o.Follow && r.o.Group == "" {
			r.grow(route)
		}
	}
}
