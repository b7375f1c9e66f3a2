package remoting

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/haengine/haengine/engine"
)

// OffsetsOptions are the settings of Offsets.
type OffsetsOptions struct {
	File     string        // config/consumerOffset.json of the store; empty: nothing is kept
	Interval time.Duration // between two writes of what has changed; 0: 5 s (flushConsumerOffsetInterval)
	Most     int           // offsets of groups and queues that are kept at most; 0: 1,048,576
	Bytes    int           // of them as JSON, as if each number had all of its digits, at most; 0: as many as one answer to a slave holds
	Disk     engine.Disk   // nil: the operating system's
	Logger   *slog.Logger
}

// ErrTooManyOffsets means that no further group or queue gets an offset.
var ErrTooManyOffsets = errors.New("too many consumer offsets")

// Offsets are how far each group has consumed each queue. They are written to a
// file every few seconds and at the end, so that a crash takes back what was
// committed in the last seconds, as with RocketMQ's broker. Any goroutine.
//
// RocketMQ: ConsumerOffsetManager.
type Offsets struct {
	o    OffsetsOptions
	file configFile // one save at a time
	quit chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex
	table   map[offsetKey]map[int32]*queueOffset
	count   int // queueOffsets
	bytes   int // that they take as JSON, at most
	version DataVersion
	changed bool // since it was written
	lower   struct {
		next    time.Time // no line is logged before
		skipped int       // since the last
	}
	failed bool // the last write
}

type offsetKey struct{ topic, group string }

// queueOffset is how far a group is in a queue.
type queueOffset struct {
	committed int64 // where it goes on; -1 was committed by some clients and means none
	known     bool  // it was committed
	pulled    int64 // where its last pull began, -1: there was none
}

// OpenOffsets reads the file, or the one before it if that is damaged, and keeps
// it from then on. Close ends that.
func OpenOffsets(o OffsetsOptions) (*Offsets, error) {
	or(&o.Interval, 5*time.Second)
	or(&o.Most, 1<<20)
	or(&o.Bytes, copiedBytesMax)
	if o.Disk == nil {
		o.Disk = engine.OSDisk()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	of := &Offsets{o: o, table: map[offsetKey]map[int32]*queueOffset{}, quit: make(chan struct{}), done: make(chan struct{})}
	of.file = configFile{disk: o.Disk, path: o.File, log: o.Logger}
	if err := of.load(); err != nil {
		return nil, err
	}
	go of.run()
	return of, nil
}

// Close writes what has changed.
func (o *Offsets) Close() error {
	var err error
	o.once.Do(func() {
		close(o.quit)
		<-o.done
		err = o.Save()
	})
	return err
}

func (o *Offsets) run() {
	defer close(o.done)
	tick := time.NewTicker(o.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-o.quit:
			return
		case <-tick.C:
		}
		err := o.Save()
		if err != nil && !o.failed {
			o.o.Logger.Error("consumer offsets cannot be written, trying again; a restart would take them back", "file", o.o.File, "error", err)
		} else if err == nil && o.failed {
			o.o.Logger.Info("consumer offsets are written again", "file", o.o.File)
		}
		o.failed = err != nil
	}
}

