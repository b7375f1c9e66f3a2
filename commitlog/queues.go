package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// DefaultQueueFileBytes is RocketMQ's mappedFileSizeConsumeQueue: 300,000
	// units.
	DefaultQueueFileBytes = 300_000 * queueUnitBytes

	// queueHandlesMax bounds the open queue files of a store. A store may have
	// more queues than a process may have files.
	queueHandlesMax = 1024

	// queueBuffersMax bounds the queues with units that wait to be written.
	queueBuffersMax = 256
)

// queues is the set of a store's consume queues, in consumequeue/<topic>/<id>.
//
// They are written with pwrite rather than through mappings: the units of all
// records of a pass go to each queue in one call, a full disk is then an error
// that can be tried again and not a fault, and a reader's copy is a pread.
type queues struct {
	disk      Disk
	dir       string
	fileBytes int64 // of one file; a multiple of the unit
	readOnly  bool
	logger    *slog.Logger

	// index is replaced, never edited: looking a queue up takes no lock.
	index atomic.Pointer[queueIndex]
	mu    sync.Mutex // held to replace index

	// The writer's alone.
	touched []*queue // have units that wait
	buffers [][]byte // free, each of queueBufferBytes

	changed struct { // since the last flush
		sync.Mutex
		queues []*queue
		dirs   map[string]struct{}
	}
	handles struct { // open files, the oldest first
		sync.Mutex
		open []openQueueFile
	}
}

type queueIndex map[string]map[int32]*queue

type openQueueFile struct {
	queue *queue
	file  *queueFile
}

// openQueues opens the consume queues below dir. Their file size is that of
// the files that are there, otherwise fileBytes rounded up to whole units
// (0: the default). It fails on a file of another size, naming both; foreign
// names are left alone, with a warning. With readOnly nothing is written.
func openQueues(disk Disk, dir string, fileBytes int64, readOnly bool, logger *slog.Logger) (*queues, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if fileBytes <= 0 {
		fileBytes = DefaultQueueFileBytes
	}
	q := &queues{disk: disk, dir: dir, readOnly: readOnly, logger: logger}
	q.index.Store(&queueIndex{})
	q.changed.dirs = make(map[string]struct{})
	if err := q.load(); err != nil {
		return nil, errors.Join(err, q.close())
	}
	if q.fileBytes == 0 {
		q.fileBytes = (fileBytes + queueUnitBytes - 1) / queueUnitBytes * queueUnitBytes
	}
	return q, nil
}

// load finds the queues on the disk.
func (q *queues) load() error {
	topics, err := q.disk.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read consume queues: %w", err)
	}
	index := make(queueIndex, len(topics))
	for _, topic := range topics {
		if !topic.Mode.IsDir() {
			q.foreign(filepath.Join(q.dir, topic.Name))
			continue
		}
		ids, err := q.disk.ReadDir(filepath.Join(q.dir, topic.Name))
		if err != nil {
			return fmt.Errorf("read consume queues: %w", err)
		}
		byID := make(map[int32]*queue, len(ids))
		for _, id := range ids {
			n, err := strconv.ParseInt(id.Name, 10, 32)
			if err != nil || strconv.FormatInt(n, 10) != id.Name || !id.Mode.IsDir() {
				q.foreign(filepath.Join(q.dir, topic.Name, id.Name))
				continue
			}
			qu := q.newQueue(QueueID{Topic: topic.Name, ID: int32(n)})
			if err := qu.load(); err != nil {
				return err
			}
			byID[qu.id.ID] = qu
		}
		index[topic.Name] = byID
	}
	q.index.Store(&index)
	return nil
}

func (q *queues) foreign(path string) {
	q.logger.Warn("not part of a consume queue, left alone", "path", path)
}

func (q *queues) newQueue(id QueueID) *queue {
	return &queue{set: q, id: id, dir: queuePath(q.dir, id)}
}

// load finds the files of a queue and its bounds.
func (qu *queue) load() error {
	names, err := qu.set.disk.ReadDir(qu.dir)
	if err != nil {
		return fmt.Errorf("read consume queue: %w", err)
	}
	for i, info := range names {
		path := filepath.Join(qu.dir, info.Name)
		base, err := strconv.ParseInt(info.Name, 10, 64)
		if err != nil || len(info.Name) != 20 || base < 0 || !info.Mode.IsRegular() {
			qu.set.foreign(path)
			continue
		}
		if info.Size == 0 && i == len(names)-1 {
			// A crash came between making the file and giving it its size.
			if !qu.set.readOnly {
				if err := qu.set.disk.Remove(path); err != nil {
					return fmt.Errorf("remove empty consume queue file: %w", err)
				}
			}
			continue
		}
		if err := qu.addFile(path, base, info.Size); err != nil {
			return err
		}
	}
	return qu.setBounds()
}

// addFile takes the next file of a queue that is being loaded.
func (qu *queue) addFile(path string, base, size int64) error {
	if qu.set.fileBytes == 0 {
		qu.set.fileBytes = max(size/queueUnitBytes, 1) * queueUnitBytes
	}
	want := qu.set.fileBytes
	if size != want || base%want != 0 {
		return &CorruptError{Path: path, Offset: base, Kind: KindQueue, Detail: fmt.Sprintf(
			"the file begins at byte %d and has %d bytes, the store's queue files have %d; move the consumequeue directory away to have it built again",
			base, size, want)}
	}
	if n := len(qu.files); n > 0 && base != qu.files[n-1].base+want {
		qu.set.logger.Warn("consume queue has a hole, its earlier files are left alone",
			"path", path, "expected_base", qu.files[n-1].base+want)
		qu.files = nil
	}
	qu.files = append(qu.files, &queueFile{base: base, path: path})
	return nil
}

