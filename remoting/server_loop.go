package remoting

import (
	"context"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// loop is what the connections of one event loop share. It is confined to the
// loop but for due.
type loop struct {
	el    gnet.EventLoop
	peers map[*peer]struct{}
	now   time.Time // of the last tick: what a connection's times are taken from
	due   struct {
		sync.Mutex
		peers []*peer // have answers that were given elsewhere
		asked bool    // the loop is going to look
		free  *served // given back, and how many
		kept  int
	}
	spare []*peer
	free  *served // to be used next
}

// do runs f on the loop; it does not run once the loop has ended.
func (l *loop) do(f func()) {
	_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		f()
		return nil
	}))
}

// mark has the loop send what p has to send. Any goroutine. Marks that come
// before the loop looks cost one wake-up together.
func (l *loop) mark(p *peer) {
	l.due.Lock()
	l.due.peers = append(l.due.peers, p)
	asked := l.due.asked
	l.due.asked = true
	l.due.Unlock()
	if !asked {
		_ = l.el.Execute(context.Background(), l)
	}
}

// Run sends what marked connections have to send: the answers of a batch of
// completions go out with one write for each connection.
func (l *loop) Run(context.Context) error {
	l.due.Lock()
	peers := l.due.peers
	l.due.peers, l.due.asked = l.spare, false
	l.due.Unlock()
	for _, p := range peers {
		p.flush()
	}
	clear(peers)
	l.spare = peers[:0]
	return nil
}

// tick takes the time and closes connections whose time is over.
func (l *loop) tick() {
	l.now = time.Now()
	for p := range l.peers {
		p.checkTimes()
	}
}

// busy is how many connections have a request or an answer pending.
func (l *loop) busy() (n int) {
	for p := range l.peers {
		if p.busy() {
			n++
		}
	}
	return n
}

// events is what gnet calls: all but OnTick on the connection's loop.
type events struct {
	gnet.BuiltinEventEngine
	s *Server
}

// OnOpen implements gnet.EventHandler.
func (e *events) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p := c.Context().(*peer)
	p.open(c, e.s.loopOf(c.EventLoop()))
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (e *events) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*peer).read()
	return gnet.None
}

// OnClose implements gnet.EventHandler.
func (e *events) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*peer).closed()
	return gnet.None
}

// OnTick implements gnet.EventHandler.
func (e *events) OnTick() (time.Duration, gnet.Action) {
	for _, l := range e.s.allLoops() {
		l.do(l.tick)
	}
	return e.s.o.tick(), gnet.None
}
