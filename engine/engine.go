package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
	"golang.org/x/sys/cpu"
)

// The log's own types, under this package's name for those who embed it.
type (
	// Message is what a producer puts; see commitlog.Message.
	Message = commitlog.Message
	// Record is a message as the log holds it.
	Record = commitlog.Record
	// Host is an address in a record.
	Host = commitlog.Host
	// QueueID names a consume queue.
	QueueID = commitlog.QueueID
)

// Engine is one node: a log and its role. See the package comment.
type Engine struct {
	opts     Options                  // as given, with defaults; never changes
	id       atomic.Pointer[identity] // replaced by changeIdentity
	log      *commitlog.Log
	logBegan time.Duration // Log.Began by reactor.Now's clock
	group    *reactor.Group
	rings    *rings
	quorum   *transfer.Quorum
	expiry   *expiry
	steady   *steadyLog
	vigil    *vigil

	lease      atomic.Pointer[lease] // replaced with each epoch of a leased master; never nil
	leaseTimer *reactor.Waker        // told when it has changed

	master *master               // nil without a listener
	slave  atomic.Pointer[slave] // nil on a master; the log calls back before it is there

	// Settings that change while running.
	inSyncReplicas, minInSync  atomic.Int32
	slaveTimeout, flushTimeout atomic.Int64 // time.Duration
	paces                      paces

	terms       atomic.Pointer[[]transfer.Epoch] // the log's epochs; replaced before a byte of a new one is in it
	senders     atomic.Pointer[[]*host]          // loops that have replicas
	confirmed   atomic.Int64                     // highest confirmed offset of a master: it never goes back
	identifying sync.Mutex                       // held by changeIdentity
	progress    notifier                         // told when the confirmed offset may have moved
	watcher     atomic.Pointer[watch]            // told when more may have become visible
	events      events

	background sync.WaitGroup // work off the loops that uses the log
	answering  sync.Mutex     // held by whoever computes checksums for a peer

	futures sync.Pool

	_        cpu.CacheLinePad
	inflight atomic.Int64 // puts before or in their append: written by every producer
	_        cpu.CacheLinePad
	stopping chan struct{}
	closed   atomic.Bool
	measured bool // somebody takes metrics; never changes
	changing roles
	role     atomic.Uint32                 // Role
	held     atomic.Pointer[chan struct{}] // puts wait for it to be closed; nil: they do not
	close    struct {
		once sync.Once
		err  error
	}
}

