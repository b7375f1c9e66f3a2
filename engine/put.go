package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// Put appends a message and waits as the role, the flush mode and the message's
// own WAIT property ask (RocketMQ CommitLog.asyncPutMessage).
//
// The error is nil for PUT_OK and a *PutError for everything else, so a caller
// that only looks at the error never takes an unconfirmed record for a
// confirmed one. If ctx ends first, the record may be in the log already: the
// status is then FLUSH_SLAVE_TIMEOUT or FLUSH_DISK_TIMEOUT, the error wraps
// ctx's. A put that finds its ring full waits for room. m is not kept.
func (e *Engine) Put(ctx context.Context, m *Message) (PutResult, error) {
	return e.put(ctx, nil, m, nil)
}

// PutBatch appends messages of one topic and queue as consecutive records of
// one segment, and waits for the last (RocketMQ asyncPutMessages). All are
// appended or none is. See Put.
func (e *Engine) PutBatch(ctx context.Context, batch []*Message) (PutResult, error) {
	return e.put(ctx, nil, nil, batch)
}

// put waits as own says, or, if that is nil, the settings.
func (e *Engine) put(ctx context.Context, own *Waits, m *Message, batch []*Message) (PutResult, error) {
	f := e.newFuture()
	f.own = own
	if err := e.start(ctx, f, m, batch, true); err != nil {
		return e.refuse(f, err)
	}
	return f.end(f.wait(ctx))
}

// PutAsync appends a message and returns a Future of its waits. It does not
// block for replicas or disk; a full ring is refused with ErrRingFull.
// The error is a *PutError: nothing was written.
func (e *Engine) PutAsync(m *Message) (*Future, error) {
	f := e.newFuture()
	if err := e.start(context.Background(), f, m, nil, false); err != nil {
		_, err = e.refuse(f, err)
		return nil, err
	}
	return f, nil
}

// PutFunc is PutAsync that calls back when the put has ended. It costs a
// goroutine for each put; Completions does not.
func (e *Engine) PutFunc(m *Message, done func(PutResult, error)) error {
	f, err := e.PutAsync(m)
	if err != nil {
		return err
	}
	go func() { done(f.Wait(context.Background())) }()
	return nil
}

// Future is a put that was appended and may still wait for replicas or disk.
// It belongs to the caller of PutAsync, who calls Wait once; it is reused
// afterwards and must not be touched again.
type Future struct {
	e       *Engine
	lease   *lease        // that the put began in
	started time.Duration // 0: not yet
	result  PutResult

	flush, replica wait
	noReplica      bool   // a replica wait was asked for, and no replica can give it
	own            *Waits // in place of the settings'; nil: those
	// waits counts what must still happen before the put has ended: the append
	// itself, and each wait in a ring. A put that waits in none has no count.
	waits atomic.Int32
	ended bool          // set before the future is handed out
	done  chan struct{} // capacity 1: told once, if somebody else brings waits to 0
	queue *Completions  // instead of done, when not nil
	tag   uint64
	next  *Future // of queue's spare ones
}

// wait is one of a put's two waits.
type wait struct {
	ring     *transfer.Ring // nil: not waited for
	deadline time.Duration
	ticket   transfer.Ticket
	outcome  transfer.Outcome // written before waits is lowered
}

func (w *wait) push(f *Future, end int64) {
	if w.ring != nil {
		w.ticket = w.ring.Push(f, end, w.deadline)
	}
}

func (w *wait) count() int32 {
	if w.ring == nil {
		return 0
	}
	return 1
}

func (e *Engine) newFuture() *Future {
	return e.futures.Get().(*Future)
}

// begin notes that the put has begun, before it waits for something.
func (f *Future) begin() {
	if f.started == 0 {
		f.started = reactor.Now()
	}
}

// free gives a future back when nobody else can reach it.
func (e *Engine) free(f *Future) {
	f.clear()
	e.futures.Put(f)
}

func (f *Future) clear() {
	f.own, f.started, f.ended = nil, 0, false
	f.flush, f.replica, f.noReplica, f.queue, f.lease, f.result = wait{}, wait{}, false, nil, nil, PutResult{}
}

// Sequenced takes the put's tickets inside the append section, so that ring
// order is offset order. It implements commitlog.Sequencer.
func (f *Future) Sequenced(end int64) {
	f.replica.push(f, end)
	f.flush.push(f, end)
}

