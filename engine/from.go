package engine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/haengine/haengine/transfer"
)

// From is where the log of an empty slave begins. A log that holds a byte goes
// on where it ends. An offset above 0 stands for the segment that it lies in: a
// copy begins with a whole segment. RocketMQ's protocol cannot ask for an offset:
// a report there acknowledges what is below it, whether it exists or not.
type From int64

// FromFirst is the master's first byte; FromLastSegment leaves out all but the
// segment that the master writes now, as a RocketMQ slave does.
const (
	FromFirst       From = 0
	FromLastSegment From = -1
)

// ParseFrom reads first, last-segment or an offset in bytes.
func ParseFrom(s string) (From, error) {
	switch name := strings.ReplaceAll(strings.ToLower(s), "_", "-"); name {
	case "first":
		return FromFirst, nil
	case "last-segment":
		return FromLastSegment, nil
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("from %q is none of first, last-segment, an offset in bytes", s)
		}
		return From(n), nil
	}
}

// String is the text that ParseFrom reads.
func (f From) String() string {
	switch f {
	case FromFirst:
		return "first"
	case FromLastSegment:
		return "last-segment"
	}
	return strconv.FormatInt(int64(f), 10)
}

// base is where a copy of a master's log begins, or why it cannot there.
func (f From) base(log transfer.Range, segmentBytes int64) (int64, error) {
	switch {
	case f == FromFirst:
		return log.Min, nil
	case f == FromLastSegment:
		return max(log.End-log.End%segmentBytes, log.Min), nil
	case log.Empty() || !log.Holds(int64(f)):
		return 0, &transfer.RefusalError{Code: transfer.RefusedRange, Text: fmt.Sprintf("this copy is to begin with the segment of offset %d, the master holds %d to %d", f, log.Min, log.End)}
	}
	return max(int64(f)-int64(f)%segmentBytes, log.Min), nil
}
