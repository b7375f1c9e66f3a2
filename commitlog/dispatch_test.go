package commitlog

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/internal/fixture"
)

// testOptions are those of a small store without background noise.
func testOptions(dir string) Options {
	return Options{
		Dir: dir, SegmentBytes: 64 << 10, QueueFileBytes: 2000, Logger: discard, Preallocate: true,
		Limits: Limits{BodyBytes: 32 << 10},
	}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// mustPut appends a message of n body bytes to a queue.
func mustPut(t testing.TB, l *Log, topic string, id int32, n int) Appended {
	t.Helper()
	e, err := l.Encode(&Message{Topic: topic, QueueID: id, Body: make([]byte, n), Properties: "TAGS\x01TagA\x02"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	a, err := l.Append(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// awaitOffset waits until the dispatcher has come to an offset, or rests.
func awaitOffset(t testing.TB, l *Log, offset int64) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		moved := l.dispatcher.moved()
		if l.DispatchedOffset() >= offset || l.dispatcher.idle() {
			return
		}
		select {
		case <-moved:
		case <-limit.C:
			t.Fatalf("dispatched to %d, want %d", l.DispatchedOffset(), offset)
		}
	}
}

// A store whose queues were lost has RocketMQ's own after an opening.
func TestQueuesBuiltFromTheLogAreRocketMQs(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			dir := fixture.Unpack(t, name)
			want := queueFiles(t, dir)
			if err := os.RemoveAll(filepath.Join(dir, queuesDirectory)); err != nil {
				t.Fatal(err)
			}
			o := testOptions(dir)
			o.SegmentBytes, o.QueueFileBytes = 0, 10_000
			l := mustOpen(t, o)
			if got := l.DispatchedOffset(); got != l.EndOffset() {
				t.Errorf("dispatched to %d when opened, the log ends at %d", got, l.EndOffset())
			}
			compareUnits(t, queueFiles(t, dir), want)
			checkQueues(t, l)
		})
	}
}

