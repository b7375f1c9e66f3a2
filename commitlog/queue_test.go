package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
)

var discard = slog.New(slog.DiscardHandler)

func mustOpenQueues(t testing.TB, dir string, fileBytes int64, readOnly bool) *queues {
	t.Helper()
	q, err := openQueues(OSDisk(), dir, fileBytes, readOnly, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.close() })
	return q
}

func mustQueue(t testing.TB, q *queues, topic string, id int32) *queue {
	t.Helper()
	qu, err := q.queue([]byte(topic), id)
	if err != nil {
		t.Fatal(err)
	}
	return qu
}

// queueFiles gives the bytes of each consume queue file below a store, by path
// below consumequeue.
func queueFiles(t testing.TB, store string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	root := filepath.Join(store, "consumequeue")
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// compareUnits checks that each unit that RocketMQ wrote is ours too.
func compareUnits(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	units := 0
	for path, theirs := range want {
		ours := got[path]
		if len(ours) != len(theirs) {
			t.Errorf("%s has %d bytes, RocketMQ's has %d", path, len(ours), len(theirs))
			continue
		}
		for i := 0; i < len(theirs); i += queueUnitBytes {
			if u := theirs[i : i+queueUnitBytes]; decodeQueueEntry(u).valid() {
				if units++; !bytes.Equal(ours[i:i+queueUnitBytes], u) {
					t.Errorf("%s unit %d is %+v, RocketMQ's is %+v", path, i/queueUnitBytes,
						decodeQueueEntry(ours[i:]), decodeQueueEntry(u))
				}
			}
		}
	}
	if units == 0 {
		t.Error("RocketMQ's files have no unit: nothing was compared")
	}
}

func TestUnitsAreTheOnesThatRocketMQMade(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			want := queueFiles(t, fixture.Unpack(t, name))
			store := t.TempDir()
			q := mustOpenQueues(t, filepath.Join(store, "consumequeue"), 10_000, false)
			d := &dispatcher{log: &Log{queues: q}}
			log, lines := fixtureLog(t, name)
			for _, line := range lines {
				if line.Size == 0 || line.Blank != nil {
					continue
				}
				record := log[line.PhysicOffset:][:line.Size]
				h, err := ParseHeader(record)
				if err == nil {
					err = d.enqueue(record, &h)
				}
				if err == nil && q.full() {
					err = q.commit()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := q.commit(); err != nil {
				t.Fatal(err)
			}
			got := queueFiles(t, store)
			compareUnits(t, got, want)
			if name == "mixed" && len(got) != len(want) {
				t.Errorf("%d queue files, RocketMQ has %d", len(got), len(want))
			}
			if d.uncovered() {
				t.Error("the fixture has records that our queues do not cover")
			}
		})
	}
}

func TestQueuesOfRocketMQAreOpenedWithTheirBounds(t *testing.T) {
	dir := fixture.Unpack(t, "mixed")
	before := queueFiles(t, dir)
	q := mustOpenQueues(t, filepath.Join(dir, "consumequeue"), 0, false)
	if q.fileBytes != 10_000 {
		t.Fatalf("file size %d, want the store's 10000", q.fileBytes)
	}
	next := make(map[QueueID]int64)
	var end int64
	for _, line := range fixture.Expected(t, "mixed") {
		if line.Size > 0 && line.Blank == nil && queued(line.SysFlag) {
			next[QueueID{line.Topic, line.QueueID}] = line.QueueOffset + 1
			end = line.PhysicOffset + int64(line.Size)
		}
	}
	if got := q.list(); len(got) != len(next) {
		t.Errorf("%d queues, want %d", len(got), len(next))
	}
	for id, want := range next {
		qu := q.lookup(id)
		if qu == nil {
			t.Errorf("%v is not there", id)
		} else if first, end := qu.bounds(); first != 0 || end != want || qu.nextOffset() != want {
			t.Errorf("%v: [%d, %d), next %d, want [0, %d)", id, first, end, qu.nextOffset(), want)
		}
	}
	if got := q.maxPhysical(); got != end {
		t.Errorf("last known record ends at %d, want %d", got, end)
	}
	if err := errors.Join(q.flush(), q.close()); err != nil {
		t.Fatal(err)
	}
	if after := queueFiles(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("opening and closing changed the files")
	}
}

func entryAt(offset int64) QueueEntry {
	return QueueEntry{Offset: offset, Size: 100, TagsCode: -offset}
}

// A queue that begins in the middle has RocketMQ's blanks before its first
// unit, in that file and nowhere else.
func TestQueueThatBeginsLateIsFilledBefore(t *testing.T) {
	store := t.TempDir()
	dir := filepath.Join(store, "consumequeue")
	q := mustOpenQueues(t, dir, 100, false)
	qu := mustQueue(t, q, "t", 0)
	if err := errors.Join(qu.put(13, entryAt(5000)), q.commit()); err != nil {
		t.Fatal(err)
	}
	files := queueFiles(t, store)
	var want []byte
	for range 3 {
		want = appendQueueEntry(want, QueueEntry{Size: 0x7FFFFFFF})
	}
	want = append(appendQueueEntry(want, entryAt(5000)), make([]byte, queueUnitBytes)...)
	if got := files["t/0/00000000000000000200"]; len(files) != 1 || !bytes.Equal(got, want) {
		t.Errorf("%d files, %x; want %x", len(files), got, want)
	}
	again := mustOpenQueues(t, dir, 0, true)
	if first, end := again.lookup(QueueID{"t", 0}).bounds(); first != 13 || end != 14 {
		t.Errorf("bounds [%d, %d), want [13, 14)", first, end)
	}
	if got := again.maxPhysical(); got != 5100 {
		t.Errorf("last record ends at %d, want 5100", got)
	}
}

