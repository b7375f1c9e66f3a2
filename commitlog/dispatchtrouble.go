package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// trouble is why records wait to be put into the queues, or nil. It is tried
// again.
func (d *dispatcher) trouble() error {
	if err := d.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// warn logs the first of a row of failures, then one a minute.
func (d *dispatcher) warn(what string, err error) {
	if now := d.log.opts.Now(); now.Sub(d.warnedAt) >= time.Minute {
		d.warnedAt = now
		d.log.logger().Warn(what, "dispatched_offset", d.Offset(), "end_offset", d.log.end.Load(), "error", err)
	}
}

// mended notes the end of a row of failures, with the queues written up to an offset.
func (d *dispatcher) mended(offset int64) {
	if d.failure.Load() != nil {
		d.failure.Store(nil)
		d.warnedAt = time.Time{}
		d.log.logger().Info("consume queues are written again", "dispatched_offset", offset)
	}
}

// failed gives up what waits, and notes why.
func (d *dispatcher) failed(err error) error {
	d.log.queues.drop()
	if e := d.log.queues.commit(); e != nil { // gives the buffers back
		err = errors.Join(err, e)
	}
	d.failure.Store(&err)
	return err
}

// unread judges bytes of the log that could not be read.
func (d *dispatcher) unread(at int64, err error) (more bool, _ error) {
	var bad *CorruptError
	switch {
	case errors.As(err, &bad):
		return false, d.damaged(bad)
	case errors.Is(err, ErrOutOfRange):
		return d.log.MinOffset() > at, nil // the log begins elsewhere meanwhile
	}
	return false, err
}

// halted judges why a record could not be queued; those up to an offset were.
func (d *dispatcher) halted(offset int64, err error) (more bool, _ error) {
	var bad *CorruptError
	var gap *queueGapError
	switch {
	case errors.As(err, &gap):
		return true, d.bridge(gap)
	case errors.As(err, &bad) && bad.Kind != KindQueue:
		d.at = offset
		return false, d.damaged(bad)
	}
	return false, err
}

// describe makes the error for damage at an offset.
func (d *dispatcher) describe(b []byte, at, border int64, kind string, h *Header) *CorruptError {
	e := recordError(b, at, kind, h)
	e.Path = d.log.SegmentPath(at)
	if kind == KindFiller {
		size := int64(int32(binary.BigEndian.Uint32(b)))
		e.Detail = fmt.Sprintf("the filler leads to offset %d, our segment ends at %d; segments have %d bytes here",
			at+size, border, d.log.segmentBytes.Load())
	}
	return e
}

// damaged reports damage once and ends the dispatching, when what lies before it
// is in the queues.
func (d *dispatcher) damaged(bad *CorruptError) error {
	if err := d.publish(); err != nil {
		return err
	}
	d.stuck = true
	d.log.damage(bad)
	return nil
}

// bridge begins again at the log's first record, because a queue lacks records
// before the one that was to be put. Once is enough: a gap that is left then
// is one of the log.
func (d *dispatcher) bridge(gap *queueGapError) error {
	d.log.queues.drop()
	if err := d.log.queues.commit(); err != nil {
		return err
	}
	d.rescanned = true
	d.log.logger().Warn("a consume queue lacks records that the log has, building the queues from the log's first record",
		"topic", gap.id.Topic, "queue", gap.id.ID, "end_index", gap.end, "next_index", gap.index)
	d.at = d.log.MinOffset()
	d.offset.Store(d.at)
	return nil
}
