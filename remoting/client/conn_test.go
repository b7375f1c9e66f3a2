package client

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
)

// held collects sends, which the test answers.
type held chan *remoting.Request

func (h held) next(t *testing.T) *remoting.Request {
	t.Helper()
	select {
	case r := <-h:
		return r
	case <-within(t).Done():
		t.Fatal("no send comes")
		return nil
	}
}

func holding(t *testing.T) (*fakeBroker, held) {
	h := make(held, 100)
	return newFakeBroker(t, 0, func(r *remoting.Request) { h <- r }), h
}

type outcome struct {
	sent Sent
	err  error
}

func start(t *testing.T, p *Producer, m *Message) <-chan outcome {
	t.Helper()
	result := make(chan outcome, 1)
	if err := p.Start(within(t), m, func(s Sent, err error) { result <- outcome{s, err} }); err != nil {
		t.Fatal(err)
	}
	return result
}

func newProducer(t *testing.T, c *Client, o ProducerOptions) *Producer {
	t.Helper()
	p, err := c.NewProducer(within(t), "orders", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A broker that shuts down answers what it has taken before.
func TestAGoAwayLeavesOthersTheirAnswers(t *testing.T) {
	f, sends := holding(t)
	p := newProducer(t, newClient(t, f.addr()), ProducerOptions{Outstanding: 2})
	first := start(t, p, &Message{Body: []byte("first")})
	held := sends.next(t)
	second := start(t, p, &Message{Body: []byte("second")})
	sends.next(t).ReplyCode(remoting.GoAway, "the broker is shutting down")
	stored(sends.next(t), remoting.Success) // sent again, over another connection
	if o := <-second; o.err != nil || o.sent.Tries != 2 {
		t.Errorf("the one that was sent away: %+v", o)
	}
	stored(held, remoting.Success)
	if o := <-first; o.err != nil || o.sent.Status != SendOK {
		t.Errorf("the one that was taken before: %+v", o)
	}
}

func TestACallWithoutAnAnswerLeavesOthersTheirs(t *testing.T) {
	f, requests := holding(t)
	c := newClient(t, f.addr())
	p := newProducer(t, c, ProducerOptions{Timeout: patience})
	first := start(t, p, &Message{Body: []byte("first")})
	held := requests.next(t)
	if _, err := c.call(within(t), f.addr(), &remoting.Command{Code: remoting.CodeGetTopicConfig}, "a question", time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a question that is not answered: %v", err)
	}
	stored(held, remoting.Success)
	if o := <-first; o.err != nil {
		t.Errorf("the send beside it: %+v", o)
	}
}

// unconnectable is an address where connecting takes forever: its queue of
// connections is full, and it drops what comes.
func unconnectable(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for range 10 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("all connections to an address that takes none are made")
	return ""
}

// However many wait for a connection, each waits as long as it wants to.
func TestWaitingForAConnectionEndsWithItsContext(t *testing.T) {
	addr := unconnectable(t)
	c, err := New(Options{NameServers: []string{addr}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // which does not wait for connections to be made, either
	long, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := c.Topics(long); done <- err }()
	eventually(t, "the first waits", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mu.conns[addr] != nil
	})
	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	if _, err := c.Topics(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), addr) {
		t.Errorf("the second: %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("the first has not waited: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}

func TestAddressesOfBrokersThatAreGoneAreForgotten(t *testing.T) {
	names, f := newFakeBroker(t, 0, nil), newFakeBroker(t, 0, func(r *remoting.Request) { r.Peer.Close(io.EOF) })
	c := newClient(t, names.addr())
	if _, err := c.Route(within(t), "orders"); err != nil {
		t.Fatal(err)
	}
	if err := c.beat(within(t), f.addr()); err != nil {
		t.Fatal(err)
	}
	if all := c.linked(); len(all) != 1 || all[0] != f.addr() {
		t.Errorf("connections to brokers: %v", all)
	}
	if _, err := c.call(within(t), f.addr(), &remoting.Command{Code: remoting.CodeGetTopicConfig}, "a question", 0); err == nil {
		t.Error("a connection that is closed answers")
	}
	all := c.linked()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(all) != 0 || len(c.mu.conns) != 1 || len(c.mu.links) != 1 {
		t.Errorf("connections to brokers: %v; %d addresses, %d connections, want the name server's", all, len(c.mu.conns), len(c.mu.links))
	}
}