// The index of a queue whose records were all cut is not used again.
func TestQueueRemembersItsIndexWithoutRecords(t *testing.T) {
	dir := t.TempDir()
	q := mustOpenQueues(t, dir, 100, false)
	qu := mustQueue(t, q, "t", 0)
	for i := range int64(12) {
		if err := qu.put(i, entryAt(1000+100*i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(q.commit(), q.trimBefore(2000), q.truncate(2000), q.flush(), q.close()); err != nil {
		t.Fatal(err)
	}
	q = mustOpenQueues(t, dir, 0, false)
	if got := q.lookup(QueueID{"t", 0}).nextOffset(); got != 10 {
		t.Errorf("next queue offset %d, want 10", got)
	}
}

// A page of a queue that a crash lost is filled when the records are put
// again, although units behind it are there.
func TestHoleThatACrashLeftIsFilled(t *testing.T) {
	store := t.TempDir()
	dir := filepath.Join(store, "consumequeue")
	q := mustOpenQueues(t, dir, 200, false)
	qu := mustQueue(t, q, "t", 0)
	put := func(from int64) {
		t.Helper()
		for i := from; i < 9; i++ {
			if err := qu.put(i, entryAt(1000+100*i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(q.commit(), q.flush()); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	want := queueFiles(t, store)
	f, err := os.OpenFile(filepath.Join(dir, "t/0/00000000000000000000"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 40), 60); err != nil {
		t.Fatal(err)
	}
	put(2)
	if got := queueFiles(t, store); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("files are %x, want %x", got, want)
	}
}

func TestWrongQueueFilesAreRefusedWithBothSizes(t *testing.T) {
	dir := t.TempDir()
	q := mustOpenQueues(t, dir, 100, false)
	if err := errors.Join(mustQueue(t, q, "t", 0).put(0, entryAt(0)), mustQueue(t, q, "t", 1).put(0, entryAt(0)), q.commit(), q.close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "t/1/00000000000000000000")
	if err := os.Truncate(path, 60); err != nil {
		t.Fatal(err)
	}
	_, err := openQueues(OSDisk(), dir, 0, false, discard)
	var bad *CorruptError
	if !errors.As(err, &bad) || bad.Kind != KindQueue || bad.Path != path {
		t.Errorf("%v, want a consume queue error that names %s", err, path)
	}
	// An empty last file is what a crash leaves: it goes.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	q = mustOpenQueues(t, dir, 0, false)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty queue file: %v, want it gone", err)
	}
	if got := q.lookup(QueueID{"t", 1}).nextOffset(); got != 0 {
		t.Errorf("next offset of a queue without files is %d", got)
	}
}

func TestForeignNamesAmongQueuesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"file", "topic/not-a-number/x", "topic/007/x", "topic/3/.DS_Store", "topic/3/00000000000000000000.bak"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	q := mustOpenQueues(t, dir, 100, false)
	if got := fmt.Sprint(q.list()); got != "[{topic 3}]" {
		t.Errorf("queues %s, want topic 3 only", got)
	}
	if err := q.destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "topic/3/.DS_Store")); err != nil {
		t.Errorf("a foreign file was removed: %v", err)
	}
}

func TestDestroyedQueuesLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	q := mustOpenQueues(t, dir, 100, false)
	for id := range int32(3) {
		if err := mustQueue(t, q, "t", id).put(0, entryAt(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(q.commit(), q.destroy()); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 || len(q.list()) != 0 {
		t.Errorf("left: %v %v %v", names, q.list(), err)
	}
}

// More queues than may be open at a time, or may have units that wait.
func TestManyQueuesKeepToTheirHandles(t *testing.T) {
	dir := t.TempDir()
	q := mustOpenQueues(t, dir, 100, false)
	const n = queueHandlesMax + 100
	for round := range int64(2) {
		for id := range int32(n) {
			if err := mustQueue(t, q, "t", id).put(round, entryAt(1000*round+int64(id))); err != nil {
				t.Fatal(err)
			}
			if q.full() {
				if err := q.commit(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := q.commit(); err != nil {
		t.Fatal(err)
	}
	if got := len(q.handles.open); got > queueHandlesMax {
		t.Errorf("%d files are open, at most %d", got, queueHandlesMax)
	}
	entries := make([]QueueEntry, 3)
	for id := range int32(n) {
		got, err := q.lookup(QueueID{"t", id}).read(0, entries)
		if err != nil || got != 2 || entries[1] != entryAt(1000+int64(id)) {
			t.Fatalf("queue %d: %d units %v, %v", id, got, entries, err)
		}
	}
}

func TestPuttingIntoAQueueDoesNotAllocate(t *testing.T) {
	q := mustOpenQueues(t, t.TempDir(), 0, false)
	topic := []byte("topic")
	index := int64(0)
	pass := func() {
		for range 10 {
			for id := range int32(4) {
				qu, err := q.queue(topic, id)
				if err == nil {
					err = qu.put(index, entryAt(index))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			index++
		}
		if err := q.commit(); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if n := testing.AllocsPerRun(100, pass); n != 0 {
		t.Errorf("%v allocations a pass of 40 messages, want 0", n)
	}
}
