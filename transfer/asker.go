package transfer

import (
	"errors"

	"github.com/haengine/haengine/internal/invariant"
)

// Errors of asking for checksums.
var (
	// ErrNoAnswers means that the peer speaks the extended protocol and its
	// version of it knows no checksums of ranges.
	ErrNoAnswers = errors.New("the peer is an earlier version of haengine, which gives no checksums of its log")
	// ErrOverLimits means a question for more than the peer answers at once.
	ErrOverLimits = errors.New("question asks for more than the peer answers at once")
)

// inquiry is one question to a peer and what became of it.
type inquiry struct {
	question Question
	open     bool // the answer is on its way
	answer   Answer
	answered bool
}

// ask makes a question the open one and returns its unit.
func (i *inquiry) ask(q Question, limits QuestionLimits) ([]byte, error) {
	invariant.Check(!i.open, "one question at a time")
	switch err := q.check(); {
	case err != nil:
		return nil, err
	case limits == QuestionLimits{}:
		return nil, ErrNoAnswers
	case !limits.allow(q):
		return nil, ErrOverLimits
	}
	*i = inquiry{question: q, open: true}
	return appendReply(nil, unitSums, AppendQuestion(nil, q)), nil
}

// take takes the payload of an answer.
func (i *inquiry) take(b []byte) error {
	a, err := ParseAnswer(b)
	switch {
	case err != nil:
		return err
	case !i.open || a.Question != i.question:
		return refuse(RefusedProtocol, "the master answered what it was not asked")
	}
	i.open, i.answer, i.answered = false, a, true
	return nil
}

// Asker is a connection that asks a node for checksums of its log, and for
// nothing else. It is no replica: it never sends a hello of its own.
//
//	Begin ──▶ the peer's hello ──▶ Ask ──▶ Answer ──▶ Ask …
//	      └─▶ Challenged ──▶ Prove ─▲
//
// A peer that stays silent after Begin speaks RocketMQ's protocol only; how long
// that is waited for is the caller's to say, as is a limit for each answer. One
// goroutine at a time.
type Asker struct {
	header  Decoder
	payload payload
	kind    unitKind
	hello   Hello
	greeted bool
	inquiry inquiry
	failed  error

	secret []byte
	proving
}

// NewAsker returns an asker whose connection begins now. secret is what the peer
// has to prove to know; empty: nothing.
func NewAsker(secret []byte) *Asker {
	return &Asker{header: newDecoder(ExtendedHeaderBytes, nil), secret: secret}
}

// Begin returns what is sent first.
func (a *Asker) Begin() []byte { return AppendReport(nil, helloAsked) }

// Missing is how many bytes the unit that is being received lacks at least;
// never 0.
func (a *Asker) Missing() int {
	if n := a.payload.missing(); n > 0 {
		return n
	}
	return a.header.Missing()
}

// Feed takes bytes from the peer, cut anywhere. After an error the connection
// must be closed: it is a *RefusalError if the peer gave a reason, or wraps
// ErrUnit, ErrHello or ErrRefused.
func (a *Asker) Feed(b []byte) error {
	for a.failed == nil && len(b) > 0 {
		if a.payload.missing() > 0 {
			b = b[a.payload.take(b):]
			if a.payload.missing() == 0 {
				a.failed = a.message()
			}
			continue
		}
		unit, n := a.header.Take(b)
		b = b[n:]
		if unit != nil {
			a.failed = a.unit(unit)
		}
	}
	return a.failed
}

func (a *Asker) unit(b []byte) error {
	h, err := parseExtendedHeader(b)
	switch {
	case err != nil:
		return err
	case h.kind == unitLog, h.kind == unitHello && a.greeted:
		return refuse(RefusedProtocol, "the peer sent a unit of kind %d to somebody who only asks", h.kind)
	}
	a.kind = h.kind
	a.payload.expect(int(h.Bytes))
	return nil
}

func (a *Asker) message() (err error) {
	b := a.payload.bytes
	a.payload = payload{}
	switch a.kind {
	case unitRefusal:
		return a.hearsay(parseRefusal(b), a.secret)
	case unitSums:
		return a.inquiry.take(b)
	}
	if a.asked {
		err = a.takeHello(b, a.secret)
		a.said = nil // all is proved
	} else if waits, err := a.takeFirst(b, a.secret); waits || err != nil {
		return err
	}
	if err == nil {
		a.hello, err = ParseHello(b)
	}
	a.greeted = err == nil
	return err
}

// Challenged tells that Prove is due.
func (a *Asker) Challenged() bool { return a.challenged }

// Prove returns the bytes that prove to the peer that we know the secret; its
// hello comes next. nonce is drawn at random. The error is a *RefusalError with
// RefusedAuth: one of both has no secret; Refuse tells the peer.
func (a *Asker) Prove(nonce Nonce) ([]byte, error) {
	invariant.Check(a.challenged, "only a challenge is answered")
	return a.prove(a.secret, nonce)
}

// Refuse returns the bytes that tell the peer why we go.
func (a *Asker) Refuse(why error) []byte {
	return appendReply(nil, unitRefusal, refusalPayload(refusalOf(why)))
}

// Hello returns what the peer said of itself, once it did.
func (a *Asker) Hello() (Hello, bool) { return a.hello, a.greeted }

// Ask returns the bytes of a question; the peer's hello is there, and the last
// question was answered. ErrNoAnswers, ErrOverLimits, or an error that wraps
// ErrUnit: nothing is to be sent.
func (a *Asker) Ask(q Question) ([]byte, error) {
	invariant.Check(a.greeted, "a peer is asked after its hello")
	return a.inquiry.ask(q, a.hello.Questions)
}

// Answer returns the answer to the last question once it is there.
func (a *Asker) Answer() (Answer, bool) { return a.inquiry.answer, a.inquiry.answered }
