package commitlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
)

// segmentsDirectory is where the segments are, below the store's root. Nothing
// but segments is ever put there: a foreign file keeps a broker from starting.
const segmentsDirectory = "commitlog"

// Log is a RocketMQ commit log with its consume queues. Open one with Open, or
// with OpenReadOnly beside a running node.
//
// Invariant: min <= flushed <= end and dispatched <= end; each moves only
// forward, but for Truncate. Methods may be called by any goroutine unless
// they say otherwise.
//
// Locks are taken in the order keeper.mu, flusher.mu, append,
// window.mu, roller.mu.
type Log struct {
	opts         Options // filled in; nobody writes it after Open
	disk         Disk
	root         string       // the store
	dir          string       // its segments
	segmentBytes atomic.Int64 // changed by AdoptSegmentBytes only, under keeper.mu and append
	readOnly     bool         // opened by OpenReadOnly
	lock         io.Closer
	queues       *queues
	dispatcher   *dispatcher
	roller       *roller
	window       *window
	flusher      *flusher
	keeper       *keeper
	opened       opening // what Open found; nobody writes it afterwards

	list    atomic.Pointer[segments] // replaced by the holder of the append lock
	epochs  atomic.Pointer[[]Epoch]  // replaced by the holder of keeper.mu; never edited
	replica atomic.Bool              // bytes come by Reserve: the dispatcher checks them

	_         cpu.CacheLinePad // the appender's: written by every append
	end       atomic.Int64     // stored after the bytes
	timestamp atomic.Int64     // store time of the last record, ms; the appender, or the dispatcher of a replica
	holding   atomic.Int64     // since when the append section is held, ns after began; 0: it is not
	_         cpu.CacheLinePad
	confirmed atomic.Int64 // as NoteConfirmed was told, or the hint says: stored for each batch of acknowledgements
	_         cpu.CacheLinePad

	flushed    atomic.Int64 // stored by the flusher, after the fdatasync
	start      atomic.Int64 // where a log without a byte begins
	cuts       atomic.Int64 // raised when a cut begins and when it is done: odd during one
	failed     atomic.Pointer[troubleError]
	lacking    atomic.Pointer[error] // what a full disk last refused in a sparse segment
	troubled   chan struct{}         // capacity 1: failed was set
	over       atomic.Bool           // Close has begun
	gone       atomic.Bool           // Close has let go of the segments: reads end with ErrClosed
	began      time.Time
	wall       wallClock
	goroutines sync.WaitGroup // the one that reports trouble
	stopped    chan struct{}  // closed at the end of Close

	append struct { // the append section, and changes to the list of segments
		sync.Mutex
		_    cpu.CacheLinePad
		tail *segment  // last of the list; nil while the log is empty
		file *openFile // of tail, writable
		end  int64     // the same as Log.end
	}
	closing struct {
		sync.Once
		err error
	}
}

// opening is what was found at Open.
type opening struct {
	clean      bool          // no abort file
	checkpoint Checkpoint    // as it was
	created    bool          // the store is ours from its first byte
	ours       bool          // nobody else has written since our last opening
	end        int64         // where recovery found the log to end
	uncovered  bool          // records were met before that RocketMQ queues and we do not
	damage     *CorruptError // bytes below the flushed offset are not what they were
}

// Info describes a log.
type Info struct {
	Dir           string     // the store's root
	Segments      int        // files that the log is in
	SegmentBytes  int64      // size of each
	CleanShutdown bool       // there was no abort file when it was opened
	Checkpoint    Checkpoint // as it was when it was opened
	Created       bool       // by us, from its first byte
	// Untouched tells that nobody else, as a broker of RocketMQ's, has written
	// since this package had the store open.
	Untouched  bool
	Allocation Allocation // how segments get their space
	Recovered  int64      // end offset that recovery found
	// Damage is what recovery found below the flushed offset; nil: nothing.
	Damage *CorruptError
}

// Info describes the log as it is now.
func (l *Log) Info() Info {
	i := Info{
		Dir: l.root, Segments: len(*l.list.Load()), SegmentBytes: l.segmentBytes.Load(),
		CleanShutdown: l.opened.clean, Checkpoint: l.opened.checkpoint, Created: l.opened.created, Untouched: l.opened.ours,
		Recovered: l.opened.end, Damage: l.opened.damage,
	}
	if l.roller != nil {
		i.Allocation = Allocation(l.roller.allocation.Load())
	}
	return i
}

// Began is when the log was opened, which [Encoded.At] counts from.
func (l *Log) Began() time.Time { return l.began }

// MinOffset is the offset of the first byte. It rises when retention removes
// segments.
func (l *Log) MinOffset() int64 {
	list := *l.list.Load()
	if len(list) == 0 {
		return l.start.Load()
	}
	return list[0].base
}

// EndOffset is one past the last byte (maxPhyOffset).
func (l *Log) EndOffset() int64 { return l.end.Load() }

// FlushedOffset is one past the last byte that is known to be on the disk
// (flushedWhere).
func (l *Log) FlushedOffset() int64 { return l.flushed.Load() }

// NoteConfirmed tells up to where puts are known to be complete on other nodes.
// It moves forward only, but for Truncate, and not past the log's end; as far as
// it is durable here it is noted on the disk within a second or so. Any goroutine,
// does not block.
func (l *Log) NoteConfirmed(offset int64) {
	offset = min(offset, l.end.Load())
	for {
		old := l.confirmed.Load()
		if offset <= old || l.confirmed.CompareAndSwap(old, offset) {
			return
		}
	}
}

// Confirmed is the highest offset that NoteConfirmed was told, in this opening
// or in an earlier one that noted it: a log is not cut below without an
// operator's word.
func (l *Log) Confirmed() int64 { return l.confirmed.Load() }

