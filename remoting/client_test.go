package remoting

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// A name server that has stopped reading must not keep a node from ending.
func TestACallDoesNotWriteLongerThanItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait to be accepted: nobody reads
	c, err := Dial(t.Context(), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for c.Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		_, err := c.Call(ctx, &Command{Body: make([]byte, FrameBytesMax/2)})
		cancel()
		if took := time.Since(began); took > writeTimeout/2 {
			t.Fatalf("a call with %v took %v: %v", 50*time.Millisecond, took, err)
		}
	}
	<-c.Done() // half of a frame is written: nothing can follow
	if _, err := c.Call(t.Context(), &Command{}); !errors.Is(err, ErrUnsent) {
		t.Errorf("a call on a connection that is over: %v, want one that was not sent", err)
	}
}

// Others' calls are under way on the same connection.
func TestWhatIsNotSentLeavesTheConnectionAsItIs(t *testing.T) {
	s, err := Listen("127.0.0.1:0", HandlerFunc(func(r *Request) { r.Reply(&Command{}) }), ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	c := dialAddr(t, s.Addr().String(), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Call(ended, &Command{Code: 1})
	if !errors.Is(err, ErrUnsent) || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	err = c.send(&Command{Code: 1}, time.Now()) // which is over when the lock is taken
	if !errors.Is(err, ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
	_, err = c.Call(t.Context(), &Command{Code: 1, Body: make([]byte, FrameBytesMax)})
	var refused *RefusalError
	if !errors.Is(err, ErrUnsent) || !errors.As(err, &refused) || refused.Reason != FrameTooLong {
		t.Errorf("too long: %v", err)
	}
	wantCode(t, ask(t, c, &Command{Code: 1}), Success)
}
