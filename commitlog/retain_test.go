package commitlog

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/internal/fixture"
)

// aged is a log on a twin whose clock the test sets, with segments of a record
// an hour.
func aged(t *testing.T, change func(*Options)) (*Log, *atomic.Int64, *Twin) {
	t.Helper()
	disk := NewTwin(1)
	o := twinOptions(disk)
	var hours atomic.Int64
	start := time.Now()
	o.Now = func() time.Time { return start.Add(time.Duration(hours.Load()) * time.Hour) }
	o.Retention = 72 * time.Hour
	change(&o)
	l := mustOpen(t, o)
	for range 20 { // two records a segment
		mustPut(t, l, "topic", 0, 3500)
		hours.Add(1)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	awaitDispatch(t, l)
	return l, &hours, disk
}

func retain(t *testing.T, l *Log) int64 {
	t.Helper()
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if err := l.keeper.retainLocked(); err != nil {
		t.Fatal(err)
	}
	return l.MinOffset() / l.SegmentBytes()
}

// awaitSegments waits until so many segments are left: the last of them is the next,
// as soon as it is made.
func awaitSegments(t *testing.T, disk *Twin, l *Log, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		names, err := disk.ReadDir(l.dir)
		if err == nil && len(names) == n {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, %v", names, err)
		}
	}
}

// The age of a segment is that of its last record: records are stored at hour
// 0, 1 | 2, 3 | …
func TestSegmentsGoByTheAgeOfTheirLastRecord(t *testing.T) {
	l, hours, disk := aged(t, func(*Options) {})
	for _, c := range []struct{ hour, first int64 }{
		{20, 0}, {73, 0}, {74, 1}, {75, 1}, {76, 2}, {88, 8}, {1000, 9},
	} {
		hours.Store(c.hour)
		if got := retain(t, l); got != c.first {
			t.Errorf("at hour %d segment %d is the first, want %d", c.hour, got, c.first)
		}
	}
	awaitSegments(t, disk, l, 2)
	checkRecords(t, l, 2)
	if first, end, _ := l.QueueBounds(QueueID{"topic", 0}); first != 18 || end != 20 {
		t.Errorf("the queue holds [%d, %d), want [18, 20)", first, end)
	}
	if _, err := l.Read(0); err == nil {
		t.Error("a removed record was read")
	}
}

func TestRetentionKeepsWhatAReplicaNeedsUpToALimit(t *testing.T) {
	l, hours, disk := aged(t, func(o *Options) { o.RetentionDisk = 50 })
	l.SetKeep(3*l.SegmentBytes() + 100)
	hours.Store(1000)
	if got := retain(t, l); got != 3 {
		t.Errorf("segment %d is the first, a replica needs 3", got)
	}
	awaitSegments(t, disk, l, 8)
	used, _, _ := disk.Usage("")
	disk.SetCapacity(used * 100 / 87)
	if got := retain(t, l); got != 3 {
		t.Errorf("segment %d is the first, a replica needs 3 and there is room", got)
	}
	disk.SetCapacity(used * 100 / 95) // beyond the limit the disk comes first
	if got := retain(t, l); got <= 3 || got == 9 {
		t.Errorf("segment %d is the first on a disk that is too full", got)
	}
	l.SetKeep(math.MaxInt64)
	if got := retain(t, l); got != 9 {
		t.Errorf("segment %d is the first, want 9", got)
	}
}

func TestFullDiskMakesTheOldestGoEarly(t *testing.T) {
	l, _, disk := aged(t, func(o *Options) { o.RetentionDisk, o.Retention = 85, 0 })
	l.SetKeep(math.MaxInt64)
	used, _, _ := disk.Usage("")
	disk.SetCapacity(used * 100 / 60) // the next segment may still come
	if got := retain(t, l); got != 0 {
		t.Errorf("segment %d is the first below the limit", got)
	}
	disk.SetCapacity(used * 100 / 88)
	if got := retain(t, l); got == 0 || got > 2 {
		t.Errorf("segment %d is the first, want as many gone as it takes", got)
	}
}

