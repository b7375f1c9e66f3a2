package commitlog

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// scheduleTopic holds delayed messages: their tags code is the time at which
// they are due.
const scheduleTopic = "SCHEDULE_TOPIC_XXXX"

// delays are the levels of delayed messages from 1 on (messageDelayLevel).
var delays = [...]time.Duration{
	1 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
	6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, 1 * time.Hour, 2 * time.Hour,
}

// enqueue puts a record into its queue, if it belongs into one.
func (d *dispatcher) enqueue(record []byte, h *Header) error {
	d.timestamp.Store(h.StoreTimestamp)
	if !queued(h.SysFlag) {
		return nil
	}
	properties := viewString(h.Properties(record))
	if h.SysFlag&FlagInnerBatch != 0 {
		d.uncov.Store(true)
		return nil
	}
	if strings.Contains(properties, propertyMultiDispatch) {
		if _, ok := findProperty(properties, propertyMultiDispatch); ok {
			d.uncov.Store(true)
		}
	}
	topic := h.Topic(record)
	qu, err := d.log.queues.queue(topic, h.QueueID)
	if errors.Is(err, ErrMessageIllegal) {
		d.uncov.Store(true)
		return nil
	} else if err != nil {
		return err
	}
	e := QueueEntry{Offset: h.PhysicalOffset, Size: h.Size, TagsCode: tagsCode(properties)}
	if string(topic) == scheduleTopic {
		if due, ok := dueTimestamp(properties, h.StoreTimestamp); ok {
			e.TagsCode = due
		}
	}
	if d.opening && !d.rescanned && h.QueueOffset > 0 && qu.begins() {
		return &queueGapError{id: qu.id, index: h.QueueOffset}
	}
	if err := qu.put(h.QueueOffset, e); err != nil {
		var gap *queueGapError
		if !errors.As(err, &gap) || !d.rescanned {
			return err
		}
		d.log.logger().Warn("records of a consume queue are not in the log, their units stay empty",
			"topic", gap.id.Topic, "queue", gap.id.ID, "from_index", gap.end, "to_index", gap.index)
		if err := qu.fillTo(gap.index); err != nil {
			return err
		}
		if err := qu.put(h.QueueOffset, e); err != nil {
			return err
		}
	}
	return nil
}

// viewString reads bytes as text without a copy. They must not change while
// the text is in use.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// delayLevel gives a message's delay level as it was asked for.
func delayLevel(properties string) (int64, bool) {
	text, ok := findProperty(properties, propertyDelay)
	if !ok {
		return 0, false
	}
	level, err := strconv.ParseInt(text, 10, 32)
	return level, err == nil
}

// dueTimestamp gives the time in milliseconds at which a delayed message is
// due (ScheduleMessageService.computeDeliverTimestamp); a level above the
// highest is the highest.
func dueTimestamp(properties string, storeTimestamp int64) (int64, bool) {
	level, ok := delayLevel(properties)
	if !ok || level <= 0 {
		return 0, false
	}
	delay := delays[min(level, int64(len(delays)))-1]
	return storeTimestamp + delay.Milliseconds(), true
}
