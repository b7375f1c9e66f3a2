package transfer

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
)

var (
	someSecret  = []byte("sixteen bytes or more")
	otherSecret = []byte("another cluster's own")
)

func nonceOf(salt byte) (n Nonce) {
	for i := range n {
		n[i] = salt + byte(i)
	}
	return n
}

// exchange is the way of two ends to trusting each other, message by message.
type exchange struct {
	t        *testing.T
	s        *Session
	f        *Follower
	log      byteLog // the master's
	own      byteLog // the slave's
	units    [4][]byte
	tamper   func(n int, unit []byte) []byte // what arrives of a unit; nil: the same
	atMaster error
	atSlave  error
}

func newExchange(t *testing.T, master, slave []byte) *exchange {
	x := &exchange{t: t, log: byteLog{data: history(3000, 3)}, own: byteLog{data: history(1000, 3)}}
	hello := Hello{VersionMin: 1, VersionMax: 1, ClusterID: "blue", ReplicaID: "master", SegmentBytes: 4096, FrameBytes: 1000}
	x.s = NewSession(SessionConfig{Peer: "slave", SegmentBytes: 4096, Hello: &hello, Secret: master, Nonce: nonceOf(1)}, 0)
	x.f = NewFollower(FollowerConfig{SegmentBytes: 4096, Extended: true, Secret: slave})
	return x
}

// run brings the four units to the other side, as far as they come.
func (x *exchange) run() {
	x.t.Helper()
	x.up(AppendReport(nil, x.f.Begin(x.own.held(), 0)))
	if !x.down(0) || !x.f.Challenged() {
		return
	}
	b, err := x.f.Prove(nonceOf(101), 0)
	if x.atSlave = err; err != nil {
		x.up(x.f.Refuse(err))
		return
	}
	x.up(x.pass(1, b))
	if !x.down(2) {
		return
	}
	master, ok := x.f.Greeting()
	if !ok {
		x.t.Fatal("no hello, and no error")
	}
	if master.Log != x.log.held() || master.ReplicaID != "master" {
		x.t.Errorf("the slave takes another hello for the master's: %+v", master)
	}
	own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "slave", SegmentBytes: 4096, FrameBytes: 500, Log: x.own.held(), Start: 1000, TailSum: crc32.Checksum(x.own.data, castagnoli)}
	x.up(x.pass(3, x.f.Answer(own, 0)))
	if from, to, ok := x.s.Unproved(); ok && x.atMaster == nil {
		x.atMaster = x.s.Prove(crc32.Checksum(x.log.data[from:to], castagnoli), 0)
	}
}

func (x *exchange) pass(n int, unit []byte) []byte {
	x.units[n] = bytes.Clone(unit)
	if x.tamper != nil {
		unit = x.tamper(n, bytes.Clone(unit))
	}
	return unit
}

func (x *exchange) up(b []byte) {
	if x.atMaster == nil && len(b) > 0 {
		x.atMaster = x.s.Feed(b, x.log.held(), 0)
	}
}

// down brings what the session says, the refusal included, and tells whether the
// slave goes on.
func (x *exchange) down(n int) bool {
	b := x.s.Control()
	if x.s.ControlSent(len(b), 0); x.atMaster != nil {
		b = x.s.LastWords(x.atMaster)
	} else if n >= 0 {
		b = x.pass(n, b)
	}
	if len(b) > 0 {
		x.atSlave = x.own.feed(x.t, x.f, b, 0)
	}
	return x.atSlave == nil && x.atMaster == nil
}

// served tells whether a byte of log would go out.
func (x *exchange) served() bool {
	f, ok := x.s.Next(x.log.held(), 0)
	return ok && f.Bytes > 0
}

// seal makes the checksum of a unit's payload right, as anybody can.
func seal(unit []byte, head int) []byte {
	sum := crc32.Checksum(unit[head:len(unit)-4], castagnoli)
	binary.BigEndian.PutUint32(unit[len(unit)-4:], sum)
	return unit
}

// headOf is the size of a unit's head: the even ones are the master's.
func headOf(n int) int {
	if n%2 == 0 {
		return ExtendedHeaderBytes
	}
	return ExtendedReportBytes
}

