package sim

import (
	"errors"
	"io"
	"time"

	"github.com/haengine/haengine/transfer"
)

// server drives a session on one socket, as the engine's replica connection
// does.
type server struct {
	node    *Node
	socket  *Socket
	peer    *Node // nil: a stray client
	session *transfer.Session
	member  *transfer.Member

	frame transfer.Frame
	out   []byte // what is left of the frame, header first
	body  int32  // body bytes of the frame that went out
	full  bool   // the socket refused bytes

	proving bool
	armed   time.Duration
}

func (n *Node) accept(socket *Socket, peer *Node) {
	w := n.world
	s := &server{node: n, socket: socket, peer: peer, armed: never}
	name := "stray"
	if peer != nil {
		name = peer.name
	}
	var hello *transfer.Hello
	if n.extended() {
		own := n.hello()
		hello = &own
	}
	s.session = transfer.NewSession(transfer.SessionConfig{
		Peer: name, SegmentBytes: n.log.segment, FrameBytesMax: int32(w.cfg.FrameBytes),
		HistoryFirst: w.cfg.HistoryFirst, Hello: hello,
		Pace: transfer.Pace{Live: w.cfg.Rate, CatchUp: w.cfg.CatchUpRate}, CatchUpBytes: w.cfg.CatchUpBytes,
	}, w.clock.Now())
	socket.Serve(s)
	n.servers = append(n.servers, s)
	s.rearm()
}

func (s *server) Readable() {
	w, buf := s.node.world, make([]byte, 64)
	s.session.SetEpochs(s.node.epochs)
	for !s.socket.Over() {
		n, err := s.socket.Read(buf)
		if n > 0 {
			if bad := s.session.Feed(buf[:n], s.node.log.Range(), w.clock.Now()); bad != nil {
				w.trace("%s: %v", s.node.name, bad)
				w.checkRefusal(s, bad)
				s.end(bad)
				return
			}
			if from, to, ok := s.session.Unproved(); ok {
				s.prove(from, to)
			}
			s.acknowledge()
			continue
		}
		if errors.Is(err, io.EOF) {
			s.socket.Close(err)
			return
		}
		break
	}
	s.send()
}

// acknowledge tells the quorum what the replica holds.
func (s *server) acknowledge() {
	if !s.session.Started() || s.peer == nil {
		return
	}
	if s.member == nil {
		m, err := s.node.quorum.Join(s.peer.name)
		if err != nil {
			s.node.world.fail("%s joins the quorum: %v", s.peer.name, err)
			return
		}
		s.member = m
	}
	s.member.Ack(s.session.Acked(), s.session.Acks().Flushed)
}

func (s *server) Writable() { s.full = false; s.send() }

func (s *server) send() {
	w := s.node.world
	for !s.socket.Over() && !s.full {
		now := w.clock.Now()
		if control := s.session.Control(); len(control) > 0 && len(s.out) == 0 {
			n := s.socket.Write(control[:1+w.random.IntN(len(control))])
			s.session.ControlSent(n, now)
			s.full = n == 0
			continue
		}
		s.session.SetEpochs(s.node.epochs)
		if len(s.out) == 0 {
			f, ok := s.session.Next(s.node.log.Range(), now)
			if !ok {
				break
			}
			s.frame, s.body = f, 0
			head := s.session.AppendHeader(nil, f, transfer.Source{End: s.node.log.Range().End})
			s.out = append(head, s.node.log.View(f.Offset, int(f.Bytes))...)
		}
		head := len(s.out) - int(s.frame.Bytes-s.body)
		n := s.socket.Write(s.out[:1+w.random.IntN(len(s.out))])
		if n > 0 {
			body := int32(max(n-max(head, 0), 0))
			s.out = s.out[n:]
			s.body += body
			s.session.Sent(s.frame, body, now)
		} else {
			s.full = true
		}
	}
	s.rearm()
}

func (s *server) rearm() {
	if s.socket.Over() {
		return
	}
	w := s.node.world
	at := s.session.Deadline(s.node.log.Range())
	if at >= s.armed {
		return
	}
	s.armed = at
	w.clock.At(at, func() {
		if s.socket.Over() || s.armed != at {
			return
		}
		s.armed = never
		if err := s.session.Expired(w.clock.Now()); err != nil {
			w.trace("%s: %v", s.node.name, err)
			s.end(err)
			return
		}
		s.send()
	})
}

func (s *server) Closed(error) {
	if s.member != nil {
		s.node.quorum.Leave(s.member)
		s.member = nil
	}
	s.node.forget(s)
}
