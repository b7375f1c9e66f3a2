package commitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// queueDamage is what may happen to the files of queue a/0 while a store with
// a valid hint is not open.
var queueDamage = map[string]func(dir string) error{
	"all queues removed": func(dir string) error { return os.RemoveAll(filepath.Join(dir, queuesDirectory)) },
	"queue removed":      func(dir string) error { return os.RemoveAll(filepath.Join(dir, queuesDirectory, "a")) },
	"first file removed": func(dir string) error { return os.Remove(queueFileOf(dir, 0)) },
	"last file removed":  func(dir string) error { return os.Remove(queueFileOf(dir, -1)) },
	"first file empty":   func(dir string) error { return os.Truncate(queueFileOf(dir, 0), 0) },
	"last file empty":    func(dir string) error { return os.Truncate(queueFileOf(dir, -1), 0) },
	"last file zeroed":   func(dir string) error { return zeroFile(queueFileOf(dir, -1), 0, -1) },
	"last units zeroed":  func(dir string) error { return zeroFile(queueFileOf(dir, -1), damagedFrom, damagedTo) },
	"a unit zeroed":      func(dir string) error { return zeroFile(queueFileOf(dir, -1), damagedFrom, damagedFrom+1) },
}

const damagedFrom, damagedTo = 5, 10

func queueFileOf(dir string, i int) string {
	files, _ := filepath.Glob(filepath.Join(dir, queuesDirectory, "a/0/*"))
	return files[(i+len(files))%len(files)]
}

func zeroFile(path string, from, to int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if to < 0 {
		to = int64(len(b) / queueUnitBytes)
	}
	clear(b[from*queueUnitBytes : to*queueUnitBytes])
	return os.WriteFile(path, b, 0o644)
}

// noteNow has the hint say that everything is flushed and queued.
func noteNow(t testing.TB, l *Log) {
	t.Helper()
	awaitOffset(t, l, l.EndOffset())
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if err := l.queues.flush(); err != nil {
		t.Fatal(err)
	}
	l.keeper.queued = l.DispatchedOffset()
	if err := l.keeper.saveLocked(true); err != nil {
		t.Fatal(err)
	}
	if got := l.keeper.last.Queued; got != l.EndOffset() {
		t.Fatalf("the hint says %d, the log ends at %d", got, l.EndOffset())
	}
}

func TestQueuesThatLostUnitsAreCompleted(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for _, units := range []int{10, 110} { // one file, and two
			for name, damage := range queueDamage {
				t.Run(fmt.Sprintf("clean %v, %d units, %s", clean, units, name), func(t *testing.T) {
					o := testOptions(filepath.Join(t.TempDir(), "store"))
					l := mustOpen(t, o)
					for range units {
						mustPut(t, l, "a", 0, 300)
						mustPut(t, l, "a", 1, 300)
						mustPut(t, l, "b", 7, 300)
					}
					noteNow(t, l)
					killed := copyStore(t, o.Dir)
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					if !clean {
						o.Dir = killed
					}
					if err := damage(o.Dir); err != nil {
						t.Fatal(err)
					}
					warned := &noted{}
					o.Logger = warned.logger()
					l = mustOpen(t, o)
					if n := warned.count("lost units", "topic=a queue=0", "end_index=", fmt.Sprintf("noted_end_index=%d", units)); n != 1 {
						t.Errorf("%d warnings: %s", n, warned.text())
					}
					for i := range 40 {
						for _, id := range []QueueID{{"a", 0}, {"a", 1}, {"b", 7}} {
							if got := mustPut(t, l, id.Topic, id.ID, 10).QueueOffset; got != int64(units+i) {
								t.Fatalf("put %d of %v got queue offset %d", i, id, got)
							}
						}
					}
					checkQueues(t, l)
				})
			}
		}
	}
}

