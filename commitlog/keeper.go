package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	keepEvery       = time.Second      // a look at what is to be noted
	checkpointEvery = 10 * time.Second // RocketMQ's own are at most 1 s old, and looked at 3 s earlier
	retainEvery     = 10 * time.Second // RocketMQ cleanResourceInterval

	// keepShare bounds what syncing the queues takes of the disk's time: a sync
	// of many queues is followed by a pause of so many times its length.
	keepShare = 20
)

// keeper notes, on a goroutine of its own and about once a second, how far log
// and queues are on the disk, writes RocketMQ's checkpoint, and removes old
// segments.
type keeper struct {
	log  *Log
	kick chan struct{} // capacity 1
	quit chan struct{}
	done chan struct{}

	keep atomic.Int64 // lowest offset a connected replica needs (retain.go)

	// mu is held for a look; a truncation holds it to keep looks out.
	mu           sync.Mutex
	last         hint      // as written
	queued       int64     // the queues hold the records below it, on the disk
	queuesFailed bool      // a sync of a queue failed: queued never moves again
	queuesAfter  time.Time // no sync of the queues before
	epochsBehind bool      // RocketMQ's file does not have the epochs that ours has
	checkpoint   Checkpoint
	checkpointAt time.Time
	retainAt     time.Time
	warned       time.Time
}

func newKeeper(l *Log) *keeper {
	k := &keeper{log: l, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	k.keep.Store(math.MaxInt64) // no replica is connected yet
	return k
}

func (k *keeper) start() { k.log.goes(k.run, k.done) }

func (k *keeper) run() {
	defer close(k.done)
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-k.kick:
		case <-tick.C:
		}
		k.look()
	}
}

// wake makes the keeper look now.
func (k *keeper) wake() { signal(k.kick) }

func (k *keeper) stop() {
	close(k.quit)
	<-k.done
}

// look does what is due.
func (k *keeper) look() {
	if k.log.Writable() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.log.opts.Monotonic()
	k.syncQueuesLocked(now)
	if err := k.saveLocked(false); err != nil {
		k.warnLocked(now, "what is on the disk could not be noted", err)
	}
	if err := k.retryEpochsLocked(); err != nil {
		k.warnLocked(now, "epochs could not be noted", err)
	}
	if now.Sub(k.retainAt) >= retainEvery {
		k.retainAt = now
		if err := k.retainLocked(); err != nil {
			k.warnLocked(now, "old segments could not be removed", err)
		}
	}
}

func (k *keeper) warnLocked(now time.Time, text string, err error) {
	if now.Sub(k.warned) >= warnEvery {
		k.warned = now
		k.log.logger().Warn(text, "error", err)
	}
}

// syncQueuesLocked makes durable what the dispatcher has put into the queues.
func (k *keeper) syncQueuesLocked(now time.Time) {
	dispatched := k.log.DispatchedOffset()
	if dispatched == k.queued || k.queuesFailed || now.Before(k.queuesAfter) {
		return
	}
	if err := k.log.queues.flush(); err != nil {
		// The same as with the log: a second answer would prove nothing. The
		// queues are built again from here by the next opening.
		k.queuesFailed = true
		k.log.logger().Error("consume queues could not be synced; the next opening builds them again from here",
			"from", k.queued, "error", err)
		return
	}
	k.queued = dispatched
	k.queuesAfter = now.Add(keepShare * k.log.opts.Monotonic().Sub(now))
}

// closed writes the hint and the checkpoint of a log that was flushed, after
// stop.
func (k *keeper) closed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.queuesFailed {
		k.queued = k.log.DispatchedOffset()
	}
	return errors.Join(k.saveLocked(true), k.retryEpochsLocked())
}

// saveLocked writes the hint if it would say something new, and the checkpoint
// with it if that is due. A checkpoint is announced in the hint first: a crash
// between the two leaves a hint that fits the old one and the new one.
func (k *keeper) saveLocked(all bool) error {
	h, err := k.hintLocked()
	if err != nil {
		return err
	}
	now := k.log.opts.Monotonic()
	c := k.nextCheckpointLocked(h)
	due := c != k.checkpoint && (all || now.Sub(k.checkpointAt) >= checkpointEvery)
	if !due && h.same(&k.last) {
		return nil
	}
	l := k.log
	if h.Fingerprints, err = k.fingerprintsLocked(c, due); err != nil {
		return err
	}
	if err := writeHint(l.disk, l.root, h); err != nil {
		return err
	}
	k.last = *h
	if !due {
		return nil
	}
	if err := writeCheckpoint(l.disk, l.root, c); err != nil {
		return err
	}
	k.checkpoint, k.checkpointAt = c, now
	return nil
}

