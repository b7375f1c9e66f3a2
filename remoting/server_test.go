package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestRequestsAreAnsweredByTheirHandler(t *testing.T) {
	m := &Mux{}
	m.Handle(echo, 1000)
	s := listen(t, m, ServerOptions{})
	c := dial(t, s, nil)
	a := ask(t, c, &Command{Code: 1000, Ext: Ext{{"a", "b\x01"}}, Body: []byte("body")})
	if a.Code != Success || a.Ext.Text("a") != "b\x01" || string(a.Body) != "body" || a.Version != Version || a.Language != "GO" || !a.IsResponse() {
		t.Errorf("answer %+v", a)
	}
	if a := ask(t, c, &Command{Code: 999}); a.Code != RequestCodeNotSupported || a.Remark != " request type 999 not supported" {
		t.Errorf("unknown code: %+v", a)
	}
}

func TestBinaryRequestsAreAnsweredInJSON(t *testing.T) {
	c := raw(t, listen(t, echo, ServerOptions{}))
	request := &Command{Code: 7, Opaque: 3, Ext: Ext{{"a", "b"}}}
	if _, err := c.Write(AppendBinaryFrame(nil, request)); err != nil {
		t.Fatal(err)
	}
	want := AppendFrame(nil, &Command{Opaque: 3, Flag: FlagResponse, Version: Version, Language: "GO", Ext: request.Ext})
	got := make([]byte, len(want))
	if _, err := readFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = c.Read(b[n:])
		n += k
	}
	return n, err
}

func TestOnewayRequestsAndResponsesAreNotAnswered(t *testing.T) {
	var served atomic.Int32
	s := listen(t, HandlerFunc(func(r *Request) {
		served.Add(1)
		r.ReplyCode(SystemError, "no")
	}), ServerOptions{})
	c := raw(t, s)
	out := AppendFrame(nil, &Command{Code: 1, Flag: FlagOneway})
	out = AppendFrame(out, &Command{Code: 2, Flag: FlagResponse})
	out = AppendFrame(out, &Command{Code: 3, Flag: FlagResponse | FlagOneway})
	out = AppendFrame(out, &Command{Code: 4, Opaque: 44})
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 8)
	if _, err := readFull(c, frame); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(frame[3])-4)
	if _, err := readFull(c, rest); err != nil || !strings.Contains(string(rest), `"opaque":44`) {
		t.Errorf("first answer %q, %v", rest, err)
	}
	if n := served.Load(); n != 2 {
		t.Errorf("%d requests were served, want 2: responses are dropped", n)
	}
}

func TestAnswersMayComeLaterAndOvertake(t *testing.T) {
	held := make(chan *Request, 100)
	s := listen(t, HandlerFunc(func(r *Request) {
		if r.Code == 1 {
			held <- r
			return
		}
		r.ReplyCode(Success, "")
	}), ServerOptions{})
	c := dial(t, s, nil)
	const n = 50
	var answered sync.WaitGroup
	for i := range n {
		answered.Go(func() {
			text := fmt.Sprint(i)
			a, err := c.Call(t.Context(), &Command{Code: 1, Ext: Ext{{"i", text}}})
			if err != nil || a.Ext.Text("i") != text {
				t.Errorf("call %d: %+v, %v", i, a, err)
			}
		})
	}
	until(t, "all are held", func() bool { return len(held) == n })
	if a := ask(t, c, &Command{Code: 2}); a.Code != Success {
		t.Errorf("answer %+v", a)
	}
	for range n {
		go func() {
			r := <-held
			r.Reply(&Command{Ext: r.Ext})
			r.ReplyCode(SystemError, "the second answer goes nowhere")
		}()
	}
	answered.Wait()
}

func TestRequestIsAnsweredOnce(t *testing.T) {
	answers := 0
	r := NewRequest(Command{Opaque: 7}, nil, func(c *Command) {
		if answers++; c.Opaque != 7 || c.Code != 1 {
			t.Errorf("answer %+v", c)
		}
	})
	r.ReplyCode(1, "first")
	r.ReplyCode(2, "second")
	if answers != 1 {
		t.Errorf("%d answers", answers)
	}
}