// Open opens the store, recovers the log, and takes up the role. Settings are
// all checked before anything is touched; see Options.Validate. The caller
// must Close the engine.
func Open(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	e := &Engine{opts: o, stopping: make(chan struct{})}
	_, none := o.Metrics.(noMetrics)
	e.measured = !none
	e.role.Store(uint32(o.Role))
	e.lease.Store(o.noLease())
	e.futures.New = func() any { return &Future{e: e, done: make(chan struct{}, 1)} }
	e.inSyncReplicas.Store(int32(o.InSyncReplicas))
	e.minInSync.Store(int32(o.MinInSyncReplicas))
	e.slaveTimeout.Store(int64(o.SlaveTimeout))
	e.flushTimeout.Store(int64(o.FlushTimeout))
	e.paces.init(o.pace())
	e.senders.Store(new([]*host))
	e.rings = newRings(o.RingSize)
	e.quorum = transfer.NewQuorum()
	e.steady = newSteadyLog(o.Logger)
	e.progress.init()

	group, err := reactor.Open(reactor.Options{Loops: o.Reactors, PinCPUs: o.PinCPUs, Spin: o.Spin, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("start reactors: %w", err)
	}
	e.group = group
	e.leaseTimer = e.watchLease()
	e.expiry = newExpiry(group.Loop(0), e.rings.waiting, e.complete)
	if err := e.open(); err != nil {
		if e.master != nil {
			e.master.stop()
		}
		group.Close()
		if e.log != nil {
			e.log.Close()
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; free some space there and start again, nothing is lost", err)
		}
		return nil, err
	}
	return e, nil
}

func (e *Engine) open() error {
	o := &e.opts
	var err error
	e.log, err = commitlog.Open(commitlog.Options{
		Dir: o.Store, SegmentBytes: o.SegmentBytes, Disk: o.Disk,
		Flush: o.Flush.log(), FlushInterval: o.FlushInterval, FlushThorough: o.FlushThorough, FlushPages: o.FlushPages,
		Preallocate: !o.NoPreallocate, PopulateBytes: max(o.PopulateBytes, 0), Mlock: o.Mlock,
		Retention: o.Retention, RetentionDisk: o.RetentionDisk, RetentionGiven: o.RetentionGiven,
		Limits: commitlog.Limits{BodyBytes: o.MaxBody}, StoreHost: o.StoreHost, QueueFileBytes: o.QueueFile,
		Logger: o.Logger, OnRecovery: o.OnRecovery, OnFsync: o.Metrics.Fsync,
		OnFlushed: e.flushed, OnDispatched: e.dispatched, Awaited: e.passesOn, OnSegmentReady: e.segmentReady, OnTrouble: e.diskTrouble,
	})
	if err != nil {
		return err
	}
	e.logBegan = reactor.At(e.log.Began())
	id, err := e.openIdentity(e.log.EndOffset() > e.log.MinOffset())
	if err != nil {
		return err
	}
	e.id.Store(&id)
	e.confirmed.Store(e.log.MinOffset())
	e.loadTerms()
	if o.Role != Slave && e.log.Writable() == nil {
		if err := errors.Join(e.startEpoch(), e.trust()); err != nil {
			return err
		}
	}
	if o.Role != Slave {
		e.awaitLease()
	}
	if o.HAListen != "" {
		if e.master, err = newMaster(e); err != nil {
			return err
		}
	}
	if o.Role == Slave {
		if err := e.follow(o.Master); err != nil {
			return err
		}
		if e.master != nil {
			e.master.holds.Add(-1) // newMaster's: the slave has its own if there is a reason
		}
	}
	e.vigil = newVigil(e)
	return nil
}

// Close stops taking puts, lets those that wait end as they would until ctx
// does, ends the rest as timed out, closes all connections, flushes, and leaves
// a clean shutdown. Every put gets its status. Any goroutine, any number of
// times: later calls wait for the first and return its error.
func (e *Engine) Close(ctx context.Context) error {
	e.close.once.Do(func() { e.close.err = e.shutdown(ctx) })
	return e.close.err
}

func (e *Engine) shutdown(ctx context.Context) error {
	e.changing.Lock()
	defer e.changing.Unlock()
	e.changing.ended = true
	e.closed.Store(true)
	close(e.stopping)
	e.events.send(Event{Kind: StateChanged, State: StateStopping})
	e.settlePuts(ctx)
	e.wakeSenders(true) // what they rest on goes out before the loops end
	if e.master != nil {
		e.master.holdDoor()
	}
	if s := e.slave.Load(); s != nil {
		s.stop()
	}
	if e.master != nil {
		e.master.stop()
	}
	err := e.group.Close()
	e.background.Wait()
	err = errors.Join(err, e.log.Close())
	e.progress.wake()
	e.events.close()
	return err
}

// settlePuts waits until no put is before or in its append and none waits. When
// ctx is over it ends those that do.
func (e *Engine) settlePuts(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	over := ctx.Done()
	for e.inflight.Load() > 0 || e.rings.waiting() > 0 {
		select {
		case <-over:
			over = nil
		case <-tick.C:
		}
		if over == nil {
			e.rings.close()
		}
	}
	e.rings.close()
}

// enter counts a put that is about to append; leave ends it. It waits for a
// change of the role that is under way, or for ctx.
func (e *Engine) enter(ctx context.Context) error {
	for !e.tryEnter() {
		if e.closed.Load() {
			return ErrClosed
		}
		gate := e.held.Load()
		if gate == nil {
			continue // it is over
		}
		select {
		case <-*gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// tryEnter is enter where nothing is to be waited for.
func (e *Engine) tryEnter() bool {
	if e.shut() {
		return false // uncounted, so that those who try again hold nobody up
	}
	e.inflight.Add(1)
	if e.shut() { // after the look above
		e.leave()
		return false
	}
	return true
}

// shut tells whether no put may begin now.
func (e *Engine) shut() bool { return e.held.Load() != nil || e.closed.Load() }

func (e *Engine) leave() { e.inflight.Add(-1) }

func (e *Engine) mayPut(l *lease) error {
	if e.Role() == Slave {
		return ErrNotMaster
	}
	if err := e.log.Writable(); err != nil {
		return err
	}
	if !l.lasts() {
		return l.why()
	}
	return nil
}

// wakeSenders tells the loops that have replicas of new bytes, and whether
// somebody waits for a replica to have them. Coalesced: a
// loop that was told and has not run yet is not told again.
func (e *Engine) wakeSenders(awaited bool) {
	for _, h := range *e.senders.Load() {
		if awaited || !h.resting.Load() {
			h.waker.Wake()
		}
	}
}

// complete runs the completion pass of all rings.
func (e *Engine) complete(now time.Duration) {
	if e.leaseEnded() {
		e.rings.stop() // puts that were in their append when it ended
	}
	e.rings.replicated(e.quorum, now)
	e.rings.flushed(e.log.FlushedOffset(), now)
	e.ConfirmedOffset() // keeps what was reached: the replica that reached it may go
	e.progress.wake()
	e.moved(VisibleConfirmed)
}

// flushed is called by the log's flusher.
func (e *Engine) flushed(offset int64) {
	e.rings.flushed(offset, reactor.Now())
	if s := e.slave.Load(); s != nil {
		s.flushed()
	}
	e.progress.wake()
	e.moved(VisibleFlushed)
}

// dispatched is called by the log's dispatcher after whole records were checked
// and queued. A cascading slave passes on no others.
func (e *Engine) dispatched(int64) {
	if e.Role() == Slave {
		e.wakeSenders(false)
		if s := e.slave.Load(); s != nil {
			s.flushed()
		}
		e.progress.wake()
	}
	e.moved(VisibleAppended)
}

// passesOn tells whether this node has replicas.
func (e *Engine) passesOn() bool {
	senders := e.senders.Load()
	return senders != nil && len(*senders) > 0
}

func (e *Engine) segmentReady() {
	if s := e.slave.Load(); s != nil {
		s.segmentReady()
	}
}

// diskTrouble is called by the log once, when damage or a failed fsync has made it
// read-only.
func (e *Engine) diskTrouble(err error) {
	e.rings.flush.Close(transfer.Failed) // for good: no later fsync is believed
	e.opts.Logger.Error("the log is read-only from here; restart after looking at the disk", "error", err)
	e.events.send(Event{Kind: DiskTrouble, Err: err})
	e.events.send(Event{Kind: StateChanged, State: StateReadOnly, Err: err})
	if s := e.slave.Load(); s != nil {
		s.diskTrouble(err)
	}
}

// served is what replicas may be sent: a slave passes on whole, checked records
// only.
func (e *Engine) served() transfer.Range {
	if e.Role() == Slave {
		return transfer.Range{Min: e.log.MinOffset(), End: e.log.DispatchedOffset()}
	}
	return transfer.Range{Min: e.log.MinOffset(), End: e.log.EndOffset()}
}

// ConfirmedOffset is up to where a put with the node's own settings is
// complete; on a slave as far as it holds what its master says to be, or its own
// end, since RocketMQ's protocol does not carry the master's. A master's never
// goes back.
func (e *Engine) ConfirmedOffset() int64 {
	offset := e.log.EndOffset()
	if e.Role() == Slave {
		if s := e.slave.Load(); s != nil && s.confirmed.Load() >= 0 {
			offset = min(offset, s.confirmed.Load())
		}
		return offset
	}
	if e.opts.Flush == SyncFlush {
		offset = min(offset, e.log.FlushedOffset())
	}
	copies := int(e.inSyncReplicas.Load())
	replicated := e.Role() == SyncMaster && copies > 1
	if replicated {
		offset = min(offset, e.quorum.Committed(e.opts.Ack.kind(), copies-1))
	}
	if !e.lease.Load().lasts() { // asked last: what counts was reached before
		return e.confirmed.Load()
	}
	if replicated {
		e.log.NoteConfirmed(offset)
	}
	for {
		old := e.confirmed.Load()
		if offset <= old {
			return old
		}
		if e.confirmed.CompareAndSwap(old, offset) {
			return offset
		}
	}
}

// WaitFor waits until the confirmed offset reaches offset: on a master until a
// put that ends there is complete by the node's settings, on a slave until it
// holds the log up to there. It returns ctx's error, or ErrClosed.
func (e *Engine) WaitFor(ctx context.Context, offset int64) error {
	return e.progress.wait(ctx, e.stopping, func() bool { return e.ConfirmedOffset() >= offset })
}

// Get reads the record that begins at a physical offset. The record is a copy.
func (e *Engine) Get(offset int64) (Record, error) { return e.log.Read(offset) }

// GetByQueue reads a record by topic, queue and queue offset. Queues are built
// behind the log, so a record may be a moment late here. The record is a copy. commitlog.ErrOutOfRange: there is none.
func (e *Engine) GetByQueue(topic string, queue int32, queueOffset int64) (Record, error) {
	var entry [1]commitlog.QueueEntry
	n, err := e.log.ReadQueue(QueueID{Topic: topic, ID: queue}, queueOffset, entry[:])
	if err != nil {
		return Record{}, err
	}
	if n == 0 {
		return Record{}, fmt.Errorf("topic %s queue %d offset %d: %w", topic, queue, queueOffset, commitlog.ErrOutOfRange)
	}
	return e.log.Read(entry[0].Offset)
}

// Queues are all queues of the log, in the order of topic and id. Any goroutine.
func (e *Engine) Queues() []QueueID { return e.log.Queues() }

// QueueBounds gives a queue's first offset and the one past its last.
func (e *Engine) QueueBounds(topic string, queue int32) (from, to int64, ok bool) {
	return e.log.QueueBounds(QueueID{Topic: topic, ID: queue})
}

// Records iterates over whole records from a physical offset to the log's end
// as it stands. Records are copies. It ends after an error.
func (e *Engine) Records(from int64) iter.Seq2[Record, error] { return e.log.Records(from) }

// Subscribe returns a channel of events, which holds up to buffer of them; what
// does not fit is counted in the next event's Missed. The function ends the
// subscription; Close ends all.
func (e *Engine) Subscribe(buffer int) (<-chan Event, func()) { return e.events.subscribe(buffer) }

// HAAddr is where replicas connect; the zero AddrPort without a listener.
func (e *Engine) HAAddr() netip.AddrPort {
	if e.master == nil {
		return netip.AddrPort{}
	}
	return e.master.listener.Addr()
}

// SetInSyncReplicas changes the copies that synchronous puts wait for, 1 to 64.
// A put that waits already keeps what it started with.
func (e *Engine) SetInSyncReplicas(copies int) error {
	err := setCount(&e.inSyncReplicas, "in-sync replicas", copies)
	e.progress.wake() // fewer copies may confirm more
	e.moved(VisibleConfirmed)
	return err
}

// SetMinInSyncReplicas changes the copies below which synchronous puts are
// refused, 1 to 64.
func (e *Engine) SetMinInSyncReplicas(copies int) error {
	return setCount(&e.minInSync, "min in-sync replicas", copies)
}

func setCount(v *atomic.Int32, name string, copies int) error {
	if copies < 1 || copies > replicasMax {
		return fmt.Errorf("%s %d, want 1 to %d: %w", name, copies, replicasMax, ErrOptions)
	}
	v.Store(int32(copies))
	return nil
}

// SetTimeouts changes how long puts that start from now on wait for replicas
// and for the disk; both must be above 0.
func (e *Engine) SetTimeouts(slave, flush time.Duration) error {
	if slave <= 0 || flush <= 0 {
		return fmt.Errorf("timeouts %v and %v must be above 0: %w", slave, flush, ErrOptions)
	}
	e.slaveTimeout.Store(int64(slave))
	e.flushTimeout.Store(int64(flush))
	return nil
}
