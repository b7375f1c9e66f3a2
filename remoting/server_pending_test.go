package remoting

import (
	"net"
	"sync"
	"testing"
)

// keeper is a Handler that answers nothing of code 1 before it is told to.
type keeper struct {
	mu   sync.Mutex
	held []*Request
}

func (k *keeper) Serve(r *Request) {
	if r.Code == 1 {
		k.mu.Lock()
		k.held = append(k.held, r)
		k.mu.Unlock()
		return
	}
	r.ReplyCode(Success, "")
}

func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

func (k *keeper) answer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.held {
		r.ReplyCode(Success, "")
	}
	k.held = nil
}

// Requests that are not answered cost what others cost while they wait: a flood of
// them, each with a header of 16 MiB, took all memory behind anything slow.
func TestOnewayRequestsThatWaitAreBounded(t *testing.T) {
	k := &keeper{}
	s := listen(t, k, ServerOptions{PendingIn: 64 << 10})
	c := dial(t, s, nil)
	flood := func() {
		t.Helper()
		for range 100 {
			if err := c.Push(&Command{Code: 1, Ext: Ext{{"long", string(make([]byte, 1<<10))}}}); err != nil {
				t.Fatal(err)
			}
		}
		ask(t, c, &Command{Code: 2}) // all are served by then; refused or not
	}
	flood()
	first := k.count()
	if first < 2 || first > 20 {
		t.Errorf("%d oneway requests wait, want some of 100", first)
	}
	if n := s.Count(RequestsTooMany); n < int64(100-first) {
		t.Errorf("%d of %d were refused", n, 100-first)
	}
	k.answer()
	until(t, "nothing waits", func() bool { return s.waiting.Load() == 0 })
	flood()
	if n := k.count(); n != first {
		t.Errorf("%d oneway requests wait after the first were answered, want %d again", n, first)
	}
	k.answer()
}

// A thousand connections with 32 MiB each are no better than one without a limit.
func TestRequestsThatWaitAreBoundedOverAllConnections(t *testing.T) {
	k := &keeper{}
	s := listen(t, k, ServerOptions{PendingInAll: 1 << 20, Loops: 1})
	small := dial(t, s, nil)
	if err := small.sendFrame(AppendFrame(nil, &Command{Code: 1, Opaque: -1})); err != nil {
		t.Fatal(err)
	}
	ask(t, small, &Command{Code: 2})
	var many []*Client
	for range 8 {
		c := dial(t, s, nil)
		many = append(many, c)
		for range 10 {
			if err := c.sendFrame(AppendFrame(nil, &Command{Code: 1, Opaque: -1, Body: make([]byte, 64<<10)})); err != nil {
				t.Fatal(err)
			}
		}
		ask(t, c, &Command{Code: 2})
	}
	if n := k.count() - 1; n < 12 || n > 28 {
		t.Errorf("%d requests of 64 KiB wait, want about 16, which are 1 MiB", n)
	}
	if s.Count(RequestsTooMany) == 0 {
		t.Error("nothing is refused")
	}
	if a := ask(t, small, &Command{Code: 2}); a.Code != Success {
		t.Errorf("who has little is answered %+v", a)
	}
	for _, c := range many[:4] {
		c.Close()
	}
	until(t, "they are gone", func() bool { return s.Connections() == 5 })
	k.answer()
	until(t, "nothing waits", func() bool { return s.waiting.Load() == 0 })
}

func TestAnswersThatNobodyReadsAreBoundedOverAllConnections(t *testing.T) {
	s := listen(t, HandlerFunc(func(r *Request) { r.Reply(&Command{Body: make([]byte, r.Code)}) }), ServerOptions{PendingOutAll: 32 << 20, Loops: 1})
	small := dial(t, s, nil)
	ask(t, small, &Command{Code: 1})
	for range 12 { // 15 MiB for each: less than one may have
		c := raw(t, s)
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		for range 15 {
			if _, err := c.Write(AppendFrame(nil, &Command{Code: 1 << 20})); err != nil {
				break // it is closed
			}
		}
		ask(t, small, &Command{Code: 1}) // one loop: what came before has been served
	}
	if n := s.Count(AnswersUnread); n == 0 || n == 12 {
		t.Errorf("%d of 12 connections are closed, want some", n)
	}
	if n := s.unread.Load(); n > 64<<20 {
		t.Errorf("%d bytes are not read over all connections, want about 32 MiB", n)
	}
	if a := ask(t, small, &Command{Code: 1000}); len(a.Body) != 1000 {
		t.Errorf("who reads is answered %+v", a)
	}
	if n := s.Connections(); n < 2 {
		t.Fatalf("%d connections are left", n)
	}
}
