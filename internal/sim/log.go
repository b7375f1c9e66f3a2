package sim

import (
	"fmt"

	"github.com/haengine/haengine/transfer"
)

// Log is a node's log: the bytes [min, end), and behind them what was received
// and not published.
type Log struct {
	segment int64
	min     int64
	bytes   []byte
	tail    []byte
	flushed int64 // one past what survives a power loss
}

// Range returns what the log holds.
func (l *Log) Range() transfer.Range {
	return transfer.Range{Min: l.min, End: l.min + int64(len(l.bytes))}
}

// View returns the bytes [from, from+n).
func (l *Log) View(from int64, n int) []byte { return l.bytes[from-l.min:][:n] }

// Append adds bytes: the master's way.
func (l *Log) Append(b []byte) { l.bytes = append(l.bytes, b...) }

// StartAt gives an empty log its place.
func (l *Log) StartAt(base int64) error {
	if len(l.bytes) > 0 || base%l.segment != 0 {
		return fmt.Errorf("log of %d bytes started at %d", len(l.bytes), base)
	}
	l.min, l.flushed = base, base
	return nil
}

// Place stores bytes behind the end, at offset: the replica's way.
func (l *Log) Place(offset int64, b []byte) error {
	if want := l.Range().End + int64(len(l.tail)); offset != want {
		return fmt.Errorf("bytes for offset %d stored at %d", offset, want)
	}
	l.tail = append(l.tail, b...)
	return nil
}

// Publish makes the first n placed bytes log.
func (l *Log) Publish(n int64) {
	l.bytes = append(l.bytes, l.tail[:n]...)
	l.tail = l.tail[n:]
}

// Discard forgets what was not published and returns how much that was.
func (l *Log) Discard() int64 {
	n := len(l.tail)
	l.tail = nil
	return int64(n)
}

// Flush makes everything published durable.
func (l *Log) Flush() { l.flushed = l.Range().End }

// Lose cuts the log to an end, as a power loss does with what was not durable.
func (l *Log) Lose(end int64) {
	l.tail = nil
	l.bytes = l.bytes[:end-l.min]
}
