package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// queuesDirectory is where the consume queues are, below the store's root.
const queuesDirectory = "consumequeue"

// Open opens the log of a store for reading and writing, making the store if
// there is none, and holds its lock until Close. It recovers: finds where the
// log ends, takes away what stands behind it (kept in cut/ and named in a
// warning), and completes the consume queues, so that queue offsets go on
// where they were.
//
// It fails, naming files and numbers and having changed nothing in the log,
// when the store is locked ([ErrLocked]), cannot be written, or holds files
// that are no log. Damage below what is known to be on the disk is no failure:
// the log opens, Writable says where it is, and nothing is changed.
func Open(o Options) (*Log, error) {
	l, err := newLog(o)
	if err != nil {
		return nil, err
	}
	if err := l.disk.MkdirAll(l.root); err != nil {
		return nil, fmt.Errorf("store %s cannot be written: %w", l.root, err)
	}
	if l.lock, err = lockStore(l.disk, l.root); err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, err
		}
		return nil, fmt.Errorf("store %s cannot be written: %w", l.root, err)
	}
	if err := l.openHeld(); err != nil {
		l.letGo()
		if l.queues != nil {
			err = errors.Join(err, l.queues.close())
		}
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

// openHeld opens a store whose lock is held.
func (l *Log) openHeld() error {
	into, half, err := l.finishAside()
	if err != nil {
		return fmt.Errorf("set the log of %s aside: %w", l.root, err)
	}
	if half {
		l.logger().Warn("setting the log aside had been cut off; it is done now, and the store is empty", "dir", l.root, "kept", into)
	}
	if err := l.disk.MkdirAll(l.dir); err != nil {
		return fmt.Errorf("store %s cannot be written: %w", l.root, err)
	}
	return l.open()
}

// OpenReadOnly opens a log without its lock and without writing anything:
// beside a running node, or where writing is not possible. The end is where
// recovery finds it at that moment; it does not move.
func OpenReadOnly(o Options) (*Log, error) {
	for try := 1; ; try++ {
		l, err := openReadOnly(o)
		if try == readOnlyTries || !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
	}
}

// readOnlyTries is how often OpenReadOnly looks anew when the running node has
// removed a file that was listed a moment ago: by retention, or by a cut.
const readOnlyTries = 5

func openReadOnly(o Options) (*Log, error) {
	l, err := newLog(o)
	if err != nil {
		return nil, err
	}
	if err := l.refuseHalfAside(); err != nil {
		return nil, err
	}
	if _, err := l.disk.Stat(l.dir); err != nil {
		return nil, fmt.Errorf("store %s has no log: %w", l.root, err)
	}
	l.readOnly = true
	r, err := l.recover()
	if err == nil {
		err = l.queues.truncate(r.end)
	}
	if err != nil {
		if l.queues != nil {
			err = errors.Join(err, l.queues.close())
		}
		return nil, err
	}
	l.take(r)
	return l, nil
}

func newLog(o Options) (*Log, error) {
	clock := o.Now
	o, err := o.filled()
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{
		opts: o, disk: o.Disk, root: filepath.Clean(o.Dir), began: o.Now(),
		troubled: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	l.wall.given = clock
	l.dir = filepath.Join(l.root, segmentsDirectory)
	l.list.Store(&segments{})
	l.publishEpochs(nil)
	return l, nil
}

// recover reads the store and finds where the log ends.
func (l *Log) recover() (*recovery, error) {
	h, err := l.readHint()
	if err != nil {
		return nil, err
	}
	var made int64
	if h != nil {
		made = h.SegmentBytes
	}
	r := &recovery{disk: l.disk, hint: h, progress: l.opts.OnRecovery, logger: l.logger()}
	if r.layout, err = loadLayout(l.disk, l.dir, l.opts.SegmentBytes, made, l.logger()); err != nil {
		return nil, err
	}
	l.segmentBytes.Store(r.layout.segmentBytes)
	_, abort, err := readAbort(l.disk, l.root)
	if err != nil {
		return nil, err
	}
	r.clean = !abort
	if r.checkpoint, err = readCheckpoint(l.disk, l.root, l.opts.Now()); errors.Is(err, ErrCorrupt) {
		l.logger().Warn("checkpoint is not believed, as if there were none", "error", err)
		r.checkpoint = Checkpoint{}
	} else if err != nil {
		return nil, err
	}
	l.queues, err = openQueues(l.disk, filepath.Join(l.root, queuesDirectory), l.opts.QueueFileBytes, l.readOnly, l.logger())
	if err != nil {
		return nil, err
	}
	r.queuesEnd = l.queues.maxPhysical()
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("recover the log in %s: %w", l.dir, err)
	}
	if !l.readOnly {
		if err := r.otherSegments(); err != nil {
			return nil, fmt.Errorf("recover the log in %s: %w", l.dir, err)
		}
	}
	l.opened.clean, l.opened.checkpoint, l.opened.end = r.clean, r.checkpoint, r.end
	l.opened.damage = r.damage
	l.recoverEpochs(r)
	l.clampCheckpoint(r.end)
	return r, nil
}

// readHint reads the hint and leaves in l.opened what is true even if it does
// not fit; nil if there is none to go by.
func (l *Log) readHint() (*hint, error) {
	h, err := readHint(l.disk, l.root)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			return nil, err
		}
		l.logger().Warn("the hint about the flushed offset is not believed; recovering as RocketMQ does", "error", err)
		return nil, nil
	}
	if h == nil {
		return nil, nil
	}
	l.opened.created = h.Created
	now, err := fingerprintNow(l.disk, l.root)
	if err != nil {
		return nil, err
	}
	if !h.fits(now) {
		l.logger().Info("RocketMQ has written to the store since; recovering as it does", "dir", l.root)
		return nil, nil
	}
	l.opened.uncovered, l.opened.ours = h.Uncovered, true
	return h, nil
}

