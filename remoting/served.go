package remoting

import (
	"encoding/binary"
	"sync"
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
}

// costs is what a request counts until it is answered, no less than its memory:
// the body may be kept, the header's text is, and what is escaped in it once more,
// and fields that have no room in it have a list of their own.
func (s *served) costs(frame []byte) int {
	n := requestCost + len(frame) + int(binary.BigEndian.Uint32(frame[4:])&0xFFFFFF)
	if c := cap(s.Ext); c > len(s.room) {
		n += c * fieldBytes
	}
	return n
}

var servedRequests = sync.Pool{New: func() any { return new(served) }}

func (s *served) leave() {
	if s.left.Add(1) == 2 {
		*s = served{}
		servedRequests.Put(s)
	}
}
