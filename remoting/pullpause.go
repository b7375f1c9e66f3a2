package remoting

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/haengine/haengine/engine"
)

// retryPause is how long a message that was sent back stays away at most: the delay
// that RocketMQ gives it the first time (level 3).
//
// There, each further time takes longer, up to two hours; that needs the queues of
// delayed messages, which this broker does not have yet. Without any pause a message
// that cannot be consumed for a moment would go round sixteen times within
// milliseconds, and then be a dead letter. A pause that is the same for all messages
// keeps their order in the retry queue, so that none of them waits for another, and
// needs no more than the time at which each was stored: it is the same on a slave,
// and after a restart.
const retryPause = 10 * time.Second

// unripe finds the first of some records of a retry topic that is to stay away
// longer, and for how long; at is the time in milliseconds. found is cut there.
func unripe(body []byte, found *engine.Pulled, at int64, pause time.Duration) (ripe []byte, wait time.Duration) {
	for from, n := 0, 0; from < len(body); n++ {
		size := int(binary.BigEndian.Uint32(body[from:]))
		rec, err := engine.DecodeRecord(body[from : from+size])
		if err != nil {
			return body, 0 // it was checked: not ours to hide
		}
		if wait := pauseOf(&rec, at, pause); wait > 0 {
			found.Messages, found.Next = n, rec.QueueOffset
			if n == 0 {
				found.Status = engine.PullOverflowOne
			}
			return body[:from], wait
		}
		from += size
	}
	return body, 0
}

// pauseOf is how long a record of a retry topic is to stay away. One that RocketMQ's
// broker delayed says for which queue, and has waited already.
func pauseOf(rec *engine.Record, at int64, pause time.Duration) time.Duration {
	due, ok := engine.DueTimestamp(rec.Properties, rec.StoreTimestamp)
	if _, waited := rec.Property(propertyRealTopic); !ok || waited {
		return 0
	}
	due = min(due, rec.StoreTimestamp+pause.Milliseconds())
	// A clock that went back keeps nobody longer.
	return min(time.Duration(due-at)*time.Millisecond, pause)
}

// pause takes out of what a pull of a retry topic found what is to stay away, and
// sets until when, if that is all.
func (q *pull) pause(body []byte, found *engine.Pulled) []byte {
	q.due = time.Time{}
	if len(body) == 0 || !strings.HasPrefix(q.topic, RetryPrefix) {
		return body
	}
	now := time.Now()
	body, wait := unripe(body, found, now.UnixMilli(), q.owner.o.RetryPause)
	if len(body) == 0 && wait > 0 {
		q.due = now.Add(wait)
	}
	return body
}