// What a transaction prepares or rolls back takes no place in a queue, delayed
// messages have the time they are due, and light queues and inner batches are
// not ours.
func TestRecordsAreQueuedByRocketMQsRules(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	put := func(m Message) QueueEntry {
		t.Helper()
		e, err := l.Encode(&m)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Release()
		a, err := l.Append(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		awaitOffset(t, l, a.EndOffset)
		var unit [1]QueueEntry
		n, _ := l.ReadQueue(QueueID{m.Topic, m.QueueID}, a.QueueOffset, unit[:])
		if n == 1 && unit[0].Offset == a.Offset {
			unit[0].Offset = a.StoreTimestamp
			return unit[0]
		}
		return QueueEntry{}
	}
	for _, c := range []struct {
		name       string
		m          Message
		tags       int64 // -1: not in the queue; with due, behind the store time
		due, uncov bool
	}{
		{"plain", Message{Topic: "t"}, 0, false, false},
		{"tags", Message{Topic: "t", Properties: "TAGS\x01TagA\x02"}, 2598919, false, false},
		{"negative hash", Message{Topic: "t", Properties: "TAGS\x01tag-🚀\x02"}, -879519498, false, false},
		{"prepared", Message{Topic: "t", SysFlag: FlagTransactionPrepared}, -1, false, false},
		{"rolled back", Message{Topic: "t", SysFlag: FlagTransactionRollback}, -1, false, false},
		{"committed", Message{Topic: "t", SysFlag: FlagTransactionCommit}, 0, false, false},
		{"delayed", Message{Topic: scheduleTopic, QueueID: 2, Properties: "DELAY\x013\x02TAGS\x01TagA\x02"}, 10_000, true, false},
		{"delayed beyond the last level", Message{Topic: scheduleTopic, Properties: "DELAY\x0199\x02"}, 7_200_000, true, false},
		{"delay level zero", Message{Topic: scheduleTopic, Properties: "DELAY\x010\x02TAGS\x01TagA\x02"}, 2598919, false, false},
		{"delay in another topic", Message{Topic: "t", Properties: "DELAY\x013\x02TAGS\x01TagA\x02"}, 2598919, false, false},
		{"light queue", Message{Topic: "t", Properties: "INNER_MULTI_DISPATCH\x01%LMQ%x\x02"}, 0, false, true},
		{"inner batch", Message{Topic: "inner", SysFlag: FlagInnerBatch}, -1, false, true},
	} {
		l.dispatcher.uncov.Store(false)
		unit := put(c.m)
		want := c.tags
		if c.due {
			want += unit.Offset
		}
		if c.tags == -1 {
			if unit.Size != 0 {
				t.Errorf("%s: is in the queue: %+v", c.name, unit)
			}
		} else if unit.Size == 0 || unit.TagsCode != want {
			t.Errorf("%s: unit %+v, want tags code %d", c.name, unit, want)
		}
		if got := l.dispatcher.uncovered(); got != c.uncov {
			t.Errorf("%s: uncovered %v, want %v", c.name, got, c.uncov)
		}
	}
}

// publish feeds bytes to a replica's log in pieces.
func publish(t *testing.T, l *Log, b []byte, piece int) error {
	t.Helper()
	for len(b) > 0 {
		room, err := l.Reserve(math.MaxInt32)
		if errors.Is(err, ErrSegmentPending) {
			continue
		}
		if err != nil {
			return err
		}
		n := min(len(b), piece, len(room))
		copy(room, b[:n])
		if err := l.Publish(n); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func TestReplicaQueuesWholeRecordsOnly(t *testing.T) {
	log, lines := fixtureLog(t, "killed")
	want := queueFiles(t, fixture.Unpack(t, "killed"))
	dir := t.TempDir()
	o := testOptions(dir)
	o.SegmentBytes, o.QueueFileBytes = fixtureSegmentBytes, 10_000
	l := mustOpen(t, o)
	end := *lines[len(lines)-1].End
	half := lines[len(lines)-2].PhysicOffset + 100 // inside the last record
	if err := publish(t, l, log[:half], 7001); err != nil {
		t.Fatal(err)
	}
	must(t, l.AwaitChecked(20*time.Second)) // what there is whole
	if got, want := l.DispatchedOffset(), lines[len(lines)-2].PhysicOffset; got != want {
		t.Errorf("dispatched to %d, want %d: the last record is not all there", got, want)
	}
	if err := publish(t, l, log[half:end], 1); err != nil {
		t.Fatal(err)
	}
	awaitOffset(t, l, end)
	if got := l.DispatchedOffset(); got != end {
		t.Errorf("dispatched to %d, want %d", got, end)
	}
	compareUnits(t, queueFiles(t, dir), want)
	checkQueues(t, l)
}

// A replica looks at every byte it was sent before it counts as checked.
func TestReplicaStopsAtTheFirstBadRecord(t *testing.T) {
	log, lines := fixtureLog(t, "killed")
	victim := slices.IndexFunc(lines[20:], func(l fixture.Line) bool { return l.BodyLength > 100 && l.SysFlag == 0 }) + 20
	at, big := lines[victim].PhysicOffset, lines[victim+1]
	set := func(i int64, v byte) func([]byte) { return func(b []byte) { b[i] = v } }
	filler := func(b []byte) { copy(b[at:], AppendFiller(nil, 4096)) }
	for _, c := range []struct {
		name   string
		damage func([]byte)
		end    int64 // how much is sent
		at     int64 // of the damage
		kind   string
		detail string
	}{
		{"body", set(at+90, log[at+90]^1), big.PhysicOffset, at, KindCRC, "CRC-32"},
		{"position", set(at+physicalOffsetAt, 1), big.PhysicOffset, at, KindPosition, "offset"},
		{"lengths", set(at+87, log[at+87]^1), big.PhysicOffset, at, KindLengths, ""},
		{"magic of a record that is not all there", set(big.PhysicOffset+7, 0), big.PhysicOffset + 8, big.PhysicOffset, KindMagic, ""},
		{"filler of a master with smaller segments", filler, at + 8, at, KindFiller, "segments have 1048576 bytes here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := bytes.Clone(log)
			c.damage(bad)
			o := testOptions(t.TempDir())
			o.SegmentBytes = fixtureSegmentBytes
			l := mustOpen(t, o)
			if err := publish(t, l, bad[:c.end], 1<<20); err != nil && !errors.Is(err, ErrReadOnly) {
				t.Fatal(err)
			}
			var damage *CorruptError
			err := l.AwaitChecked(20 * time.Second)
			if !errors.As(err, &damage) || damage.Kind != c.kind || damage.Offset != c.at || !strings.Contains(damage.Detail, c.detail) {
				t.Errorf("%v, want %s at %d", err, c.kind, c.at)
			}
			if got := l.DispatchedOffset(); got != c.at {
				t.Errorf("dispatched to %d, want %d", got, c.at)
			}
		})
	}
}

// Records whose index leaves a gap that the log does not explain are queued
// where they say, with RocketMQ's blanks before.
func TestGapOfTheLogItselfIsFilledWithBlanks(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	var log []byte
	for _, index := range []int64{0, 1, 5, 6} {
		log = AppendRecord(log, &Message{Topic: "t", QueueOffset: index, PhysicalOffset: int64(len(log))})
	}
	if err := publish(t, l, log, 50); err != nil {
		t.Fatal(err)
	}
	awaitOffset(t, l, int64(len(log)))
	units := make([]QueueEntry, 10)
	n, err := l.ReadQueue(QueueID{"t", 0}, 0, units)
	if n != 7 || err != nil {
		t.Fatalf("%d units, %v", n, err)
	}
	for i, e := range units[:n] {
		if blank := i >= 2 && i <= 4; e.blank() != blank || !blank && e.Offset != int64(map[int]int{0: 0, 1: 1, 5: 2, 6: 3}[i]*92) {
			t.Errorf("unit %d is %+v", i, e)
		}
	}
}

func TestDispatchingDoesNotAllocate(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes, o.QueueFileBytes = 64<<20, 0
	l := mustOpen(t, o)
	l.dispatcher.stop()
	encoded := make([]Encoded, 4)
	for i := range encoded {
		e, err := l.Encode(&Message{Topic: "topic", QueueID: int32(i), Body: make([]byte, 512), Properties: "TAGS\x01TagA\x02"})
		if err != nil {
			t.Fatal(err)
		}
		encoded[i] = e
	}
	pass := func() {
		for i := range 40 {
			if _, err := l.Append(encoded[i%len(encoded)], nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.dispatcher.pass(); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if n := testing.AllocsPerRun(50, pass); n != 0 {
		t.Errorf("%v allocations for 40 records, want 0", n)
	}
	if l.DispatchedOffset() != l.EndOffset() {
		t.Error("records are left")
	}
}

// What is there is written to the queues in as few pieces as may be: more of it
// than the dispatcher copies at once.
func TestUnitsOfManyRecordsAreWrittenTogether(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes, o.QueueFileBytes = 8<<20, 0
	var commits []int64
	o.OnDispatched = func(offset int64) { commits = append(commits, offset) }
	l := mustOpen(t, o)
	l.dispatcher.stop()
	commits = nil
	e, err := l.Encode(&Message{Topic: "topic", Body: make([]byte, 32<<10)})
	if err != nil {
		t.Fatal(err)
	}
	const records = 3 * dispatchCommitBytes / (32 << 10) / 2
	for range records {
		if _, err := l.Append(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.dispatcher.pass(); err != nil {
		t.Fatal(err)
	}
	if len(commits) != 2 || commits[1] != l.EndOffset() {
		t.Errorf("%d bytes were committed up to %v, want two times", l.EndOffset(), commits)
	}
}

// A full disk under the queues is no end: records wait, and go on into the
// queues when there is space again.
func TestFullDiskOnlyDelaysTheQueues(t *testing.T) {
	disk := NewTwin(1)
	l := mustOpen(t, twinOptions(disk))
	mustPut(t, l, "t", 0, 100)
	awaitOffset(t, l, l.EndOffset())
	disk.Fail("create", &TwinFault{Err: syscall.ENOSPC, Path: queuesDirectory})
	for range 3 {
		mustPut(t, l, "u", 0, 100)
	}
	awaitFailure := time.NewTimer(20 * time.Second)
	defer awaitFailure.Stop()
	for l.dispatcher.trouble() == nil {
		select {
		case <-awaitFailure.C:
			t.Fatal("the dispatcher has no trouble with a full disk")
		default:
			runtime.Gosched()
		}
	}
	if err := l.dispatcher.trouble(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("trouble is %v", err)
	}
	if err := l.Writable(); err != nil {
		t.Errorf("the log takes no more writes: %v", err)
	}
	disk.Fail("create", nil)
	l.dispatcher.hurry()
	awaitOffset(t, l, l.EndOffset())
	if err := l.dispatcher.trouble(); err != nil {
		t.Errorf("trouble is left: %v", err)
	}
	checkQueues(t, l)
	checkQueueEnd(t, l, "u", 0, 3)
}

// A full disk is told once, and its end when records are in the queues again.
func TestTroubleOfTheQueuesEndsWhenTheyAreWritten(t *testing.T) {
	var lines bytes.Buffer
	disk := NewTwin(1)
	o := twinOptions(disk)
	o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	l := mustOpen(t, o)
	l.dispatcher.stop()
	lines.Reset()
	disk.Fail("create", &TwinFault{Err: syscall.ENOSPC, Path: queuesDirectory})
	mustPut(t, l, "u", 0, 100)
	for range 3 {
		if err := l.dispatcher.pass(); !errors.Is(err, syscall.ENOSPC) || !errors.Is(l.dispatcher.trouble(), syscall.ENOSPC) {
			t.Fatalf("%v; trouble is %v", err, l.dispatcher.trouble())
		}
	}
	if lines.Len() > 0 {
		t.Errorf("on a full disk it says:\n%s", &lines)
	}
	disk.Fail("create", nil)
	if err := l.dispatcher.pass(); err != nil || l.dispatcher.trouble() != nil {
		t.Errorf("%v; trouble is left: %v", err, l.dispatcher.trouble())
	}
	if n := strings.Count(lines.String(), "written again"); n != 1 {
		t.Errorf("that it is over was said %d times:\n%s", n, &lines)
	}
}

func BenchmarkDispatch(b *testing.B) {
	o := testOptions(b.TempDir())
	o.SegmentBytes, o.QueueFileBytes = 256<<20, 0
	l := mustOpen(b, o)
	l.dispatcher.stop()
	const records = 50_000
	for i := range records {
		mustPut(b, l, "topic", int32(i%4), 1024)
	}
	b.SetBytes(l.EndOffset())
	b.ReportAllocs()
	for b.Loop() {
		if err := l.queues.truncate(0); err != nil {
			b.Fatal(err)
		}
		l.dispatcher.restart(0)
		if err := l.dispatcher.pass(); err != nil || l.DispatchedOffset() != l.EndOffset() {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
}