// clampCheckpoint says which offsets of the checkpoint lie beyond the log. They
// are written back as what there is; nothing that is put later hides behind
// them.
func (l *Log) clampCheckpoint(end int64) {
	c := &l.opened.checkpoint
	for _, f := range []struct {
		name  string
		value *int64
	}{{"confirm_offset", &c.ConfirmOffset}, {"master_flushed_offset", &c.MasterFlushedOffset}} {
		if *f.value > end {
			l.logger().Warn("the checkpoint is beyond the log's end, which counts", "field", f.name, "offset", *f.value, "end_offset", end)
			*f.value = end
		}
	}
}

// take makes the recovered files the log's list.
func (l *Log) take(r *recovery) {
	var list segments
	for i, f := range r.layout.files {
		if f.base < r.end || i == 0 {
			list = append(list, newSegment(l.disk, l.dir, f.base, l.segmentBytes.Load()))
		}
	}
	l.list.Store(&list)
	l.start.Store(r.end)
	if len(list) > 0 {
		l.start.Store(list[0].base)
	}
	l.end.Store(r.end)
	if r.hint != nil {
		l.confirmed.Store(min(r.hint.Confirmed, r.end))
	}
	l.publishEpochs(r.epochs)
	l.timestamp.Store(r.timestamp)
	l.flushed.Store(r.end)
	l.append.end = r.end
}

// open recovers and starts the goroutines. The lock is held.
func (l *Log) open() error {
	r, err := l.recover()
	if err != nil {
		return err
	}
	l.opened.created = l.opened.created || r.hint == nil && len(r.layout.files) == 0
	l.roller, l.window, l.flusher, l.keeper = newRoller(l), newWindow(l), newFlusher(l), newKeeper(l)
	if r.damage != nil {
		l.fail(r.damage)
		l.logger().Error("the log is damaged; it is opened for reading, and nothing is changed", "error", r.damage)
		l.take(r)
		l.dispatcher = newDispatcher(l, r.dispatchFrom)
		l.run()
		return nil
	}
	if err := l.settle(r); err != nil {
		return err
	}
	if err := l.settleEpochs(r); err != nil {
		return err
	}
	l.take(r)
	if err := l.openTail(r); err != nil {
		return err
	}
	if err := l.openQueueEnds(r); err != nil {
		return err
	}
	if err := l.begin(r); err != nil {
		return err
	}
	l.run()
	l.RequestFlush(r.end)
	return nil
}

