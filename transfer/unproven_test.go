package transfer

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Two nodes replicate however the bytes are cut if both have one secret or both
// have none, and in no other case does a byte of log move.
func TestPairsWithAndWithoutSecrets(t *testing.T) {
	secrets := [][]byte{nil, someSecret, otherSecret}
	rapid.Check(t, func(t *rapid.T) {
		data := history(rapid.IntRange(0, 9000).Draw(t, "master"), 3)
		held := rapid.IntRange(0, len(data)).Draw(t, "slave")
		p := newPair(t, data, bytes.Clone(data[:held]), Epoch{1, 11, 0})
		p.secret = rapid.SampledFrom(secrets).Draw(t, "master's secret")
		slaves := rapid.SampledFrom(secrets).Draw(t, "slave's secret")
		p.f = NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true, Secret: slaves})
		p.cut = func(n int) int { return rapid.IntRange(1, n).Draw(t, "cut") }
		p.connect()
		p.run()
		if bytes.Equal(p.secret, slaves) {
			if p.ended != nil || !bytes.Equal(p.slave.data, data) || p.f.State() != FollowerTransferring {
				t.Fatalf("ended %v, %d bytes of %d, %v", p.ended, len(p.slave.data), len(data), p.f.State())
			}
			return
		}
		var r *RefusalError
		if !errors.As(p.ended, &r) || r.Code != RefusedAuth || p.s.Started() || p.s.SentOffset() != 0 || len(p.slave.data) != held {
			t.Fatalf("ended %v, sent %d, the slave's log has %d bytes of %d", p.ended, p.s.SentOffset(), len(p.slave.data), held)
		}
		if p.f.State() != FollowerRefused {
			t.Fatalf("the slave is %v: %s", p.f.State(), p.f.Reason())
		}
	})
}

// Without a proof there is no way to RocketMQ's protocol.
func TestASecretKnowsNoRocketMQ(t *testing.T) {
	for _, first := range [][]byte{
		AppendReport(nil, 0), AppendReport(nil, 1), AppendReport(nil, 1000), AppendReport(nil, 3000), AppendReport(nil, 1<<40), AppendReport(nil, -2),
		AppendReport(AppendReport(nil, -1), 1000), AppendReport(AppendReport(nil, -1), 0), AppendReport(AppendReport(nil, -1), -1),
		[]byte("GET / HTTP/1.1\r\n\r\n"), {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2},
	} {
		x := newExchange(t, someSecret, nil)
		err := x.s.Feed(first, x.log.held(), 0)
		var r *RefusalError
		if !errors.Is(err, ErrPlainPeer) || !errors.As(err, &r) || x.s.Started() || x.served() || x.s.LastWords(err) != nil {
			t.Errorf("%q: %v", first, err)
		}
	}
	f := NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true, Secret: someSecret})
	f.SetPeer("a:1", false)
	log := Range{0, 3000}
	for now := time.Second; now < 20*time.Second; now += 2 * time.Second {
		if r := f.Begin(log, now); r != helloAsked {
			t.Fatalf("a connection begins with %d", r)
		}
		late := now + DefaultHelloWait
		if r, ok := f.FallBack(log, late); ok {
			t.Fatalf("a silent master is sent %d", r)
		}
		var r *RefusalError
		err := f.Expired(late)
		if !errors.Is(err, ErrPlainPeer) || !errors.As(err, &r) || f.State() != FollowerRefused || f.Refuse(err) != nil {
			t.Fatalf("a silent master: %v, %v", err, f.State())
		}
		f.Ended(err, late)
	}
	if f.Ended(io.EOF, time.Minute); f.State() != FollowerRefused {
		t.Errorf("the next loss makes it %v", f.State())
	}
}

// One who only asks has to prove the same, and is proved the same.
func TestWhoAsksHasToProveTheSecret(t *testing.T) {
	for _, c := range []struct {
		name         string
		node, asker  []byte
		taken        bool
		says, atNode string
	}{
		{"no secret", nil, nil, true, "", ""},
		{"one secret", someSecret, someSecret, true, "", ""},
		{"another", someSecret, otherSecret, false, "another secret", "another secret"},
		{"the node's only", someSecret, nil, false, "was given none", "was given none"},
		{"the asker's only", nil, someSecret, false, "proves nothing", "proves nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newAsking(t, QuestionLimits{100, 3000})
			k.a, k.s = NewAsker(c.asker), NewSession(SessionConfig{Peer: "asker", SegmentBytes: 4096, Hello: k.s.cfg.Hello, Secret: c.node}, 0)
			err := k.up(k.a.Begin())
			var atNode error
			if k.a.Challenged() && err == nil {
				var b []byte
				if b, err = k.a.Prove(nonceOf(9)); err != nil {
					b = k.a.Refuse(err)
				}
				if atNode = k.up(b); atNode != nil && err == nil {
					err = k.a.Feed(k.s.LastWords(atNode))
				}
			}
			_, greeted := k.a.Hello()
			if greeted != c.taken || (err == nil) != c.taken || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("greeted %v, %v", greeted, err)
			}
			if c.taken {
				if a := k.ask(t, Question{2000, 3000, 100}); a.Err() != nil || len(a.Sums) != 10 {
					t.Errorf("%+v", a)
				}
			} else if atNode == nil || !strings.Contains(atNode.Error(), c.atNode) {
				t.Errorf("the node: %v", atNode)
			}
		})
	}
	// A question without a proof.
	x := newExchange(t, someSecret, nil)
	err := x.s.Feed(appendReply(AppendReport(nil, -1), unitSums, AppendQuestion(nil, Question{0, 100, 9})), x.log.held(), 0)
	if _, open := x.s.Question(); !errors.Is(err, ErrNoProof) || open {
		t.Errorf("a question at once: %v, open %v", err, open)
	}
}

