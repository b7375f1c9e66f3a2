package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// RefusalCode is why one end does not take the other. Codes keep their number
// for ever; one that is not known is shown by its text.
type RefusalCode uint16

// The codes of version 1.
const (
	RefusedProtocol RefusalCode = iota + 1 // what came is not the protocol
	RefusedVersion                         // no common version
	RefusedCluster                         // of another cluster
	RefusedSegments                        // another segment size
	RefusedRange                           // the master does not hold what the replica needs
	RefusedDiverged                        // the two logs are not one history
	RefusedBehind                          // the master is empty, older, or behind what the replica knows to be committed
	RefusedReplaced                        // a newer connection of the same replica took over
	RefusedFull                            // the master counts no more replicas
	RefusedStopping                        // the node stops or changes its role
	RefusedDamaged                         // the log is damaged or could not be made durable
	RefusedAuth                            // one of both does not prove to know the secret
)

var refusalNames = [...]string{"", "protocol", "version", "cluster", "segments", "range", "diverged", "behind", "replaced", "full", "stopping", "damaged", "auth"}

// String is one word for the code, or "refused" for a later version's.
func (c RefusalCode) String() string {
	if c == 0 || int(c) >= len(refusalNames) {
		return "refused"
	}
	return refusalNames[c]
}

const refusalTextMax = 1024

// ErrRefused means that one end did not take the other: see *RefusalError.
var ErrRefused = errors.New("refused")

// RefusalError is a refusal, ours or the peer's. It unwraps to ErrRefused and,
// if it is about the history, to ErrDiverged.
type RefusalError struct {
	Code   RefusalCode
	Text   string // a sentence
	ByPeer bool   // it came over the wire
	What   error  // a sentinel that says more than the code; nil: none
}

func (e *RefusalError) Error() string {
	if e.ByPeer {
		return "the peer refuses: " + e.Text
	}
	return e.Text
}

// Unwrap returns ErrRefused and what it is about.
func (e *RefusalError) Unwrap() []error {
	all := []error{ErrRefused}
	if e.Code == RefusedDiverged {
		all = append(all, ErrDiverged)
	}
	if e.What != nil {
		all = append(all, e.What)
	}
	return all
}

func refuse(code RefusalCode, format string, args ...any) *RefusalError {
	return &RefusalError{Code: code, Text: fmt.Sprintf(format, args...)}
}

// refusalPayload is code 2 | text in UTF-8.
func refusalPayload(e *RefusalError) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(e.Code)), shortText(e.Text)...)
}

// shortText cuts a text to what goes over the wire, between two characters.
func shortText(text string) string {
	for len(text) > refusalTextMax {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}

// printableText makes of a peer's bytes what may come into our log.
func printableText(b []byte) string {
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
}

// parseRefusal reads a payload.
func parseRefusal(b []byte) error {
	if len(b) < 2 || len(b) > 2+refusalTextMax {
		return fmt.Errorf("%w: a refusal of %d bytes", ErrUnit, len(b))
	}
	return &RefusalError{Code: RefusalCode(binary.BigEndian.Uint16(b)), Text: printableText(b[2:]), ByPeer: true}
}

// refusalOf turns the reason why a connection ends into one that can be told.
func refusalOf(err error) *RefusalError {
	var r *RefusalError
	var unservable *UnservableError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &unservable):
		return &RefusalError{Code: RefusedRange, Text: err.Error()}
	case errors.Is(err, ErrQuorumFull):
		return &RefusalError{Code: RefusedFull, Text: err.Error()}
	}
	return &RefusalError{Code: RefusedProtocol, Text: err.Error()}
}
