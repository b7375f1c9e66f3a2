package remoting

import "sync"

// served is a request of a server's connection, with the room for its fields, and
// what its answer needs: one piece of memory, which is used again if whoever
// serves the request says that it is done with it.
type served struct {
	Request
	peer *peer
	cost int // that it counts until it is answered
	room [16]Field
}

var servedRequests = sync.Pool{New: func() any { return new(served) }}

func (s *served) release() {
	*s = served{}
	servedRequests.Put(s)
}
