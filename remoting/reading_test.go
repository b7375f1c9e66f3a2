package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"go.uber.org/goleak"
)

const readingTimeout = 20 * time.Second

// reader is a consumer's connection in memory.
type reader struct {
	backlog atomic.Int64

	mu    sync.Mutex
	over  bool
	close []func()
}

func (p *reader) RemoteAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:4711") }
func (p *reader) Push(*Command)              {}
func (p *reader) Backlog() int64             { return p.backlog.Load() }

func (p *reader) OnClose(do func()) {
	p.mu.Lock()
	over := p.over
	if !over {
		p.close = append(p.close, do)
	}
	p.mu.Unlock()
	if over {
		do()
	}
}

func (p *reader) Close(error) {
	p.mu.Lock()
	all := p.close
	p.over, p.close = true, nil
	p.mu.Unlock()
	for _, do := range all {
		do()
	}
}

// broker is a node with what serves its consumers, in memory but for the store.
type broker struct {
	t       testing.TB
	e       *engine.Engine
	pulls   *Pulls
	offsets *Offsets
	mux     Mux
	subs    map[string]string // topic: subscription of group g

	broadcasts, mayBroadcast bool // the members of group g
}

func openReadingNode(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	if o.Store == "" {
		o.Store = t.TempDir()
	}
	o.Logger, o.SegmentBytes, o.Reactors = quiet, 1<<20, 1
	e, err := engine.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// newBroker serves topic t with 4 read queues and group g; topic w may only be
// written, group x may not consume.
func newBroker(t testing.TB, e *engine.Engine, o PullOptions) *broker {
	t.Helper()
	b := &broker{t: t, e: e, subs: map[string]string{"t": "*"}}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
	var err error
	if b.offsets, err = OpenOffsets(OffsetsOptions{File: filepath.Join(t.TempDir(), "config", "consumerOffset.json"), Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.offsets.Close() })
	o.Logger, o.Offsets = quiet, b.offsets
	o.Topic = func(name string) (int32, int32, bool) {
		if name == "w" {
			return 4, 2, true
		}
		return 4, 6, name == "t" || name == "%RETRY%g"
	}
	o.Group = func(name string) (PullGroup, bool) {
		return PullGroup{ConsumeEnable: name != "x", Broadcast: b.mayBroadcast, SlowBroker: 1}, name == "g" || name == "x"
	}
	o.Subscription = func(group, topic string) (Subscription, bool, bool) {
		text, ok := b.subs[topic]
		return NewSubscription(topic, text, "", 0), b.broadcasts, ok && group == "g"
	}
	if b.pulls, err = NewPulls(e, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pulls.Close)
	b.pulls.Handle(&b.mux)
	return b
}

func (b *broker) put(queue int32, tag string, body []byte) engine.PutResult {
	b.t.Helper()
	m := &engine.Message{Topic: "t", QueueID: queue, Body: body}
	if tag != "" {
		m.Properties = "TAGS\x01" + tag + "\x02"
	}
	r, err := b.e.Put(context.Background(), m)
	if err != nil && !r.Appended() {
		b.t.Fatal(err)
	}
	return r
}

// settled waits until all that was put is in its queue.
func (b *broker) settled() {
	b.t.Helper()
	eventuallyRead(b.t, "the queues follow", func() bool { return b.e.Status().QueuedOffset == b.e.EndOffset() })
}

func eventuallyRead(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(readingTimeout); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", readingTimeout, what)
		}
	}
}

// send hands a request to the broker; its answer comes by the channel.
func (b *broker) send(p Peer, code int32, x Ext) <-chan *Command {
	answer := make(chan *Command, 1)
	b.mux.Serve(NewRequest(Command{Code: code, Opaque: 7, Ext: x}, p, func(c *Command) { answer <- c }))
	return answer
}

func (b *broker) ask(code int32, x Ext) *Command {
	b.t.Helper()
	return b.await(b.send(&reader{}, code, x))
}

func (b *broker) await(answer <-chan *Command) *Command {
	b.t.Helper()
	select {
	case c := <-answer:
		return c
	case <-time.After(readingTimeout):
		b.t.Fatal("no answer")
		return nil
	}
}

// pullOf is a pull's header with what is not said filled in.
type pullOf struct {
	group, topic string
	queue        int32
	from         int64
	most         int64
	flags        int64
	commit       int64
	suspend      time.Duration
	text, kind   string
	bytes        int64
}

func (p pullOf) ext() Ext {
	or(&p.group, "g")
	or(&p.topic, "t")
	or(&p.most, 32)
	x := Ext{{"consumerGroup", p.group}, {"topic", p.topic}}.
		WithInt("queueId", int64(p.queue)).WithInt("queueOffset", p.from).WithInt("maxMsgNums", p.most).
		WithInt("sysFlag", p.flags).WithInt("commitOffset", p.commit).
		WithInt("suspendTimeoutMillis", p.suspend.Milliseconds()).WithInt("subVersion", 0).
		With("subscription", p.text)
	if p.kind != "" {
		x = x.With("expressionType", p.kind)
	}
	if p.bytes != 0 {
		x = x.WithInt("maxMsgBytes", p.bytes)
	}
	return x
}

func (b *broker) pull(p pullOf) *Command { b.t.Helper(); return b.ask(CodePullMessage, p.ext()) }

func number(t testing.TB, c *Command, name string) int64 {
	t.Helper()
	n, err := c.Ext.Int(name, math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatalf("answer %d %q: %v", c.Code, c.Remark, err)
	}
	return n
}

// recordsOf splits a body into records and gives their queue offsets and bodies.
func recordsOf(t testing.TB, b []byte) (offsets []int64, bodies [][]byte) {
	t.Helper()
	for len(b) > 0 {
		size := binary.BigEndian.Uint32(b)
		if int(size) > len(b) || size < 91 {
			t.Fatalf("a record of %d bytes in %d", size, len(b))
		}
		r := b[:size]
		n := binary.BigEndian.Uint32(r[84:])
		offsets = append(offsets, int64(binary.BigEndian.Uint64(r[20:])))
		bodies = append(bodies, bytes.Clone(r[88:88+n]))
		b = b[size:]
	}
	return offsets, bodies
}

var errGone = errors.New("closed by the test")
