package remoting

import (
	"errors"
	"fmt"
	"strconv"
)

// Bits of Command.Flag.
const (
	FlagResponse = 1
	FlagOneway   = 2
)

// Version is what our frames say of themselves: clients take it for the broker's
// and expect of it what RocketMQ 5.3.3 does (MQVersion.Version, an ordinal).
const Version = 479

// Command is one frame, a request or a response (RemotingCommand).
type Command struct {
	Code     int32
	Language string // RocketMQ's name, as JAVA or GO; empty: not known
	Version  int32
	Opaque   int32 // the sender's number of the request; its response repeats it
	Flag     int32
	Remark   string // error text; empty: none
	Ext      Ext
	Body     []byte

	fields []byte // instead of Ext, for AppendFrame: fields as they stand in a JSON object
}

// IsResponse tells a response from a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneway tells a request that must not be answered.
func (c *Command) IsOneway() bool { return c.Flag&FlagOneway != 0 }

// Field is one name and value of a header.
type Field struct{ Name, Value string }

// Ext are a header's own fields. There are few, so that a list is searched
// faster than a map is made. The last of one name counts.
type Ext []Field

// Get returns a field's value, and whether it is there.
func (x Ext) Get(name string) (string, bool) {
	for i := len(x) - 1; i >= 0; i-- {
		if x[i].Name == name {
			return x[i].Value, true
		}
	}
	return "", false
}

// Text returns a field's value; one that is missing is empty.
func (x Ext) Text(name string) string {
	v, _ := x.Get(name)
	return v
}

// With adds a field.
func (x Ext) With(name, value string) Ext { return append(x, Field{name, value}) }

// WithInt adds a field that is a number.
func (x Ext) WithInt(name string, value int64) Ext {
	return append(x, Field{name, strconv.FormatInt(value, 10)})
}

// ErrField means that a header lacks a field, or that it is not what it has to
// be. Clients are told with SystemError, as RocketMQ's broker does.
var ErrField = errors.New("bad header field")

// Need returns a field that must be there.
func (x Ext) Need(name string) (string, error) {
	v, ok := x.Get(name)
	if !ok {
		return "", fmt.Errorf("%w: %s is missing", ErrField, name)
	}
	return v, nil
}

// Int returns a field that must be a decimal number between two bounds.
func (x Ext) Int(name string, low, high int64) (int64, error) {
	v, err := x.Need(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s is %q, want a number from %d to %d", ErrField, name, v, low, high)
	}
	return n, nil
}

// IntOr is Int for a field that may be missing.
func (x Ext) IntOr(name string, low, high, otherwise int64) (int64, error) {
	if _, ok := x.Get(name); !ok {
		return otherwise, nil
	}
	return x.Int(name, low, high)
}

// Bool returns a field as Java's Boolean.parseBoolean reads it: anything but
// true, in any case, is false.
func (x Ext) Bool(name string) bool {
	v := x.Text(name)
	return len(v) == 4 && (v[0]|0x20) == 't' && (v[1]|0x20) == 'r' && (v[2]|0x20) == 'u' && (v[3]|0x20) == 'e'
}
