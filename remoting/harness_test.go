package remoting

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"
)

const patience = 20 * time.Second

// logText is what was logged, shown when its test fails.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// testLogger logs into the test's output if it fails.
func testLogger(t testing.TB) (*slog.Logger, *logText) {
	l := &logText{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("log:\n" + l.String())
		}
	})
	return slog.New(slog.NewTextHandler(l, nil)), l
}

// until waits until done; a test that waits too long fails.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// listen starts a server that ends with its test.
func listen(t testing.TB, h Handler, o ServerOptions) *Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger, _ = testLogger(t)
	}
	s, err := Listen("127.0.0.1:0", h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if n := s.Count(HandlerPanicked); n != o.panics {
			t.Errorf("%d requests made their handler panic, want %d", n, o.panics)
		}
	})
	return s
}

// echo answers at once with the request's fields and body.
var echo = HandlerFunc(func(r *Request) { r.Reply(&Command{Ext: r.Ext, Body: r.Body}) })

func dial(t testing.TB, s *Server, h Handler) *Client {
	t.Helper()
	c, err := Dial(t.Context(), s.Addr().String(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ask(t testing.TB, c *Client, request *Command) *Command {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := c.Call(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// raw is a connection without a client on it.
func raw(t testing.TB, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ends reads until the other side closes; what it sends on the way is returned.
func ends(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Fatal("the connection is not closed")
	}
	return b
}