// Each answer alone would cost a write of its own, which the reader would see as
// a piece of its own.
func TestAnswersOfABatchAreWrittenTogether(t *testing.T) {
	const n = 100
	held := make(chan *Request, n)
	s := listen(t, HandlerFunc(func(r *Request) { held <- r }), ServerOptions{Loops: 1})
	c := raw(t, s)
	var out []byte
	for i := range n {
		out = AppendFrame(out, &Command{Opaque: int32(i)})
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	until(t, "all are held", func() bool { return len(held) == n })
	// The loop is kept busy while all are answered.
	s.allLoops()[0].do(func() {
		for range n {
			(<-held).ReplyCode(Success, "")
		}
	})
	b := make([]byte, 1<<20)
	got, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Count(b[:got], []byte("opaque")); want != n {
		t.Errorf("the first piece has %d answers, want all %d", want, n)
	}
}

func TestServerPushesToItsPeer(t *testing.T) {
	peers := make(chan Peer, 1)
	s := listen(t, HandlerFunc(func(r *Request) {
		peers <- r.Peer
		r.ReplyCode(Success, "")
	}), ServerOptions{})
	pushed := make(chan Command, 1)
	c := dial(t, s, HandlerFunc(func(r *Request) { pushed <- r.Command }))
	ask(t, c, &Command{})
	p := <-peers
	if p.RemoteAddr() != c.LocalAddr() {
		t.Errorf("peer is %v, want %v", p.RemoteAddr(), c.LocalAddr())
	}
	p.Push(&Command{Code: CodeNotifyConsumersChanged, Ext: Ext{{"consumerGroup", "G"}}})
	if got := <-pushed; got.Code != CodeNotifyConsumersChanged || !got.IsOneway() || got.IsResponse() || got.Ext.Text("consumerGroup") != "G" {
		t.Errorf("pushed %+v", got)
	}
	closed := make(chan struct{}, 2)
	p.OnClose(func() { closed <- struct{}{} })
	c.Close()
	<-closed
	p.OnClose(func() { closed <- struct{}{} })
	<-closed
	p.Push(&Command{}) // goes nowhere
	p.Close(errors.New("again"))
	until(t, "no connection is left", func() bool { return s.Connections() == 0 })
}

func TestHandlerMayCloseItsPeer(t *testing.T) {
	s := listen(t, HandlerFunc(func(r *Request) {
		r.ReplyCode(SystemError, "bye")
		r.Peer.Close(errors.New("not wanted here"))
	}), ServerOptions{})
	c := raw(t, s)
	if _, err := c.Write(AppendFrame(nil, &Command{})); err != nil {
		t.Fatal(err)
	}
	if got := ends(t, c); !bytes.Contains(got, []byte("bye")) {
		t.Errorf("the answer before the end is %q", got)
	}
	if n := s.Count(ClosedByHandler); n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestListenersShareTheirServer(t *testing.T) {
	s := listen(t, echo, ServerOptions{})
	other, err := s.Also("127.0.0.1:0", HandlerFunc(func(r *Request) { r.ReplyCode(Success, "other") }))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), other.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a := ask(t, c, &Command{}); a.Remark != "other" {
		t.Errorf("answer %+v", a)
	}
	if a := ask(t, dial(t, s, nil), &Command{}); a.Remark != "" {
		t.Errorf("answer %+v", a)
	}
	if _, err := s.Also(other.String(), echo); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the second on %v: %v", other, err)
	}
	if _, err := Listen(other.String(), echo, ServerOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second server on %v: %v", other, err)
	}
}

func TestCloseWaitsForAnswers(t *testing.T) {
	held := make(chan *Request, 1)
	s := listen(t, HandlerFunc(func(r *Request) {
		if r.Code == 1 {
			held <- r
			return
		}
		r.ReplyCode(Success, "")
	}), ServerOptions{})
	c := dial(t, s, nil)
	answer := make(chan *Command)
	go func() {
		a, err := c.Call(t.Context(), &Command{Code: 1})
		if err != nil {
			t.Error(err)
		}
		answer <- a
	}()
	r := <-held
	closed := make(chan error)
	go func() { closed <- s.Close(t.Context()) }()
	until(t, "new requests are sent away", func() bool { return ask(t, c, &Command{Code: 2}).Code == GoAway })
	if a := ask(t, c, &Command{Code: 2, Version: 475}); a.Code != Success {
		t.Errorf("an old client is told %+v", a)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed with a request waiting: %v", err)
	default:
	}
	r.ReplyCode(Success, "late")
	if a := <-answer; a == nil || a.Remark != "late" {
		t.Errorf("answer %+v", a)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	<-c.Done()
}

func TestCloseEndsWithItsContext(t *testing.T) {
	held := make(chan *Request, 1)
	s := listen(t, HandlerFunc(func(r *Request) { held <- r }), ServerOptions{})
	c := dial(t, s, nil)
	ended := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), &Command{})
		ended <- err
	}()
	r := <-held
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the call that waited has an answer")
	}
	r.ReplyCode(Success, "nobody hears it")
}
