package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// gnet starts the goroutines of its worker pool when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// patience is far beyond what a condition needs, so that a busy machine fails no test.
const patience = 60 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

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

func testLogger(t testing.TB) *slog.Logger {
	l := &logText{}
	t.Cleanup(func() {
		if t.Failed() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Log("log:\n" + l.text.String())
		}
	})
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testNode is a node with its broker and its name server.
type testNode struct {
	engine *engine.Engine
	broker *remoting.Broker
	names  string
	close  func()
}

func openNode(t testing.TB, e engine.Options, b remoting.BrokerOptions) *testNode {
	t.Helper()
	logger := testLogger(t)
	if e.Store == "" {
		e.Store = t.TempDir()
	}
	e.SegmentBytes, e.Reactors, e.Logger = 1<<20, 1, logger
	node, err := engine.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	b.Engine, b.Store, b.Listen, b.NameServerListen, b.Logger = node, e.Store, "127.0.0.1:0", "127.0.0.1:0", logger
	broker, err := remoting.OpenBroker(b)
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{engine: node, broker: broker, names: broker.NameServerAddr().String()}
	var once sync.Once
	n.close = func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := errors.Join(broker.Close(ctx), node.Close(ctx)); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	t.Cleanup(n.close)
	c, err := New(Options{NameServers: []string{n.names}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "the broker is registered", func() bool { _, err := c.Brokers(context.Background()); return err == nil })
	return n
}

func newClient(t testing.TB, names ...string) *Client {
	t.Helper()
	c, err := New(Options{NameServers: names, Timeout: 10 * time.Second, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// sendAll sends bodies, which must all be SEND_OK.
func sendAll(t testing.TB, c *Client, topic string, o ProducerOptions, messages ...*Message) (all []Sent) {
	t.Helper()
	ctx := within(t)
	p, err := c.NewProducer(ctx, topic, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	all = make([]Sent, len(messages))
	for i, m := range messages {
		err := p.Start(ctx, m, func(s Sent, err error) {
			if all[i] = s; s.Status != SendOK || err != nil {
				t.Errorf("message %d: %+v %v", i, s, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	return all
}

// readAll reads to the end; each message is consumed.
func readAll(t testing.TB, c *Client, o ReaderOptions) (all []*Received) {
	t.Helper()
	ctx := within(t)
	r, err := c.OpenReader(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		r.Consumed(m)
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return all
}

func bodies(all []*Received) (texts []string) {
	for _, m := range all {
		texts = append(texts, string(m.Content))
	}
	return texts
}
