package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// markDirty notes that a queue must be flushed.
func (q *queues) markDirty(qu *queue) {
	if qu.listed.Load() || !qu.listed.CompareAndSwap(false, true) {
		return
	}
	q.changed.Lock()
	defer q.changed.Unlock()
	q.changed.queues = append(q.changed.queues, qu)
}

// createdIn notes that the names in a queue's directory changed.
func (q *queues) createdIn(qu *queue) {
	q.changed.Lock()
	q.changed.dirs[qu.dir] = struct{}{}
	q.changed.Unlock()
	q.markDirty(qu)
}

// flush makes durable what was committed before the call. Any goroutine, one
// at a time. After an error it is not known what is: the units must be put
// again from an offset that an earlier flush covered.
func (q *queues) flush() error {
	q.changed.Lock()
	list, dirs := q.changed.queues, q.changed.dirs
	q.changed.queues, q.changed.dirs = nil, make(map[string]struct{})
	q.changed.Unlock()
	for _, qu := range list {
		qu.listed.Store(false) // before the sync: what comes now lists it again
		if err := qu.flush(); err != nil {
			return err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) { // in one order, so that a simulation can be replayed
		if err := q.disk.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync consume queue: %w", err)
		}
	}
	return nil
}

// flush syncs the dirty files of a queue.
func (qu *queue) flush() error {
	qu.mu.RLock()
	defer qu.mu.RUnlock()
	for _, f := range qu.files {
		if err := f.sync(); err != nil {
			return err
		}
	}
	return nil
}

// opened takes note of a handle. The queue's lock is held.
func (q *queues) opened(qu *queue, f *queueFile) {
	q.handles.Lock()
	defer q.handles.Unlock()
	q.handles.open = append(q.handles.open, openQueueFile{queue: qu, file: f})
}

// makeRoom closes the oldest handles until one more may be opened. No queue's
// lock is held.
func (q *queues) makeRoom() error {
	for {
		q.handles.Lock()
		if len(q.handles.open) < queueHandlesMax {
			q.handles.Unlock()
			return nil
		}
		oldest := q.handles.open[0]
		q.handles.open = slices.Delete(q.handles.open, 0, 1)
		q.handles.Unlock()
		oldest.queue.mu.Lock()
		err := oldest.queue.closeLocked(oldest.file)
		oldest.queue.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
