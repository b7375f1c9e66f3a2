package commitlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
)

const (
	// dispatchChunkBytes is how much of the log is copied and looked at in one
	// step: it fits a core's cache. A larger record gets a larger buffer.
	dispatchChunkBytes = 128 << 10

	// dispatchBufferBytes is what the buffer may keep while nothing comes.
	dispatchBufferBytes = 1 << 20

	// dispatchCommitBytes is how much of the log has its units written to the
	// queues together, while there is more: a write costs as much for a few as
	// for a hundred.
	dispatchCommitBytes = 1 << 20

	// dispatchPause is the least time from the end of one pass to the next
	// while records keep coming, as in RocketMQ's ReputMessageService: without
	// it each put of a single producer would wake a second thread. The first
	// record after a silence is dispatched at once.
	dispatchPause = time.Millisecond

	// dispatchRetry is the time between tries to write to the queues.
	dispatchRetry = time.Second

	// dispatchBulkRate is how many bytes a second come at least when a master sends
	// as fast as it can.
	dispatchBulkRate = 1 << 30

	// dispatchBehindBytes is how far a replica's dispatcher falls behind meanwhile,
	// half a second at most: so much more is looked at after a crash.
	dispatchBehindBytes = 512 << 20
)

// dispatcher follows the end of the log and puts each complete record into its
// consume queue, on a master and on a replica alike. On a replica it is also
// the one who looks at what was received: structure, position and checksum of
// every record. It stops for good at the first damage. While records come in bulk,
// a replica receives first and looks later: see mayWait.
//
// Invariant: every record below Offset is in its queue, committed; Offset is a
// record's border. RocketMQ ReputMessageService.
type dispatcher struct {
	log *Log

	_      cpu.CacheLinePad
	asleep atomic.Bool // the goroutine waits to be woken; appenders load it for each record
	_      cpu.CacheLinePad

	needed    atomic.Int64 // somebody waits for the records below
	offset    atomic.Int64 // stored by the dispatching goroutine, as all atomics below
	seen      atomic.Int64 // the end of the log at the last look
	resting   atomic.Bool  // nothing more comes of what was seen
	uncov     atomic.Bool
	timestamp atomic.Int64 // store time of the last record looked at, ms
	failure   atomic.Pointer[error]

	woken   chan struct{} // capacity 1
	hurried chan struct{} // capacity 1
	stopped chan struct{}
	done    chan struct{} // nil while the goroutine does not run

	watch struct { // for moved
		sync.Mutex
		changed chan struct{} // nil: nobody waits
	}

	// The dispatching goroutine's alone.
	buf       []byte
	at        int64 // records below it are in their queues, or wait to be written there
	stuck     bool  // damage was met
	opening   bool  // catchUp runs: a queue that is not there may have been lost
	rescanned bool  // from the first byte, because a queue had a gap
	warnedAt  time.Time
}

// newDispatcher makes a dispatcher that begins at a record's border.
func newDispatcher(l *Log, from int64) *dispatcher {
	d := &dispatcher{log: l, woken: make(chan struct{}, 1), hurried: make(chan struct{}, 1)}
	d.offset.Store(from)
	d.seen.Store(from)
	return d
}

// start begins to follow the log on a goroutine of its own.
func (d *dispatcher) start() {
	if d.log.opts.Manual {
		return // Log.Work does it
	}
	d.stopped, d.done = make(chan struct{}), make(chan struct{})
	go d.run()
}

// stop ends it after what it commits together. It may be started again. One caller.
func (d *dispatcher) stop() {
	if d.done == nil {
		return
	}
	close(d.stopped)
	<-d.done
	d.done = nil
	d.asleep.Store(false)
}

// restart makes the dispatcher go on from another record's border, after the
// log was cut there or was given its beginning. A dispatcher that was started
// is running again on return.
func (d *dispatcher) restart(offset int64) {
	running := d.done != nil
	d.stop()
	d.offset.Store(offset)
	d.seen.Store(offset)
	d.needed.Store(0)
	d.resting.Store(false)
	d.stuck = false
	if running {
		d.start()
	}
}

// Offset is the offset through which every record is in its queue.
func (d *dispatcher) Offset() int64 { return d.offset.Load() }

// uncovered says that the log has records that RocketMQ would put into queues
// which we do not keep: inner batches, light queues, topics that cannot be a
// directory.
func (d *dispatcher) uncovered() bool { return d.uncov.Load() }

