package sim

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// server drives a session on one socket, as the engine's replica connection
// does (replica.go and greeting.go there).
type server struct {
	node    *Node
	socket  *Socket
	peer    *Node // nil: a stray client
	session *transfer.Session
	member  *transfer.Member

	claimed  int64 // its first report
	joinedAt time.Duration
	proved   bool // its acknowledgements may end waits
	extended bool

	frame transfer.Frame
	view  commitlog.View
	shown []byte // what the view showed when the frame began
	out   []byte // what is left of the frame, header first
	body  int32  // body bytes of the frame that went out
	full  bool   // the socket refused bytes

	proving bool
	over    bool
	armed   time.Duration
}

// offer has a process accept a connection, when it is not paused.
func (n *Node) offer(b *Socket, peer *Node) {
	if n.paused {
		n.backlog = append(n.backlog, b)
	}
	n.do(func() { n.accept(b, peer) })
}

func (n *Node) accept(socket *Socket, peer *Node) {
	w := n.world
	if !n.up || n.shut || socket.dead {
		socket.Serve(idle{})
		socket.Close(ErrReset)
		return
	}
	s := &server{node: n, socket: socket, peer: peer, armed: never}
	name := "stray"
	if peer != nil {
		name = peer.name
	}
	var hello *transfer.Hello
	if !n.plain {
		own := n.hello()
		hello = &own
	}
	s.session = transfer.NewSession(transfer.SessionConfig{
		Peer: name, SegmentBytes: n.log.SegmentBytes(), FrameBytesMax: int32(w.cfg.FrameBytes),
		HistoryFirst: w.cfg.HistoryFirst, Hello: hello,
		Pace: transfer.Pace{Live: w.cfg.Rate, CatchUp: w.cfg.CatchUpRate}, CatchUpBytes: w.cfg.CatchUpBytes,
	}, w.clock.Now())
	n.serve(socket, s)
	n.servers = append(n.servers, s)
	s.rearm()
	s.Readable() // what came before it was accepted
}

func (s *server) Readable() {
	w, buf := s.node.world, make([]byte, 64)
	for !s.over {
		n, err := s.socket.Read(buf)
		if n > 0 {
			s.session.SetEpochs(s.node.terms)
			if bad := s.session.Feed(buf[:n], s.node.served(), w.clock.Now()); bad != nil {
				w.trace("%s: %v", s.node.name, bad)
				w.checkRefusal(s, bad)
				s.reported()
				s.end(bad)
				return
			}
			if from, to, ok := s.session.Unproved(); ok {
				s.prove(from, to)
			}
			s.reported()
			continue
		}
		if errors.Is(err, io.EOF) {
			s.reported()
			s.socket.Close(err)
			return
		}
		break
	}
	s.send()
}

// prove compares the tail that a replica's hello tells of.
func (s *server) prove(from, to int64) {
	if s.proving {
		return
	}
	s.proving = true
	w := s.node.world
	s.node.soon(func() {
		s.proving = false
		sum, err := s.node.log.Checksum(from, to)
		if s.over {
			return
		}
		if err == nil {
			err = s.session.Prove(sum, w.clock.Now())
		}
		if err != nil {
			w.trace("%s does not take %s: %v", s.node.name, s.peer.name, err)
			w.checkUnproved(s, err)
			s.end(err)
			return
		}
		s.reported()
		s.send()
	})
}

// reported tells the quorum what the replica holds.
func (s *server) reported() {
	if s.over || !s.session.Started() || s.peer == nil {
		return
	}
	n, now, acked := s.node, s.node.world.clock.Now(), s.session.Acked()
	flushed := s.session.Acks().Flushed
	if s.member == nil {
		s.identify(acked)
		join := func(name string) (*transfer.Member, error) { return n.quorum.JoinUnnamed("host of " + name) }
		if _, named := s.session.Replica(); named {
			join = func(name string) (*transfer.Member, error) { return n.quorum.Join(name, "host of "+name) }
		}
		m, err := join(s.peer.name)
		if err != nil {
			n.world.fail("%s joins the quorum: %v", s.peer.name, err)
			return
		}
		s.member, s.joinedAt = m, now
		m.Ack(0, min(flushed, 0))
	}
	moved := acked != s.member.Acked(transfer.Received) || flushed > s.member.Acked(transfer.Flushed)
	if moved && s.counts(acked, now) {
		s.member.Ack(acked, flushed)
		n.complete()
	}
}

// identify has a replica's newer connection take the place of an older one.
func (s *server) identify(acked int64) {
	s.claimed = acked
	hello, ok := s.session.Replica()
	if !ok {
		return
	}
	s.extended = true
	if hello.Log.Empty() {
		s.claimed = 0
	} else {
		s.proved = true // its tail has our checksum
	}
	for _, other := range slices.Clone(s.node.servers) {
		if other != s && other.extended && other.peer == s.peer {
			s.node.after(0, func() {
				other.end(&transfer.RefusalError{Code: transfer.RefusedReplaced, Text: "a newer connection of replica " + s.peer.name + " took over"})
			})
		}
	}
}