func TestReadersKeepASegmentThatIsRemoved(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Retention = time.Nanosecond
	l := mustOpen(t, o)
	for range 100 {
		mustPut(t, l, "topic", 0, 1000)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	awaitDispatch(t, l)
	v, err := l.View(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	path := l.SegmentPath(0)
	last := l.LastStoreTimestamp()
	eventually(t, "the records have an age in whole milliseconds", func() bool { return time.Now().UnixMilli() > last+1 })
	l.SetKeep(math.MaxInt64)
	if retain(t, l) != 1 {
		t.Fatalf("the log begins at %d", l.MinOffset())
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	b := make([]byte, 1000)
	if _, err := v.CopyTo(b); err != nil || recordSizeWord(b) < recordFixedBytes {
		t.Errorf("a reader lost its segment: %v", err)
	}
	s := v.segment
	v.Release()
	if s.refs.Load() != 0 {
		t.Errorf("%d references are left", s.refs.Load())
	}
}

// An adopted store is cleaned only when that was asked for.
func TestRocketMQsStoreIsCleanedOnlyWhenAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		dir := fixture.Unpack(t, "mixed")
		o := fixtureOptions(dir)
		o.Retention, o.RetentionGiven = time.Hour, asked
		now := time.Now().Add(10000 * time.Hour)
		o.Now = func() time.Time { return now }
		l := mustOpen(t, o)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l.SetKeep(math.MaxInt64)
		if got, want := retain(t, l), map[bool]int64{false: 0, true: 4}[asked]; got != want {
			t.Errorf("asked %v: segment %d is the first, want %d", asked, got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		names, _ := filepath.Glob(filepath.Join(dir, segmentsDirectory, "*"))
		if want := map[bool]int{false: 5, true: 1}[asked]; len(names) != want {
			t.Errorf("asked %v: %d segments are left, want %d", asked, len(names), want)
		}
	}
}

// Row 32 of the faults: the first segments are gone while nobody ran.
func TestLogWhoseFirstSegmentsWereRemovedGoesOn(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 400, 1000)
	for i := range 4 {
		if err := os.Remove(filepath.Join(o.Dir, segmentsDirectory, segmentName(int64(i)*64<<10))); err != nil {
			t.Fatal(err)
		}
	}
	for _, asCrashed := range []bool{false, true} {
		if asCrashed {
			crashed(t, o.Dir, 100, false)
		}
		l := mustOpen(t, o)
		if l.MinOffset() != 4*64<<10 || l.EndOffset() != all[399].EndOffset {
			t.Errorf("log is [%d, %d)", l.MinOffset(), l.EndOffset())
		}
		for i := range int32(3) {
			first, _, _ := l.QueueBounds(QueueID{"topic", i})
			var e [1]QueueEntry
			if _, err := l.ReadQueue(QueueID{"topic", i}, first, e[:]); err != nil || e[0].Offset < l.MinOffset() {
				t.Errorf("queue %d begins at index %d with offset %d, the log at %d (%v)", i, first, e[0].Offset, l.MinOffset(), err)
			}
		}
		checkRecords(t, l, -1)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReplicaThatDoesNotMoveNeverFillsTheDisk(t *testing.T) {
	l, hours, disk := aged(t, func(*Options) {}) // by age only
	l.SetKeep(0)
	hours.Store(1000)
	used, _, _ := disk.Usage("")
	disk.SetCapacity(used * 100 / 60)
	if got := retain(t, l); got != 0 {
		t.Errorf("segment %d is the first, a replica needs 0 and there is room", got)
	}
	disk.SetCapacity(used * 100 / 95)
	if got := retain(t, l); got == 0 {
		t.Error("a full disk goes before a replica that does not move")
	}
}
