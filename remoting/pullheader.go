package remoting

import (
	"fmt"
	"math"
	"strconv"
)

// pullHeader is the header of a pull (PullMessageRequestHeader).
type pullHeader struct {
	group, topic, subscription, kind string
	queue, flags                     int32
	from, commit                     int64
	most, bytes                      int32
	suspend                          int64 // milliseconds
}

// parsePull reads the header in one pass. A field that has to be there and is
// not, or is no number, is an ErrField.
func parsePull(x Ext) (pullHeader, error) {
	h := pullHeader{bytes: math.MaxInt32}
	var seen uint
	var err error
	number := func(f *Field, low, high int64) (n int64) {
		n, e := strconv.ParseInt(f.Value, 10, 64)
		if (e != nil || n < low || n > high) && err == nil {
			err = fmt.Errorf("%w: %s is %.40q, want a number from %d to %d", ErrField, f.Name, f.Value, low, high)
		}
		return n
	}
	for i := range x {
		f := &x[i]
		switch f.Name {
		case "consumerGroup":
			h.group, seen = f.Value, seen|1<<0
		case "topic":
			h.topic, seen = f.Value, seen|1<<1
		case "queueId":
			h.queue, seen = int32(number(f, math.MinInt32, math.MaxInt32)), seen|1<<2
		case "queueOffset":
			h.from, seen = number(f, math.MinInt64, math.MaxInt64), seen|1<<3
		case "maxMsgNums":
			h.most, seen = int32(number(f, math.MinInt32, math.MaxInt32)), seen|1<<4
		case "sysFlag":
			h.flags, seen = int32(number(f, math.MinInt32, math.MaxInt32)), seen|1<<5
		case "commitOffset":
			h.commit, seen = number(f, math.MinInt64, math.MaxInt64), seen|1<<6
		case "suspendTimeoutMillis":
			h.suspend, seen = number(f, math.MinInt64, math.MaxInt64), seen|1<<7
		case "subVersion":
			// Not compared: see Pulls.
			number(f, math.MinInt64, math.MaxInt64)
			seen |= 1 << 8
		case "maxMsgBytes":
			h.bytes = int32(number(f, math.MinInt32, math.MaxInt32))
		case "subscription":
			h.subscription = f.Value
		case "expressionType":
			h.kind = f.Value
		}
	}
	for i, name := range pullFields {
		if err == nil && seen&(1<<i) == 0 {
			err = fmt.Errorf("%w: %s is missing", ErrField, name)
		}
	}
	return h, err
}

var pullFields = [...]string{
	"consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion",
}
