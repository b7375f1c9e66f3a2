package transfer

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pair is a session and a follower with a log each, joined by two byte streams
// that are cut at random places.
type pair struct {
	t        fataler
	master   byteLog
	slave    byteLog
	epochs   []Epoch
	own      []Epoch // the slave's
	s        *Session
	f        *Follower
	now      time.Duration
	down, up []byte // on their way
	cut      func(n int) int
	labels   []Epoch // of the bytes that the slave stored, as frames said
	ended    error   // what ended the connection, on the side that noticed
	secret   []byte  // the master's
}

func newPair(t fataler, master, slave []byte, epochs ...Epoch) *pair {
	p := &pair{t: t, master: byteLog{data: master}, slave: byteLog{data: slave}, epochs: epochs, cut: func(n int) int { return n }}
	p.f = NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true})
	return p
}

func (p *pair) hello(id string) Hello {
	return Hello{VersionMin: 1, VersionMax: 1, ReplicaID: id, SegmentBytes: 4096, FrameBytes: 1000}
}

func (p *pair) connect() {
	own := p.hello("master")
	p.down, p.up, p.ended = nil, nil, nil
	p.s = NewSession(SessionConfig{Peer: "slave", SegmentBytes: 4096, FrameBytesMax: 700, Hello: &own, Secret: p.secret, Nonce: nonceOf(byte(p.now))}, p.now)
	p.s.SetEpochs(p.epochs)
	p.report(p.f.Begin(p.slave.held(), p.now))
}

func (p *pair) report(offset int64) {
	p.up = p.f.AppendReport(p.up, offset)
	p.f.Reported(offset, p.now)
}

func (p *pair) end(err error) {
	if p.ended == nil {
		p.ended = err
	}
}

// run moves bytes until neither side has any for the other.
func (p *pair) run() {
	for p.ended == nil {
		p.send()
		if len(p.up) == 0 && len(p.down) == 0 {
			return
		}
		p.toMaster()
		p.toSlave()
	}
}

func (p *pair) send() {
	for {
		if c := p.s.Control(); len(c) > 0 {
			n := p.cut(len(c))
			p.down = append(p.down, c[:n]...)
			p.s.ControlSent(n, p.now)
			continue
		}
		f, ok := p.s.Next(p.master.held(), p.now)
		if !ok {
			return
		}
		p.down = p.s.AppendHeader(p.down, f, Source{Confirmed: p.master.held().End / 2, End: p.master.held().End, Time: 1})
		p.down = append(p.down, p.master.data[f.Offset-p.master.min:f.End()-p.master.min]...)
		p.s.Sent(f, 0, p.now)
		p.s.Sent(f, f.Bytes, p.now)
	}
}

func (p *pair) toMaster() {
	if len(p.up) == 0 || p.ended != nil {
		return
	}
	n := p.cut(len(p.up))
	b := p.up[:n]
	p.up = p.up[n:]
	err := p.s.Feed(b, p.master.held(), p.now)
	if from, to, ok := p.s.Unproved(); ok && err == nil {
		err = p.s.Prove(crc32.Checksum(p.master.data[from:to], castagnoli), p.now)
	}
	if err != nil {
		p.end(err)
		if words := p.s.LastWords(err); words != nil {
			p.ended = nil
			p.down = append(p.down, words...)
			for len(p.down) > 0 && p.ended == nil {
				p.toSlave()
			}
		}
	}
}

func (p *pair) toSlave() {
	if len(p.down) == 0 || p.ended != nil {
		return
	}
	n := p.cut(len(p.down))
	b := p.down[:n]
	p.down = p.down[n:]
	for len(b) > 0 && p.ended == nil {
		w := p.f.Want()
		k := int(min(w.Bytes, int64(len(b))))
		if k == 0 {
			p.t.Fatalf("the follower wants nothing, %d bytes are there", len(b))
		}
		before := p.slave.held().End
		if err := p.slave.feed(p.t, p.f, b[:k], p.now); err != nil {
			p.end(err)
			return
		}
		for range p.slave.held().End - before {
			p.labels = append(p.labels, p.f.Epoch())
		}
		b = b[k:]
		if p.f.Challenged() {
			p.challenged()
		}
		if hello, ok := p.f.Greeting(); ok {
			p.greeted(hello)
		}
	}
	if p.ended != nil {
		return
	}
	p.f.SetAcks(p.slave.held().End/2, -1)
	if r, due := p.f.NextReport(p.slave.held(), p.now); due {
		p.report(r)
	}
}

