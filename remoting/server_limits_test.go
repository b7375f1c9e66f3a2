package remoting

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestSilentConnectionsEnd(t *testing.T) {
	s := listen(t, echo, ServerOptions{Idle: 100 * time.Millisecond})
	c := raw(t, s)
	from := time.Now()
	ends(t, c)
	if d := time.Since(from); d < 80*time.Millisecond {
		t.Errorf("closed after %v", d)
	}
	if n := s.Count(Idle); n != 1 {
		t.Errorf("counted %d", n)
	}
}

// Either direction is enough: a producer of oneway messages hears nothing, and
// who is only pushed to says nothing.
func TestTrafficKeepsAConnection(t *testing.T) {
	peers := make(chan Peer, 1)
	s := listen(t, HandlerFunc(func(r *Request) {
		if r.Code == 1 {
			peers <- r.Peer
		}
	}), ServerOptions{Idle: 400 * time.Millisecond})
	talks, listens := dial(t, s, nil), dial(t, s, HandlerFunc(func(*Request) {}))
	if err := listens.Push(&Command{Code: 1}); err != nil {
		t.Fatal(err)
	}
	pushed := <-peers
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(900 * time.Millisecond); time.Now().Before(end); <-tick.C {
		if err := talks.Push(&Command{}); err != nil {
			t.Fatal(err)
		}
		pushed.Push(&Command{})
	}
	if n := s.Connections(); n != 2 {
		t.Errorf("%d connections are left, want both", n)
	}
}

// A peer that sends a byte now and then is never idle.
func TestFramesThatDoNotBecomeWholeEndTheirConnection(t *testing.T) {
	s := listen(t, echo, ServerOptions{FrameTime: 150 * time.Millisecond})
	c := raw(t, s)
	frame := AppendFrame(nil, &Command{})
	if _, err := c.Write(append(frame, frame[:10]...)); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 10; i < len(frame)-1; i++ {
			if _, err := c.Write(frame[i : i+1]); err != nil {
				return
			}
			<-tick.C
		}
	}()
	if got := ends(t, c); !bytes.Contains(got, []byte(`"code":0`)) {
		t.Errorf("the whole frame before is answered with %q", got)
	}
	<-over
	if n := s.Count(FrameTooSlow); n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestPeerThatDoesNotReadItsAnswersIsClosed(t *testing.T) {
	var served atomic.Int64
	s := listen(t, HandlerFunc(func(r *Request) {
		r.Reply(&Command{Body: make([]byte, 64<<10)})
		served.Add(1)
	}), ServerOptions{PendingOut: 4 << 20, Loops: 1})
	other := dial(t, s, nil)
	c := raw(t, s)
	frame := AppendFrame(nil, &Command{})
	for i := int64(1); i <= 1000; i++ {
		if _, err := c.Write(frame); err != nil {
			break
		}
		// One in each turn, so that it is not one turn's answers that are too many.
		until(t, "it is served or closed", func() bool { return served.Load() >= i || s.Count(AnswersUnread) > 0 })
		if s.Count(AnswersUnread) > 0 {
			break
		}
	}
	if n := s.Count(AnswersUnread); n != 1 {
		t.Fatalf("counted %d", n)
	}
	if a := ask(t, other, &Command{}); len(a.Body) != 64<<10 {
		t.Errorf("another client is answered %d bytes", len(a.Body))
	}
	until(t, "one connection is left", func() bool { return s.Connections() == 1 })
}

// The loop looks once a turn: what comes in between is bounded without it.
func TestAnswersOfOneTurnAreBoundedToo(t *testing.T) {
	held := make(chan int, 1)
	s := listen(t, HandlerFunc(func(r *Request) {
		for range 1000 {
			r.Peer.Push(&Command{Body: make([]byte, 64<<10)})
		}
		held <- len(r.Peer.(*peer).mu.out.bytes)
	}), ServerOptions{PendingOut: 1 << 20})
	c := raw(t, s)
	if _, err := c.Write(AppendFrame(nil, &Command{})); err != nil {
		t.Fatal(err)
	}
	if n := <-held; n > 1<<20+65<<10 {
		t.Errorf("%d bytes are held, want about 1 MiB", n)
	}
	until(t, "it is closed", func() bool { return s.Count(AnswersUnread) == 1 })
}