// Completed takes the outcome of one wait from the completion pass. It
// implements transfer.Waiter.
func (f *Future) Completed(ring *transfer.Ring, o transfer.Outcome) {
	if ring == f.flush.ring {
		f.flush.outcome = o
	} else {
		f.replica.outcome = o
	}
	f.finishOne()
}

func (f *Future) finishOne() {
	if f.waits.Add(-1) != 0 {
		return
	}
	if f.queue != nil {
		f.queue.finished.Push(f) // has room: the put reserved its place
		return
	}
	f.done <- struct{}{}
}

// finishAppend is finishOne by the producer, who needs no channel to know.
func (f *Future) finishAppend() {
	if f.inRings() && f.waits.Add(-1) != 0 {
		return
	}
	if f.queue != nil {
		f.queue.finished.Push(f)
		return
	}
	f.ended = true
}

func (f *Future) inRings() bool { return f.replica.ring != nil || f.flush.ring != nil }

// start takes a put up to the end of its append. An error means that nothing
// was written and nothing waits.
func (e *Engine) start(ctx context.Context, f *Future, m *Message, batch []*Message, mayBlock bool) error {
	if !e.tryEnter() {
		f.begin()
		if err := e.enter(ctx); err != nil {
			return err
		}
	}
	defer e.leave()
	f.lease = e.lease.Load()
	if err := e.mayPut(f.lease); err != nil {
		return err
	}
	enc, first, err := e.encode(m, batch)
	if err != nil {
		return err
	}
	defer enc.Release()
	if f.started == 0 {
		f.started = e.logBegan + enc.At() // a clock costs as much as a copy of the message
	}
	f.result.Messages = int32(max(len(batch), 1))
	return e.appendEncoded(ctx, f, enc, first.WaitStore(), mayBlock)
}

// appendEncoded takes room in the rings and appends.
func (e *Engine) appendEncoded(ctx context.Context, f *Future, enc commitlog.Encoded, waitStore, mayBlock bool) error {
	if err := e.chooseWaits(f, waitStore); err != nil {
		return err
	}
	waited, err := e.reserve(ctx, f, mayBlock)
	if err != nil {
		return err
	}
	if waited {
		e.log.Restamp(&enc)
		if !f.lease.lasts() {
			cancel(f.replica.ring)
			cancel(f.flush.ring)
			return f.lease.why()
		}
	}
	if f.inRings() {
		f.waits.Store(1 + f.replica.count() + f.flush.count())
	}
	a, err := e.log.Append(enc, f)
	if err != nil {
		cancel(f.replica.ring)
		cancel(f.flush.ring)
		return err
	}
	// One by one: a literal is built beside it and copied.
	r := &f.result
	r.Offset, r.EndOffset = a.Offset, a.EndOffset
	r.QueueOffset, r.StoreTimestamp = a.QueueOffset, a.StoreTimestamp
	e.appended(f)
	return nil
}

// encode encodes the message, or the batch if m is nil. It returns the message
// that speaks for all.
func (e *Engine) encode(m *Message, batch []*Message) (commitlog.Encoded, *Message, error) {
	if m != nil {
		enc, err := e.log.Encode(m)
		return enc, m, err
	}
	if len(batch) == 0 || slices.Contains(batch, nil) {
		return commitlog.Encoded{}, nil, fmt.Errorf("%w: no message, or a nil one", commitlog.ErrMessageIllegal)
	}
	enc, err := e.log.EncodeBatch(batch)
	return enc, batch[0], err
}

// appended sets going what the put waits for.
func (e *Engine) appended(f *Future) {
	if f.flush.ring != nil {
		e.log.RequestFlush(f.result.EndOffset)
	}
	e.wakeSenders(f.replica.ring != nil)
	if f.inRings() {
		e.expiry.arm()
	} else {
		e.progress.wake()
	}
	f.finishAppend()
}

// chooseWaits says which rings the put waits in and until when.
func (e *Engine) chooseWaits(f *Future, waitStore bool) error {
	if !waitStore {
		return nil
	}
	w := f.own
	if w == nil {
		settings := e.waits()
		w = &settings
	}
	if e.Role() == SyncMaster || w.Copies > 1 {
		inSync := e.quorum.InSync(e.log.EndOffset(), e.opts.MaxLag)
		if 1+inSync < int(e.minInSync.Load()) {
			return ErrNotEnoughInSync
		}
		if w.Copies > 1 {
			kind := w.Ack.kind()
			if inSync == 0 || !e.quorum.CanGive(kind) {
				f.noReplica = true
			} else {
				ring, err := e.rings.forReplicas(kind, w.Copies-1)
				if err != nil {
					return err
				}
				f.replica.ring = ring
				f.replica.deadline = f.started + cmp.Or(w.Timeout, time.Duration(e.slaveTimeout.Load()))
			}
		}
	}
	if w.Flush {
		f.flush.ring = e.rings.flush
		f.flush.deadline = f.started + cmp.Or(w.Timeout, time.Duration(e.flushTimeout.Load()))
	}
	return nil
}