// queue finds a queue, or adds it: its files come with the first unit.
// Nothing is allocated when it exists. Any goroutine.
func (q *queues) queue(topic []byte, id int32) (*queue, error) {
	if qu := (*q.index.Load())[string(topic)][id]; qu != nil {
		return qu, nil
	}
	if !topicIsName(string(topic)) || id < 0 {
		return nil, fmt.Errorf("%w: %q queue %d cannot be a consume queue", ErrMessageIllegal, topic, id)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	old := *q.index.Load()
	if qu := old[string(topic)][id]; qu != nil {
		return qu, nil
	}
	qu := q.newQueue(QueueID{Topic: string(topic), ID: id})
	index := maps.Clone(old)
	byID := maps.Clone(old[qu.id.Topic])
	if byID == nil {
		byID = make(map[int32]*queue, 1)
	}
	byID[id] = qu
	index[qu.id.Topic] = byID
	q.index.Store(&index)
	return qu, nil
}

// lookup finds a queue, or nil. Any goroutine.
func (q *queues) lookup(id QueueID) *queue { return (*q.index.Load())[id.Topic][id.ID] }

// list names the queues in the order of topic and id. Any goroutine.
func (q *queues) list() []QueueID {
	all := q.all()
	ids := make([]QueueID, len(all))
	for i, qu := range all {
		ids[i] = qu.id
	}
	return ids
}

// all lists the queues in the order of topic and id. Any goroutine.
func (q *queues) all() []*queue {
	var list []*queue
	index := *q.index.Load()
	for _, topic := range slices.Sorted(maps.Keys(index)) {
		for _, id := range slices.Sorted(maps.Keys(index[topic])) {
			list = append(list, index[topic][id])
		}
	}
	return list
}

// maxPhysical is the end of the last record that any queue knows, 0 if none.
func (q *queues) maxPhysical() int64 {
	var end int64
	for _, byID := range *q.index.Load() {
		for _, qu := range byID {
			end = max(end, qu.maxPhysical.Load())
		}
	}
	return end
}

// buffer gives a queue room for units that wait. The writer's alone.
func (q *queues) buffer(qu *queue) []byte {
	if cap(qu.pending) > 0 {
		return qu.pending[:0]
	}
	q.touched = append(q.touched, qu)
	if n := len(q.buffers); n > 0 {
		b := q.buffers[n-1]
		q.buffers = q.buffers[:n-1]
		return b
	}
	return make([]byte, 0, queueBufferBytes)
}

// full says that as many queues as may have units that wait.
func (q *queues) full() bool { return len(q.touched) >= queueBuffersMax }

// commit writes all units that wait and makes them visible. After an error
// some may be, and the rest is dropped: the writer puts them again. The
// writer's alone.
func (q *queues) commit() error {
	var err error
	for _, qu := range q.touched {
		if err == nil {
			err = qu.commit()
		}
		q.buffers = append(q.buffers, qu.pending[:0])
		qu.pending = nil
	}
	clear(q.touched)
	q.touched = q.touched[:0]
	return err
}

// drop forgets all units that wait. The writer's alone.
func (q *queues) drop() {
	for _, qu := range q.touched {
		qu.pending = qu.pending[:0]
	}
}

// truncate drops the units of records at or after an offset, and what waits.
// It is durable after a flush. The writer's alone.
func (q *queues) truncate(offset int64) error {
	q.drop()
	return q.each(func(qu *queue) error { return qu.truncate(offset) })
}

// trimBefore forgets the units of records before an offset. The writer's
// alone, or beside it: it touches only files that are full.
func (q *queues) trimBefore(minOffset int64) error {
	return q.each(func(qu *queue) error { return qu.trimBefore(minOffset) })
}

func (q *queues) each(do func(*queue) error) error {
	for _, qu := range q.all() {
		if err := do(qu); err != nil {
			return err
		}
	}
	return nil
}

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
	for dir := range dirs {
		if err := q.disk.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("flush consume queues: %w", err)
		}
	}
	return nil
}

// flush syncs the dirty files of a queue.
func (qu *queue) flush() error {
	qu.mu.RLock()
	defer qu.mu.RUnlock()
	for _, f := range qu.files {
		if !f.dirty.Swap(false) {
			continue
		}
		if f.file == nil {
			// A file is synced before its handle goes; this one could not be.
			return fmt.Errorf("flush consume queue %s: it was not durable when it was closed", f.path)
		}
		if err := f.file.Sync(); err != nil {
			f.dirty.Store(true)
			return fmt.Errorf("flush consume queue %s: %w", f.path, err)
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

// close closes all files, synced. No other call may overlap or follow.
func (q *queues) close() error {
	var err error
	for _, qu := range q.all() {
		qu.mu.Lock()
		for _, f := range qu.files {
			err = errors.Join(err, qu.closeLocked(f))
		}
		qu.mu.Unlock()
	}
	q.handles.open = nil
	return err
}

// destroy removes every queue from the disk and from the set: their log is
// gone. The writer's alone, and nobody reads.
func (q *queues) destroy() error {
	q.drop()
	for _, qu := range q.all() {
		qu.mu.Lock()
		for len(qu.files) > 0 {
			if err := qu.removeLocked(len(qu.files) - 1); err != nil {
				qu.mu.Unlock()
				return err
			}
		}
		qu.mu.Unlock()
		// A directory with foreign files stays.
		_ = q.disk.Remove(qu.dir)
		_ = q.disk.Remove(filepath.Dir(qu.dir))
	}
	q.index.Store(&queueIndex{})
	q.changed.queues, q.changed.dirs = nil, make(map[string]struct{})
	q.handles.open = nil
	if err := q.disk.SyncDir(q.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove consume queues: %w", err)
	}
	return nil
}