func (p *pair) challenged() {
	b, err := p.f.Prove(nonceOf(100), p.now)
	if err != nil {
		p.refuse(err)
		return
	}
	p.up = append(p.up, b...)
}

func (p *pair) refuse(why error) {
	p.up = append(p.up, p.f.Refuse(why)...)
	for len(p.up) > 0 && p.ended == nil {
		p.toMaster()
	}
	p.end(why)
}

func (p *pair) greeted(master Hello) {
	own := p.hello("slave")
	own.Log, own.Epochs = p.slave.held(), p.own
	keep, err := Align(own, master, 0)
	if err != nil {
		p.refuse(err)
		return
	}
	p.slave.data = p.slave.data[:keep]
	own.Log = p.slave.held()
	own.Start = own.Log.End
	own.TailFrom = max(0, own.Log.End-TailBytes, min(master.Log.Min, own.Log.End))
	own.TailSum = crc32.Checksum(p.slave.data[own.TailFrom:], castagnoli)
	p.up = append(p.up, p.f.Answer(own, p.now)...)
}

func history(n int, salt byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7>>3) + salt
	}
	if n > 0 {
		b[0] = 0
	}
	return b
}

// Two of ours agree on the extended protocol however the bytes are cut, and the
// slave's log becomes the master's, each byte labelled with its term.
func TestExtendedCopiesWhateverTheCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 20000).Draw(t, "master")
		data := history(size, 3)
		var epochs []Epoch
		start := int64(0)
		for n := int32(1); start <= int64(size) && n <= 5; n++ {
			epochs = append(epochs, Epoch{Number: n, ID: uint64(n) << 40, Start: start})
			start += 1 + int64(rapid.IntRange(0, 9000).Draw(t, "term"))
		}
		held := rapid.IntRange(0, size).Draw(t, "slave")
		p := newPair(t, data, bytes.Clone(data[:held]), epochs...)
		for _, e := range epochs {
			if e.Start < int64(held) {
				p.own = append(p.own, e)
			}
		}
		p.cut = func(n int) int { return rapid.IntRange(1, n).Draw(t, "cut") }
		p.connect()
		p.run()
		if p.ended != nil || !p.f.Extended() || p.f.State() != FollowerTransferring {
			t.Fatalf("ended %v, extended %v, %v: %s", p.ended, p.f.Extended(), p.f.State(), p.f.Reason())
		}
		if !bytes.Equal(p.slave.data, data) {
			t.Fatalf("the copy has %d bytes of %d, or other ones", len(p.slave.data), size)
		}
		if got := p.s.Acks(); got.Received != int64(size) || got.Flushed > got.Received {
			t.Fatalf("acknowledged %+v, the log ends at %d", got, size)
		}
		for i, label := range p.labels {
			if want, _ := epochAt(epochs, int64(held+i)); label != want {
				t.Fatalf("byte %d is labelled %+v, want %+v", held+i, label, want)
			}
		}
		if p.f.MasterOffset() != int64(size) || p.f.Source().Confirmed != int64(size)/2 {
			t.Fatalf("the master's end %d, %+v", p.f.MasterOffset(), p.f.Source())
		}
	})
}

// What an old master wrote and nobody else has is cut, and the copy is equal.
func TestAReturningMasterIsCutToTheCommonPoint(t *testing.T) {
	master := append(history(3000, 3), history(2000, 9)...)
	p := newPair(t, master, history(4000, 3), Epoch{1, 11, 0}, Epoch{2, 22, 3000})
	p.own = []Epoch{{1, 11, 0}}
	p.connect()
	p.run()
	if p.ended != nil || !bytes.Equal(p.slave.data, master) {
		t.Fatalf("ended %v; %d bytes of %d", p.ended, len(p.slave.data), len(master))
	}
}

// The same end and the same terms are no proof: the bytes before it are.
func TestOtherBytesAtTheEndAreFound(t *testing.T) {
	p := newPair(t, history(3000, 3), history(3000, 4), Epoch{1, 11, 0})
	p.own = []Epoch{{1, 11, 0}}
	p.connect()
	p.run()
	if !errors.Is(p.ended, ErrDiverged) || p.f.State() != FollowerDiverged || !strings.Contains(p.f.Reason(), "offsets 0 to 3000") {
		t.Fatalf("%v; %v: %s", p.ended, p.f.State(), p.f.Reason())
	}
	if p.s.Started() {
		t.Error("the session counts it as a replica")
	}
}