// With more queues than the hint lists, and with a hint that lists none.
func TestLostQueuesAreNoticedWithoutAList(t *testing.T) {
	for _, c := range []struct {
		name, warning string
		ends          func(queueEnds) queueEnds
	}{
		{"sum", "noted_units=30", func(e queueEnds) queueEnds { e.list = nil; return e }},
		{"nothing", "there is no consume queue", func(queueEnds) queueEnds { return queueEnds{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(filepath.Join(t.TempDir(), "store"))
			l := mustOpen(t, o)
			for range 30 {
				mustPut(t, l, "a", 0, 300)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			h, err := readHint(OSDisk(), o.Dir)
			if err != nil {
				t.Fatal(err)
			}
			h.Queues = c.ends(h.Queues)
			if err := errors.Join(writeHint(OSDisk(), o.Dir, h), os.RemoveAll(filepath.Join(o.Dir, queuesDirectory))); err != nil {
				t.Fatal(err)
			}
			warned := &noted{}
			o.Logger = warned.logger()
			l = mustOpen(t, o)
			if warned.count(c.warning) != 1 {
				t.Errorf("warnings: %s", warned.text())
			}
			checkQueueEnd(t, l, "a", 0, 30)
			checkQueues(t, l)
		})
	}
}

// A queue whose records, too, are no longer there goes on where it was.
func TestLostQueueWithoutRecordsKeepsItsEnd(t *testing.T) {
	for _, end := range []int64{1, 99, 100, 101} {
		o := testOptions(filepath.Join(t.TempDir(), "store"))
		l := mustOpen(t, o)
		mustPut(t, l, "b", 0, 10)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		h, err := readHint(OSDisk(), o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		h.Queues.list = append(h.Queues.list, queueEnd{QueueID{"a b", 3}, 0, end})
		if err := writeHint(OSDisk(), o.Dir, h); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l = mustOpen(t, o)
			if first, got, _ := l.QueueBounds(QueueID{"a b", 3}); first != end || got != end {
				t.Errorf("the queue holds [%d, %d), want none before %d", first, got, end)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l = mustOpen(t, o)
		checkQueueEnd(t, l, "a b", 3, end)
		checkQueues(t, l)
	}
}

func TestTruncateAndRetentionKeepTheQueueEndsTrue(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	l := mustOpen(t, o)
	var to Appended
	for i := range 300 {
		a := mustPut(t, l, "a", int32(i%2), 1000)
		if i == 201 {
			to = a
		}
	}
	noteNow(t, l)
	if _, err := l.Truncate(to.Offset); err != nil {
		t.Fatal(err)
	}
	want := queueEnds{noted: true, count: 2, units: 201, list: []queueEnd{{QueueID{"a", 0}, 0, 101}, {QueueID{"a", 1}, 0, 100}}}
	check := func(dir string) {
		t.Helper()
		if h, err := readHint(OSDisk(), dir); err != nil || !reflect.DeepEqual(h.Queues, want) {
			t.Errorf("the hint says %+v, %v; want %+v", h, err, want)
		}
	}
	check(o.Dir)
	l.keeper.mu.Lock()
	err := l.keeper.remove((*l.list.Load())[0])
	l.keeper.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	noteNow(t, l)
	want.low = l.MinOffset()
	for i := range want.list {
		want.list[i].first, _, _ = l.QueueBounds(want.list[i].id)
	}
	check(o.Dir)
	killed := copyStore(t, o.Dir)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check(o.Dir)
	for _, dir := range []string{o.Dir, killed} {
		warned := &noted{}
		o.Dir, o.Logger = dir, warned.logger()
		l = mustOpen(t, o)
		if warned.count("queue") != 0 {
			t.Errorf("warnings: %s", warned.text())
		}
		checkQueueEnd(t, l, "a", 0, 101)
		checkQueueEnd(t, l, "a", 1, 100)
	}
}

func TestHintKeepsQueueEnds(t *testing.T) {
	h := &hint{CutTo: -1, Queues: queueEnds{noted: true, count: 3, units: 12, low: 9, list: []queueEnd{
		{QueueID{"checksum ", 0}, 1, 3}, {QueueID{"%RETRY%group", 7}, 0, 4}, {QueueID{"\u00fc\x7f", 1}, 5, 5},
	}}}
	got, err := decodeHint(h.encode())
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%+v, %v; want %+v\n%s", got, err, h, h.encode())
	}
}

// noRoom is a disk where holes of a queue's file cannot be filled.
type noRoom struct{ *Twin }

func (d noRoom) Open(path string, write bool) (File, error) {
	f, err := d.Twin.Open(path, write)
	if strings.Contains(path, queuesDirectory) {
		f = noRoomFile{f}
	}
	return f, err
}

type noRoomFile struct{ File }

func (f noRoomFile) Zero(int64, int64) error { return syscall.ENOSPC }

func (f noRoomFile) WriteAt(b []byte, off int64) (int, error) {
	all := len(b)
	for len(b) > 0 {
		n := min(int64(len(b)), sectorBytes-off%sectorBytes)
		old := make([]byte, sectorBytes)
		if _, err := f.File.ReadAt(old, off-off%sectorBytes); zeros(old) {
			return 0, errors.Join(syscall.ENOSPC, err)
		}
		if _, err := f.File.WriteAt(b[:n], off); err != nil {
			return 0, err
		}
		b, off = b[n:], off+n
	}
	return all, nil
}

// A node whose disk is full can be started, and its messages can be read.
func TestLogOpensOnAFullDisk(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprint("clean ", clean), func(t *testing.T) {
			disk := NewTwin(34)
			o := twinOptions(disk)
			l := mustOpen(t, o)
			for range 10 {
				mustPut(t, l, "a", 0, 100)
			}
			noteNow(t, l)
			killed := disk.clone()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if !clean {
				disk = killed
			}
			used, _, _ := disk.Usage(twinStore)
			disk.SetCapacity(used)
			o.Disk = noRoom{disk}
			l = mustOpen(t, o)
			checkRecords(t, l, 10)
			checkQueues(t, l)
			var err error
			for range 200 {
				if _, err = put(l, "a", 0, make([]byte, 1000)); err != nil {
					break
				}
			}
			if !errors.Is(err, ErrSegmentUnavailable) {
				t.Errorf("put on a full disk: %v", err)
			}
		})
	}
}

// Opening leaves alone what is zero already.
func TestClearingAQueueWritesOnlyOverBytes(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	o.QueueFileBytes = DefaultQueueFileBytes
	l := mustOpen(t, o)
	for range 10 {
		mustPut(t, l, "a", 0, 100)
	}
	blocks := func() int64 {
		var s syscall.Stat_t
		if err := syscall.Stat(queueFileOf(o.Dir, 0), &s); err != nil {
			t.Fatal(err)
		}
		return s.Blocks
	}
	noteNow(t, l)
	before := blocks()
	if err := l.queues.lookup(QueueID{"a", 0}).cutAt(5); err != nil {
		t.Fatal(err)
	}
	if err := l.queues.flush(); err != nil {
		t.Fatal(err)
	}
	if after := blocks(); after > before {
		t.Errorf("the file had %d blocks and has %d", before, after)
	}
	b, err := os.ReadFile(queueFileOf(o.Dir, 0))
	if err != nil || !zeros(b[5*queueUnitBytes:]) || zeros(b[4*queueUnitBytes:5*queueUnitBytes]) {
		t.Errorf("units are left behind the cut, or gone before it: %v", err)
	}
}

// The odd file is blamed, not those that are as they should be; and what the
// error says helps.
func TestQueueFileOfAnotherSizeIsNamed(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	l := mustOpen(t, o)
	for range 10 {
		mustPut(t, l, "a", 0, 100)
		mustPut(t, l, "b", 0, 100)
		mustPut(t, l, "b", 1, 100)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	odd := queueFileOf(o.Dir, 0)
	if err := os.Truncate(odd, 2020); err != nil {
		t.Fatal(err)
	}
	_, err := Open(o)
	var bad *CorruptError
	if !errors.As(err, &bad) || bad.Path != odd || !strings.Contains(err.Error(), "has 2020 bytes, the store's queue files have 2000") {
		t.Fatal(err)
	}
	queues := filepath.Join(o.Dir, queuesDirectory)
	if err := os.Rename(queues, queues+".away"); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	checkQueues(t, l)
	checkQueueEnd(t, l, "a", 0, 10)
	checkQueueEnd(t, l, "b", 1, 10)
}