// DispatchedOffset is one past the last record that is in its consume queue
// and, on a replica, was checked. It is a record's border.
func (l *Log) DispatchedOffset() int64 {
	if l.dispatcher == nil {
		return l.end.Load()
	}
	return l.dispatcher.Offset()
}

// LongTopic is a topic of more than 127 bytes that the log has a queue of, or
// empty. Records of such topics are V2, which RocketMQ before 5.0 cannot read
// (MessageVersion.MESSAGE_VERSION_V2).
func (l *Log) LongTopic() string {
	if t := l.queues.longTopic.Load(); t != nil {
		return *t
	}
	return ""
}

// SegmentBytes is the size of a segment. Of a log without a file it changes with
// AdoptSegmentBytes.
func (l *Log) SegmentBytes() int64 { return l.segmentBytes.Load() }

// LastStoreTimestamp is the store time of the last record in milliseconds, 0
// in an empty log. On a replica it follows the dispatcher.
func (l *Log) LastStoreTimestamp() int64 { return l.timestamp.Load() }

// SegmentPath is the file that holds the byte at offset, or would hold it.
func (l *Log) SegmentPath(offset int64) string {
	if s := l.list.Load().find(offset); s != nil {
		return s.path
	}
	return filepath.Join(l.dir, segmentName(offset-offset%l.segmentBytes.Load()))
}

// ReadQueue reads queue entries from index from on into dst and returns how
// many there were. [ErrOutOfRange]: no such queue, or an index below its
// first; an index at or past its end gives none.
func (l *Log) ReadQueue(id QueueID, from int64, dst []QueueEntry) (int, error) {
	if l.gone.Load() {
		return 0, ErrClosed
	}
	q := l.queues.lookup(id)
	if q == nil {
		return 0, fmt.Errorf("%w: there is no consume queue %s/%d", ErrOutOfRange, id.Topic, id.ID)
	}
	return q.read(from, dst)
}

// QueueBounds returns the half-open range of indexes that a queue holds.
func (l *Log) QueueBounds(id QueueID) (first, end int64, ok bool) {
	q := l.queues.lookup(id)
	if q == nil {
		return 0, 0, false
	}
	first, end = q.bounds()
	return first, end, true
}

// Queues lists the consume queues in the order of topic and number.
func (l *Log) Queues() []QueueID {
	all := l.queues.all()
	ids := make([]QueueID, len(all))
	for i, q := range all {
		ids[i] = q.id
	}
	return ids
}

// sawTimestamp raises the store time of the last record.
func (l *Log) sawTimestamp(ms int64) { raise(&l.timestamp, ms) }

// raise stores a value that is above what is there.
func raise(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if v <= old || a.CompareAndSwap(old, v) {
			return
		}
	}
}

// Close stops taking writes, flushes the log and the queues, and leaves the
// store as a clean shutdown does: the unused next segment is removed, and the
// abort file goes if the queues cover the log to its end. Views that are still
// held stay valid. Later calls return the first one's error. A log that was in
// trouble before is closed as it is, which is no error; trouble that the last
// flush meets is one: what was appended last may not be on the disk.
func (l *Log) Close() error {
	l.closing.Do(func() { l.closing.err = l.shutdown() })
	return l.closing.err
}

func (l *Log) shutdown() error {
	if l.readOnly {
		l.letGo()
		return l.queues.close()
	}
	l.append.Lock()
	l.over.Store(true)
	l.append.Unlock()
	troubled := l.failed.Load() != nil

	l.window.stop()
	l.window.hold() // an append that has ended may still look at it
	l.roller.stop()
	l.flusher.stop() // flushes what there is
	l.keeper.stop()
	l.awaitDispatched(dispatchedAtClose)
	l.dispatcher.stop()
	err := l.finish()
	if f := l.failed.Load(); f != nil && !troubled {
		err = errors.Join(f, err)
	}
	close(l.stopped)
	l.goroutines.Wait()
	l.letGo()
	return errors.Join(err, l.queues.close(), l.lock.Close())
}

// dispatchedAtClose is how long Close waits for the dispatcher. It is behind
// by a fraction of a second at most, unless something is wrong; then the abort file stays.
const dispatchedAtClose = 10 * time.Second

// finish writes what the next Open wants to find.
func (l *Log) finish() error {
	if err := l.Writable(); errors.Is(err, ErrReadOnly) {
		return nil // the hint and the abort file stay as they are: recovery decides
	}
	err := errors.Join(l.roller.removeUnused(), l.queues.flush())
	if err != nil {
		return err
	}
	if err := l.keeper.closed(); err != nil {
		return err
	}
	if l.covered() {
		return removeAbort(l.disk, l.root)
	}
	return nil
}

// covered tells whether the queues hold everything that RocketMQ would put
// into them: only then may the store look cleanly closed, because a broker
// adds to the queues of a clean store only what lies beyond their last record.
func (l *Log) covered() bool {
	end := l.end.Load()
	return l.dispatcher.Offset() == end && l.flushed.Load() == end && !l.dispatcher.uncovered() && !l.opened.uncovered && !l.keeper.queuesFailed
}

// letGo drops the log's reference of each segment.
func (l *Log) letGo() {
	l.append.Lock()
	defer l.append.Unlock()
	list := *l.list.Load()
	l.start.Store(l.MinOffset()) // what the log held is still told
	l.gone.Store(true)
	l.list.Store(&segments{}) // before the release: a reader that finds a segment gone looks again
	l.append.tail, l.append.file = nil, nil
	for _, s := range list {
		s.release()
	}
}

// logger returns the options' logger.
func (l *Log) logger() *slog.Logger { return l.opts.Logger }
