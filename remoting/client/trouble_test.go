package client

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
)

// gathered is a logger whose text a test reads.
func gathered() (*slog.Logger, func() string) {
	l := &logText{}
	return slog.New(slog.NewTextHandler(l, nil)), func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.text.String()
	}
}

// Many messages that nobody takes are one thing to say, and that it is over another.
func TestTroubleIsToldOfOnce(t *testing.T) {
	var all trouble
	logger, text := gathered()
	all.over(logger)
	all.failed(logger, time.Minute, errors.New("first"))
	if got := text(); got != "" {
		t.Errorf("at once: %s", got)
	}
	all.since = all.since.Add(-tellAfter)
	all.failed(logger, time.Minute, errors.New("second"))
	all.failed(logger, time.Minute, errors.New("third"))
	if got := text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "trying for 1m0s") || !strings.Contains(got, "second") {
		t.Errorf("while it lasts: %s", got)
	}
	all.over(logger)
	all.over(logger)
	if got := text(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "taken again") {
		t.Errorf("afterwards: %s", got)
	}
}

func TestAProducerTellsOfAMasterThatIsAwayAndBack(t *testing.T) {
	var f *fakeBroker
	f = newFakeBroker(t, 0, func(r *remoting.Request) {
		if f.count(remoting.CodeSendMessageV2) < 20 {
			r.ReplyCode(remoting.SystemBusy, "busy")
			return
		}
		stored(r, remoting.Success)
	})
	f.queues.Store(2)
	c := newClient(t, f.addr())
	logger, text := gathered()
	c.o.Logger = logger
	p := newProducer(t, c, ProducerOptions{Patience: patience})
	p.trouble.since = time.Now().Add(-tellAfter)
	a, b := start(t, p, &Message{Body: []byte("x")}), start(t, p, &Message{Body: []byte("x")})
	if o := <-a; o.err != nil {
		t.Errorf("%+v", o)
	}
	if o := <-b; o.err != nil {
		t.Errorf("%+v", o)
	}
	if got := text(); strings.Count(got, "nobody takes messages") != 1 || strings.Count(got, "taken again") != 1 {
		t.Errorf("%s", got)
	}
}

// Where no name server can ever be, none is waited for.
func TestAProducerDoesNotWaitForWhatCannotCome(t *testing.T) {
	broker, err := remoting.Listen("127.0.0.1:0", remoting.HandlerFunc(func(r *remoting.Request) {
		r.ReplyCode(remoting.RequestCodeNotSupported, "no")
	}), remoting.ServerOptions{Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close(within(t))
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	go func() {
		for {
			conn, err := web.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			defer conn.Close()
		}
	}()
	for what, addr := range map[string]string{"a broker": broker.Addr().String(), "another service": web.Addr().String()} {
		began := time.Now()
		if p, err := newClient(t, addr).NewProducer(within(t), "orders", ProducerOptions{Patience: 10 * patience}); err == nil || time.Since(began) >= patience {
			t.Errorf("%s: %v %v", what, p, err)
		}
	}
	named := &NameServerError{Errors: []error{&net.DNSError{IsNotFound: true}}}
	if !hopeless(named) {
		t.Error("a host that there is not is waited for")
	}
	named.Errors = append(named.Errors, errors.New("refused"))
	if hopeless(named) {
		t.Error("a name server that may come is not waited for")
	}
}

// After a message without an answer, the next one goes where the master is now.
func TestAMasterThatIsLostIsLookedForAtOnce(t *testing.T) {
	next := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, remoting.Success) })
	lost := newFakeBroker(t, 0, func(*remoting.Request) {})
	names := newFakeBroker(t, 0, nil)
	names.master = lost.addr()
	p := newProducer(t, newClient(t, names.addr()), ProducerOptions{Timeout: 200 * time.Millisecond, Outstanding: 1})
	names.move(next.addr())
	p.looking.Lock()
	p.looking.at = time.Time{} // long ago
	p.looking.Unlock()
	if s, err := p.Send(within(t), &Message{Body: []byte("a")}); s.Status != NoAnswer {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := p.Send(within(t), &Message{Body: []byte("b")}); err != nil || s.Address != next.addr() {
		t.Errorf("%+v %v", s, err)
	}
}

// Offsets that only a slave has are lost when the old master is back.
func TestOffsetsThatOnlyASlaveHasAreInDoubt(t *testing.T) {
	f := newFakeBroker(t, 1, func(r *remoting.Request) {
		switch r.Code {
		case remoting.CodeQueryConsumerOffset:
			r.Reply(&remoting.Command{Ext: remoting.Ext(nil).WithInt("offset", 0)})
		case remoting.CodePullMessage:
			pulled(r, remoting.Success, 1, record(0, 0, "a"))
		case remoting.CodeGetConsumerList:
			r.Reply(&remoting.Command{Body: []byte(`{"consumerIdList":["me"]}`)})
		default:
			r.Reply(&remoting.Command{})
		}
	})
	f.master, f.slave = "127.0.0.1:1", f.addr()
	c := newClient(t, f.addr())
	c.o.ID = "me"
	for _, consumed := range []bool{false, true} {
		r, err := c.OpenReader(within(t), ReaderOptions{Topic: "orders", Group: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if consumed {
			r.Consumed(m)
		}
		if err := r.Close(within(t)); errors.Is(err, ErrSlaveCommit) != consumed || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("consumed %v: %v", consumed, err)
		}
	}
}
