package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
)

// copyStore copies a store as a crash of the process would leave it.
func copyStore(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// Its time is part of the hint's fingerprint.
	lock, err := os.Stat(filepath.Join(from, lockName))
	if err == nil {
		err = os.Chtimes(filepath.Join(to, lockName), lock.ModTime(), lock.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func checkQueueEnd(t testing.TB, l *Log, topic string, id int32, want int64) {
	t.Helper()
	if _, end, _ := l.QueueBounds(QueueID{topic, id}); end != want {
		t.Errorf("queue %s/%d ends at %d, want %d", topic, id, end, want)
	}
	if got := mustPut(t, l, topic, id, 10).QueueOffset; got != want {
		t.Errorf("next queue offset of %s/%d is %d, want %d", topic, id, got, want)
	}
}

// checkQueues compares the queues with the log: each record that belongs into
// one is there, once, at its own index.
func checkQueues(t testing.TB, l *Log) {
	t.Helper()
	awaitOffset(t, l, l.EndOffset())
	count := make(map[QueueID]int64)
	for r, err := range l.Records(l.MinOffset()) {
		if err != nil {
			t.Fatal(err)
		}
		if !r.Queued() {
			continue
		}
		id := QueueID{r.Topic, r.QueueID}
		var e [1]QueueEntry
		n, err := l.ReadQueue(id, r.QueueOffset, e[:])
		if n != 1 || err != nil || e[0].Offset != r.PhysicalOffset || e[0].Size != r.Size {
			t.Errorf("record at %d, index %d of %v: unit %+v (%d), %v", r.PhysicalOffset, r.QueueOffset, id, e[0], n, err)
		}
		count[id]++
	}
	for _, id := range l.Queues() {
		if first, end, _ := l.QueueBounds(id); end-first != count[id] {
			t.Errorf("%v holds [%d, %d), the log has %d records of it", id, first, end, count[id])
		}
	}
}

func TestQueueOffsetsGoOnAfterARestart(t *testing.T) {
	type state struct {
		name   string
		change func(t *testing.T, dir string)
	}
	erase := func(path string, units ...int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, queuesDirectory, path), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, unit := range units {
				if _, err := f.WriteAt(make([]byte, queueUnitBytes), unit*queueUnitBytes); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	remove := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := func(changes ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, change := range changes {
				change(t, dir)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	for _, clean := range []bool{true, false} {
		states := []state{
			{"as it was", nothing},
			{"without our hint", remove(hintName)},
			{"without queues and hint", all(remove(hintName), remove(queuesDirectory))},
			{"without one queue and hint", all(remove(hintName), remove(queuesDirectory+"/a/0"))},
		}
		if !clean {
			states = append(states,
				state{"last units lost", erase("a/0/00000000000000000000", 9, 8, 7, 6, 5)},
				state{"a page of units lost", erase("a/1/00000000000000000000", 3, 4, 5)},
				state{"last units and hint lost, checkpoint of garbage", all(remove(hintName), erase("a/0/00000000000000000000", 9, 8, 7, 6, 5),
					func(t *testing.T, dir string) {
						if err := os.WriteFile(filepath.Join(dir, checkpointName), bytes.Repeat([]byte{0xEE}, 4096), 0o644); err != nil {
							t.Fatal(err)
						}
					})},
			)
		}
		for _, c := range states {
			t.Run(fmt.Sprintf("clean %v, %s", clean, c.name), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				l := mustOpen(t, testOptions(dir))
				for range 10 {
					mustPut(t, l, "a", 0, 3000)
					mustPut(t, l, "a", 1, 3000)
					mustPut(t, l, "b", 7, 3000)
				}
				awaitOffset(t, l, l.EndOffset())
				crashed := copyStore(t, dir)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if !clean {
					dir = crashed
				}
				c.change(t, dir)
				l = mustOpen(t, testOptions(dir))
				checkQueues(t, l)
				checkQueueEnd(t, l, "a", 0, 10)
				checkQueueEnd(t, l, "a", 1, 10)
				checkQueueEnd(t, l, "b", 7, 10)
				checkQueueEnd(t, l, "new", 0, 0)
				checkQueues(t, l)
			})
		}
	}
}

// The clean-start trap: RocketMQ dispatches only what begins beyond the last
// record its queues know, and gives the lost record's index away again.
func TestRecordThatRocketMQsCleanStartForgetsIsQueued(t *testing.T) {
	dir := fixture.Unpack(t, "mixed")
	lines := fixture.Expected(t, "mixed")
	last := lines[len(lines)-2]
	path := filepath.Join(dir, queuesDirectory, last.Topic, fmt.Sprint(last.QueueID), segmentName(0))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, queueUnitBytes), last.QueueOffset*queueUnitBytes); err != nil {
		t.Fatal(err)
	}
	o := testOptions(dir)
	o.SegmentBytes = 0
	l := mustOpen(t, o)
	checkQueues(t, l)
	checkQueueEnd(t, l, last.Topic, last.QueueID, last.QueueOffset+1)
}

// A queue that lost a file in its middle is built again from the log.
func TestQueueWithAHoleIsBuiltAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	o := testOptions(dir)
	o.QueueFileBytes = 100
	l := mustOpen(t, o)
	for range 23 {
		mustPut(t, l, "t", 0, 100)
	}
	awaitOffset(t, l, l.EndOffset())
	want := queueFiles(t, dir)
	for _, lost := range []string{segmentName(0), segmentName(200)} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, queuesDirectory, "t/0", lost)
		if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, o)
		if got := queueFiles(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("without %s: the queue is not as it was", lost)
		}
		checkQueues(t, l)
	}
	checkQueueEnd(t, l, "t", 0, 23)
}

// For commitlog/restart_test.go, with recover.go's fix: a store that RocketMQ
// left unclean, with a checkpoint that is ahead of one queue's contents.
func TestQueueThatLagsBehindTheCheckpointIsCompleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	l := mustOpen(t, testOptions(dir))
	for range 10 {
		mustPut(t, l, "a", 0, 3000)
	}
	for range 60 {
		mustPut(t, l, "b", 0, 3000)
	}
	awaitOffset(t, l, l.EndOffset())
	crashed, newest := copyStore(t, dir), l.LastStoreTimestamp()
	f, err := os.OpenFile(filepath.Join(crashed, queuesDirectory, "a/0", segmentName(0)), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 5*queueUnitBytes), 5*queueUnitBytes)
		err = errors.Join(err, f.Close(), l.Close(), os.Remove(filepath.Join(crashed, hintName)),
			writeCheckpoint(OSDisk(), crashed, Checkpoint{PhysicTimestamp: newest + 3000, LogicsTimestamp: newest + 3000}))
	}
	if err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, testOptions(crashed))
	checkQueues(t, l)
	checkQueueEnd(t, l, "a", 0, 10)
}

// A log whose last flush fails says so when it is closed: nobody else would.
func TestCloseTellsThatItsFlushFailed(t *testing.T) {
	disk := NewTwin(5)
	l := mustOpen(t, twinOptions(disk))
	mustPut(t, l, "topic", 0, 100)
	disk.Fail("sync", &TwinFault{Err: syscall.EIO, Path: segmentsDirectory})
	if err := l.Close(); !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrReadOnly) {
		t.Errorf("closed: %v", err)
	}
}