func (k *keeper) fingerprintsLocked(next Checkpoint, due bool) ([]string, error) {
	l := k.log
	now, err := fingerprintNow(l.disk, l.root)
	if err != nil || !due {
		return []string{now}, err
	}
	then, err := fingerprint(l.disk, l.root, next.encode())
	return []string{now, then}, err
}

// same tells hints that say the same of the log.
func (h *hint) same(o *hint) bool {
	return h.Flushed == o.Flushed && h.Queued == o.Queued && h.Confirmed == o.Confirmed && h.Start == o.Start && h.Uncovered == o.Uncovered && h.CutTo == o.CutTo &&
		h.SegmentBytes == o.SegmentBytes && h.Queues.noted == o.Queues.noted && h.Queues.low == o.Queues.low
}

// hintLocked says what is durable now.
func (k *keeper) hintLocked() (*hint, error) {
	l := k.log
	h := &hint{
		Flushed: l.flusher.durable(), Timestamp: l.timestamp.Load(), SegmentBytes: l.segmentBytes.Load(),
		Created: l.opened.created, Start: l.start.Load(), CutTo: -1,
		Uncovered: l.opened.uncovered || l.dispatcher.uncovered(),
	}
	h.Flushed = max(h.Flushed, k.last.Flushed) // only a truncation takes it back, and sets last
	h.Queued = min(k.queued, h.Flushed)
	h.Confirmed = min(l.confirmed.Load(), h.Flushed)
	if err := k.noteQueues(h); err != nil {
		return nil, err
	}
	if h.Flushed == k.last.Flushed {
		h.TailBytes, h.TailCRC = k.last.TailBytes, k.last.TailCRC
		return h, nil
	}
	return h, l.sumTail(h)
}

// sumTail puts the checksum of the bytes before Flushed into the hint.
func (l *Log) sumTail(h *hint) error {
	n := min(hintTailBytes, h.Flushed-l.MinOffset())
	if n <= 0 {
		h.TailBytes, h.TailCRC = 0, 0
		return nil
	}
	b := make([]byte, n)
	if m, err := l.copyRange(b, h.Flushed-n); err != nil || int64(m) < n {
		return fmt.Errorf("read %d bytes before offset %d: %w", n, h.Flushed, errors.Join(err, ErrOutOfRange))
	}
	h.TailBytes, h.TailCRC = n, crc32.ChecksumIEEE(b)
	return nil
}

// nextCheckpointLocked is what RocketMQ's checkpoint should say. With records
// that only RocketMQ can put into queues it says nothing, so that a broker
// builds them from the first one.
func (k *keeper) nextCheckpointLocked(h *hint) Checkpoint {
	c := k.log.opened.checkpoint
	c.ConfirmOffset = min(c.ConfirmOffset, h.Flushed)
	c.MasterFlushedOffset = min(c.MasterFlushedOffset, h.Flushed)
	c.LogicsOffset = 0 // not kept: a broker then goes by the times
	c.PhysicTimestamp, c.LogicsTimestamp = 0, 0
	if !h.Uncovered && !k.queuesFailed {
		c.PhysicTimestamp = k.log.flusher.timestamp.Load()
		c.LogicsTimestamp = c.PhysicTimestamp
		if h.Queued < h.Flushed {
			c.LogicsTimestamp = min(c.LogicsTimestamp, k.checkpoint.LogicsTimestamp)
		}
	}
	return c
}

// removeAside removes what a crash left of files that were being written: small
// ones that were being replaced, and copies in cut/.
func removeAside(disk Disk, root string) error {
	var left []string
	for _, name := range []string{hintName, checkpointName, abortName, epochNotesName, epochFileName, epochBackupName} {
		left = append(left, name+temporarySuffix)
	}
	copies, err := disk.ReadDir(filepath.Join(root, cutDirectory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, c := range copies {
		if strings.HasSuffix(c.Name, temporarySuffix) && !c.Mode.IsDir() {
			left = append(left, filepath.Join(cutDirectory, c.Name))
		}
	}
	for _, name := range left {
		if err := disk.Remove(filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
}