func TestRequestsThatWaitAreBounded(t *testing.T) {
	var held atomic.Int32
	s := listen(t, HandlerFunc(func(r *Request) {
		if r.Code == 1 {
			held.Add(1)
			return
		}
		r.ReplyCode(Success, "")
	}), ServerOptions{PendingIn: 64 << 10})
	c := dial(t, s, nil)
	var out []byte
	for range 1000 {
		out = AppendFrame(out, &Command{Code: 1, Opaque: -1})
	}
	if err := c.sendFrame(out); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, c, &Command{Code: 2}); a.Code != SystemBusy || !strings.HasPrefix(a.Remark, "[OVERLOAD]") {
		t.Errorf("answer %+v", a)
	}
	if n := held.Load(); n < 40 || n > 64 {
		t.Errorf("%d requests wait, want about 56", n)
	}
	if n := s.Count(RequestsTooMany); n != 1001-int64(held.Load()) {
		t.Errorf("counted %d refusals beside %d that wait", n, held.Load())
	}
	if a := ask(t, dial(t, s, nil), &Command{Code: 2}); a.Code != Success {
		t.Errorf("another client is answered %+v", a)
	}
}

func TestBytesOfUnfinishedFramesAreBoundedOverAll(t *testing.T) {
	s := listen(t, echo, ServerOptions{PartialBytes: 1 << 20, Loops: 1})
	begin := rawFrame(0, "{}", string(make([]byte, 600<<10)))
	first, second := raw(t, s), raw(t, s)
	if _, err := first.Write(begin[:512<<10]); err != nil {
		t.Fatal(err)
	}
	until(t, "the first is held", func() bool { return s.partial.Load() == 512<<10 })
	if _, err := second.Write(begin[:550<<10]); err == nil {
		ends(t, second)
	}
	until(t, "the second is closed", func() bool { return s.Count(FramesTooMany) == 1 && s.partial.Load() == 512<<10 })
	if _, err := first.Write(begin[512<<10:]); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 8)
	if _, err := readFull(first, answer); err != nil {
		t.Errorf("the first is not answered: %v", err)
	}
	until(t, "nothing is held", func() bool { return s.partial.Load() == 0 })
}

func TestConnectionsAreBounded(t *testing.T) {
	logger, log := testLogger(t)
	s := listen(t, echo, ServerOptions{Connections: 2, Logger: logger})
	one, two := dial(t, s, nil), dial(t, s, nil)
	ask(t, one, &Command{})
	ask(t, two, &Command{})
	for range 5 {
		ends(t, raw(t, s))
	}
	if n := s.Count(TooManyConnections); n != 5 {
		t.Errorf("counted %d", n)
	}
	if !strings.Contains(log.String(), "reason=too-many-connections") || strings.Count(log.String(), "\n") > 3 {
		t.Errorf("the log says it not once a second:\n%s", log)
	}
	one.Close()
	until(t, "there is room again", func() bool { return s.Connections() == 1 })
	ask(t, dial(t, s, nil), &Command{})
}

// poorListener has no file descriptor for its first connections.
type poorListener struct {
	net.Listener
	left atomic.Int32
}

