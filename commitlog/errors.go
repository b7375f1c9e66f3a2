package commitlog

import (
	"errors"
	"fmt"
)

// What a caller can match with errors.Is. The errors that carry them name the
// file, the offset and the numbers.
var (
	// ErrMessageIllegal refuses a message before the append: nothing was
	// written (RocketMQ PutMessageStatus.MESSAGE_ILLEGAL).
	ErrMessageIllegal = errors.New("message is illegal")

	// ErrPropertiesTooLong refuses a message before the append because its
	// properties do not fit a signed 16-bit length (PROPERTIES_SIZE_EXCEEDED).
	ErrPropertiesTooLong = errors.New("properties are too long")

	// ErrSegmentUnavailable means that no next segment could be made, most
	// often because the disk is full (CREATE_MAPPED_FILE_FAILED).
	ErrSegmentUnavailable = errors.New("no segment to append to")

	// ErrBusy means that the append section was held for longer than the busy
	// timeout (OS_PAGE_CACHE_BUSY).
	ErrBusy = errors.New("append section is busy")

	// ErrReadOnly means that the log takes no more writes; the error that
	// wraps it says why. Reads go on.
	ErrReadOnly = errors.New("log is read-only")

	// ErrClosed means that the log was closed.
	ErrClosed = errors.New("log is closed")

	// ErrLocked means that another process, or another open in this one,
	// holds the store.
	ErrLocked = errors.New("store is locked")

	// ErrCorrupt is what every *CorruptError wraps.
	ErrCorrupt = errors.New("log is damaged")

	// ErrOutOfRange means an offset outside what the log or the queue holds.
	ErrOutOfRange = errors.New("offset out of range")

	// ErrSegmentPending means that the next segment is still being made.
	// Options.OnSegmentReady tells when to try again.
	ErrSegmentPending = errors.New("next segment is not ready")

	// ErrNotQueued means that the consume queues do not get up to the log's end.
	ErrNotQueued = errors.New("consume queues are behind the log")
	// ErrNotEmpty refuses to choose a start for a log that has one.
	ErrNotEmpty = errors.New("log is not empty")

	// ErrSegmentBytes refuses another segment size than the log has.
	ErrSegmentBytes = errors.New("segment size cannot be taken")

	// ErrFiller is CheckRecord's answer for the filler at a segment's end: not
	// damage, and the size that comes with it leads to the next segment.
	ErrFiller = errors.New("end-of-segment filler")
)

// Kinds of damage, in CorruptError.Kind.
const (
	KindShort    = "short record"  // fewer bytes than the header or the size word ask for
	KindMagic    = "unknown magic" // neither a record nor a filler; zeros included
	KindLengths  = "lengths do not add up"
	KindPosition = "wrong position" // the record says that it belongs elsewhere
	KindCRC      = "body checksum"  // the body is not what was written
	KindFiller   = "filler not at the segment's end"
	KindQueue    = "consume queue" // a queue file that cannot be one
	KindFault    = "mapping fault" // the kernel could not give the page
)

// CorruptError says where bytes are not what they must be.
type CorruptError struct {
	Path   string // the file, if known
	Offset int64  // of the bytes' first byte in the whole log
	Kind   string // one of the Kind constants
	Detail string // the numbers seen and expected
}

// Error names the place, the kind and the numbers.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("damage at offset %d: %s", e.Offset, e.Kind)
	if e.Path != "" {
		s = fmt.Sprintf("damage in %s at offset %d: %s", e.Path, e.Offset, e.Kind)
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap gives ErrCorrupt.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// LimitError refuses a message that is over one of the limits. It wraps
// ErrMessageIllegal, or ErrPropertiesTooLong when the properties are.
type LimitError struct {
	What       string // "body", "record", "topic", "properties", …
	Value, Max int64  // bytes
	sentinel   error
}

// Error names the limit with both numbers.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s of %d bytes, at most %d are allowed", e.sentinel, e.What, e.Value, e.Max)
}

// Unwrap gives ErrMessageIllegal or ErrPropertiesTooLong.
func (e *LimitError) Unwrap() error { return e.sentinel }
