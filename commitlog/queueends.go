package commitlog

import (
	"fmt"
	"sync/atomic"
)

// hintQueuesMax bounds the queues whose ends the hint lists one by one: it is
// written about once a second.
const hintQueuesMax = 4096

// queueEnds is what the queues held at a moment, for all records below an
// offset of the log.
type queueEnds struct {
	noted bool  // false: nothing is known
	count int64 // queues with units
	units int64 // the sum of their ends
	low   int64 // where the log began: units of records before may go
	list  []queueEnd
}

// queueEnd is the range of a queue's units.
type queueEnd struct {
	id         QueueID
	first, end int64
}

// ends tells what the queues hold of the records below an offset. The list is
// nil if it would be longer than hintQueuesMax. Beside the writer, but not
// beside a truncation.
func (q *queues) ends(low, offset int64) (queueEnds, error) {
	e := queueEnds{noted: true, low: low}
	for _, qu := range q.all() {
		end, err := qu.endBefore(offset)
		if err != nil {
			return e, err
		}
		if end == 0 {
			continue
		}
		e.count++
		e.units += end
		if e.count <= hintQueuesMax {
			e.list = append(e.list, queueEnd{id: qu.id, first: min(qu.first.Load(), end), end: end})
		}
	}
	if e.count > hintQueuesMax {
		e.list = nil
	}
	return e, nil
}

// endBefore is the index behind the last unit of a record before an offset.
func (qu *queue) endBefore(offset int64) (int64, error) {
	// The writer stores them in the other order.
	end := qu.end.Load()
	if qu.maxPhysical.Load() <= offset {
		return end, nil
	}
	return qu.cutOf(offset)
}

// noteQueues puts into a hint what the queues hold below its queued offset, all
// of which is on the disk.
func (k *keeper) noteQueues(h *hint) (err error) {
	low := k.log.MinOffset()
	if k.last.Queues.noted && h.Queued == k.last.Queued && low == k.last.Queues.low {
		h.Queues = k.last.Queues
		return nil
	}
	h.Queues, err = k.log.queues.ends(low, h.Queued)
	return err
}

// cutQueues cuts the queues to the end that was recovered. If they lost units
// of records that they held, all are to be completed from the log's first
// record on, whatever the hint says.
func (l *Log) cutQueues(r *recovery) error {
	q := l.queues
	if r.hint == nil && r.clean {
		return q.truncate(r.end)
	}
	upTo := r.dispatchFrom
	if r.clean {
		upTo = r.end
	}
	before, err := q.ends(l.MinOffset(), upTo)
	if err != nil {
		return err
	}
	// What lies behind may be torn by a crash, and is in the log.
	if err := q.repair(upTo, r.clean); err != nil {
		return err
	}
	if r.hint == nil || len(*l.list.Load()) == 0 {
		return nil
	}
	if noted := r.hint.Queues; noted.noted {
		before = noted
	} else if before.count == 0 && l.MinOffset() < r.dispatchFrom {
		q.incomplete = true
		l.logger().Warn("there is no consume queue; the queues are built from the log's first record", "dir", q.dir)
	}
	if err := l.compareQueues(before, upTo); err != nil {
		return err
	}
	if q.incomplete {
		r.dispatchFrom = l.MinOffset()
	}
	return nil
}

// compareQueues finds, and says once, that queues lack units of records below
// an offset that they are known to have held.
func (l *Log) compareQueues(noted queueEnds, offset int64) error {
	const text = "consume queues lost units that they held; they are completed from the log's first record on"
	q := l.queues
	if noted.list == nil {
		have, err := q.ends(noted.low, offset)
		if err == nil && have.units < noted.units {
			q.incomplete = true
			l.logger().Warn(text, "units", have.units, "noted_units", noted.units)
		}
		return err
	}
	var lacking []queueEnd
	for _, want := range noted.list {
		qu := q.lookup(want.id)
		if qu == nil || qu.end.Load() < want.end {
			lacking = append(lacking, want)
			continue
		}
		if start, _ := qu.start(); start > want.first && noted.low == l.MinOffset() {
			// Nothing is put before a queue's first file.
			if err := qu.reset(); err != nil {
				return err
			}
			lacking = append(lacking, want)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	q.incomplete = true
	first, end := lacking[0], int64(0)
	if qu := q.lookup(first.id); qu != nil {
		end = qu.end.Load()
	}
	l.logger().Warn(text, "topic", first.id.Topic, "queue", first.id.ID,
		"end_index", end, "noted_end_index", first.end, "queues", len(lacking))
	return nil
}

// reset removes a queue's files, so that it begins anywhere. The writer's alone.
func (qu *queue) reset() error {
	qu.mu.Lock()
	defer qu.mu.Unlock()
	for _, v := range []*atomic.Int64{&qu.first, &qu.end, &qu.assigned, &qu.maxPhysical} {
		v.Store(0)
	}
	for len(qu.files) > 0 {
		if err := qu.removeLocked(len(qu.files) - 1); err != nil {
			return err
		}
	}
	return nil
}

// reach gives each queue the end that was noted of it where the log, too, no
// longer has the records: their offsets are not given out again. The writer's
// alone.
func (q *queues) reach(noted []queueEnd) error {
	for _, want := range noted {
		qu, err := q.queue([]byte(want.id.Topic), want.id.ID)
		if err != nil {
			return fmt.Errorf("%s: %w", hintName, err)
		}
		if qu.end.Load() >= want.end {
			continue
		}
		if _, empty := qu.start(); !empty {
			if err := qu.fillTo(want.end); err != nil {
				return err
			}
			continue
		}
		perFile := q.fileBytes / queueUnitBytes
		if err := qu.writeBlanks((want.end-1)/perFile*perFile, want.end); err != nil {
			return err
		}
		qu.first.Store(want.end)
		qu.end.Store(want.end)
		qu.raise(want.end)
	}
	return nil
}
