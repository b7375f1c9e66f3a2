package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// put is a line of --load: how one put ended.
type put struct {
	Sequence int64  `json:"sequence"`
	Offset   int64  `json:"offset"`
	End      int64  `json:"end_offset"`
	Status   string `json:"status"`
}

const putOK = "PUT_OK"

// puts gives what the node's load has printed so far.
func (n *node) puts() []put {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]put{}, n.mu.puts...)
}

// count counts the puts that ended with a status.
func (n *node) count(status string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.mu.puts {
		if p.Status == status {
			count++
		}
	}
	return count
}

// ended counts all puts that ended.
func (n *node) ended() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mu.puts)
}

func confirmed(puts []put) (ok []put) {
	for _, p := range puts {
		if p.Status == putOK {
			ok = append(ok, p)
		}
	}
	return ok
}

// stored is one record of a log.
type stored struct {
	offset, end int64
	queue       int32
	queueOffset int64
	body        string // without the padding
}

// logOf is the records of a log, in order, and by offset.
type logOf struct {
	store    string
	records  []stored
	byOffset map[int64]stored
	min, max int64
}

// readLog reads all records of a store as a restart would find them. It writes
// nothing, so a node may be running on the store.
func readLog(t testing.TB, store string) *logOf {
	t.Helper()
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: store})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	log := &logOf{store: store, byOffset: map[int64]stored{}, min: l.MinOffset(), max: l.EndOffset()}
	for r, err := range l.Records(l.MinOffset()) {
		if err != nil {
			t.Fatalf("%s: %v", store, err)
		}
		s := stored{
			offset: r.PhysicalOffset, end: r.PhysicalOffset + int64(r.Size),
			queue: r.QueueID, queueOffset: r.QueueOffset, body: strings.TrimRight(string(r.Body), " "),
		}
		log.records = append(log.records, s)
		log.byOffset[s.offset] = s
	}
	return log
}

// holds tells whether the log has the record of a put: at its offset, of its
// length, with its sequence number as the body.
func (l *logOf) holds(p put) bool {
	r, ok := l.byOffset[p.Offset]
	return ok && r.end == p.End && r.body == strconv.FormatInt(p.Sequence, 10)
}

// mustHold wants each put to be in at least one of the logs.
func mustHold(t testing.TB, puts []put, logs ...*logOf) {
	t.Helper()
	missing := 0
	for _, p := range puts {
		held := false
		for _, l := range logs {
			held = held || l.holds(p)
		}
		if held {
			continue
		}
		if missing++; missing <= 5 {
			t.Errorf("put %+v is in no log", p)
			for _, l := range logs {
				t.Logf("%s, %d to %d, has there: %+v", l.store, l.min, l.max, l.byOffset[p.Offset])
			}
		}
	}
	if missing > 0 {
		t.Fatalf("%d of %d puts are in no log", missing, len(puts))
	}
}

// mustCountQueues wants each queue's records to be numbered without a gap and
// without a number used twice, and the consume queues' files to point at
// exactly these records. The queues are those of --load.
func (l *logOf) mustCountQueues(t testing.TB) {
	t.Helper()
	queues := map[int32][]stored{}
	for _, r := range l.records {
		if want := int64(len(queues[r.queue])); r.queueOffset != want {
			t.Fatalf("%s: record at offset %d has queue offset %d in queue %d, want %d", l.store, r.offset, r.queueOffset, r.queue, want)
		}
		queues[r.queue] = append(queues[r.queue], r)
	}
	for queue, records := range queues {
		units := queueUnits(t, l.store, "load", queue)
		if len(units) != len(records) {
			t.Fatalf("%s: queue %d has %d units for %d records", l.store, queue, len(units), len(records))
		}
		for i, r := range records {
			if units[i] != (unit{r.offset, int32(r.end - r.offset)}) {
				t.Fatalf("%s: unit %d of queue %d is %+v, its record is at %d, %d bytes", l.store, i, queue, units[i], r.offset, r.end-r.offset)
			}
		}
	}
}

// unit is what a consume queue says of a record.
type unit struct {
	offset int64
	size   int32
}

// queueUnits reads a queue's files, which are RocketMQ's: units of 20 bytes,
// with zeros behind the last.
func queueUnits(t testing.TB, store, topic string, queue int32) (units []unit) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "consumequeue", topic, fmt.Sprint(queue), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) >= 20; b = b[20:] {
			u := unit{int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
			if u.size == 0 {
				return units
			}
			units = append(units, u)
		}
	}
	return units
}
