package remoting

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

const testTimeout = 20 * time.Second

// fakePeer is a connection that keeps what is pushed to it.
type fakePeer struct {
	addr   netip.AddrPort
	mu     sync.Mutex
	pushed []*Command
	close  []func()
	closed error
}

func newFakePeer(addr string) *fakePeer { return &fakePeer{addr: netip.MustParseAddrPort(addr)} }

func (p *fakePeer) RemoteAddr() netip.AddrPort { return p.addr }

func (p *fakePeer) Push(c *Command) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pushed = append(p.pushed, c)
}

func (p *fakePeer) OnClose(do func()) {
	p.mu.Lock()
	over := p.closed != nil
	if !over {
		p.close = append(p.close, do)
	}
	p.mu.Unlock()
	if over {
		do()
	}
}

var errFakeClosed = errors.New("closed by the test")

func (p *fakePeer) Close(why error) {
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return
	}
	p.closed = why
	all := p.close
	p.mu.Unlock()
	for _, do := range all {
		do()
	}
}

// notified is how many pushes of a code and group have come.
func (p *fakePeer) notified(group string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.pushed {
		if c.Code == CodeNotifyConsumersChanged && c.Ext.Text("consumerGroup") == group {
			n++
		}
	}
	return n
}

// call serves a request and waits for its answer.
func call(t testing.TB, h Handler, p Peer, c Command) *Command {
	t.Helper()
	answer := make(chan *Command, 1)
	h.Serve(NewRequest(c, p, func(c *Command) { answer <- c }))
	select {
	case a := <-answer:
		return a
	case <-time.After(testTimeout):
		t.Fatalf("no answer to code %d within %v", c.Code, testTimeout)
		return nil
	}
}

func wantCode(t testing.TB, c *Command, code int32) {
	t.Helper()
	if c.Code != code {
		t.Fatalf("code %d (%s), want %d", c.Code, c.Remark, code)
	}
	if code != Success && c.Remark == "" {
		t.Errorf("code %d says no reason", code)
	}
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(testTimeout); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// fakeClock is a time that only the test moves.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
