package remoting

import (
	"errors"
	"fmt"
)

// Reason is why a connection was closed or a request refused, from a fixed list,
// so that it can be counted.
type Reason uint8

// The reasons, in the order of a connection's life.
const (
	TooManyConnections Reason = iota // more connections than ServerOptions.Connections
	NoDescriptor                     // the process has no file descriptor left
	TLSRefused                       // the peer begins a TLS handshake
	FrameTooShort                    // no room for the header word
	FrameTooLong                     // more than the largest frame, length word included
	HeaderTooLong                    // the header ends after its frame
	HeaderType                       // neither JSON nor binary
	HeaderJSON                       // not the JSON of a header
	HeaderBinary                     // not RocketMQ's binary header
	HeaderFields                     // more ext fields than any request has
	FrameTooSlow                     // a frame was begun and not finished in time
	FramesTooMany                    // too many bytes of frames that are not finished, over all connections
	RequestsTooMany                  // more requests wait for their answers than a connection may have
	AnswersUnread                    // the peer does not read what it is answered
	AnswerTooLong                    // an answer would be longer than a frame may be
	Idle                             // no traffic in either direction
	ClosedByHandler                  // Peer.Close with another error
	HandlerPanicked                  // a bug: the request is answered with SystemError, the connection stays
	reasons                          // how many there are
)

var reasonNames = [reasons]string{
	"too-many-connections", "no-descriptor", "tls", "frame-too-short", "frame-too-long", "header-too-long", "header-type", "header-json",
	"header-binary", "header-fields", "frame-too-slow", "frames-too-many", "requests-too-many", "answers-unread", "answer-too-long", "idle", "handler", "handler-panicked",
}

// String is the reason's name in logs and metrics.
func (r Reason) String() string { return reasonNames[r] }

// ErrRefused is what every RefusalError is.
var ErrRefused = errors.New("refused")

// RefusalError says what a peer did that its connection does not survive.
type RefusalError struct {
	Reason Reason
	Detail string // a sentence with the numbers
}

func (e *RefusalError) Error() string { return e.Detail }

// Unwrap lets errors.Is find ErrRefused.
func (e *RefusalError) Unwrap() error { return ErrRefused }

func refuse(r Reason, format string, args ...any) error {
	return &RefusalError{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// reasonOf is the reason of an error that closes a connection.
func reasonOf(why error) Reason {
	var r *RefusalError
	if errors.As(why, &r) {
		return r.Reason
	}
	return ClosedByHandler
}
