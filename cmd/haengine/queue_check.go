package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/haengine/haengine/commitlog"
)

// queueCheck compares the consume queues with the log while the log is walked:
// each record that belongs in a queue must stand in its place there, and each
// unit of a queue must point at such a record.
//
// A store that was not shut down cleanly, or is in use, may have queues that
// are behind the log, or ahead of its end: whoever opens it puts that right,
// so it is a note and no problem.
type queueCheck struct {
	log      *commitlog.Log
	answer   *verifyAnswer
	standing *standing
	clean    bool
	queues   map[commitlog.QueueID]*queueWalk
	behind   int64 // records that the queues of an unclean store do not hold yet
	beyond   int64 // units that point past the end of an unclean store's log
}

// queueWalk is how far one queue has been matched.
type queueWalk struct {
	min, max int64 // indices that the queue holds
	next     int64 // the lowest index that no record has claimed; -1: none has
	window   []commitlog.QueueEntry
	at       int64 // index of window[0]
}

const queueWindow = 4096 // units read at once

func newQueueCheck(l *commitlog.Log, v *verifyAnswer, s *standing) *queueCheck {
	q := &queueCheck{log: l, answer: v, standing: s, clean: l.Info().CleanShutdown, queues: map[commitlog.QueueID]*queueWalk{}}
	for _, id := range l.Queues() {
		if strings.HasPrefix(id.Topic, "%LMQ%") {
			continue // light queues share records with the queues of their topic
		}
		if from, to, ok := l.QueueBounds(id); ok {
			q.queues[id] = &queueWalk{min: from, max: to, next: -1}
		}
	}
	v.Queues = len(q.queues)
	return q
}

func queueName(id commitlog.QueueID) string { return fmt.Sprintf("%s/%d", printable(id.Topic), id.ID) }

// record checks that a record stands in its queue.
func (q *queueCheck) record(r *commitlog.Record) {
	if !r.Queued() || r.SysFlag&commitlog.FlagInnerBatch != 0 {
		return
	}
	id := commitlog.QueueID{Topic: r.Topic, ID: r.QueueID}
	walk := q.queues[id]
	if walk == nil {
		walk = &queueWalk{next: -1}
		q.queues[id] = walk
	}
	i := r.QueueOffset
	switch {
	case i >= walk.max && !q.clean:
		q.behind++
		return
	case (i < walk.min || i >= walk.max) && q.standing.gone(r.PhysicalOffset):
		return
	case i < walk.min || i >= walk.max:
		q.answer.found(r.PhysicalOffset, "missing in queue", "record is number %d of queue %s, which holds %d to %d", i, queueName(id), walk.min, walk.max)
		return
	case walk.next >= 0 && i < walk.next:
		q.answer.found(r.PhysicalOffset, "queue offset used twice", "record is number %d of queue %s, and so is an earlier one", i, queueName(id))
		return
	}
	if walk.next >= 0 {
		q.orphans(id, walk, walk.next, i)
	} else {
		q.leading(id, walk, i)
	}
	walk.next = i + 1
	e, err := q.unit(id, walk, i)
	if err != nil && q.standing.gone(r.PhysicalOffset) {
		return
	}
	if err != nil {
		q.answer.found(r.PhysicalOffset, "unreadable queue", "unit %d of queue %s: %v", i, queueName(id), err)
		return
	}
	if e.Offset != r.PhysicalOffset || e.Size != r.Size {
		q.answer.found(r.PhysicalOffset, "wrong queue unit", "unit %d of queue %s points at %d bytes from %d, the record is %d bytes from %d", i, queueName(id), e.Size, e.Offset, r.Size, r.PhysicalOffset)
	} else if why := wrongTagsCode(r, e.TagsCode); why != "" {
		q.answer.found(r.PhysicalOffset, "wrong tags code", "unit %d of queue %s has tags code %d, %s", i, queueName(id), e.TagsCode, why)
	}
}

// scheduleTopic holds delayed messages, whose tags code is when they are due.
const scheduleTopic = "SCHEDULE_TOPIC_XXXX"