// counts tells whether the replica's word may end waits.
func (s *server) counts(acked int64, now time.Duration) bool {
	if s.proved {
		return true
	}
	start, ok := s.session.StartOffset()
	if !ok {
		return false
	}
	n := s.node
	wholeLog := start <= max(s.claimed, n.served().Min, 1)
	s.proved = acked > s.claimed && wholeLog || n.rings.waiting() == 0 || now-s.joinedAt >= n.world.cfg.PutTimeout
	return s.proved
}

// end closes a connection with a reason, which the replica is told.
func (s *server) end(err error) {
	if s.over {
		return
	}
	if s.peer != nil {
		s.node.world.trace("%s ends a connection of %s: %v", s.node.name, s.peer.name, err)
	}
	if words := s.session.LastWords(err); words != nil && len(s.out) == 0 {
		s.socket.Write(words)
	}
	s.leave()
	s.socket.Close(err)
}

// leave gives back all that the connection held; once.
func (s *server) leave() {
	if s.over {
		return
	}
	s.over = true
	s.finish()
	if s.member != nil {
		s.node.quorum.Leave(s.member)
		s.member = nil
	}
	s.node.forget(s)
}

func (s *server) Closed(error) { s.leave() }

func (s *server) Writable() { s.full = false; s.send() }

func (s *server) send() {
	w := s.node.world
	for !s.over && !s.socket.Over() && !s.full {
		now := w.clock.Now()
		if control := s.session.Control(); len(control) > 0 && len(s.out) == 0 {
			n := s.socket.Write(control[:1+w.random.IntN(len(control))])
			s.session.ControlSent(n, now)
			s.full = n == 0
			continue
		}
		if len(s.out) == 0 {
			log := s.node.served()
			s.session.SetEpochs(s.node.terms)
			f, ok := s.session.Next(log, now)
			if !ok {
				break
			}
			if err := s.begin(f); err != nil {
				w.checkUnread(s, err)
				s.end(err)
				return
			}
		}
		head := len(s.out) - int(s.frame.Bytes-s.body)
		n := s.socket.Write(w.part(s.out))
		if s.full = n == 0; s.full {
			break
		}
		body := int32(max(n-max(head, 0), 0))
		s.out = s.out[n:]
		s.body += body
		s.session.Sent(s.frame, body, now)
		if len(s.out) == 0 {
			s.finish()
		}
	}
	s.rearm()
}

// begin makes a frame the next to go out. Its view is held meanwhile.
func (s *server) begin(f transfer.Frame) error {
	var source transfer.Source
	if s.extended {
		source = s.node.source()
	}
	s.frame, s.body = f, 0
	s.out = s.session.AppendHeader(nil, f, source)
	if f.Bytes == 0 {
		return nil
	}
	v, err := s.node.log.View(f.Offset, f.Offset+int64(f.Bytes))
	if err != nil {
		s.out = nil
		return err
	}
	s.view, s.shown = v, bytes.Clone(v.Bytes())
	s.node.world.lend(s.node, f.Offset, v.Bytes())
	s.out = append(s.out, s.shown...)
	return nil
}

// finish gives the segment back, whose bytes must be what they were.
func (s *server) finish() {
	if s.shown == nil {
		return
	}
	if !bytes.Equal(s.shown, s.view.Bytes()) {
		s.node.world.fail("%s: bytes at offset %d changed while they were sent", s.node.name, s.frame.Offset)
	}
	s.view.Release()
	s.shown = nil
}

func (s *server) rearm() {
	if s.over || s.socket.Over() {
		return
	}
	at := s.session.Deadline(s.node.served())
	if at >= s.armed {
		return
	}
	s.armed = at
	s.node.at(at, func() {
		if s.over || s.armed != at {
			return
		}
		s.armed = never
		if err := s.session.Expired(s.node.world.clock.Now()); err != nil {
			s.node.world.trace("%s: %v", s.node.name, err)
			s.end(err)
			return
		}
		s.send()
	})
}

// gate keeps a socket's events from a process that is paused.
type gate struct {
	node    *Node
	life    int
	handler Handler
}

// serve names who of a node's process is told about a socket.
func (n *Node) serve(s *Socket, h Handler) { s.Serve(gate{n, n.life, h}) }

func (g gate) pass(do func()) {
	if g.node.life == g.life {
		g.node.do(do)
	}
}

func (g gate) Readable()        { g.pass(g.handler.Readable) }
func (g gate) Writable()        { g.pass(g.handler.Writable) }
func (g gate) Closed(err error) { g.pass(func() { g.handler.Closed(err) }) }
