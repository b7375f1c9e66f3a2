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

	// incomplete says that units before the last ones may be missing: only a
	// look at the whole log can tell. Set by openQueues, reset by catchUp.
	incomplete bool

	// index is replaced, never edited: looking a queue up takes no lock.
	index atomic.Pointer[queueIndex]
	mu    sync.Mutex // held to replace index

	longTopic atomic.Pointer[string] // the first topic met whose records are V2

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
	if err := q.load(fileBytes); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// load finds the queues on the disk, and the size of their files: the given
// one if there are none yet.
func (q *queues) load(fileBytes int64) error {
	found, err := q.find()
	if err != nil {
		return err
	}
	if q.fileBytes = usualSize(found); q.fileBytes == 0 {
		q.fileBytes = (fileBytes + queueUnitBytes - 1) / queueUnitBytes * queueUnitBytes
	}
	index := make(queueIndex)
	for _, f := range found {
		if err := f.queue.load(f.files); err != nil {
			return err
		}
		id := f.queue.id
		if index[id.Topic] == nil {
			index[id.Topic] = make(map[int32]*queue)
		}
		index[id.Topic][id.ID] = f.queue
	}
	q.index.Store(&index)
	return nil
}

// foundQueue is a queue on the disk with its files in the order of names.
type foundQueue struct {
	queue *queue
	files []FileInfo
}

// find lists the queues on the disk.
func (q *queues) find() ([]foundQueue, error) {
	topics, err := q.disk.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read consume queues: %w", err)
	}
	var found []foundQueue
	for _, topic := range topics {
		if !topic.Mode.IsDir() {
			q.foreign(filepath.Join(q.dir, topic.Name))
			continue
		}
		ids, err := q.disk.ReadDir(filepath.Join(q.dir, topic.Name))
		if err != nil {
			return nil, fmt.Errorf("read consume queues: %w", err)
		}
		for _, id := range ids {
			n, err := strconv.ParseInt(id.Name, 10, 32)
			if err != nil || strconv.FormatInt(n, 10) != id.Name || !id.Mode.IsDir() {
				q.foreign(filepath.Join(q.dir, topic.Name, id.Name))
				continue
			}
			qu := q.newQueue(QueueID{Topic: topic.Name, ID: int32(n)})
			files, err := qu.find()
			if err != nil {
				return nil, err
			}
			found = append(found, foundQueue{queue: qu, files: files})
		}
	}
	return found, nil
}

// find lists the files of a queue.
func (qu *queue) find() ([]FileInfo, error) {
	infos, err := qu.set.disk.ReadDir(qu.dir)
	if err != nil {
		return nil, fmt.Errorf("read consume queue: %w", err)
	}
	files := infos[:0]
	for _, info := range infos {
		if _, ok, fits := parseSegmentName(info.Name); ok && fits && info.Mode.IsRegular() {
			files = append(files, info)
		} else {
			qu.set.foreign(filepath.Join(qu.dir, info.Name))
		}
	}
	return files, nil
}

func (q *queues) foreign(path string) {
	q.logger.Warn("not part of a consume queue, left alone", "path", path)
}

func (q *queues) newQueue(id QueueID) *queue {
	if len(id.Topic) > topicBytesMaxV1 {
		q.longTopic.CompareAndSwap(nil, &id.Topic)
	}
	return &queue{set: q, id: id, dir: queuePath(q.dir, id)}
}

// load takes the files of a queue and finds its bounds. An empty file is what a
// crash leaves of one that was being made, and what stands behind it, or behind
// a missing one, was not yet durable: the records are put again.
func (qu *queue) load(files []FileInfo) error {
	q := qu.set
	for i, info := range files {
		path := filepath.Join(qu.dir, info.Name)
		base, _, _ := parseSegmentName(info.Name)
		if info.Size == 0 {
			q.incomplete = q.incomplete || i < len(files)-1
			break
		}
		if info.Size != q.fileBytes || base%q.fileBytes != 0 {
			return &CorruptError{Path: path, Offset: base, Kind: KindQueue, Detail: fmt.Sprintf(
				"the file begins at byte %d and has %d bytes, the store's queue files have %d; move the %s directory away to have it built again",
				base, info.Size, q.fileBytes, filepath.Base(q.dir))}
		}
		if n := len(qu.files); n > 0 && base != qu.files[n-1].base+q.fileBytes {
			q.incomplete = true
			break
		}
		qu.files = append(qu.files, &queueFile{base: base, path: path})
	}
	left := files[len(qu.files):]
	if len(left) > 0 && q.incomplete {
		q.logger.Warn("consume queue has a hole; what is behind it is built again from the log",
			"dir", qu.dir, "from_file", left[0].Name)
	}
	for _, info := range left {
		if q.readOnly {
			break
		}
		if err := q.disk.Remove(filepath.Join(qu.dir, info.Name)); err != nil {
			return fmt.Errorf("remove consume queue file: %w", err)
		}
		q.createdIn(qu)
	}
	return qu.setBounds()
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