// wrongTagsCode says what a unit's tags code should be; empty if it is right.
// A message's due time depends on the broker's levels, so that of a delayed one
// is only looked at for sense.
func wrongTagsCode(r *commitlog.Record, code int64) string {
	if _, delayed := r.Property("DELAY"); delayed && r.Topic == scheduleTopic {
		if code < r.StoreTimestamp {
			return fmt.Sprintf("due before it was stored at %d", r.StoreTimestamp)
		}
		return ""
	}
	if code < math.MinInt32 {
		return "" // an address in RocketMQ's consumequeue_ext (ConsumeQueueExt.isExtAddr)
	}
	tags, _ := r.Property("TAGS")
	if want := javaHash(javaText([]byte(tags))); code != want {
		return fmt.Sprintf("its tags %q give %d", tags, want)
	}
	return ""
}

// unit reads a unit through a window, since records of a queue come in order.
func (q *queueCheck) unit(id commitlog.QueueID, walk *queueWalk, i int64) (commitlog.QueueEntry, error) {
	if i < walk.at || i >= walk.at+int64(len(walk.window)) {
		buf := walk.window[:cap(walk.window)]
		if len(buf) == 0 {
			buf = make([]commitlog.QueueEntry, min(queueWindow, walk.max-walk.min))
		}
		n, err := q.log.ReadQueue(id, i, buf)
		walk.window, walk.at = buf[:n], i
		if n == 0 {
			if err == nil {
				err = commitlog.ErrOutOfRange
			}
			return commitlog.QueueEntry{}, err
		}
	}
	return walk.window[i-walk.at], nil
}

// leading looks at the units before the first that a record claimed: they may
// only be of records that retention has removed, or blank.
func (q *queueCheck) leading(id commitlog.QueueID, walk *queueWalk, to int64) {
	for i := walk.min; i < to; i++ {
		e, err := q.unit(id, walk, i)
		if err == nil && e.Offset >= q.answer.MinOffset && e.Size != blankUnitSize {
			q.orphan(id, i, e)
		}
	}
}

// blankUnitSize is the size in the units that RocketMQ fills a queue with that
// does not begin at 0 (ConsumeQueue.fillPreBlank).
const blankUnitSize = 0x7FFFFFFF

func (q *queueCheck) orphans(id commitlog.QueueID, walk *queueWalk, from, to int64) {
	for i := from; i < to; i++ {
		e, err := q.unit(id, walk, i)
		if err != nil && q.standing.gone(q.answer.MinOffset) {
			continue // its file may have gone with the segments
		}
		if err != nil {
			q.answer.found(-1, "unreadable queue", "unit %d of queue %s: %v", i, queueName(id), err)
			return
		}
		q.orphan(id, i, e)
	}
}

func (q *queueCheck) orphan(id commitlog.QueueID, i int64, e commitlog.QueueEntry) {
	if !q.clean && e.Offset+int64(e.Size) > q.answer.MaxOffset {
		q.beyond++
		return
	}
	if len(q.answer.Problems) < problemsListed && q.standing.gone(e.Offset) {
		return
	}
	q.answer.found(e.Offset, "queue unit without a record", "unit %d of queue %s points at %d bytes from %d, where no record of it begins", i, queueName(id), e.Size, e.Offset)
}

// end looks at the units behind the last that a record claimed.
func (q *queueCheck) end() {
	for id, walk := range q.queues {
		if walk.next < 0 {
			q.leading(id, walk, walk.max)
		} else {
			q.orphans(id, walk, walk.next, walk.max)
		}
	}
	if q.behind > 0 {
		q.answer.Notes = append(q.answer.Notes, fmt.Sprintf("the queues do not hold the last %s yet; the store was not shut down cleanly or is in use, opening it adds them", plural(q.behind, "record")))
	}
	if q.beyond > 0 {
		q.answer.Notes = append(q.answer.Notes, fmt.Sprintf("%s of the queues point past the log's end; the store was not shut down cleanly, opening it removes them", plural(q.beyond, "unit")))
	}
}
