package remoting

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// goAwayVersion is the last version that does not know GO_AWAY (V5_3_1).
const goAwayVersion = 475

// frames are what one write sends. Connections borrow them, so that an idle one
// holds none.
type frames struct{ bytes []byte }

// framesKept is how large frames may be to be used again.
const framesKept = 1 << 20

func (s *Server) frames() *frames {
	if f, ok := s.spare.Get().(*frames); ok {
		return f
	}
	return &frames{}
}

func (s *Server) reuse(f *frames) {
	if cap(f.bytes) <= framesKept {
		f.bytes = f.bytes[:0]
		s.spare.Put(f)
	}
}

// peer is one connection. It is confined to its loop but for mu.
type peer struct {
	s    *Server
	h    Handler
	addr netip.AddrPort
	l    *loop
	c    gnet.Conn // nil once it is closed

	opened  bool
	begun   bool      // a first byte came
	heard   time.Time // last traffic
	partial int       // bytes of a frame that is not whole
	since   time.Time // when they began, if there are any
	waiting int       // mu.pending as it counts in the server's waiting

	unsent atomic.Int64 // bytes that were written and are not with the kernel, as the loop saw last; any goroutine reads

	mu struct {
		sync.Mutex
		out     *frames // for the next write; nil: none
		due     bool    // the loop will write out
		pending int     // of requests that wait for their answers, as PendingIn counts
		why     error   // the loop has to close for this
		closed  bool
		onClose []func()
	}
}

func newPeer(s *Server, h Handler, addr net.Addr) *peer {
	p := &peer{s: s, h: h}
	if a, ok := addr.(*net.TCPAddr); ok {
		p.addr = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
	return p
}

// RemoteAddr implements Peer.
func (p *peer) RemoteAddr() netip.AddrPort { return p.addr }

// Push implements Peer.
func (p *peer) Push(c *Command) {
	c.Flag |= FlagOneway
	c.Version, c.Language = Version, "GO"
	p.send(c, 0)
}

// OnClose implements Peer.
func (p *peer) OnClose(do func()) {
	p.mu.Lock()
	closed := p.mu.closed
	if !closed {
		p.mu.onClose = append(p.mu.onClose, do)
	}
	p.mu.Unlock()
	if closed {
		do()
	}
}

// Close implements Peer.
func (p *peer) Close(why error) {
	p.mu.Lock()
	if p.mu.why == nil {
		p.mu.why = why
	}
	p.markLocked()
	p.mu.Unlock()
}

// Backlog implements Backlogged. What the kernel has taken since the loop's last
// look is not known yet: the loop is made to look again.
func (p *peer) Backlog() int64 {
	n := p.unsent.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.markLocked()
	}
	if p.mu.out != nil {
		n += int64(len(p.mu.out.bytes))
	}
	return n
}

// send queues a frame, the answer to a request that counted cost. Any goroutine.
func (p *peer) send(c *Command, cost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.pending -= cost
	if p.mu.closed || p.mu.why != nil {
		return
	}
	if p.mu.out == nil {
		p.mu.out = p.s.frames()
	}
	out := p.mu.out
	from := len(out.bytes)
	out.bytes = AppendFrame(out.bytes, c)
	if n := len(out.bytes) - from; n > p.s.o.FrameBytes {
		why := refuse(AnswerTooLong, "the answer has %d bytes, more than a frame's %d", n, p.s.o.FrameBytes)
		p.s.count(AnswerTooLong, "code %d to %s: %v", c.Code, p.addr, why)
		out.bytes = AppendFrame(out.bytes[:from], &Command{
			Code: SystemError, Remark: why.Error(), Opaque: c.Opaque, Flag: c.Flag, Version: c.Version, Language: c.Language,
		})
	}
	if len(out.bytes) > p.s.o.PendingOut {
		p.mu.why = p.unread(len(out.bytes))
	}
	p.markLocked()
}

// settle ends what a oneway request counted, whose answer goes nowhere. Any goroutine.
func (p *peer) settle(cost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.pending -= cost; p.mu.pending == 0 {
		p.markLocked() // the loop notes it
	}
}