// idle says that all of the log was looked at, and what is not dispatched is
// an incomplete record or damage.
func (d *dispatcher) idle() bool {
	// In this order: a pass stops resting before it looks at the end, and rests
	// again when it is through. The other way round, rest before a pass and the
	// end seen by it would be taken for rest after it.
	return d.seen.Load() == d.log.end.Load() && d.resting.Load()
}

// wake says that the log has grown. Any goroutine; free while the dispatcher
// is at work.
func (d *dispatcher) wake() {
	if d.asleep.Load() && d.asleep.CompareAndSwap(true, false) {
		signal(d.woken)
	}
}

// hurry says that somebody waits for the records that are there, so that the
// pause between passes is left out and nothing is put off.
func (d *dispatcher) hurry() {
	raise(&d.needed, d.log.end.Load())
	d.wake()
	signal(d.hurried)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// moved gives a channel that is closed when Offset or idle changes next.
func (d *dispatcher) moved() <-chan struct{} {
	d.watch.Lock()
	defer d.watch.Unlock()
	if d.watch.changed == nil {
		d.watch.changed = make(chan struct{})
	}
	return d.watch.changed
}

func (d *dispatcher) announce() {
	d.watch.Lock()
	defer d.watch.Unlock()
	if d.watch.changed != nil {
		close(d.watch.changed)
		d.watch.changed = nil
	}
}

// run dispatches until it is stopped.
func (d *dispatcher) run() {
	defer close(d.done)
	d.resting.Store(false)
	pause := time.NewTimer(0)
	defer pause.Stop()
	since, last := d.log.opts.Monotonic(), d.log.end.Load()
	for !taken(d.stopped) {
		now, end := d.log.opts.Monotonic(), d.log.end.Load()
		bulk := end > last && float64(end-last) >= dispatchBulkRate*now.Sub(since).Seconds()
		since, last = now, end
		wait := d.turn(bulk)
		if wait == 0 {
			if !d.sleep() {
				return
			}
			continue
		}
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-d.hurried:
		case <-d.stopped:
		}
	}
}

// turn dispatches what there is, in bulk only what may not wait, and says how long
// to pause then; 0: there was nothing.
func (d *dispatcher) turn(bulk bool) time.Duration {
	before := d.offset.Load()
	for more := true; more; {
		if bulk && d.mayWait() {
			return dispatchPause
		}
		var err error
		if more, err = d.some(); err != nil {
			d.warn("consume queues cannot be written, trying again", err)
			return dispatchRetry
		}
		more = more && !taken(d.stopped)
	}
	if d.offset.Load() == before {
		return 0
	}
	return dispatchPause
}

// mayWait tells whether records that come in bulk are left for later: on a replica,
// which has better to do, while nobody waits for them and they are not too many. On few
// cores the stream would stand still while they are looked at.
func (d *dispatcher) mayWait() bool {
	at, awaited := d.offset.Load(), d.log.opts.Awaited
	return d.log.replica.Load() && at >= d.needed.Load() && d.log.end.Load()-at < dispatchBehindBytes &&
		d.failure.Load() == nil && (awaited == nil || !awaited())
}

// sleep waits until the log has grown; false when it is to stop.
func (d *dispatcher) sleep() bool {
	if cap(d.buf) > dispatchBufferBytes {
		d.buf = nil
	}
	d.asleep.Store(true)
	if d.log.end.Load() != d.seen.Load() { // grown before asleep was set
		d.asleep.Store(false)
		return true
	}
	d.resting.Store(true)
	d.announce()
	defer d.resting.Store(false)
	select {
	case <-d.woken:
		d.asleep.Store(false)
		return true
	case <-d.stopped:
		return false
	}
}

// catchUp dispatches what the log holds, on the caller's goroutine: before
// start, or after stop. Damage is not an error here (Log.Writable tells it), a
// queue that cannot be written is.
func (d *dispatcher) catchUp() error {
	if d.log.queues.incomplete {
		d.offset.Store(d.log.MinOffset())
		d.log.queues.incomplete, d.rescanned = false, true
	}
	d.opening = d.offset.Load() > d.log.MinOffset()
	err := d.pass()
	d.opening = false
	d.resting.Store(err == nil)
	return err
}

