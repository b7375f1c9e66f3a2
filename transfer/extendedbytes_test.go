package transfer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"
)

// Golden bytes: what version 1 means, for all later versions.
func TestGoldenHello(t *testing.T) {
	h := Hello{
		VersionMin: 1, VersionMax: 1, ClusterID: "c", ReplicaID: "r1", SegmentBytes: 4096, Log: Range{4096, 8000},
		Epochs: []Epoch{{3, 0x0102030405060708, 5000}}, FrameBytes: 1 << 20, Start: 8000, TailFrom: 7000, TailSum: 0xdeadbeef,
	}
	golden := "6861653100010001" + "0001000163" + "000200027231" + "000300080000000000001000" +
		"0004001000000000000010000000000000001f40" + "000500140000000301020304050607080000000000001388" +
		"000600080000000000100000" + "000700080000000000001f40" + "000800100000000000001b5800000000deadbeef"
	raw, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	sum := crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli))
	raw = append(raw, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
	if got := AppendHello(nil, h); !bytes.Equal(got, raw) {
		t.Errorf("got  %x\nwant %x", got, raw)
	}
	got, err := ParseHello(raw)
	if err != nil || got.ClusterID != h.ClusterID || got.Epochs[0] != h.Epochs[0] || got.Log != h.Log || got.Start != h.Start || got.TailFrom != h.TailFrom || got.TailSum != h.TailSum {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGoldenUnits(t *testing.T) {
	head := appendExtendedHeader(nil, extendedHeader{
		Frame: Frame{4096, 100}, kind: unitLog, epoch: Epoch{3, 0x0102030405060708, 4000},
		source: Source{Confirmed: 4100, End: 5000, Time: 0x18c0ffee00, FlushWanted: true},
	})
	want := "0000000000001000" + "00000064" + "0001" + "0001" + "00000003" + hex.EncodeToString(head[20:24]) + "0102030405060708" +
		"0000000000000fa0" + "0000000000001004" + "0000000000001388" + "00000018c0ffee00"
	if got := hex.EncodeToString(head); got != want {
		t.Errorf("header\n%s\n%s", got, want)
	}
	covered := append(bytes.Clone(head[:20]), head[24:]...)
	if sum := crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli)); hex.EncodeToString(head[20:24]) != hex.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}) {
		t.Error("the header's checksum covers something else")
	}
	report := appendExtendedReport(nil, extendedReport{kind: unitLog, acks: Acks{5000, 4096, -1}})
	want = "fffffffffffffffe" + "0000000000001388" + "0000000000001000" + "ffffffffffffffff" + "0001" + "0000"
	if got := hex.EncodeToString(report[:36]); got != want || len(report) != ExtendedReportBytes {
		t.Errorf("report\n%s\n%s", got, want)
	}
}

// Each flipped bit of a unit is noticed.
func TestFlippedBitsAreNoticed(t *testing.T) {
	head := appendExtendedHeader(nil, extendedHeader{Frame: Frame{4096, 100}, kind: unitLog, source: Source{End: 5000}})
	report := appendExtendedReport(nil, extendedReport{kind: unitLog, acks: Acks{5000, 4096, -1}})
	hello := AppendHello(nil, Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "r", SegmentBytes: 4096, FrameBytes: 1})
	flip := func(b []byte, check func([]byte) error) {
		for i := range len(b) * 8 {
			c := bytes.Clone(b)
			c[i/8] ^= 1 << (i % 8)
			if check(c) == nil {
				t.Errorf("bit %d of %d bytes can be flipped", i, len(b))
			}
		}
	}
	flip(head, func(b []byte) error { _, err := parseExtendedHeader(b); return err })
	flip(report, func(b []byte) error { _, err := parseExtendedReport(b); return err })
	flip(hello, func(b []byte) error { _, err := ParseHello(b); return err })
}

func TestHelloFieldsAreChecked(t *testing.T) {
	good := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "r", SegmentBytes: 4096, Log: Range{0, 100}, FrameBytes: 1}
	for name, spoil := range map[string]func(*Hello){
		"no id":                func(h *Hello) { h.ReplicaID = "" },
		"a long id":            func(h *Hello) { h.ReplicaID = strings.Repeat("x", 256) },
		"a control character":  func(h *Hello) { h.ReplicaID = "a\x1b[31m" },
		"a C1 control":         func(h *Hello) { h.ClusterID = "a\u009b" },
		"no text":              func(h *Hello) { h.ReplicaID = "\xff" },
		"no version":           func(h *Hello) { h.VersionMin, h.VersionMax = 0, 0 },
		"versions turned":      func(h *Hello) { h.VersionMin, h.VersionMax = 3, 2 },
		"no segment":           func(h *Hello) { h.SegmentBytes = 0 },
		"a negative segment":   func(h *Hello) { h.SegmentBytes = -1 },
		"no frame":             func(h *Hello) { h.FrameBytes = 0 },
		"a range turned":       func(h *Hello) { h.Log = Range{100, 50} },
		"an end far off":       func(h *Hello) { h.Log.End = math.MaxInt64 },
		"a tail past the end":  func(h *Hello) { h.TailFrom = 101 },
		"a long tail":          func(h *Hello) { h.Log.End, h.TailFrom = 1<<20, 1 },
		"epochs turned":        func(h *Hello) { h.Epochs = []Epoch{{2, 0, 0}, {1, 0, 10}} },
		"epochs at one offset": func(h *Hello) { h.Epochs = []Epoch{{1, 0, 10}, {2, 0, 10}} },
		"an epoch before 0":    func(h *Hello) { h.Epochs = []Epoch{{1, 0, -5}} },
		"epoch 0":              func(h *Hello) { h.Epochs = []Epoch{{0, 0, 0}} },
	} {
		h := good
		spoil(&h)
		if _, err := ParseHello(AppendHello(nil, h)); !errors.Is(err, ErrHello) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseHello(AppendHello(nil, good)); err != nil {
		t.Error(err)
	}
	// A field of a later version is skipped.
	b := AppendHello(nil, good)
	b = appendField(b[:len(b)-4], 999, []byte("later"))
	sum := crc32.Checksum(b, castagnoli)
	if _, err := ParseHello(append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))); err != nil {
		t.Errorf("a later field: %v", err)
	}
}