func TestTwoThatShareASecretTrustEachOther(t *testing.T) {
	x := newExchange(t, someSecret, someSecret)
	x.run()
	if x.atMaster != nil || x.atSlave != nil || !x.s.Started() || !x.served() || !x.s.Trusted() {
		t.Fatalf("master %v, slave %v, started %v", x.atMaster, x.atSlave, x.s.Started())
	}
	if opening := x.units[0]; bytes.Contains(opening, []byte("master")) || bytes.Contains(opening, []byte("blue")) || len(opening) != ExtendedHeaderBytes+48 {
		t.Errorf("the opening tells of the node: %q", opening)
	}
}

// Who has no secret, or another one, gets nothing, and both ends say why.
func TestWhoDoesNotShareTheSecretIsRefused(t *testing.T) {
	for _, c := range []struct {
		name             string
		master, slave    []byte
		atMaster         error
		byPeer           bool // the master's reason came from the slave
		cause, slaveSays string
	}{
		{"the slave has another secret", someSecret, otherSecret, ErrWrongProof, false, "auth", "another secret"},
		{"the slave has none", someSecret, nil, ErrRefused, true, "auth", "this node was given none"},
		{"the master has none", nil, someSecret, ErrRefused, true, "auth", "was given no secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newExchange(t, c.master, c.slave)
			x.run()
			var m, s *RefusalError
			if !errors.Is(x.atMaster, c.atMaster) || !errors.As(x.atMaster, &m) || m.Code != RefusedAuth || m.ByPeer != c.byPeer {
				t.Errorf("the master: %v", x.atMaster)
			}
			if !errors.As(x.atSlave, &s) || s.Code.String() != c.cause || !strings.Contains(s.Text, c.slaveSays) || x.f.State() != FollowerRefused {
				t.Errorf("the slave: %v, %v", x.atSlave, x.f.State())
			}
			if x.s.Started() || x.served() {
				t.Error("it is served")
			}
			if _, ok := x.f.Greeting(); ok {
				t.Error("the slave takes the master's hello")
			}
		})
	}
}

// Whoever stands between and changes a single bit of what is said, with the
// checksum made right or not, makes both ends no pair.
func TestNoBitOfTheProofsAndHellosCanBeChanged(t *testing.T) {
	good := newExchange(t, someSecret, someSecret)
	good.run()
	for n, unit := range good.units {
		head := headOf(n)
		for bit := head * 8; bit < len(unit)*8; bit++ {
			sums := bit >= (len(unit)-4)*8 // of the checksum itself
			x := newExchange(t, someSecret, someSecret)
			x.tamper = func(k int, u []byte) []byte {
				if k != n {
					return u
				}
				u[bit/8] ^= 1 << (bit % 8)
				if !sums {
					seal(u, head)
				}
				return u
			}
			x.run()
			if x.s.Started() || x.served() {
				t.Fatalf("unit %d, bit %d: the replica is served", n, bit-head*8)
			}
			if _, ok := x.f.Greeting(); ok || n < 3 && x.f.Extended() {
				t.Fatalf("unit %d, bit %d: the slave goes on", n, bit-head*8)
			}
		}
	}
}

// A field cannot be taken out either, nor the opening be replaced by the hello of
// a master that has no secret.
func TestNoFieldCanBeStripped(t *testing.T) {
	plain := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "master", SegmentBytes: 4096, FrameBytes: 1000, Log: Range{0, 3000}}
	for name, tamper := range map[string]func(n int, u []byte) []byte{
		"the opening for a hello": func(n int, u []byte) []byte {
			if n == 0 {
				return messageOf(unitHello, AppendHello(nil, plain))
			}
			return u
		},
		"the slave's proof": func(n int, u []byte) []byte {
			if n == 1 {
				return appendReply(nil, unitHello, openingPayload(nonceOf(101)))
			}
			return u
		},
		"the slave's opening for a hello": func(n int, u []byte) []byte {
			if n == 1 {
				return appendReply(nil, unitHello, AppendHello(nil, plain))
			}
			return u
		},
		"the master's proof": func(n int, u []byte) []byte {
			if n == 2 {
				return messageOf(unitHello, AppendHello(nil, plain))
			}
			return u
		},
		"the replica's proof": func(n int, u []byte) []byte {
			if n == 3 {
				body := bytes.Clone(u[ExtendedReportBytes : len(u)-4-proofBytes-fieldHeader])
				return appendReply(nil, unitHello, binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli)))
			}
			return u
		},
	} {
		x := newExchange(t, someSecret, someSecret)
		x.tamper = tamper
		x.run()
		var r *RefusalError
		if err := errors.Join(x.atMaster, x.atSlave); x.s.Started() || x.served() || !errors.As(err, &r) || r.Code != RefusedAuth || !errors.Is(err, ErrNoProof) {
			t.Errorf("%s: started %v, %v", name, x.s.Started(), err)
		}
	}
}