// work is a pass of a dispatcher without a goroutine.
func (d *dispatcher) work() {
	d.resting.Store(false)
	if err := d.pass(); err != nil {
		d.warn("consume queues cannot be written, trying again", err)
		return
	}
	d.resting.Store(true)
	d.announce()
}

// pass dispatches all complete records. After an error the records from Offset
// on wait for the next pass.
func (d *dispatcher) pass() error {
	for {
		if more, err := d.some(); err != nil || !more {
			return err
		}
	}
}

// some dispatches as many records as are committed together. more says that there
// may be others.
func (d *dispatcher) some() (more bool, err error) {
	d.at = d.offset.Load()
	for more = true; more; {
		if more, err = d.step(); err != nil {
			return false, d.failed(err)
		}
		// What was there at the last look is not kept back for what came since.
		if d.at >= d.seen.Load() || d.at-d.offset.Load() >= dispatchCommitBytes {
			break
		}
	}
	if err := d.publish(); err != nil {
		return false, d.failed(err)
	}
	return more, nil
}

// step puts the records in one copied piece of the log into their queues' buffers.
// more says that there may be others.
func (d *dispatcher) step() (more bool, err error) {
	l := d.log
	end, at := l.end.Load(), d.at
	d.seen.Store(end)
	if low := l.MinOffset(); at < low {
		at = low // retention was faster, or the log begins there
		d.at = low
	}
	if at >= end || d.stuck {
		return false, nil
	}
	if d.buf == nil {
		d.buf = make([]byte, dispatchChunkBytes)
	}
	size := l.segmentBytes.Load()
	border := at - at%size + size
	b := d.buf[:min(int64(len(d.buf)), min(end, border)-at)]
	n, err := l.copyRange(b, at)
	if err == nil && n < len(b) {
		err = fmt.Errorf("read of the log at offset %d gave %d bytes of %d", at, n, len(b))
	}
	if err != nil {
		return d.unread(at, err)
	}
	done, need, err := d.dispatch(b, at, border)
	if err != nil {
		return d.halted(at+done, err)
	}
	d.at = at + done
	if done > 0 || at+need > end {
		return done > 0, nil
	}
	if err := d.makeRoom(at, need); err != nil {
		return d.halted(at, err)
	}
	return true, nil
}

// makeRoom gets a buffer for a large record. A size beyond what RocketMQ writes
// is believed only if the lengths inside the record agree.
func (d *dispatcher) makeRoom(at, need int64) error {
	if need <= int64(len(d.buf)) {
		return nil
	}
	if need > readUnchecked {
		err := lengthsAddUp(need, func(b []byte, from int64) error { return d.log.readRange(b, at+from) })
		var bad *CorruptError
		if errors.As(err, &bad) && bad.Kind == KindLengths {
			bad.Path, bad.Offset = d.log.SegmentPath(at), at
		}
		if err != nil {
			return err
		}
	}
	d.buf = make([]byte, need)
	return nil
}

// dispatch puts the records in b, which stands at an offset of the log, into
// their queues. It stops at the first that is not all there and says how many
// bytes that one needs.
func (d *dispatcher) dispatch(b []byte, at, border int64) (done, need int64, err error) {
	for {
		rest, here := b[done:], at+done
		size, kind := framedSize(rest, border-here)
		if kind == "" && size > int64(len(rest)) {
			return done, size, nil
		}
		var h Header
		if kind == "" {
			kind = h.check(rest[:size], here, d.log.replica.Load())
		}
		if kind != "" {
			return done, 0, d.describe(rest, here, border, kind, &h)
		}
		if h.Magic != MagicBlank {
			if err := d.enqueue(rest[:size], &h); err != nil {
				return done, 0, err
			}
		}
		done += size
		if d.log.queues.full() {
			d.at = here + size
			if err := d.publish(); err != nil {
				return done, 0, err
			}
		}
		if done == int64(len(b)) {
			return done, fillerHeaderBytes, nil
		}
	}
}

// publish commits the queues and moves Offset to what they hold then.
func (d *dispatcher) publish() error {
	offset := d.at
	if offset == d.offset.Load() {
		d.mended(offset)
		return nil
	}
	if err := d.log.queues.commit(); err != nil {
		return err
	}
	d.mended(offset)
	d.offset.Store(offset)
	d.log.sawTimestamp(d.timestamp.Load())
	d.announce()
	if f := d.log.opts.OnDispatched; f != nil {
		f(offset)
	}
	return nil
}
