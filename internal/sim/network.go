package sim

import (
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

// What an end of a connection is told when it breaks.
var (
	ErrReset   = errors.New("connection reset by peer")
	ErrTimeout = errors.New("nobody takes what was sent")
	ErrClosed  = errors.New("connection closed by this side")
)

// Network carries byte streams between sockets, on a clock, with chance drawn
// from a seed. Its fields may be changed at any time.
type Network struct {
	Clock  *Clock
	Random *rand.Rand

	DelayMin, DelayMax time.Duration // of a piece, one way
	PieceMax           int           // a write is cut into pieces of at most this many bytes
	GiveUp             time.Duration // after a write whose bytes nobody takes (TCP_USER_TIMEOUT); 0: never
	Room               int           // bytes on their way in one direction before writes are refused
}

// Handler is told what happens on a socket. Its methods run as events.
type Handler interface {
	Readable()        // bytes, or the end of the stream, wait in the socket
	Writable()        // a write that was refused in part may go on
	Closed(err error) // once; the socket is of no use any more
}

// Socket is one end of a connection.
type Socket struct {
	net     *Network
	peer    *Socket
	handler Handler
	over    bool

	in  []byte // arrived, not read
	eof bool   // nothing more will arrive

	// The way from here to the peer.
	onTheWay int           // bytes written that have not arrived
	last     time.Duration // arrival of the last piece: pieces keep their order
	blocked  bool          // a write was refused in part
	silent   bool          // nothing gets through; it is kept, as TCP would send it again
	kept     []func()
	dead     bool // nothing gets through ever again
	doomed   bool // something was written since
}

// Connect makes a connection; Serve must be called for both ends at once.
func (n *Network) Connect() (a, b *Socket) {
	a, b = &Socket{net: n}, &Socket{net: n}
	a.peer, b.peer = b, a
	return a, b
}

// Serve names who is told about the socket.
func (s *Socket) Serve(h Handler) { s.handler = h }

// Write takes as many bytes as the way has room for.
func (s *Socket) Write(b []byte) int {
	if s.over {
		return 0
	}
	n := min(len(b), s.net.Room-s.onTheWay)
	if n < len(b) {
		s.blocked = true
	}
	if n <= 0 {
		return 0
	}
	if s.dead && !s.doomed && s.net.GiveUp > 0 {
		s.doomed = true
		s.net.Clock.After(s.net.GiveUp, func() { s.end(ErrTimeout) })
	}
	s.onTheWay += n
	for rest := b[:n]; len(rest) > 0; {
		length := min(len(rest), s.net.PieceMax)
		if s.net.Random.IntN(4) == 0 {
			length = 1 + s.net.Random.IntN(length)
		}
		piece := append([]byte(nil), rest[:length]...)
		rest = rest[length:]
		s.carry(func() { s.arrive(piece) })
	}
	return n
}

// part is what of a write is tried at once: all of it, or as chance has it less.
func (w *World) part(b []byte) []byte {
	if w.chance(3) {
		return b[:1+w.random.IntN(len(b))]
	}
	return b
}

// carry makes do happen at the other end, after a delay and after all that was
// carried before.
func (s *Socket) carry(do func()) {
	s.last = max(s.last+1, s.net.Clock.Now()+s.net.delay())
	s.net.Clock.At(s.last, func() {
		switch {
		case s.dead:
		case s.silent:
			s.kept = append(s.kept, do)
		default:
			do()
		}
	})
}

func (n *Network) delay() time.Duration {
	return n.DelayMin + time.Duration(n.Random.Int64N(int64(n.DelayMax-n.DelayMin)+1))
}

func (s *Socket) arrive(piece []byte) {
	if s.peer.over {
		return
	}
	s.onTheWay -= len(piece)
	s.peer.in = append(s.peer.in, piece...)
	if s.net.Random.IntN(2) == 0 {
		s.peer.handler.Readable()
	} else { // a busy reader finds several pieces together
		s.net.Clock.After(time.Duration(s.net.Random.Int64N(int64(2*time.Millisecond))), func() {
			if !s.peer.over {
				s.peer.handler.Readable()
			}
		})
	}
	if s.blocked && !s.over {
		s.blocked = false
		s.handler.Writable()
	}
}

// Read takes bytes that have arrived, as many as chance gives. io.EOF: the peer
// has closed and all was read; 0 and nil: nothing there now.
func (s *Socket) Read(b []byte) (int, error) {
	n := min(len(b), len(s.in))
	if n == 0 {
		if s.eof {
			return 0, io.EOF
		}
		return 0, nil
	}
	if s.net.Random.IntN(4) == 0 {
		n = 1 + s.net.Random.IntN(n)
	}
	copy(b, s.in[:n])
	s.in = s.in[n:]
	return n, nil
}

// Close ends the connection from this side: what was written still arrives,
// then the end of the stream.
func (s *Socket) Close(err error) {
	if s.over {
		return
	}
	s.carry(func() {
		if p := s.peer; !p.over {
			p.eof = true
			p.handler.Readable()
		}
	})
	s.end(err)
}

func (s *Socket) end(err error) {
	if s.over {
		return
	}
	s.over = true
	s.handler.Closed(err)
}

// Over tells whether this end was closed or broken.
func (s *Socket) Over() bool { return s.over }

// Break cuts the connection: what is on its way is lost. An end that is told
// sees a reset; one that is not has to find out by itself.
func (s *Socket) Break(tellThis, tellPeer bool) {
	for _, end := range []*Socket{s, s.peer} {
		end.dead, end.kept = true, nil
	}
	if tellThis {
		s.end(ErrReset)
	}
	if tellPeer {
		s.peer.end(ErrReset)
	}
}

// Silence keeps everything that goes from here to the peer for d; then it
// arrives.
func (s *Socket) Silence(d time.Duration) {
	if s.silent {
		return
	}
	s.silent = true
	s.net.Clock.After(d, func() {
		s.silent = false
		kept := s.kept
		s.kept = nil
		for _, do := range kept {
			do()
		}
	})
}