// What was said on one connection is worth nothing on another, nor when it is
// sent back.
func TestReplayedAndReflectedProofsAreRefused(t *testing.T) {
	old := newExchange(t, someSecret, someSecret)
	old.run()
	replay := func(name string, slave func(x *exchange)) {
		x := newExchange(t, someSecret, someSecret)
		x.s.cfg.Nonce = nonceOf(55)
		slave(x)
		if x.served() || x.s.Started() || !errors.Is(x.atMaster, ErrWrongProof) {
			t.Errorf("%s: %v", name, x.atMaster)
		}
	}
	replay("the slave's opening", func(x *exchange) {
		x.up(AppendReport(nil, -1))
		x.up(old.units[1])
	})
	replay("its hello", func(x *exchange) {
		x.tamper = func(n int, u []byte) []byte {
			if n == 3 {
				return old.units[3]
			}
			return u
		}
		x.run()
	})
	replay("all that the master said, sent back to it", func(x *exchange) {
		x.up(AppendReport(nil, -1))
		x.up(appendReply(nil, unitHello, old.units[2][ExtendedHeaderBytes:]))
	})
	// An impostor with what the master said once.
	x := newExchange(t, someSecret, someSecret)
	x.tamper = func(n int, u []byte) []byte {
		if n == 2 {
			return old.units[2]
		}
		return u
	}
	x.f.Begin(x.own.held(), 0)
	if err := x.own.feed(t, x.f, old.units[0], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := x.f.Prove(nonceOf(77), 0); err != nil {
		t.Fatal(err)
	}
	if err := x.own.feed(t, x.f, old.units[2], 0); !errors.Is(err, ErrWrongProof) || x.f.State() != FollowerRefused {
		t.Errorf("the master's hello again: %v, %v", err, x.f.State())
	}
}

// Golden bytes: what version 1 means, for all later versions.
func TestGoldenProof(t *testing.T) {
	sealHex := func(text string) []byte { return sealBytes(t, text) }
	nonce := nonceOf(1)
	opening := sealHex("6861653100010001" + "000a0020" + hex.EncodeToString(nonce[:]))
	if got := openingPayload(nonce); !bytes.Equal(got, opening) {
		t.Errorf("the master's opening\n%x\n%x", got, opening)
	}
	body := []byte("\x68\x61\x65\x31\x00\x01\x00\x01\x00\x0a\x00\x20")
	other := nonceOf(101)
	body = append(body, other[:]...)
	mac := hmac.New(sha256.New, someSecret)
	mac.Write([]byte("haengine replication proof 1\x01"))
	mac.Write([]byte{0, 0, 0, 48})
	mac.Write(opening)
	mac.Write([]byte{0, 0, 0, 44})
	mac.Write(body)
	want := sealHex(hex.EncodeToString(body) + "000b0020" + hex.EncodeToString(mac.Sum(nil)))
	said := transcript{}
	said.add(opening)
	got := said.prove(someSecret, proofDialler, openingPayload(other))
	if !bytes.Equal(got, want) {
		t.Errorf("the slave's opening\n%x\n%x", got, want)
	}
	const proof = "f227830e54a97d24d92d42e82bd319f265a4e3e35f6ae35537e1b5fa78c3e9a4"
	if got := hex.EncodeToString(got[48 : 48+32]); got != proof {
		t.Errorf("the proof is %s, want %s", got, proof)
	}
	if RefusedAuth != 12 {
		t.Errorf("the code of a refusal is %d", RefusedAuth)
	}
}