func (l *poorListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestServerOutlivesALackOfFileDescriptors(t *testing.T) {
	s := listen(t, echo, ServerOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	poor := &poorListener{Listener: listener}
	poor.left.Store(2)
	if !s.serve(poor, echo) {
		t.Fatal("the server is closed")
	}
	c, err := Dial(t.Context(), listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask(t, c, &Command{})
	if n := s.Count(NoDescriptor); n != 2 {
		t.Errorf("counted %d", n)
	}
}

func TestAnswerThatFitsNoFrameBecomesAnError(t *testing.T) {
	s := listen(t, HandlerFunc(func(r *Request) { r.Reply(&Command{Body: make([]byte, FrameBytesMax)}) }), ServerOptions{})
	if a := ask(t, dial(t, s, nil), &Command{}); a.Code != SystemError || !strings.Contains(a.Remark, "more than a frame's") {
		t.Errorf("answer %d %q", a.Code, a.Remark)
	}
}

func TestTLSIsRefused(t *testing.T) {
	logger, log := testLogger(t)
	s := listen(t, echo, ServerOptions{Logger: logger})
	c := raw(t, s)
	if _, err := c.Write([]byte{0x16}); err != nil {
		t.Fatal(err)
	}
	if got := ends(t, c); len(got) != 0 {
		t.Errorf("it says %q", got)
	}
	if s.Count(TLSRefused) != 1 || !strings.Contains(log.String(), "connect without TLS") {
		t.Errorf("counted %d, logged %s", s.Count(TLSRefused), log)
	}
}

func TestLargestFrameIsServed(t *testing.T) {
	s := listen(t, echo, ServerOptions{})
	c := dial(t, s, nil)
	// The answer's header is shorter than the request's.
	body := make([]byte, FrameBytesMax-200)
	body[len(body)-1] = 7
	if a := ask(t, c, &Command{Code: 1000000, Body: body}); !bytes.Equal(a.Body, body) {
		t.Errorf("answer %d %q, %d bytes", a.Code, a.Remark, len(a.Body))
	}
	if _, err := c.Call(t.Context(), &Command{Body: make([]byte, FrameBytesMax)}); !errors.Is(err, ErrRefused) {
		t.Errorf("a frame that is too long: %v", err)
	}
	ask(t, c, &Command{})
}

func TestSlowReaderDelaysNobody(t *testing.T) {
	s := listen(t, HandlerFunc(func(r *Request) { r.Reply(&Command{Body: make([]byte, 1<<20)}) }), ServerOptions{Loops: 1})
	stuck := raw(t, s)
	for range 20 {
		if _, err := stuck.Write(AppendFrame(nil, &Command{})); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, s, nil)
	for range 50 {
		if a := ask(t, c, &Command{}); len(a.Body) != 1<<20 {
			t.Fatalf("answer %+v", a)
		}
	}
	// It gets all of it once it reads.
	n := 0
	for b := make([]byte, 1<<20); n < 20<<20; {
		k, err := stuck.Read(b)
		if n += k; err != nil {
			t.Fatalf("%d bytes, then %v", n, err)
		}
	}
}

// What a peer has not taken is told, and also that it has taken it.
func TestTheBacklogOfAConnectionIsTold(t *testing.T) {
	peers := make(chan Peer, 1)
	answer := make([]byte, 8<<20)
	s := listen(t, HandlerFunc(func(r *Request) {
		peers <- r.Peer
		r.Reply(&Command{Body: answer})
	}), ServerOptions{})
	c := raw(t, s)
	if _, err := c.Write(AppendFrame(nil, &Command{Code: 1})); err != nil {
		t.Fatal(err)
	}
	b := (<-peers).(Backlogged)
	until(t, "most of the answer is not taken", func() bool { return b.Backlog() > 1<<20 })
	if _, err := io.CopyN(io.Discard, c, int64(len(answer))); err != nil {
		t.Fatal(err)
	}
	until(t, "all is taken", func() bool { return b.Backlog() == 0 })
}

// A few that begin large frames must not keep all others from sending.
func TestLargeUnfinishedFramesDoNotCloseSmallOnes(t *testing.T) {
	s := listen(t, echo, ServerOptions{PartialBytes: 1 << 20, Loops: 1})
	hog := raw(t, s)
	begin := rawFrame(0, "{}", string(make([]byte, 2<<20)))
	if _, err := hog.Write(begin[:1<<20]); err != nil {
		t.Fatal(err)
	}
	until(t, "it has all there may be", func() bool { return s.partial.Load() == 1<<20 })
	frame := rawFrame(0, "{}", string(make([]byte, 60<<10)))
	var all []net.Conn
	for i := range 10 {
		c := raw(t, s)
		all = append(all, c)
		if _, err := c.Write(frame[:len(frame)-1]); err != nil {
			t.Fatal(err)
		}
		until(t, "it has begun", func() bool { return s.partial.Load() == 1<<20+int64(i+1)*int64(len(frame)-1) })
	}
	for _, c := range all {
		if _, err := c.Write(frame[len(frame)-1:]); err != nil {
			t.Fatal(err)
		}
		if _, err := readFull(c, make([]byte, 8)); err != nil {
			t.Errorf("a small one is not answered: %v", err)
		}
	}
}

func TestWhatIsRightBeforeABadFrameIsAnswered(t *testing.T) {
	s := listen(t, echo, ServerOptions{})
	c := raw(t, s)
	if _, err := c.Write(append(AppendFrame(nil, &Command{Opaque: 77}), unhex("00000000")...)); err != nil {
		t.Fatal(err)
	}
	if got := ends(t, c); !bytes.Contains(got, []byte(`"opaque":77`)) {
		t.Errorf("it is answered with %q", got)
	}
}

// Who does not read its answers has nothing more done for it.
func TestRequestsBehindTooManyAnswersAreNotServed(t *testing.T) {
	var served atomic.Int64
	s := listen(t, HandlerFunc(func(r *Request) {
		served.Add(1)
		r.Reply(&Command{Body: make([]byte, 1<<20)})
	}), ServerOptions{PendingOut: 4 << 20, Loops: 1})
	c := raw(t, s)
	var out []byte
	for range 500 {
		out = AppendFrame(out, &Command{})
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	until(t, "it is closed", func() bool { return s.Connections() == 0 })
	if n := served.Load(); n > 5 {
		t.Errorf("%d requests were served, want those that made 4 MiB", n)
	}
}

func TestASlowReaderOfALongAnswerIsNotSilent(t *testing.T) {
	peers := make(chan *peer, 1)
	s := listen(t, HandlerFunc(func(r *Request) {
		peers <- r.Peer.(*peer)
		r.Reply(&Command{Body: make([]byte, 8<<20)})
	}), ServerOptions{Idle: time.Hour, Loops: 1})
	c := raw(t, s)
	if _, err := c.Write(AppendFrame(nil, &Command{})); err != nil {
		t.Fatal(err)
	}
	p := <-peers
	l := s.allLoops()[0]
	onLoop := func(f func()) {
		done := make(chan struct{})
		l.do(func() { defer close(done); f() })
		<-done
	}
	var unsent int64
	onLoop(func() { unsent = p.unsent.Load() })
	if _, err := io.CopyN(io.Discard, c, 4<<20); err != nil {
		t.Fatal(err)
	}
	until(t, "more of the answer is sent", func() (more bool) {
		onLoop(func() { more = int64(p.c.OutboundBuffered()) < unsent })
		return more
	})
	alive := false
	onLoop(func() {
		l.now = time.Now().Add(2 * time.Hour)
		p.checkTimes()
		alive = p.c != nil
	})
	if !alive {
		t.Error("a peer that reads is closed")
	}
	onLoop(func() {
		l.now = time.Now().Add(4 * time.Hour)
		if p.c != nil && p.c.OutboundBuffered() == int(p.unsent.Load()) {
			p.checkTimes()
			alive = p.c != nil
		}
	})
	if alive {
		t.Error("a peer that reads no longer is not closed")
	}
}

func TestConnectionsLeaveDescriptorsForTheLog(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var o ServerOptions
	o.setDefaults()
	if n := uint64(o.Connections); n != min(65536, limit.Cur/4*3) {
		t.Errorf("%d connections with %d descriptors", n, limit.Cur)
	}
}

func TestZonesOfAddressesAreKeptFromGnet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.RemoteAddr().(*net.TCPAddr).Zone = "eth0" // as of a link-local address
	dropZones(c)
	if got := c.RemoteAddr().(*net.TCPAddr); got.Zone != "" {
		t.Errorf("the connection is to %v", got)
	}
}
