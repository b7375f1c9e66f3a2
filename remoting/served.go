package remoting

import (
	"encoding/binary"
	"sync/atomic"
)

// requestCost is what a request that waits counts besides its texts and its body:
// what the memory of one is, so that a flood of tiny ones is bounded, too.
const requestCost = 1024

const fieldBytes = 32 // of a Field

// served is a request of a server's connection, with the room for its fields, and
// what its answer needs: one piece of memory, which is used again when both the
// loop and who answered the request have left it.
type served struct {
	Request
	left atomic.Int32
	peer *peer
	cost int // that it counts until it is answered
	room [16]Field
	next *served // of a list of them that wait to be used again
}

// costs is what a request counts until it is answered, no less than its memory:
// the body may be kept, the header's text is, and fields that have no room in it have a list of their own.
func (s *served) costs(frame []byte) int {
	n := requestCost + len(frame) + int(binary.BigEndian.Uint32(frame[4:])&0xFFFFFF)
	if c := cap(s.Ext); c > len(s.room) {
		n += c * fieldBytes
	}
	return n
}

// servedKept is how many that were given back a loop keeps, beside as many that it is
// going to use next.
const servedKept = 1024

// leave is called by the loop and by who answered the request.
func (s *served) leave() {
	if s.left.Add(1) == 2 {
		s.peer.l.giveBack(s)
	}
}

// request gives the memory for a request.
func (l *loop) request() *served {
	if l.free == nil {
		l.due.Lock()
		l.free, l.due.free, l.due.kept = l.due.free, nil, 0
		l.due.Unlock()
	}
	s := l.free
	if s == nil {
		return new(served)
	}
	l.free, s.next = s.next, nil
	return s
}

// giveBack takes the memory of a request that nobody looks at any more. Any
// goroutine: a list for each loop costs less than a pool, which hands memory from
// one core to another piece by piece.
func (l *loop) giveBack(s *served) {
	*s = served{}
	l.due.Lock()
	if l.due.kept < servedKept {
		s.next, l.due.free = l.due.free, s
		l.due.kept++
	}
	l.due.Unlock()
}