func (p *peer) markLocked() {
	if !p.mu.due && !p.mu.closed {
		p.mu.due = true
		p.l.mark(p)
	}
}

func (p *peer) unread(n int) error {
	if n <= p.s.o.PendingOut {
		return refuse(AnswersUnread, "%d bytes of answers are not read, %d over all connections, want at most %d", n, p.s.unread.Load(), p.s.o.PendingOutAll)
	}
	return refuse(AnswersUnread, "%d bytes of answers are not read, want at most %d", n, p.s.o.PendingOut)
}

func (p *peer) open(c gnet.Conn, l *loop) {
	p.c, p.l, p.opened, p.heard = c, l, true, l.now
	l.peers[p] = struct{}{}
}

// read serves all frames that are there and writes their answers with one write,
// those that were given elsewhere in the meantime with them.
func (p *peer) read() {
	p.heard = p.l.now
	p.mu.Lock()
	marked := p.mu.due
	p.mu.due = true
	p.mu.Unlock()
	if err := p.serveAll(); err != nil {
		p.mu.Lock()
		if p.mu.why == nil {
			p.mu.why = err
		}
		p.mu.Unlock()
		p.flush() // what was right before it is answered
		return
	}
	if marked {
		return // it is on the loop's list, which is looked at in this turn
	}
	p.flush()
}

func (p *peer) serveAll() error {
	if !p.begun && p.c.InboundBuffered() > 0 {
		p.begun = true
		if b, err := p.c.Peek(1); err == nil && b[0] == 0x16 {
			return refuse(TLSRefused, "the peer begins a TLS handshake, which is not supported: connect without TLS")
		}
	}
	whole := false
	for p.c != nil && !p.over() {
		frame, err := nextFrame(p.c, p.s.o.FrameBytes)
		if err != nil {
			return err
		}
		if frame == nil {
			return p.keepPartial(whole)
		}
		whole = true
		if err := p.serve(frame); err != nil {
			return err
		}
		if p.c != nil {
			if _, err := p.c.Discard(len(frame)); err != nil {
				return err
			}
		}
	}
	return nil
}

// over tells whether the loop is going to close the connection: what else came on
// it is not worth the work.
func (p *peer) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.why != nil
}

// keepPartial notes the bytes of a frame that is not whole, and since when.
func (p *peer) keepPartial(whole bool) error {
	n := p.c.InboundBuffered()
	if whole || p.partial == 0 {
		p.since = p.l.now
	}
	if n == p.partial {
		return nil
	}
	grown := n - p.partial
	all := p.s.partial.Add(int64(grown))
	p.partial = n
	// Who has less than a fair share is not made to suffer for others: they, few
	// with 16 MiB each, would keep everybody from sending.
	share := p.s.o.PartialBytes / max(p.s.connections.Load(), 1)
	if grown > 0 && all > p.s.o.PartialBytes && int64(n) > share {
		return refuse(FramesTooMany, "frames that are not whole have %d bytes, want at most %d over all connections", all, p.s.o.PartialBytes)
	}
	return nil
}

func (p *peer) serve(frame []byte) error {
	s := p.l.request()
	s.peer = p
	defer s.leave()
	r := &s.Request
	if err := parseFrame(frame, &r.Command, s.room[:0]); err != nil {
		return err
	}
	r.Peer, r.served = p, s
	if r.IsResponse() {
		return nil // we never ask
	}
	cost := s.costs(frame)
	s.cost = cost
	p.mu.Lock()
	p.mu.pending += cost
	pending := p.mu.pending
	p.mu.Unlock()
	switch {
	case p.tooMany(pending, cost):
		p.s.count(RequestsTooMany, "request %d of %s is refused: %d bytes of requests wait", r.Code, p.addr, pending)
		r.ReplyCode(SystemBusy, "[OVERLOAD] requests of this connection that wait have %d bytes, want at most %d", pending, p.s.o.PendingIn)
	case p.s.draining.Load() && r.Version > goAwayVersion && !r.IsOneway():
		r.ReplyCode(GoAway, "the broker is shutting down")
	default:
		p.guarded(r)
	}
	return nil
}

