package client

import (
	"context"
	"errors"
	"net"

	"github.com/haengine/haengine/remoting"
)

// conn is one address: a link, or one that is being made, or neither. All of it is
// under the client's lock.
type conn struct {
	link   *link
	making *making
	before bool // there was a link
}

// link is a connection. One that is retired gets no further calls, and is closed
// when the last of its calls is answered.
type link struct {
	*remoting.Client
	calls   int
	retired bool
}

// making is a link that all who want it wait for.
type making struct {
	done chan struct{} // closed when link or err is set
	link *link
	err  error
}

// connect gives the link to an address, and makes it if there is none. It counts as
// a call, until release. The wait for it is bounded by ctx and Options.Timeout,
// however many wait.
func (c *Client) connect(ctx context.Context, addr string) (*link, error) {
	c.mu.Lock()
	n := c.mu.conns[addr]
	switch {
	case c.mu.closed:
		c.mu.Unlock()
		return nil, remoting.ErrClosed
	case n == nil:
		n = &conn{}
		c.mu.conns[addr] = n
	case n.link != nil && n.link.Err() == nil:
		defer c.mu.Unlock()
		n.link.calls++
		return n.link, nil
	}
	m := n.making
	if m == nil {
		m = &making{done: make(chan struct{})}
		n.making = m
		c.ended.Go(func() { c.dial(addr, n, m) })
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.err != nil {
		return nil, m.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.link.calls++ // if it is retired by now, too: it only says so when it is called
	return m.link, nil
}

// dial makes a link. Where there was one before, groups tell the broker again that
// they are there.
func (c *Client) dial(addr string, n *conn, m *making) {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout)
	defer cancel()
	made, err := remoting.Dial(ctx, addr, remoting.HandlerFunc(c.serve))
	if m.err = err; err == nil {
		m.link = &link{Client: made}
	}
	c.mu.Lock()
	n.making = nil
	closed := c.mu.closed
	if err == nil && !closed {
		if old := n.link; old != nil && old.calls == 0 {
			delete(c.mu.links, old)
		}
		n.link = m.link
		c.mu.links[m.link] = true
		if n.before {
			for _, r := range c.mu.members {
				r.poke()
			}
		}
		n.before = true
	}
	c.mu.Unlock()
	if err == nil && closed {
		made.Close()
	}
	close(m.done)
}

// release ends a call.
func (c *Client) release(l *link) {
	c.mu.Lock()
	l.calls--
	over := l.calls == 0 && (l.retired || l.Err() != nil)
	if over {
		delete(c.mu.links, l)
	}
	c.mu.Unlock()
	if over {
		l.Close()
	}
}

// retire has the next call to an address make another link. Who waits for an answer
// on this one may still get it.
func (c *Client) retire(addr string, l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.retired = true
	if n := c.mu.conns[addr]; n != nil && n.link == l {
		n.link = nil
	}
}

// linked gives the brokers' addresses that have a link, and forgets those that have
// none: brokers come and go.
func (c *Client) linked() (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, n := range c.mu.conns {
		switch {
		case n.link != nil && n.link.Err() == nil:
			if !c.names[addr] {
				addrs = append(addrs, addr)
			}
		case n.making == nil:
			if n.link != nil && n.link.calls == 0 {
				delete(c.mu.links, n.link)
			}
			delete(c.mu.conns, addr)
		}
	}
	return addrs
}

// shortCause takes from a connection's error the address that is said already.
func shortCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