// A refusal of either side reaches the other with its reason.
func TestRefusalsAreTold(t *testing.T) {
	t.Run("by the slave", func(t *testing.T) {
		p := newPair(t, history(3000, 3), history(4000, 3), Epoch{1, 11, 0})
		p.own = []Epoch{{1, 11, 0}, {2, 22, 3500}}
		p.connect()
		p.run()
		if p.f.State() != FollowerRefused || !strings.Contains(p.f.Reason(), "older master") {
			t.Errorf("the slave: %v: %s", p.f.State(), p.f.Reason())
		}
		if err := p.s.Expired(p.now); err == nil || !strings.Contains(err.Error(), "older master") {
			t.Errorf("the master: %v", err)
		}
	})
	t.Run("by the master", func(t *testing.T) {
		p := newPair(t, history(3000, 3), nil, Epoch{1, 11, 0})
		p.connect()
		p.run()
		words := p.s.LastWords(refuse(RefusedStopping, "the node stops"))
		err := p.slave.feed(t, p.f, words, p.now)
		var r *RefusalError
		if !errors.As(err, &r) || r.Code != RefusedStopping || !r.ByPeer || p.f.State() != FollowerTransferring {
			t.Errorf("%v; %v", err, p.f.State())
		}
	})
}

// A master that does not answer -1 gets a plain report after the wait, and the
// next connections begin with one until the memory is over.
func TestSilenceIsRocketMQs(t *testing.T) {
	f := NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true})
	f.SetPeer("a:1", false)
	log := Range{0, 3000}
	now := time.Second
	if r := f.Begin(log, now); r != -1 {
		t.Fatalf("first report %d", r)
	}
	f.Reported(-1, now)
	if at := f.Deadline(); at != now+DefaultHelloWait {
		t.Errorf("the next deadline is %v after the dial, want %v", at-now, DefaultHelloWait)
	}
	if r, due := f.FallBack(log, now+DefaultHelloWait-1); due {
		t.Errorf("report %d too early", r)
	}
	now += DefaultHelloWait
	if r, due := f.FallBack(log, now); !due || r != 1 {
		t.Fatalf("report %d, %v after the silence; want the plain one", r, due)
	}
	if _, err := f.Header(AppendFrame(nil, Frame{Offset: 1}), log, now); err != nil {
		t.Fatal(err) // only now it is known to work
	}
	f.Ended(io.EOF, now)
	if r := f.Begin(log, now); r != 1 {
		t.Errorf("the next connection begins with %d: that costs another second", r)
	}
	f.Ended(io.EOF, now)
	f.SetPeer("b:1", false)
	if r := f.Begin(log, now); r != -1 {
		t.Errorf("another address begins with %d", r)
	}
	f.Ended(io.EOF, now)
	f.SetPeer("a:1", false)
	if r := f.Begin(log, now+DefaultPlainMemory); r != -1 {
		t.Errorf("after the memory is over it begins with %d", r)
	}
}

// A hello that comes after the slave went plain makes it dial again and wait
// longer.
func TestALateHello(t *testing.T) {
	p := newPair(t, history(3000, 3), history(1000, 3), Epoch{1, 11, 0})
	p.connect()
	p.now += DefaultHelloWait
	r, due := p.f.FallBack(p.slave.held(), p.now)
	if !due || r < 0 {
		t.Fatalf("report %d, %v", r, due)
	}
	late := messageOf(unitHello, AppendHello(nil, p.hello("master")))
	if err := p.slave.feed(t, p.f, late[:FrameHeaderBytes], p.now); !errors.Is(err, ErrHelloLate) {
		t.Fatalf("%v", err)
	}
	p.f.Ended(ErrHelloLate, p.now)
	p.connect()
	if _, due := p.f.FallBack(p.slave.held(), p.now+DefaultHelloWait); due {
		t.Error("it is taken for RocketMQ's again as early")
	}
	p.run()
	if !p.f.Extended() || !bytes.Equal(p.slave.data, p.master.data) {
		t.Error("no extended connection")
	}
}