// Commit stores where a group goes on in a queue. An offset below the stored one
// is taken, as by RocketMQ's broker, and logged; from says who committed it. The
// error is an ErrField or ErrTooManyOffsets.
func (o *Offsets) Commit(group, topic string, queue int32, offset int64, from Peer) error {
	if queue < 0 || offset < -1 {
		return fmt.Errorf("%w: queue %d offset %d cannot be committed", ErrField, queue, offset)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.roomLocked(group, topic, queue, o.o.Bytes); err != nil {
		return err
	}
	q, err := o.entryLocked(group, topic, queue)
	if err != nil {
		return err
	}
	if q.known && offset < q.committed {
		o.loweredLocked(group, topic, queue, q.committed, offset, from)
	}
	if !q.known || q.committed != offset {
		o.changed = true
		o.version.Counter++
		o.version.Timestamp = time.Now().UnixMilli()
	}
	q.committed, q.known = offset, true
	return nil
}

// loweredLocked logs a commit below the stored offset; at most one line a second.
func (o *Offsets) loweredLocked(group, topic string, queue int32, old, offset int64, from Peer) {
	now := time.Now()
	if now.Before(o.lower.next) {
		o.lower.skipped++
		return
	}
	address := ""
	if from != nil {
		address = from.RemoteAddr().String()
	}
	o.o.Logger.Warn("a consumer went back", "peer", address, "group", group, "topic", topic, "queue", queue,
		"from_offset", old, "to_offset", offset, "not_logged", o.lower.skipped)
	o.lower.next, o.lower.skipped = now.Add(time.Second), 0
}

// offsetBytes is what the offset of a queue takes in JSON at most: a number and a
// queue's number of as many digits as there are, and what stands between.
const offsetBytes = len(`"2147483647":9223372036854775807,`)

// keyBytes is what the name of a topic and a group takes, without their queues.
func keyBytes(k offsetKey) int { return len(`"@":{},`) + len(k.topic) + len(k.group) }

// roomLocked refuses an offset that is not there if it would be too much for the one
// answer that slaves are told all with. What a master or the file has is taken.
func (o *Offsets) roomLocked(group, topic string, queue int32, most int) error {
	k := offsetKey{topic, group}
	queues := o.table[k]
	if queues[queue] != nil {
		return nil
	}
	grows := offsetBytes
	if queues == nil {
		grows += keyBytes(k)
	}
	if o.bytes+grows > most {
		return fmt.Errorf("%w: they have %d bytes of at most %d that slaves can be told, for group %s topic %s queue %d there is no room", ErrTooManyOffsets, o.bytes, most, group, topic, queue)
	}
	return nil
}

// entryLocked finds a queue's offset, or makes one. What it keeps are copies.
func (o *Offsets) entryLocked(group, topic string, queue int32) (*queueOffset, error) {
	queues := o.table[offsetKey{topic, group}]
	if q := queues[queue]; q != nil {
		return q, nil
	}
	if o.count >= o.o.Most {
		return nil, fmt.Errorf("%w: there are %d, for group %s topic %s queue %d there is no room", ErrTooManyOffsets, o.count, group, topic, queue)
	}
	if queues == nil {
		queues = map[int32]*queueOffset{}
		k := offsetKey{strings.Clone(topic), strings.Clone(group)}
		o.table[k] = queues
		o.bytes += keyBytes(k)
	}
	q := &queueOffset{committed: -1, pulled: -1}
	queues[queue] = q
	o.count++
	o.bytes += offsetBytes
	return q, nil
}

// NotePulled notes where a group's pull began (pullOffset of consumer statistics).
// It is not kept, and leaves half of the room to what is committed.
func (o *Offsets) NotePulled(group, topic string, queue int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count >= o.o.Most/2 && o.table[offsetKey{topic, group}][queue] == nil || o.roomLocked(group, topic, queue, o.o.Bytes/2) != nil {
		return
	}
	if q, err := o.entryLocked(group, topic, queue); err == nil {
		q.pulled = offset
	}
}

// Offset is where a group goes on in a queue; ok is false if it has committed
// nothing, or -1.
func (o *Offsets) Offset(group, topic string, queue int32) (offset int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.table[offsetKey{topic, group}][queue]
	if q == nil || !q.known || q.committed < 0 {
		return -1, false
	}
	return q.committed, true
}

// PullOffset is where a group's last pull from a queue began, -1: there was none
// since the start.
func (o *Offsets) PullOffset(group, topic string, queue int32) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.table[offsetKey{topic, group}][queue]; q != nil {
		return q.pulled
	}
	return -1
}

// Topics lists the topics of which a group has an offset, sorted.
func (o *Offsets) Topics(group string) []string {
	return o.keys(func(k offsetKey) (string, bool) { return k.topic, k.group == group })
}

// Groups lists the groups that have an offset of a topic, sorted.
func (o *Offsets) Groups(topic string) []string {
	return o.keys(func(k offsetKey) (string, bool) { return k.group, k.topic == topic })
}

func (o *Offsets) keys(pick func(offsetKey) (string, bool)) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for k, queues := range o.table {
		if name, ok := pick(k); ok && anyCommitted(queues) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func anyCommitted(queues map[int32]*queueOffset) bool {
	for _, q := range queues {
		if q.known {
			return true
		}
	}
	return false
}

// Remove forgets a group's offsets of a topic; of all topics if that is empty, or
// of all groups if the group is.
func (o *Offsets) Remove(group, topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.table, func(k offsetKey, queues map[int32]*queueOffset) bool {
		gone := (group == "" || k.group == group) && (topic == "" || k.topic == topic) && (group != "" || topic != "")
		if gone {
			o.count -= len(queues)
			o.bytes -= keyBytes(k) + len(queues)*offsetBytes
			o.changed = true
			o.version.Counter++
		}
		return gone
	})
}
