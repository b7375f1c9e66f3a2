package transfer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"
)

var (
	someQuestion = Question{From: 4096, To: 8000, Piece: 1500}
	someAnswer   = Answer{Question: someQuestion, Log: Range{4096, 9000}, Sums: []uint32{1, 0xdeadbeef, 3}}
)

func sealBytes(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	sum := crc32.Checksum(b, castagnoli)
	return append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

// Golden bytes: what version 1 means, for all later versions.
func TestGoldenQuestionAndAnswer(t *testing.T) {
	const asked = "0000000000001000" + "0000000000001f40" + "00000000000005dc"
	const held = "0000000000001000" + "0000000000002328"
	want := sealBytes(t, asked)
	if got := AppendQuestion(nil, someQuestion); !bytes.Equal(got, want) {
		t.Errorf("question\n%x\n%x", got, want)
	}
	if q, err := ParseQuestion(want); err != nil || q != someQuestion {
		t.Errorf("%+v, %v", q, err)
	}
	want = sealBytes(t, asked+held+"0000"+"00000001"+"deadbeef"+"00000003")
	if got := AppendAnswer(nil, someAnswer); !bytes.Equal(got, want) {
		t.Errorf("answer\n%x\n%x", got, want)
	}
	if a, err := ParseAnswer(want); err != nil || fmt.Sprint(a) != fmt.Sprint(someAnswer) {
		t.Errorf("%+v, %v", a, err)
	}
	refusal := Answer{Question: someQuestion, Log: Range{4096, 5000}, Code: AnswerRange, Text: "no"}
	want = sealBytes(t, asked+"0000000000001000"+"0000000000001388"+"0001"+"6e6f")
	if got := AppendAnswer(nil, refusal); !bytes.Equal(got, want) {
		t.Errorf("refusal\n%x\n%x", got, want)
	}
	var why *UnansweredError
	a, err := ParseAnswer(want)
	if err != nil || !errors.As(a.Err(), &why) || why.Log != refusal.Log || why.Code != AnswerRange || why.Text != "no" {
		t.Errorf("%+v, %v", a, err)
	}
	// The units that carry them, and the field that says that they are answered.
	unit := appendReply(nil, unitSums, AppendQuestion(nil, someQuestion))
	if got := hex.EncodeToString(unit[:36]); got != "fffffffffffffffe"+"0000000000000000"+"0000000000000000"+"ffffffffffffffff"+"0004"+"001c" {
		t.Errorf("the question's head is %s", got)
	}
	unit = messageOf(unitSums, AppendAnswer(nil, someAnswer))
	if got := hex.EncodeToString(unit[:16]); got != "ffffffffffffffff"+"0000003a"+"0004"+"0000" {
		t.Errorf("the answer's head begins with %s", got)
	}
	hello := AppendHello(nil, Hello{ReplicaID: "m", Questions: QuestionLimits{4096, 64 << 20}})
	if !bytes.Contains(hello, []byte("\x00\x09\x00\x10\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x04\x00\x00\x00")) {
		t.Errorf("the hello has no field 9: %x", hello)
	}
}

func TestFlippedBitsOfQuestionsAndAnswersAreNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		good  []byte
		parse func([]byte) error
	}{
		"question": {AppendQuestion(nil, someQuestion), func(b []byte) error { _, err := ParseQuestion(b); return err }},
		"answer":   {AppendAnswer(nil, someAnswer), func(b []byte) error { _, err := ParseAnswer(b); return err }},
	} {
		for i := range len(c.good) * 8 {
			b := bytes.Clone(c.good)
			b[i/8] ^= 1 << (i % 8)
			if err := c.parse(b); !errors.Is(err, ErrUnit) {
				t.Errorf("%s: bit %d can be flipped: %v", name, i, err)
			}
		}
		for n := range c.good {
			if err := c.parse(c.good[:n]); !errors.Is(err, ErrUnit) {
				t.Errorf("%s: %d bytes of %d are taken: %v", name, n, len(c.good), err)
			}
		}
	}
}