// reserve takes room in the put's rings before the append, and tells whether it waited.
func (e *Engine) reserve(ctx context.Context, f *Future, mayBlock bool) (waited bool, err error) {
	waited, err = e.reserveIn(ctx, f.replica.ring, mayBlock)
	if err != nil {
		return waited, err
	}
	again, err := e.reserveIn(ctx, f.flush.ring, mayBlock)
	if err != nil {
		cancel(f.replica.ring)
	}
	return waited || again, err
}

func (e *Engine) reserveIn(ctx context.Context, ring *transfer.Ring, mayBlock bool) (waited bool, err error) {
	if ring == nil || ring.Reserve() {
		return false, nil
	}
	err = ErrRingFull
	if mayBlock {
		if err = ring.ReserveWait(ctx); err == nil {
			return true, nil
		}
		err = fmt.Errorf("%w: %w", ErrRingFull, err)
	}
	// A closed ring refuses for the reason that it was closed for.
	if werr := e.log.Writable(); werr != nil {
		return false, werr
	}
	if e.closed.Load() {
		return false, ErrClosed
	}
	return false, err
}

func cancel(ring *transfer.Ring) {
	if ring != nil {
		ring.Cancel()
	}
}

// Wait waits for the put's end; see Put for the error. If ctx ends first the
// waits are given up. Call it once.
func (f *Future) Wait(ctx context.Context) (PutResult, error) { return f.end(f.wait(ctx)) }

// wait returns ctx's error if the put was given up for it.
func (f *Future) wait(ctx context.Context) error {
	if f.ended {
		return nil
	}
	select {
	case <-f.done:
		return nil
	default:
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		f.abandon(&f.replica)
		f.abandon(&f.flush)
		<-f.done // at once: what was not given up is being completed
		return ctx.Err()
	}
}

func (f *Future) end(cause error) (PutResult, error) {
	err := f.settle(cause, f.e.measuredNow())
	r := f.result
	f.e.free(f)
	return r, err
}

// measuredNow reads the clock if somebody measures.
func (e *Engine) measuredNow() time.Duration {
	if !e.measured {
		return 0
	}
	return reactor.Now()
}

func (f *Future) abandon(w *wait) {
	if w.ring != nil && w.ring.Abandon(w.ticket) {
		w.outcome = transfer.Abandoned
		f.finishOne()
	}
}

// settle turns the outcomes into the result's status: if both waits failed the
// replicas' wins, as in RocketMQ. now is measuredNow.
func (f *Future) settle(cause error, now time.Duration) error {
	e, r := f.e, &f.result
	var err error
	if f.flush.ring != nil && f.flush.outcome != transfer.Done {
		r.Status, err = PutFlushDiskTimeout, ErrNotFlushed
		if werr := e.log.Writable(); werr != nil {
			err = werr
		}
	}
	switch {
	case f.noReplica:
		r.Status, err = PutSlaveNotAvailable, ErrNoReplica
	case !f.lease.lasts(): // asked last: what the waits said was so before
		r.Status, err = PutFlushSlaveTimeout, f.lease.why()
	case f.replica.ring != nil && f.replica.outcome != transfer.Done:
		r.Status, err = PutFlushSlaveTimeout, ErrNotReplicated
	}
	if e.measured {
		e.opts.Metrics.Put(r.Status, now-f.started)
	}
	if err == nil {
		return nil
	}
	if cause != nil {
		err = cause
	}
	return &PutError{Status: r.Status, Offset: r.Offset, Err: err}
}

// refuse ends a put before its append.
func (e *Engine) refuse(f *Future, cause error) (PutResult, error) {
	r := refused(refusalOf(cause))
	f.begin()
	e.opts.Metrics.Put(r.Status, reactor.Now()-f.started)
	e.free(f)
	return r, &PutError{Status: r.Status, Offset: -1, Err: cause}
}