// A master takes no acknowledgement that cannot be true, in either kind.
func TestExtendedReportsAreChecked(t *testing.T) {
	for name, acks := range map[string]Acks{
		"past what was sent": {4000, 0, -1},
		"back":               {900, 0, -1},
		"flushed back":       {1000, 0, -1},
		"flushed further":    {1000, 1001, -1},
	} {
		p := newPair(t, history(3000, 3), history(1000, 3), Epoch{1, 11, 0})
		p.connect()
		p.run()
		p.master.data = p.master.data[:3000]
		first := appendExtendedReport(nil, extendedReport{kind: unitLog, acks: Acks{3000, 500, -1}})
		if name == "past what was sent" || name == "flushed further" {
			first = nil
		}
		bad := appendExtendedReport(first, extendedReport{kind: unitLog, acks: acks})
		acked := p.s.Acked()
		if err := p.s.Feed(bad, p.master.held(), p.now); err == nil {
			t.Errorf("%s: taken, acked %d", name, p.s.Acked())
		} else if p.s.Acked() != acked {
			t.Errorf("%s: acked %d after %v", name, p.s.Acked(), err)
		}
	}
}

func FuzzParseHello(f *testing.F) {
	f.Add(AppendHello(nil, Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "r", SegmentBytes: 4096, FrameBytes: 1, Epochs: []Epoch{{1, 2, 3}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum is made right, so that what is behind it is reached.
		if len(b) >= 12 {
			sum := crc32.Checksum(b[:len(b)-4], castagnoli)
			b = append(bytes.Clone(b[:len(b)-4]), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		}
		h, err := ParseHello(b)
		if err != nil {
			return
		}
		again, err := ParseHello(AppendHello(nil, h))
		if err != nil || again.ReplicaID != h.ReplicaID || len(again.Epochs) != len(h.Epochs) || again.Log != h.Log {
			t.Fatalf("%+v comes back as %+v, %v", h, again, err)
		}
	})
}

// Whatever comes from a replica, a session neither panics nor acknowledges what
// it has not sent.
func FuzzExtendedSession(f *testing.F) {
	hello := AppendHello(nil, Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "s", SegmentBytes: 4096, FrameBytes: 500})
	seed := appendReply(AppendReport(nil, -1), unitHello, hello)
	f.Add(appendExtendedReport(bytes.Clone(seed), extendedReport{kind: unitLog, acks: Acks{100, 50, -1}}))
	f.Add(appendReply(AppendReport(nil, -1), unitSums, AppendQuestion(nil, Question{0, 100, 9})))
	f.Add(appendReply(bytes.Clone(seed), unitRefusal, refusalPayload(refuse(RefusedBehind, "x"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", SegmentBytes: 4096, FrameBytes: 500, Questions: QuestionLimits{100, 3000}}
		s := NewSession(SessionConfig{SegmentBytes: 4096, Hello: &own}, 0)
		log := Range{0, 3000}
		for i := 0; i < len(b); i += 7 {
			err := s.Feed(b[i:min(i+7, len(b))], log, 0)
			if _, _, ok := s.Unproved(); ok && err == nil {
				err = s.Prove(0, 0)
			}
			if _, ok := s.Question(); ok {
				s.AnswerQuestion(Answer{Log: log, Code: AnswerUnread, Text: "x"}, 0)
			}
			s.ControlSent(len(s.Control()), 0)
			if err != nil {
				s.LastWords(err)
				return
			}
			if f, ok := s.Next(log, 0); ok && f.Bytes > 0 {
				s.AppendHeader(nil, f, Source{End: log.End})
				s.Sent(f, 0, 0)
				s.Sent(f, f.Bytes, 0)
			}
			if s.Acked() > max(s.SentOffset(), 0) {
				t.Fatalf("acked %d, sent %d", s.Acked(), s.SentOffset())
			}
		}
	})
}