// A connection that broke before the hello came says nothing of the master; nor
// does a silence of one that has answered before, but for the third.
func TestSilenceOfAMasterThatAnswers(t *testing.T) {
	p := newPair(t, history(3000, 3), history(1000, 3), Epoch{1, 11, 0})
	p.connect()
	p.now += DefaultHelloWait
	if r, due := p.f.FallBack(p.slave.held(), p.now); !due || r < 0 {
		t.Fatalf("report %d, %v", r, due)
	}
	p.f.Ended(io.ErrUnexpectedEOF, p.now)
	p.connect()
	if p.run(); !p.f.Extended() {
		t.Fatal("a connection that broke early made the master plain")
	}
	for i := range silencesBelieved {
		p.f.Ended(io.ErrUnexpectedEOF, p.now)
		if r := p.f.Begin(p.slave.held(), p.now); r != -1 {
			t.Fatalf("connection %d begins with %d", i, r)
		}
		p.now += DefaultHeartbeat
		_, plain := p.f.FallBack(p.slave.held(), p.now)
		err := p.f.Expired(p.now)
		if last := i == silencesBelieved-1; plain != last || (err != nil) == last {
			t.Errorf("connection %d: plain %v, %v", i, plain, err)
		}
		p.f.Ended(err, p.now)
	}
}

// A master that reads an offset behind -1 serves the plain protocol, behind its
// hello: the slave meets that first, and dials again.
func TestAnOffsetBehindTheQuestion(t *testing.T) {
	both := AppendReport(AppendReport(nil, -1), 1000)
	for cut := 0; cut <= len(both); cut++ {
		p := newPair(t, history(3000, 3), nil, Epoch{1, 11, 0})
		p.connect()
		for _, b := range [][]byte{both[:cut], both[cut:]} {
			if err := p.s.Feed(b, p.master.held(), 0); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		hello := len(p.s.Control()) > 0
		if !hello {
			t.Errorf("cut at %d: no hello goes out", cut)
		}
		p.s.ControlSent(len(p.s.Control()), 0)
		f, ok := p.s.Next(p.master.held(), 0)
		if !ok || f != (Frame{1000, 700}) || len(p.s.AppendHeader(nil, f, Source{})) != FrameHeaderBytes {
			t.Errorf("cut at %d: next %+v, %v", cut, f, ok)
		}
	}
}

// A short housekeeping interval leaves time for RocketMQ's protocol.
func TestTheHelloWaitEndsBeforeTheConnectionIsGivenUp(t *testing.T) {
	f := NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true, Heartbeat: 300 * time.Millisecond, Housekeeping: time.Second})
	log := Range{0, 3000}
	f.Begin(log, 0)
	now := 500 * time.Millisecond
	if err := f.Expired(now); err != nil {
		t.Fatalf("given up after %v: %v", now, err)
	}
	if r, due := f.FallBack(log, now); !due || r != 1 {
		t.Errorf("report %d, %v after %v", r, due, now)
	}
}

// A hello whose payload is late is waited for: it has begun.
func TestAHelloOnItsWayIsNoSilence(t *testing.T) {
	p := newPair(t, history(3000, 3), history(1000, 3), Epoch{1, 11, 0})
	p.connect()
	hello := messageOf(unitHello, AppendHello(nil, p.hello("master")))
	if err := p.slave.feed(t, p.f, hello[:ExtendedHeaderBytes+10], p.now); err != nil {
		t.Fatal(err)
	}
	p.now += 3 * DefaultHelloWait
	if r, ok := p.f.FallBack(p.slave.held(), p.now); ok {
		t.Fatalf("gone plain with report %d", r)
	}
	if err := p.slave.feed(t, p.f, hello[ExtendedHeaderBytes+10:], p.now); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.f.Greeting(); !ok {
		t.Error("the hello did not come through")
	}
}

// A master compares a tail of the size that is agreed, no more and no less.
func TestTheTailHasItsSize(t *testing.T) {
	for _, c := range []struct {
		from, end int64
		taken     bool
	}{{0, 100000, false}, {100000 - TailBytes, 100000, true}, {100000 - TailBytes + 1, 100000, false}, {100000, 100000, false}, {0, 3000, true}, {10, 3000, false}} {
		own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", SegmentBytes: 1 << 20, FrameBytes: 500}
		s := NewSession(SessionConfig{SegmentBytes: 1 << 20, Hello: &own}, 0)
		h := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "s", SegmentBytes: 1 << 20, FrameBytes: 500, Log: Range{0, c.end}, Start: c.end, TailFrom: c.from}
		err := s.Feed(appendReply(AppendReport(nil, -1), unitHello, AppendHello(nil, h)), Range{0, 200000}, 0)
		if _, _, asks := s.Unproved(); asks != c.taken || (err == nil) != c.taken {
			t.Errorf("tail [%d, %d): asks %v, %v", c.from, c.end, asks, err)
		}
	}
}