// openTail opens the last segment for writing and gets its space.
func (l *Log) openTail(r *recovery) error {
	a := &l.append
	if a.tail = l.list.Load().last(); a.tail == nil {
		return nil
	}
	file, err := a.tail.open(true)
	if err != nil {
		return err
	}
	a.file = file
	// Our own segments were reserved when they were made. RocketMQ's are
	// sparse, and a full disk would be a fault in the mapping.
	if from := r.end - a.tail.base; r.hint == nil && l.opts.Preallocate && from < a.tail.size {
		if err := file.file.Allocate(from, a.tail.size-from); err != nil {
			return fmt.Errorf("reserve the rest of segment %s, %d bytes: %w", a.tail.path, a.tail.size-from, err)
		}
		if err := file.file.Sync(); err != nil {
			return fmt.Errorf("sync segment %s: %w", a.tail.path, err)
		}
		l.roller.allocation.Store(uint32(file.file.Allocation()))
	}
	if l.opts.Mlock {
		if err := file.file.Pin(); err != nil {
			l.logger().Warn("segment is not kept in memory", "path", a.tail.path, "error", err)
		}
	}
	return nil
}

// openQueueEnds completes the queues up to the log's end, on this goroutine: a
// put must not get a queue offset that a record behind it has.
func (l *Log) openQueueEnds(r *recovery) error {
	if len(*l.list.Load()) == 0 {
		if l.queues.maxPhysical() > 0 {
			l.logger().Warn("the store has consume queues and no log; the queues are removed", "dir", l.root)
		}
		if err := l.queues.destroy(); err != nil {
			return err
		}
	}
	if err := l.cutQueues(r); err != nil {
		return err
	}
	if err := l.queues.trimBefore(l.MinOffset()); err != nil {
		return err
	}
	l.dispatcher = newDispatcher(l, r.dispatchFrom)
	if err := l.dispatcher.catchUp(); err != nil {
		return fmt.Errorf("complete the consume queues: %w", err)
	}
	if r.hint == nil || len(*l.list.Load()) == 0 {
		return nil
	}
	return l.queues.reach(r.hint.Queues.list)
}

// begin marks the store as in use and notes what is known of it.
func (l *Log) begin(r *recovery) error {
	flushed := r.from // without a hint: RocketMQ has flushed what is before
	if r.hint != nil {
		flushed = min(r.hint.Flushed, r.end)
		l.flusher.rewriteTo = r.end
	}
	flushed = max(flushed, l.MinOffset())
	l.flushed.Store(flushed)
	l.flusher.border.Store(flushed)
	k := l.keeper
	k.queued = r.dispatchFrom
	k.checkpoint = l.opened.checkpoint
	k.checkpointAt, k.retainAt = l.opts.Monotonic(), l.opts.Monotonic()
	l.flusher.timestamp.Store(k.checkpoint.PhysicTimestamp)
	if err := removeAside(l.disk, l.root); err != nil {
		return err
	}
	if err := writeAbort(l.disk, l.root); err != nil {
		return err
	}
	// A store of ours has a hint before it has a record.
	k.last = hint{Flushed: -1}
	if r.hint != nil {
		k.last = *r.hint
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.saveLocked(false)
	if errors.Is(err, syscall.ENOSPC) && r.hint != nil && r.hint.CutTo < 0 {
		// What the old one says is still true. The keeper tries again.
		k.warnLocked(l.opts.Monotonic(), "what is on the disk could not be noted", err)
		return nil
	}
	return err
}

// run starts the goroutines.
func (l *Log) run() {
	if !l.opts.Manual {
		l.goroutines.Add(1)
		go l.reportTrouble()
	}
	l.roller.start()
	l.window.start()
	l.flusher.start()
	l.dispatcher.start()
	l.keeper.start()
	if base := l.nextBase(); base > 0 && l.Writable() == nil {
		l.roller.expect(base)
	}
}

// nextBase is the base of the segment behind the last.
func (l *Log) nextBase() int64 {
	if tail := l.list.Load().last(); tail != nil {
		return tail.end()
	}
	return l.start.Load()
}
