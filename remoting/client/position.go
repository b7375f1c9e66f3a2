package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/haengine/haengine/remoting"
)

// Position is where reading of a queue begins.
type Position struct {
	kind   positionKind
	at     time.Time
	offset int64
}

type positionKind uint8

const (
	positionFirst positionKind = iota
	positionLast
	positionTime
	positionOffset
)

// First is the oldest message that is still there.
func First() Position { return Position{} }

// Last is the end: only what comes later is read.
func Last() Position { return Position{kind: positionLast} }

// At is the first message that was stored at a time or later.
func At(t time.Time) Position { return Position{kind: positionTime, at: t} }

// AtOffset is an offset in a queue.
func AtOffset(n int64) Position { return Position{kind: positionOffset, offset: n} }

// IsOffset tells whether the position is an offset, which means something only in
// one queue.
func (p Position) IsOffset() bool { return p.kind == positionOffset }

// String is the position as ParsePosition reads it.
func (p Position) String() string {
	switch p.kind {
	case positionLast:
		return "last"
	case positionTime:
		return p.at.Format(time.RFC3339Nano)
	case positionOffset:
		return strconv.FormatInt(p.offset, 10)
	}
	return "first"
}

// ParsePosition reads first, last or now, an offset, a time as 2006-01-02T15:04:05Z
// (RFC 3339), a day as 2006-01-02, which begins where now is, or a duration before
// now, as 10m, 1h30m or 2d.
func ParsePosition(s string, now time.Time) (Position, error) {
	switch s {
	case "first":
		return First(), nil
	case "last", "now":
		return Last(), nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return Position{}, fmt.Errorf("%q: an offset is 0 or more", s)
		}
		return AtOffset(n), nil
	}
	if days, err := strconv.ParseUint(strings.TrimSuffix(s, "d"), 10, 16); err == nil { // with d: without, it was an offset
		return At(now.AddDate(0, 0, -int(days))), nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return Position{}, fmt.Errorf("%q: a duration counts back from now, without a sign", s)
		}
		return At(now.Add(-d)), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return At(t), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, now.Location()); err == nil {
		return At(t), nil
	}
	return Position{}, fmt.Errorf("%q is none of first, last, an offset, a time as %s, a day as %s, a duration before now as 10m or 2d",
		s, now.UTC().Format(time.RFC3339), now.Format(time.DateOnly))
}

// resolve asks a broker for the offset of a position in a queue. An offset that the
// queue does not have is given back as it is: who reads there is told.
func (c *Client) resolve(ctx context.Context, addr string, q Queue, p Position) (int64, error) {
	switch p.kind {
	case positionLast:
		return c.askOffset(ctx, addr, remoting.CodeGetMaxOffset, q, "end", nil)
	case positionTime:
		return c.askOffset(ctx, addr, remoting.CodeSearchOffsetByTime, q, "offset by time", remoting.Ext(nil).WithInt("timestamp", p.at.UnixMilli()))
	case positionOffset:
		return p.offset, nil
	}
	return c.askOffset(ctx, addr, remoting.CodeGetMinOffset, q, "beginning", nil)
}

func queueFields(q Queue) remoting.Ext {
	return remoting.Ext{{Name: "topic", Value: q.Topic}, {Name: "bname", Value: q.BrokerName}}.WithInt("queueId", int64(q.QueueID))
}

// askOffset asks a question about a queue whose answer is an offset.
func (c *Client) askOffset(ctx context.Context, addr string, code int32, q Queue, what string, more remoting.Ext) (int64, error) {
	what = fmt.Sprintf("%s in topic %s queue %d", what, q.Topic, q.QueueID)
	answer, err := c.call(ctx, addr, &remoting.Command{Code: code, Ext: append(queueFields(q), more...)}, what, 0)
	if err != nil {
		return 0, err
	}
	n, err := answer.Ext.Int("offset", -1<<62, 1<<62)
	if err != nil {
		return 0, fmt.Errorf("%s at %s: %w", what, addr, err)
	}
	return max(n, 0), nil
}

// groupOffset is where a group goes on in a queue; ok is false if it has none.
func (c *Client) groupOffset(ctx context.Context, addr, group string, q Queue) (offset int64, ok bool, err error) {
	offset, err = c.askOffset(ctx, addr, remoting.CodeQueryConsumerOffset, q, "offset of group "+group,
		remoting.Ext{{Name: "consumerGroup", Value: group}, {Name: "setZeroIfNotFound", Value: "false"}})
	if codeOf(err) == remoting.QueryNotFound {
		return 0, false, nil
	}
	return offset, err == nil, err
}

// commitOffset stores where a group goes on.
func (c *Client) commitOffset(ctx context.Context, addr, group string, q Queue, offset int64) error {
	request := &remoting.Command{
		Code: remoting.CodeUpdateConsumerOffset,
		Ext:  append(queueFields(q), remoting.Field{Name: "consumerGroup", Value: group}).WithInt("commitOffset", offset),
	}
	_, err := c.call(ctx, addr, request, fmt.Sprintf("commit of group %s in topic %s queue %d", group, q.Topic, q.QueueID), 0)
	return err
}
