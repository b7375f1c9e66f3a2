package remoting

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// Peer is the other end of a connection. Its methods may be called from any
// goroutine, also after it is gone: then they do nothing.
type Peer interface {
	// RemoteAddr is where it is.
	RemoteAddr() netip.AddrPort
	// Push sends a request of ours that is not answered (FlagOneway is set).
	Push(c *Command)
	// OnClose has do run when the connection is over, on its loop; at once if it
	// is already. Each call adds one.
	OnClose(do func())
	// Close ends the connection for a reason, which is logged and counted.
	Close(why error)
}

// Request is a request of a peer's, and the way to answer it. Ext and what Reply
// needs stay valid; Body is valid until the Handler's Serve returns.
type Request struct {
	Command
	Peer  Peer
	reply func(c *Command) // nil: served answers
	over  atomic.Bool

	served *served // of a server's connection; nil: another's
}

// NewRequest makes a request that is answered by a call of reply, once at most.
func NewRequest(c Command, p Peer, reply func(c *Command)) *Request {
	return &Request{Command: c, Peer: p, reply: reply}
}

// Reply answers the request. The second answer of one request, and that of a
// oneway request, goes nowhere. The command is the request's from then on. Any
// goroutine.
func (r *Request) Reply(c *Command) {
	if r.over.Swap(true) {
		return
	}
	if r.IsOneway() {
		if s := r.served; s != nil {
			s.peer.settle(s.cost)
		}
		return
	}
	c.Opaque, c.Flag, c.Version, c.Language = r.Opaque, FlagResponse, Version, "GO"
	if s := r.served; s != nil {
		s.peer.send(c, s.cost)
		return
	}
	r.reply(c)
}

// replyWith is Reply with a command that stays the caller's, as its texts do.
func (r *Request) replyWith(c *Command) {
	if r.served == nil {
		kept := new(Command)
		if err := ParseFrame(AppendFrame(nil, c), kept); err != nil {
			kept.Code, kept.Remark = SystemError, err.Error()
		}
		c = kept
	}
	r.Reply(c) // a connection writes the frame before it returns
}

// done says that whoever answered the request will not look at it again. Nobody
// has to call it, and only one may.
func (r *Request) done() {
	if s := r.served; s != nil {
		s.leave()
	}
}

// ReplyCode answers with a code and, if it is not Success, a reason.
func (r *Request) ReplyCode(code int32, format string, args ...any) {
	r.Reply(&Command{Code: code, Remark: fmt.Sprintf(format, args...)})
}

// Handler answers requests. Serve runs on the connection's loop and must not
// block; it may answer later, from any goroutine. It answers a oneway request, too,
// which nobody hears: until then the request counts as one that waits.
type Handler interface {
	Serve(r *Request)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(r *Request)

// Serve calls f.
func (f HandlerFunc) Serve(r *Request) { f(r) }

// Mux hands each request to the handler of its code, and tells the peer if there
// is none. It is filled before it serves.
type Mux struct{ handlers map[int32]Handler }

// Handle makes h the handler of codes. A code has one.
func (m *Mux) Handle(h Handler, codes ...int32) {
	if m.handlers == nil {
		m.handlers = map[int32]Handler{}
	}
	for _, code := range codes {
		if m.handlers[code] != nil {
			panic(fmt.Sprintf("remoting: two handlers of code %d", code))
		}
		m.handlers[code] = h
	}
}

// Serve implements Handler.
func (m *Mux) Serve(r *Request) {
	if h := m.handlers[r.Code]; h != nil {
		h.Serve(r)
		return
	}
	r.ReplyCode(RequestCodeNotSupported, " request type %d not supported", r.Code)
}
