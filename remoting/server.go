package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// Server serves connections on gnet's event loops. Its listeners share the loops
// and the limits. All methods may be called from any goroutine.
//
// It accepts connections itself and hands them to the loops of a gnet.Client:
// gnet's own listeners do not tell which port they got, and stop everything when
// the process runs out of file descriptors. An accepting goroutine for each
// listener is all that there is besides the loops.
//
// gnet keeps one logger for the process: the latest server's is used for what
// gnet has to say about its pollers.
type Server struct {
	o      ServerOptions
	client *gnet.Client
	quiet  quietLog
	counts [reasons]atomic.Int64

	connections atomic.Int64
	partial     atomic.Int64 // bytes of frames that are not whole
	waiting     atomic.Int64 // of requests that wait, as connections noted with their last writes
	unread      atomic.Int64 // of answers that are not read, in the same way
	draining    atomic.Bool
	spare       sync.Pool // of *frames
	accepting   sync.WaitGroup
	stopping    chan struct{}

	mu struct {
		sync.Mutex
		listeners []net.Listener
		loops     map[gnet.EventLoop]*loop
		closed    bool
	}
	close struct {
		once sync.Once
		err  error
	}
}

// Listen serves addr, a HOST:PORT with port 0 for any, by h. It listens when it
// returns; the error is net.Listen's. The caller must Close the server.
func Listen(addr string, h Handler, o ServerOptions) (*Server, error) {
	o.setDefaults()
	s := &Server{o: o, stopping: make(chan struct{}), quiet: quietLog{logger: o.Logger}}
	s.mu.loops = map[gnet.EventLoop]*loop{}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s.client, err = gnet.NewClient(&events{s: s}, gnet.WithOptions(gnet.Options{
		NumEventLoop: o.Loops, Ticker: true, Logger: gnetLogger{o.Logger},
	}))
	if err == nil {
		err = s.client.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start event loops: %w", err), listener.Close())
	}
	s.serve(listener, h)
	return s, nil
}

// Also serves a further address, by a handler of its own.
func (s *Server) Also(addr string, h Handler) (net.Addr, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if !s.serve(listener, h) {
		return nil, errors.Join(net.ErrClosed, listener.Close())
	}
	return listener.Addr(), nil
}

// Addr is the first address that it listens on.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.listeners[0].Addr()
}

// Connections is how many there are.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Count is how many connections were closed, or requests and answers refused,
// for a reason.
func (s *Server) Count(r Reason) int64 { return s.counts[r].Load() }

// Counts calls yield for each reason with its name and Count.
func (s *Server) Counts(yield func(reason string, count int64) bool) {
	for r := range reasons {
		if !yield(r.String(), s.Count(r)) {
			return
		}
	}
}

// Close stops listening, tells clients that know it to go elsewhere
// (GO_AWAY), waits until all requests have their answers and these are sent, or
// ctx is over, and closes all connections. Later calls wait for the first and
// return its error.
func (s *Server) Close(ctx context.Context) error {
	s.close.once.Do(func() { s.close.err = s.shutdown(ctx) })
	return s.close.err
}

func (s *Server) shutdown(ctx context.Context) error {
	s.draining.Store(true)
	close(s.stopping)
	s.mu.Lock()
	s.mu.closed = true
	var err error
	for _, l := range s.mu.listeners {
		err = errors.Join(err, l.Close())
	}
	s.mu.Unlock()
	// A connection that is handed to a loop which has ended would wait for ever.
	s.accepting.Wait()
	if waiting := s.drain(ctx); waiting > 0 {
		s.o.Logger.Warn("client connections closed with requests that were not answered", "connections", waiting)
	}
	return errors.Join(err, s.client.Stop())
}

// drain waits until nothing is pending and returns how many connections had
// something pending when ctx was over.
func (s *Server) drain(ctx context.Context) int {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		loops := s.allLoops()
		answers := make(chan int, len(loops))
		for _, l := range loops {
			l.do(func() { answers <- l.busy() })
		}
		busy := 0
		for range loops {
			select {
			case n := <-answers:
				busy += n
			case <-ctx.Done():
				return busy
			}
		}
		if busy == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return busy
		case <-again.C:
		}
	}
}

// serve begins to accept, or tells that the server is closed.
func (s *Server) serve(listener net.Listener, h Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.listeners = append(s.mu.listeners, listener)
	s.accepting.Go(func() { s.accept(listener, h) })
	return true
}

// acceptPause is how long to wait for file descriptors to become free.
const acceptPause = 50 * time.Millisecond

func (s *Server) accept(listener net.Listener, h Handler) {
	for {
		c, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.count(NoDescriptor, "accept on %s: %v", listener.Addr(), err)
			select {
			case <-s.stopping:
			case <-time.After(acceptPause):
			}
			continue
		case s.connections.Add(1) > int64(s.o.Connections):
			s.connections.Add(-1)
			s.count(TooManyConnections, "connection of %s is closed: there are %d, as many as may be", c.RemoteAddr(), s.o.Connections)
			c.Close()
			continue
		}
		p := newPeer(s, h, c.RemoteAddr())
		dropZones(c)
		if _, err := s.client.EnrollContext(c, p); err != nil || !p.opened {
			s.connections.Add(-1)
			s.count(NoDescriptor, "connection of %s is closed: %v", p.addr, err)
		}
	}
}

// dropZones takes the zones out of a connection's addresses, those of link-local
// IPv6. gnet puts them into its pool of byte slices when the connection ends: texts
// that package net shares would be written over.
func dropZones(c net.Conn) {
	for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
		if tcp, ok := a.(*net.TCPAddr); ok {
			tcp.Zone = ""
		}
	}
}

// count counts a refusal and says why, now and then.
func (s *Server) count(r Reason, format string, args ...any) {
	s.counts[r].Add(1)
	s.quiet.warn(r, format, args...)
}

func (s *Server) allLoops() []*loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*loop, 0, len(s.mu.loops))
	for _, l := range s.mu.loops {
		all = append(all, l)
	}
	return all
}

// loopOf returns our side of a loop, which is made with its first connection.
func (s *Server) loopOf(el gnet.EventLoop) *loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.loops[el]
	if l == nil {
		l = &loop{el: el, peers: map[*peer]struct{}{}, now: time.Now()}
		s.mu.loops[el] = l
	}
	return l
}