// A peer that has proved nothing is told nothing of the log by a refusal, and not
// believed what it says of its own.
func TestRefusalsBeforeTheProofTellNothing(t *testing.T) {
	x := newExchange(t, someSecret, nil)
	x.up(append(AppendReport(nil, -1), appendReply(nil, unitHello, openingPayload(nonceOf(2)))[:ExtendedReportBytes]...))
	x.s.ControlSent(len(x.s.Control()), 0)
	words := x.s.LastWords(refuse(RefusedStopping, "this node's log is cut from 123456 to 7"))
	if len(words) == 0 || bytes.Contains(words, []byte("123456")) {
		t.Errorf("it is told %q", words)
	}
	y := newExchange(t, someSecret, someSecret)
	y.f.Begin(y.own.held(), 0)
	err := y.own.feed(t, y.f, messageOf(unitRefusal, refusalPayload(refuse(RefusedDiverged, "cut your log"))), 0)
	if errors.Is(err, ErrDiverged) || y.f.State() != FollowerRefused {
		t.Errorf("anybody can make the slave %v: %v", y.f.State(), err)
	}
}

// A peer that never proves anything is not kept.
func TestAPeerThatProvesNothingIsGivenUp(t *testing.T) {
	x := newExchange(t, someSecret, nil)
	x.up(AppendReport(nil, -1))
	if !x.s.Challenged() || x.s.Deadline(x.log.held()) != DefaultHousekeeping {
		t.Errorf("challenged %v, deadline %v", x.s.Challenged(), x.s.Deadline(x.log.held()))
	}
	if err := x.s.Expired(DefaultHousekeeping); !errors.Is(err, ErrNoReport) {
		t.Errorf("%v", err)
	}
}

// Whatever comes from somebody who does not know the secret, nothing of the node
// but the opening goes out, and nothing is stored.
func FuzzUnproven(f *testing.F) {
	stranger := appendReply(AppendReport(nil, -1), unitHello, openingPayload(nonceOf(3)))
	said := transcript{}
	said.add(openingPayload(nonceOf(1)))
	wrong := appendReply(AppendReport(nil, -1), unitHello, said.prove(otherSecret, proofDialler, openingPayload(nonceOf(3))))
	hello := AppendHello(nil, Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "s", SegmentBytes: 4096, FrameBytes: 500})
	for _, seed := range [][]byte{
		stranger, wrong, AppendReport(nil, 1000), appendReply(bytes.Clone(stranger), unitHello, hello),
		appendReply(AppendReport(nil, -1), unitSums, AppendQuestion(nil, Question{0, 100, 9})),
		messageOf(unitHello, hello), append(messageOf(unitHello, openingPayload(nonceOf(4))), messageOf(unitHello, hello)...),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", SegmentBytes: 4096, FrameBytes: 500, Questions: QuestionLimits{100, 3000}}
		s := NewSession(SessionConfig{SegmentBytes: 4096, Hello: &own, Secret: someSecret, Nonce: nonceOf(1)}, 0)
		log, opening := Range{0, 3000}, messageOf(unitHello, openingPayload(nonceOf(1)))
		for i := 0; i < len(b); i += 7 {
			err := s.Feed(b[i:min(i+7, len(b))], log, 0)
			if c := s.Control(); len(c) > 0 && !bytes.Equal(c, opening) {
				t.Fatalf("%x goes out", c)
			}
			s.ControlSent(len(s.Control()), 0)
			_, open := s.Question()
			_, _, unproved := s.Unproved()
			if f, ok := s.Next(log, 0); ok || open || unproved || s.Trusted() || s.Started() {
				t.Fatalf("trusted %v, started %v, question %v, hello %v, frame %+v %v", s.Trusted(), s.Started(), open, unproved, f, ok)
			}
			if err != nil {
				s.LastWords(err)
				break
			}
		}
		slave := NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true, Secret: someSecret})
		slave.Begin(log, 0)
		for len(b) > 0 {
			w := slave.Want()
			if w.Kind != WantHeader {
				t.Fatalf("it wants %+v", w)
			}
			n, err := slave.Header(b[:min(int64(len(b)), w.Bytes)], log, 0)
			if _, ok := slave.Greeting(); ok {
				t.Fatal("it takes a hello")
			}
			if err == nil && slave.Challenged() {
				_, err = slave.Prove(nonceOf(7), 0)
			}
			if err != nil {
				return
			}
			b = b[n:]
		}
	})
}
