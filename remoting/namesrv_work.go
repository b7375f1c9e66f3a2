package remoting

import "bytes"

// namesWaitingMax is how many bytes of requests may wait for a name server.
const namesWaitingMax = 64 << 20

// asker is a connection with requests that wait. Guarded by NameServer.mu but for
// its share of the lane.
type asker struct {
	turn    lanePeer
	waiting int64 // bytes
}

// Serve implements Handler. A registration of 16 MiB takes a second to read, and a
// list of all topics as long to write: they are not done on the connection's loop,
// which serves a broker's clients, too, but by one goroutine on which connections
// take turns. Requests of one connection keep their order among each other.
func (s *NameServer) Serve(r *Request) {
	switch r.Code {
	case CodeRegisterBroker, CodeUnregisterBroker, CodeGetClusterInfo, CodeGetAllTopicsFromNames, CodeGetTopicsByCluster,
		CodeDeleteTopicInNames, CodeGetKVList:
	default:
		s.answer(r)
		return
	}
	cost := int64(len(r.Body)) + requestCost
	if r.served != nil {
		cost = int64(r.served.cost) // its header, too, is kept
	}
	a := s.wait(r.Peer, cost)
	if a == nil {
		r.ReplyCode(SystemBusy, "[OVERLOAD] requests that wait for this name server have %d bytes", namesWaitingMax)
		return
	}
	r.Body = bytes.Clone(r.Body)
	s.work.add(&a.turn, taskFunc(func() {
		select {
		case <-s.stop: // nobody hears it, and it may be minutes of work
			r.ReplyCode(SystemBusy, shuttingDown)
		default:
			s.answer(r)
		}
		s.mu.Lock()
		a.waiting -= cost
		s.waiting -= cost
		s.mu.Unlock()
	}))
}

// wait counts a request that is going to wait; nil: too much does. Who has less
// than its share may always.
func (s *NameServer) wait(peer Peer, cost int64) *asker {
	s.mu.Lock()
	a, known := s.askers[peer]
	if !known {
		a = &asker{}
		s.askers[peer] = a
	}
	fits := s.waiting+cost <= namesWaitingMax || a.waiting+cost <= namesWaitingMax/int64(len(s.askers))
	if fits {
		a.waiting += cost
		s.waiting += cost
	}
	s.mu.Unlock()
	if !known {
		peer.OnClose(func() {
			s.mu.Lock()
			delete(s.askers, peer)
			s.mu.Unlock()
		})
	}
	if !fits {
		return nil
	}
	return a
}
