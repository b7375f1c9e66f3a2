package transfer

import (
	"fmt"
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// questions is a session's side of a peer that asks for checksums. It has not
// sent a hello of its own, and need never do so: it is no replica then, and
// acknowledges nothing. One question is open at a time.
type questions struct {
	question Question
	open     bool          // the question waits for AnswerQuestion
	asks     bool          // the peer has asked at least once
	heard    time.Duration // when the last question came, or was answered
}

// expectQuestion says why a question cannot be taken now, or nil.
func (s *Session) expectQuestion() error {
	switch {
	case s.unproved || s.Started():
		return refuse(RefusedProtocol, "%s asked for checksums after its hello", s.cfg.Peer)
	case s.open || len(s.control) > 0:
		return refuse(RefusedProtocol, "%s asked again before it had its answer", s.cfg.Peer)
	}
	return nil
}

// takeQuestion takes a whole question. What needs no look at the bytes is
// answered at once.
func (s *Session) takeQuestion(b []byte, log Range, now time.Duration) error {
	q, err := ParseQuestion(b)
	if err != nil {
		return err
	}
	s.question, s.open, s.asks, s.heard = q, true, true, now
	limits := s.cfg.Hello.Questions
	switch {
	case !limits.allow(q):
		s.AnswerQuestion(Answer{Log: log, Code: AnswerLimits, Text: fmt.Sprintf("one question may ask for %d checksums of %d bytes", limits.Sums, limits.Bytes)}, now)
	case q.From < log.Min || q.To > log.End:
		s.AnswerQuestion(Answer{Log: log, Code: AnswerRange, Text: fmt.Sprintf("the log holds %d to %d", log.Min, log.End)}, now)
	}
	return nil
}

// Question returns the question that waits for AnswerQuestion.
func (s *Session) Question() (Question, bool) { return s.question, s.open && s.failed == nil }

// Asks tells whether the peer has asked for checksums.
func (s *Session) Asks() bool { return s.asks }

// AnswerQuestion puts the answer to Question into Control. Its Question field is
// filled in.
func (s *Session) AnswerQuestion(a Answer, now time.Duration) {
	invariant.Check(s.open, "only a question is answered")
	a.Question = s.question
	s.open, s.heard = false, now
	s.control = messageOf(unitSums, AppendAnswer(nil, a))
}

// waitingSince is since when a peer that is no replica yet has owed us a word;
// ok is false while we owe it an answer.
func (s *Session) waitingSince() (since time.Duration, ok bool) {
	return max(s.begun, s.heard), !s.open
}