// tooMany tells whether a request is one too many, with which so many bytes wait. The
// only one of a connection never is.
func (p *peer) tooMany(pending, cost int) bool {
	return pending > cost && (pending > p.s.o.PendingIn || p.s.waiting.Load() > p.s.o.PendingInAll && p.hasMore(pending, p.s.o.PendingInAll))
}

// hasMore tells whether so many bytes are more than a fair share of what all
// connections may have pending: who has less is not made to suffer for others.
func (p *peer) hasMore(n int, all int64) bool {
	return int64(n) > all/max(p.s.connections.Load(), 1)
}

// flush writes what is queued, or closes.
func (p *peer) flush() {
	p.mu.Lock()
	out, why, pending := p.mu.out, p.mu.why, p.mu.pending
	p.mu.out, p.mu.due = nil, false
	p.mu.Unlock()
	if p.c == nil {
		return // closed dropped what was queued
	}
	if pending != p.waiting {
		p.s.waiting.Add(int64(pending - p.waiting))
		p.waiting = pending
	}
	if out != nil {
		n := p.c.OutboundBuffered() + len(out.bytes)
		if why == nil && (n > p.s.o.PendingOut || p.s.unread.Load() > p.s.o.PendingOutAll && p.hasMore(n, p.s.o.PendingOutAll)) {
			why = p.unread(n)
		}
		if reasonOf(why) != AnswersUnread {
			p.write(out.bytes)
		}
		p.s.reuse(out)
	}
	if why != nil {
		p.closeFor(why)
	}
	if p.c != nil {
		p.noteUnsent(int64(p.c.OutboundBuffered()))
	}
}

func (p *peer) noteUnsent(n int64) {
	if grown := n - p.unsent.Load(); grown != 0 {
		p.unsent.Store(n)
		p.s.unread.Add(grown)
	}
}

func (p *peer) write(b []byte) {
	c := p.c
	if _, err := c.Write(b); err != nil || p.c == nil {
		return // gnet has closed it
	}
	if c.OutboundBuffered() == 0 {
		p.heard = p.l.now
	}
}

// closeFor closes the connection, which the log and the counts tell.
func (p *peer) closeFor(why error) {
	if p.c == nil {
		return
	}
	p.s.count(reasonOf(why), "connection of %s is closed: %v", p.addr, why)
	_ = p.l.el.Close(p.c) // calls closed
}

// checkTimes closes the connection when its time is over. A peer that takes a long
// answer bit by bit is not silent.
func (p *peer) checkTimes() {
	if unsent := int64(p.c.OutboundBuffered()); unsent < p.unsent.Load() {
		p.noteUnsent(unsent)
		p.heard = p.l.now
	}
	switch now := p.l.now; {
	case p.partial > 0 && now.Sub(p.since) > p.s.o.FrameTime:
		p.closeFor(refuse(FrameTooSlow, "a frame was begun and is not whole after %v: %d bytes came", p.s.o.FrameTime, p.partial))
	case now.Sub(p.heard) > p.s.o.Idle:
		p.closeFor(refuse(Idle, "no traffic for %v", p.s.o.Idle))
	}
}

// busy tells whether a request waits for its answer or an answer to be sent.
func (p *peer) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.pending > 0 || p.mu.out != nil || p.c.OutboundBuffered() > 0
}

// closed runs once, when the connection is over.
func (p *peer) closed() {
	p.c = nil
	delete(p.l.peers, p)
	p.s.partial.Add(-int64(p.partial))
	p.partial = 0
	p.s.waiting.Add(-int64(p.waiting))
	p.waiting = 0
	p.noteUnsent(0)
	p.mu.Lock()
	p.mu.closed = true
	all := p.mu.onClose
	p.mu.onClose = nil
	if p.mu.out != nil {
		p.s.reuse(p.mu.out)
		p.mu.out = nil
	}
	p.mu.Unlock()
	p.s.connections.Add(-1)
	for _, do := range all {
		do()
	}
}
