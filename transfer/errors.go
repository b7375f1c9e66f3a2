package transfer

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a master's session. Each ends that connection and changes nothing
// else.
var (
	// ErrReportRange means that a replica reported an offset that it cannot
	// hold: see *ReportError.
	ErrReportRange = errors.New("report outside the possible range")
	// ErrControllerHandshake means that the replica runs in RocketMQ's
	// controller mode, whose protocol shares the port and nothing else.
	ErrControllerHandshake = errors.New("controller-mode handshake (AutoSwitchHAService), which is not spoken here: set enableControllerMode=false on the replica")
	// ErrUnservable means that the log no longer holds what a replica needs
	// next: see *UnservableError.
	ErrUnservable = errors.New("needed offset is not in the log")
	// ErrNoReport means that a connection made no valid first report in time.
	ErrNoReport = errors.New("no first report")
	// ErrSendStalled means that a peer took no byte of a frame in time.
	ErrSendStalled = errors.New("peer takes no data")
	// ErrSilent means that nothing came from a peer in time, on either side.
	ErrSilent = errors.New("peer is silent")
)

// Errors of a follower. Each ends the connection; the log stays as it is.
var (
	// ErrFrameSize means a frame size that is negative or above the limit.
	ErrFrameSize = errors.New("frame size out of range")
	// ErrFrameOffset means a frame that does not begin where the last one ended.
	ErrFrameOffset = errors.New("frame does not continue the stream")
	// ErrFrameBorder means a frame that passes the end of our segment: the
	// master's segments have another size.
	ErrFrameBorder = errors.New("frame crosses a segment border")
	// ErrFrameBase means a first frame for an empty log that does not begin at
	// the start of a segment.
	ErrFrameBase = errors.New("first frame does not begin a segment")
	// ErrDiverged means that the master's bytes differ from ours: see
	// *DivergedError.
	ErrDiverged = errors.New("log differs from the master's")
	// ErrFirstSegmentGone means that an empty follower asked for everything and
	// the master, though alive, has no such bytes. The next connection asks for
	// the master's last segment.
	ErrFirstSegmentGone = errors.New("master does not serve its log from the first byte")
	// ErrHelloLate means that the master answered -1 after it was taken for
	// RocketMQ's. The next connection waits longer.
	ErrHelloLate = errors.New("master speaks the extended protocol, and said so late")
)

// ReportError is a report that cannot be true. It unwraps to ErrReportRange.
type ReportError struct {
	Replica            string
	Reported, From, To int64 // offsets; [From, To] was possible
	First              bool  // the connection's first report: From and To are the log's
}

func (e *ReportError) Error() string {
	if e.First {
		return fmt.Sprintf("replica %s asked for offset %d, the log holds %d to %d", e.Replica, e.Reported, e.From, e.To)
	}
	return fmt.Sprintf("replica %s reported offset %d, want %d to %d", e.Replica, e.Reported, e.From, e.To)
}

// Unwrap returns ErrReportRange.
func (e *ReportError) Unwrap() error { return ErrReportRange }

// UnservableError is a replica that needs an offset outside the log: retention
// passed it, or the log was cut below it. It unwraps to ErrUnservable.
type UnservableError struct {
	Replica   string
	Needs     int64 // the offset it has to be sent next
	Min, End  int64 // the log holds [Min, End)
	Remaining int32 // bytes of a frame that were promised and cannot be sent
}

func (e *UnservableError) Error() string {
	return fmt.Sprintf("replica %s needs offset %d, the log holds [%d, %d)", e.Replica, e.Needs, e.Min, e.End)
}

// Unwrap returns ErrUnservable.
func (e *UnservableError) Unwrap() error { return ErrUnservable }

// ExpiredError is a peer that let its time pass. It unwraps to What, which is
// ErrNoReport, ErrSilent or ErrSendStalled.
type ExpiredError struct {
	Peer  string
	What  error
	After time.Duration // how long nothing happened
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%s: %v for %v", e.Peer, e.What, e.After.Round(time.Millisecond))
}

// Unwrap returns What.
func (e *ExpiredError) Unwrap() error { return e.What }

// FrameError is a frame header that a follower does not take. It unwraps to
// What, which is ErrFrameSize, ErrFrameOffset, ErrFrameBorder or ErrFrameBase.
type FrameError struct {
	What         error
	Frame        Frame
	Want         int64 // the offset that was due; -1 when any segment's start would do
	BytesLimit   int32 // largest body taken
	SegmentBytes int64 // our segment size
}

func (e *FrameError) Error() string {
	switch {
	case errors.Is(e.What, ErrFrameSize):
		return fmt.Sprintf("master sent a frame of %d bytes at offset %d, want 0 to %d bytes", e.Frame.Bytes, e.Frame.Offset, e.BytesLimit)
	case errors.Is(e.What, ErrFrameBorder):
		return fmt.Sprintf("master sent a frame of %d bytes at offset %d, which passes our segment border at %d: its segments are not of our %d bytes; set the same segment size on both",
			e.Frame.Bytes, e.Frame.Offset, e.Frame.Offset-e.Frame.Offset%e.SegmentBytes+e.SegmentBytes, e.SegmentBytes)
	case errors.Is(e.What, ErrFrameBase):
		return fmt.Sprintf("master began our empty log at offset %d, which is no segment start for our segments of %d bytes; set the same segment size on both", e.Frame.Offset, e.SegmentBytes)
	default:
		return fmt.Sprintf("master sent offset %d, want %d", e.Frame.Offset, e.Want)
	}
}

// Unwrap returns What.
func (e *FrameError) Unwrap() error { return e.What }

// DivergedError is a byte of the master's that differs from ours. It unwraps
// to ErrDiverged.
type DivergedError struct {
	Offset int64 // the first offset that differs
	End    int64 // where our log ends
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("our log differs from the master's at offset %d (our log ends at %d): nothing was stored; keep one of the two histories and copy it over the other", e.Offset, e.End)
}

// Unwrap returns ErrDiverged.
func (e *DivergedError) Unwrap() error { return ErrDiverged }
