package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Limits of one question, as this build answers it: how many checksums, and of
// how many bytes of log.
const (
	QuestionSumsMax  = 4096
	QuestionBytesMax = 64 << 20
)

const (
	questionBytes = 24 + 4
	answerFixed   = 42 + 4 // without sums and text
	sumBytes      = 4
)

// Question asks a node for the CRC-32C of its log's bytes [From, To), one for
// each Piece bytes; the last piece may be shorter. From < To and Piece > 0 in
// any that is valid.
type Question struct {
	From, To, Piece int64
}

// Sums is how many checksums answer the question.
func (q Question) Sums() int64 { return (q.To - q.From + q.Piece - 1) / q.Piece }

// PieceAt is the range of the piece with a number, from 0 on.
func (q Question) PieceAt(n int) (from, to int64) {
	from = q.From + int64(n)*q.Piece
	return from, min(from+q.Piece, q.To)
}

func (q Question) check() error {
	if q.From < 0 || q.To <= q.From || q.To > offsetMax || q.Piece <= 0 || q.Piece > offsetMax {
		return fmt.Errorf("%w: a question for offsets %d to %d in pieces of %d bytes", ErrUnit, q.From, q.To, q.Piece)
	}
	return nil
}

// QuestionLimits is how much one question may ask for; the zero value of a node
// that answers none.
type QuestionLimits struct {
	Sums  int64 // checksums
	Bytes int64 // of log
}

// allow tells whether a valid question is within the limits. The first condition
// keeps the number of sums from being computed of sizes that overflow.
func (l QuestionLimits) allow(q Question) bool {
	return q.To-q.From <= l.Bytes && q.Sums() <= l.Sums
}

// AnswerCode tells what an answer is. Codes keep their number for ever; one that
// is not known is shown by its text.
type AnswerCode uint16

// The codes of version 1.
const (
	AnswerSums   AnswerCode = iota // the checksums
	AnswerRange                    // the node does not hold the range: see Answer.Log
	AnswerLimits                   // more than one question may ask for
	AnswerUnread                   // the bytes could not be read: damage, or the log was cut meanwhile
)

// Answer is a node's answer to a question.
type Answer struct {
	Question Question
	Log      Range // what the node held then
	Code     AnswerCode
	Sums     []uint32 // with AnswerSums: Question.Sums() of them
	Text     string   // otherwise: a sentence
}

// ErrUnanswered means that a peer gave no checksums: see *UnansweredError.
var ErrUnanswered = errors.New("question not answered")

// UnansweredError says why a peer gave no checksums. It unwraps to
// ErrUnanswered.
type UnansweredError struct {
	Question Question
	Log      Range // what the peer holds
	Code     AnswerCode
	Text     string // its own words
}

func (e *UnansweredError) Error() string {
	return fmt.Sprintf("the peer gives no checksums of offsets %d to %d: %s", e.Question.From, e.Question.To, e.Text)
}

// Unwrap returns ErrUnanswered.
func (e *UnansweredError) Unwrap() error { return ErrUnanswered }

// Err is nil if the answer has the checksums, else an *UnansweredError.
func (a *Answer) Err() error {
	if a.Code == AnswerSums {
		return nil
	}
	return &UnansweredError{Question: a.Question, Log: a.Log, Code: a.Code, Text: a.Text}
}

// AppendQuestion appends a question's payload:
//
//	from 8 | to 8 | piece 8 | CRC-32C of all before 4
func AppendQuestion(dst []byte, q Question) []byte {
	from := len(dst)
	for _, v := range []int64{q.From, q.To, q.Piece} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// ParseQuestion reads a payload. The error wraps ErrUnit.
func ParseQuestion(b []byte) (Question, error) {
	if len(b) != questionBytes {
		return Question{}, fmt.Errorf("%w: a question of %d bytes, want %d", ErrUnit, len(b), questionBytes)
	}
	if !sealed(b) {
		return Question{}, fmt.Errorf("%w: wrong checksum of a question", ErrUnit)
	}
	q := Question{From: int64At(b, 0), To: int64At(b, 8), Piece: int64At(b, 16)}
	return q, q.check()
}

// AppendAnswer appends an answer's payload:
//
//	from 8 | to 8 | piece 8 | first offset held 8 | end 8 | code 2 | sums 4 each, or text | CRC-32C of all before 4
func AppendAnswer(dst []byte, a Answer) []byte {
	from := len(dst)
	for _, v := range []int64{a.Question.From, a.Question.To, a.Question.Piece, a.Log.Min, a.Log.End} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(a.Code))
	if a.Code == AnswerSums {
		for _, sum := range a.Sums {
			dst = binary.BigEndian.AppendUint32(dst, sum)
		}
	} else {
		dst = append(dst, shortText(a.Text)...)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// ParseAnswer reads a payload. The error wraps ErrUnit.
func ParseAnswer(b []byte) (Answer, error) {
	var a Answer
	if len(b) < answerFixed || !sealed(b) {
		return a, fmt.Errorf("%w: an answer of %d bytes without its checksum", ErrUnit, len(b))
	}
	a.Question = Question{From: int64At(b, 0), To: int64At(b, 8), Piece: int64At(b, 16)}
	a.Log = Range{Min: int64At(b, 24), End: int64At(b, 32)}
	a.Code = AnswerCode(binary.BigEndian.Uint16(b[40:]))
	rest := b[42 : len(b)-4]
	if err := a.Question.check(); err != nil {
		return a, err
	}
	if a.Log.Min < 0 || a.Log.End < a.Log.Min || a.Log.End > offsetMax {
		return a, fmt.Errorf("%w: an answer of a log from %d to %d", ErrUnit, a.Log.Min, a.Log.End)
	}
	if a.Code != AnswerSums {
		if len(rest) > refusalTextMax {
			return a, fmt.Errorf("%w: an answer with a text of %d bytes", ErrUnit, len(rest))
		}
		a.Text = printableText(rest)
		return a, nil
	}
	if a.Log.Min > a.Question.From || a.Log.End < a.Question.To || len(rest)%sumBytes != 0 || int64(len(rest)/sumBytes) != a.Question.Sums() {
		return a, fmt.Errorf("%w: %d bytes of sums for offsets %d to %d in pieces of %d, of a log from %d to %d",
			ErrUnit, len(rest), a.Question.From, a.Question.To, a.Question.Piece, a.Log.Min, a.Log.End)
	}
	for ; len(rest) > 0; rest = rest[sumBytes:] {
		a.Sums = append(a.Sums, binary.BigEndian.Uint32(rest))
	}
	return a, nil
}

// sealed tells whether b ends with the checksum of what stands before.
func sealed(b []byte) bool {
	body := b[:len(b)-4]
	return crc32.Checksum(body, castagnoli) == binary.BigEndian.Uint32(b[len(body):])
}

func int64At(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