func TestQuestionsAndAnswersAreChecked(t *testing.T) {
	for _, q := range []Question{{-1, 5, 1}, {5, 5, 1}, {6, 5, 1}, {0, 5, 0}, {0, 5, -1}, {0, 1<<62 + 1, 1}, {0, 5, 1<<62 + 1}} {
		if _, err := ParseQuestion(AppendQuestion(nil, q)); !errors.Is(err, ErrUnit) {
			t.Errorf("question %+v: %v", q, err)
		}
	}
	for name, spoil := range map[string]func(*Answer){
		"a sum too few":            func(a *Answer) { a.Sums = a.Sums[:2] },
		"a sum too many":           func(a *Answer) { a.Sums = append(a.Sums, 4) },
		"sums of what is not held": func(a *Answer) { a.Log.End = 7999 },
		"sums from before":         func(a *Answer) { a.Log.Min = 4097 },
		"a range turned":           func(a *Answer) { a.Code, a.Log = AnswerRange, Range{9, 5} },
		"no question":              func(a *Answer) { a.Code, a.Question.Piece = AnswerRange, 0 },
	} {
		a := someAnswer
		a.Sums = append([]uint32{}, someAnswer.Sums...)
		spoil(&a)
		if _, err := ParseAnswer(AppendAnswer(nil, a)); !errors.Is(err, ErrUnit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Its words are printed: they are short and move no terminal.
	loud := Answer{Question: someQuestion, Code: 77, Text: "a\x1b[31m" + strings.Repeat("x", 2000)}
	a, err := ParseAnswer(AppendAnswer(nil, loud))
	if err != nil || len(a.Text) != refusalTextMax || strings.Contains(a.Text, "\x1b") || !errors.Is(a.Err(), ErrUnanswered) {
		t.Errorf("%d bytes of text, %v, %v", len(a.Text), err, a.Err())
	}
}

// asking is a session and somebody who only asks it.
type asking struct {
	s   *Session
	a   *Asker
	log byteLog
	now time.Duration
}

func newAsking(t *testing.T, limits QuestionLimits) *asking {
	t.Helper()
	own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", ClusterID: "blue", SegmentBytes: 4096, FrameBytes: 500, Questions: limits}
	k := &asking{a: NewAsker(nil), log: byteLog{min: 1000, data: history(5000, 3)}}
	k.s = NewSession(SessionConfig{Peer: "asker", SegmentBytes: 4096, Hello: &own, Housekeeping: 20 * time.Second}, 0)
	if err := k.up(k.a.Begin()); err != nil {
		t.Fatal(err)
	}
	return k
}

// up brings bytes to the session, one by one, and what it says back.
func (k *asking) up(b []byte) error {
	for _, c := range b {
		if err := k.s.Feed([]byte{c}, k.log.held(), k.now); err != nil {
			return err
		}
	}
	if q, ok := k.s.Question(); ok {
		answer := Answer{Log: k.log.held()}
		for n := range int(q.Sums()) {
			from, to := q.PieceAt(n)
			answer.Sums = append(answer.Sums, crc32.Checksum(k.log.data[from-k.log.min:to-k.log.min], castagnoli))
		}
		k.s.AnswerQuestion(answer, k.now)
	}
	return k.down()
}

func (k *asking) down() error {
	for len(k.s.Control()) > 0 {
		n := min(k.a.Missing(), len(k.s.Control()), 7)
		if err := k.a.Feed(k.s.Control()[:n]); err != nil {
			return err
		}
		k.s.ControlSent(n, k.now)
	}
	return nil
}

func (k *asking) ask(t *testing.T, q Question) Answer {
	t.Helper()
	b, err := k.a.Ask(q)
	if err == nil {
		err = k.up(b)
	}
	a, ok := k.a.Answer()
	if err != nil || !ok {
		t.Fatalf("%+v: answered %v, %v", q, ok, err)
	}
	return a
}

// Somebody may ask any number of times, is told which range there is, and is no
// replica for it.
func TestWhoOnlyAsksIsAnsweredAndNoReplica(t *testing.T) {
	k := newAsking(t, QuestionLimits{10, 3000})
	if h, ok := k.a.Hello(); !ok || h.ClusterID != "blue" || h.Log != k.log.held() {
		t.Fatalf("hello %+v, %v", h, ok)
	}
	for _, q := range []Question{{1000, 4000, 300}, {1000, 1001, 1}, {5999, 6000, 9000}, {2000, 2010, 1}} {
		a := k.ask(t, q)
		if a.Err() != nil || int64(len(a.Sums)) != q.Sums() || a.Log != k.log.held() {
			t.Errorf("%+v: %+v", q, a)
		}
	}
	a := k.ask(t, Question{999, 1100, 50})
	var why *UnansweredError
	if !errors.As(a.Err(), &why) || why.Code != AnswerRange || why.Log != k.log.held() {
		t.Errorf("before the log: %v", a.Err())
	}
	if a = k.ask(t, Question{5000, 6001, 500}); a.Code != AnswerRange || !strings.Contains(a.Text, "1000 to 6000") {
		t.Errorf("behind the log: %+v", a)
	}
	if _, ok := k.s.Next(k.log.held(), k.now); ok || k.s.Started() || k.s.Acked() != 0 || !k.s.Asks() {
		t.Error("somebody who asks is served as a replica")
	}
	// A question over the limits is not sent, and not answered if it is.
	for _, q := range []Question{{1000, 4001, 3000}, {1000, 1011, 1}} {
		if _, err := k.a.Ask(q); !errors.Is(err, ErrOverLimits) {
			t.Errorf("%+v: %v", q, err)
		}
		k.a.inquiry = inquiry{question: q, open: true}
		if err := k.up(appendReply(nil, unitSums, AppendQuestion(nil, q))); err != nil {
			t.Fatal(err)
		}
		if a, _ := k.a.Answer(); a.Code != AnswerLimits {
			t.Errorf("%+v: %+v", q, a)
		}
	}
}

// Between questions the time of any peer holds; while it waits for us it has
// time.
func TestWhoAsksIsHeldToTheHousekeeping(t *testing.T) {
	k := newAsking(t, QuestionLimits{10, 3000})
	k.now = 19 * time.Second
	k.ask(t, Question{1000, 1010, 1})
	if at := k.s.Deadline(k.log.held()); at != 39*time.Second {
		t.Errorf("the deadline is %v", at)
	}
	k.now = 38 * time.Second
	if err := k.s.Expired(k.now); err != nil {
		t.Errorf("19 s after an answer: %v", err)
	}
	b, err := k.a.Ask(Question{1000, 1010, 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.s.Feed(b, k.log.held(), k.now); err != nil {
		t.Fatal(err)
	}
	k.now = time.Hour
	if err := k.s.Expired(k.now); err != nil || k.s.Deadline(k.log.held()) < 1000*time.Hour {
		t.Errorf("while it waits for its answer: %v", err)
	}
	k.s.AnswerQuestion(Answer{Log: k.log.held(), Code: AnswerUnread, Text: "damage"}, k.now)
	if err := k.down(); err != nil {
		t.Fatal(err)
	}
	if err := k.s.Expired(k.now + 20*time.Second); !errors.Is(err, ErrSilent) {
		t.Errorf("20 s of silence: %v", err)
	}
}

// One question at a time, whole ones, and before a hello only.
func TestQuestionsOutOfTurnEndTheConnection(t *testing.T) {
	question := appendReply(nil, unitSums, AppendQuestion(nil, Question{1000, 1010, 1}))
	hello := appendReply(nil, unitHello, AppendHello(nil, Hello{
		VersionMin: 1, VersionMax: 1, ReplicaID: "s", SegmentBytes: 4096, FrameBytes: 1, Log: Range{1000, 2000}, Start: 2000, TailFrom: 1000,
	}))
	for name, units := range map[string][][]byte{
		"two at once":           {question, question},
		"a hello while one is":  {question, hello},
		"one behind a hello":    {hello, question},
		"an empty one":          {appendExtendedReport(nil, extendedReport{kind: unitSums, acks: Acks{Damaged: -1}})},
		"of no bytes":           {appendReply(nil, unitSums, AppendQuestion(nil, Question{1000, 1000, 1}))},
		"an answer is no quest": {appendReply(nil, unitSums, AppendAnswer(nil, someAnswer))},
	} {
		k := newAsking(t, QuestionLimits{10, 3000})
		var err error
		for _, unit := range units {
			if err == nil {
				err = k.s.Feed(unit, k.log.held(), 0)
			}
		}
		if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnit) || k.s.Started() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A peer of an earlier version says no word of questions: it is not asked, since
// it would close.
func TestAnEarlierVersionIsNotAsked(t *testing.T) {
	k := newAsking(t, QuestionLimits{})
	if _, err := k.a.Ask(Question{1000, 1010, 1}); !errors.Is(err, ErrNoAnswers) {
		t.Errorf("%v", err)
	}
	// What only asks takes no log and no answer to what it did not ask.
	for name, unit := range map[string][]byte{
		"log":            appendExtendedHeader(nil, extendedHeader{Frame: Frame{4096, 0}, kind: unitLog, source: Source{End: 5000}}),
		"a second hello": messageOf(unitHello, AppendHello(nil, Hello{ReplicaID: "m"})),
		"other sums":     messageOf(unitSums, AppendAnswer(nil, someAnswer)),
		"garbage":        bytes.Repeat([]byte("HTTP"), 16),
	} {
		k := newAsking(t, QuestionLimits{10, 10})
		if err := k.a.Feed(unit); !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseQuestionAndAnswer(f *testing.F) {
	f.Add(AppendQuestion(nil, someQuestion))
	f.Add(AppendAnswer(nil, someAnswer))
	f.Add(AppendAnswer(nil, Answer{Question: someQuestion, Code: AnswerUnread, Text: "damage"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 { // what is behind the checksum is reached
			sum := crc32.Checksum(b[:len(b)-4], castagnoli)
			b = append(bytes.Clone(b[:len(b)-4]), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		}
		if q, err := ParseQuestion(b); err == nil && !bytes.Equal(AppendQuestion(nil, q), b) {
			t.Fatalf("%+v is not written as it was read", q)
		} else if err != nil && !errors.Is(err, ErrUnit) {
			t.Fatal(err)
		}
		a, err := ParseAnswer(b)
		if err != nil {
			if !errors.Is(err, ErrUnit) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseAnswer(AppendAnswer(nil, a)); err != nil || fmt.Sprint(again) != fmt.Sprint(a) {
			t.Fatalf("%+v comes back as %+v, %v", a, again, err)
		}
	})
}
