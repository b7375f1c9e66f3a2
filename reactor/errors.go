package reactor

import (
	"errors"
	"fmt"
	"net/netip"
)

var (
	// ErrClosed means the connection, or the group it belongs to, is closed.
	ErrClosed = errors.New("closed")
	// ErrWouldBlock means nothing could be moved now; Readable or Writable
	// (once asked for with WantWrite) tells when to try again.
	ErrWouldBlock = errors.New("operation would block")
	// ErrFault means the caller's own memory or file could not be accessed: a
	// mapping whose file was cut, a file that cannot be read. It says nothing
	// about the peer.
	ErrFault = errors.New("own memory or file cannot be accessed")
	// ErrShortFile means Sendfile met the end of the file before the bytes
	// asked for. It says nothing about the peer.
	ErrShortFile = errors.New("file ends before the bytes to send")
	// ErrUnsupported means the kernel has no such operation for this file.
	ErrUnsupported = errors.New("not supported by the file system")
	// ErrNotSpliced means Splice cannot be had now, and nothing was moved.
	ErrNotSpliced = errors.New("no splice from the socket")
	// ErrTimeout means a dial did not connect in time.
	ErrTimeout = errors.New("timed out")
	// ErrCanceled means a dial was given up by Dialing.Cancel.
	ErrCanceled = errors.New("canceled")
	// ErrHungUp means the peer is gone and the handler did not take notice.
	ErrHungUp = errors.New("peer hung up")
	// ErrNoBytes means a read, write or send was asked for zero bytes.
	ErrNoBytes = errors.New("no bytes to move")
)

// OpError says which operation failed, with which peer, and why. It unwraps
// to Kind, one of this package's errors, if it has one, and to Err, the
// kernel's error number, if it has one.
type OpError struct {
	Op   string // "readv", "writev", "sendfile", "splice", "pipe", "dial", …
	Peer netip.AddrPort
	Kind error
	Err  error
}

func (e *OpError) Error() string {
	peer := "unknown peer"
	if e.Peer.IsValid() {
		peer = e.Peer.String()
	}
	switch {
	case e.Kind != nil && e.Err != nil:
		return fmt.Sprintf("%s %s: %v (%v)", e.Op, peer, e.Kind, e.Err)
	case e.Kind != nil:
		return fmt.Sprintf("%s %s: %v", e.Op, peer, e.Kind)
	default:
		return fmt.Sprintf("%s %s: %v", e.Op, peer, e.Err)
	}
}

// Unwrap gives errors.Is both the kind and the error number.
func (e *OpError) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
