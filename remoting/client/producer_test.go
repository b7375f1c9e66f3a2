package client

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
)

// Name servers that do not answer are no reason not to send.
func TestSendsDoNotWaitForARoute(t *testing.T) {
	f := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, remoting.Success) })
	p := newProducer(t, newClient(t, f.addr()), ProducerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	silent, asked := newFakeBroker(t, 0, nil), make(chan struct{}, 1)
	silent.silent = func(r *remoting.Request) { asked <- struct{}{} }
	p.c.o.NameServers = []string{silent.addr()}
	looked := make(chan error, 1)
	go func() { looked <- p.look(ctx, 0) }()
	<-asked
	if s, err := p.Send(within(t), &Message{Body: []byte("x")}); err != nil {
		t.Errorf("%+v %v", s, err)
	}
	select {
	case err := <-looked:
		t.Errorf("the route was answered: %v", err)
	default:
	}
	cancel()
	<-looked
}

// Two messages on the way to one queue may change places.
func TestAQueueHasOneMessageOnTheWayWhenQueuesAreLost(t *testing.T) {
	f, sends := holding(t)
	f.queues.Store(2)
	p := newProducer(t, newClient(t, f.addr()), ProducerOptions{})
	f.queues.Store(1)
	if err := p.look(within(t), 0); err != nil {
		t.Fatal(err)
	}
	first := start(t, p, &Message{Body: []byte("first")})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := func(s Sent, err error) { t.Errorf("the second is sent beside the first: %+v %v", s, err) }
	if err := p.Start(short, &Message{Body: []byte("second")}, second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second is on its way beside the first: %v", err)
	}
	stored(sends.next(t), remoting.Success)
	if o := <-first; o.err != nil {
		t.Errorf("%+v", o)
	}
	f.queues.Store(3) // and all that come are used
	if err := p.look(within(t), 0); err != nil {
		t.Fatal(err)
	}
	all := []<-chan outcome{}
	for range 3 {
		all = append(all, start(t, p, &Message{Body: []byte("x")}))
	}
	for range 3 {
		stored(sends.next(t), remoting.Success)
	}
	queues := map[Queue]bool{}
	for _, one := range all {
		o := <-one
		queues[o.sent.Queue] = true
	}
	if len(queues) != 3 {
		t.Errorf("messages went to %v", queues)
	}
}

func TestFewMessagesOnTheWayReachAllQueues(t *testing.T) {
	f := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, remoting.Success) })
	f.queues.Store(3)
	p := newProducer(t, newClient(t, f.addr()), ProducerOptions{Outstanding: 1})
	queues := map[int32]bool{}
	for range 3 {
		s, err := p.Send(within(t), &Message{Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		queues[s.Queue.QueueID] = true
	}
	if len(queues) != 3 {
		t.Errorf("messages went to the queues %v", queues)
	}
}

func TestAMessageThatNoFrameHoldsIsRefusedAlone(t *testing.T) {
	f, sends := holding(t)
	p := newProducer(t, newClient(t, f.addr()), ProducerOptions{Outstanding: 2})
	first := start(t, p, &Message{Body: []byte("first")})
	held := sends.next(t)
	if s, err := p.Send(within(t), &Message{Body: make([]byte, remoting.FrameBytesMax)}); s.Status != "MESSAGE_ILLEGAL" || err == nil || s.Tries != 1 {
		t.Errorf("%+v %v", s, err)
	}
	stored(held, remoting.Success)
	if o := <-first; o.err != nil {
		t.Errorf("the one beside it: %+v", o)
	}
}

func TestAClosedProducerTakesNothing(t *testing.T) {
	f, names := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, remoting.Success) }), newFakeBroker(t, 0, nil)
	names.master = f.addr()
	c := newClient(t, names.addr())
	p, other := newProducer(t, c, ProducerOptions{}), newProducer(t, c, ProducerOptions{})
	for _, one := range []*Producer{p, other} {
		if _, err := one.Send(within(t), &Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	p.Close()
	if s, err := p.Send(within(t), &Message{Body: []byte("x")}); !errors.Is(err, ErrProducerClosed) || s.Status != NotSent {
		t.Errorf("%+v %v", s, err)
	}
	if n := f.count(remoting.CodeUnregisterClient); n != 0 {
		t.Errorf("the group is left %d times while another producer is in it", n)
	}
	other.Close()
	if n := f.count(remoting.CodeUnregisterClient); n != 1 {
		t.Errorf("the group is left %d times", n)
	}
}

func TestWhatTimeDoesNotChangeIsSaidAtOnce(t *testing.T) {
	f := newFakeBroker(t, 0, nil)
	c := newClient(t, f.addr())
	if p, err := c.NewProducer(within(t), "orders", ProducerOptions{Queues: []int32{7}, Patience: 10 * patience}); !errors.Is(err, ErrNoQueue) {
		t.Errorf("%v %v", p, err)
	}
	if n := f.count(remoting.CodeGetRouteInfo); n != 1 {
		t.Errorf("the route was asked for %d times", n)
	}
	for _, o := range []ProducerOptions{{Outstanding: -1}, {QueuesNew: -1}} {
		if _, err := c.NewProducer(within(t), "orders", o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestPropertiesAreTheSendersOwn(t *testing.T) {
	m := Message{Keys: "k", Tags: "t", Properties: map[string]string{"b": "2", "a": "1"}}
	if got, err := m.properties("ID"); err != nil || got != "UNIQ_KEY\x01ID\x02KEYS\x01k\x02TAGS\x01t\x02WAIT\x01true\x02a\x011\x02b\x012\x02" {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []map[string]string{{"TAGS": "x"}, {"KEYS": "x"}, {"UNIQ_KEY": "x"}, {"WAIT": "false"}, {"": "x"}, {"a\x01": "x"}, {"a": "\x02"}} {
		if got, err := (&Message{Properties: bad}).properties("ID"); err == nil {
			t.Errorf("%q become %q", bad, got)
		}
	}
}

// RocketMQ's tools count the time in an id from the beginning of its month.
func TestAnIDSaysWhenItWasMade(t *testing.T) {
	u := newUniqueIDs()
	for _, now := range []time.Time{time.Date(2026, 5, 31, 23, 59, 59, 0, time.UTC), time.Date(2026, 9, 1, 0, 0, 1, 0, time.UTC)} {
		b, err := hex.DecodeString(u.id(now))
		if err != nil || len(b) != 16 {
			t.Fatal(b, err)
		}
		month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		if got := month.Add(time.Duration(binary.BigEndian.Uint32(b[10:])) * time.Millisecond); !got.Equal(now) {
			t.Errorf("%v, want %v", got, now)
		}
	}
}
