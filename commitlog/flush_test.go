package commitlog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowDisk is a disk whose syncs are counted and can be held.
type slowDisk struct {
	Disk
	syncs  atomic.Int64
	hold   sync.RWMutex
	before func() // nil, or called before each

	forgotten [2]int64 // the last range of a segment, by a log without goroutines
}

type slowFile struct {
	File
	disk *slowDisk
	path string
}

func (d *slowDisk) Open(path string, write bool) (File, error) {
	f, err := d.Disk.Open(path, write)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d, path}, nil
}

func (d *slowDisk) Create(path string, size int64) (File, error) {
	f, err := d.Disk.Create(path, size)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d, path}, nil
}

func (f *slowFile) Sync() error {
	if filepath.Base(filepath.Dir(f.path)) == segmentsDirectory {
		f.disk.hold.RLock()
		defer f.disk.hold.RUnlock()
		f.disk.syncs.Add(1)
		if f.disk.before != nil {
			f.disk.before()
		}
	}
	return f.File.Sync()
}

func (f *slowFile) Forget(off, n int64) error {
	f.disk.forgotten = [2]int64{off, off + n}
	return f.File.Forget(off, n)
}

// A sync takes the folios that it writes out of the mapping, as a whole: the kernel
// writes them so.
func TestSyncUnmapsWholeFolios(t *testing.T) {
	disk := &slowDisk{Disk: NewTwin(1)}
	o := twinOptions(nil)
	o.Disk, o.Manual, o.SegmentBytes = disk, true, 3*windowStep/2
	l := mustOpen(t, o)
	for _, c := range []struct{ to, first, last int64 }{
		{1000, 0, windowStep},
		{windowStep - 1000, 0, windowStep},
		{windowStep + 1000, 0, o.SegmentBytes}, // the segment's second folio is half a one
		{windowStep + 2000, windowStep, o.SegmentBytes},
	} {
		for l.EndOffset() < c.to {
			mustPut(t, l, "topic", 0, 100)
		}
		must(t, l.Flush())
		if want := [2]int64{c.first, c.last}; disk.forgotten != want {
			t.Errorf("sync up to %d: %d was taken out, want %d", l.EndOffset(), disk.forgotten, want)
		}
	}
}

// One fdatasync serves all that wait for it.
func TestOneSyncServesAllThatWait(t *testing.T) {
	disk := &slowDisk{Disk: NewTwin(1)}
	o := twinOptions(nil)
	o.Disk, o.SegmentBytes, o.Flush = disk, 1<<20, SyncFlush
	var told []int64
	var mu sync.Mutex
	o.OnFlushed = func(offset int64) { mu.Lock(); told = append(told, offset); mu.Unlock() }
	l := mustOpen(t, o)
	mustPut(t, l, "topic", 0, 10)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.roller.stop() // its syncs of new segments would be counted
	l.roller.quit, l.roller.done = make(chan struct{}), make(chan struct{})
	l.roller.start()
	before := disk.syncs.Load()
	const waiters = 40
	var wg sync.WaitGroup
	disk.hold.Lock()
	for range waiters {
		wg.Go(func() {
			a := mustPut(t, l, "topic", 0, 100)
			l.RequestFlush(a.EndOffset)
			if err := l.Flush(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all have appended", func() bool { return l.EndOffset() >= waiters*200 })
	disk.hold.Unlock()
	wg.Wait()
	if n := disk.syncs.Load() - before; n > 3 {
		t.Errorf("%d syncs for %d waiters", n, waiters)
	}
	// Flush may return before the callback is through.
	eventually(t, "the end was told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told[len(told)-1] == l.EndOffset()
	})
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < len(told); i++ {
		if told[i] <= told[i-1] {
			t.Errorf("flushed offset %d told after %d", told[i], told[i-1])
		}
	}
}

// ASYNC_FLUSH: enough pages in an interval, or the thorough interval.
func TestIntervalsFlushByPagesOrThoroughly(t *testing.T) {
	o := Options{FlushPages: 4, FlushThorough: 10 * time.Second}
	for _, c := range []struct {
		end, flushed int64
		since        time.Duration
		due          bool
	}{
		{0, 0, time.Hour, false},
		{100, 0, time.Second, false},
		{100, 0, 10 * time.Second, true},
		{16383, 0, time.Second, false},
		{16384, 0, time.Second, true},
		{16384, 4095, time.Second, true}, // counted in pages touched, as RocketMQ does
		{20479, 4096, time.Second, false},
		{20479, 20479, time.Hour, false},
	} {
		if got := o.flushDue(c.end, c.flushed, c.since); got != c.due {
			t.Errorf("%+v: %v", c, got)
		}
	}

	o = twinOptions(NewTwin(1))
	o.SegmentBytes = 1 << 20
	o.FlushInterval, o.FlushThorough = 5*time.Millisecond, time.Hour
	l := mustOpen(t, o)
	var last Appended
	for range 5 {
		last = mustPut(t, l, "topic", 0, 4000)
	}
	enough := last.EndOffset - last.EndOffset%4096 - 4*4096
	eventually(t, "as many pages as an interval asks for are flushed", func() bool { return l.FlushedOffset() >= enough })

	o = twinOptions(NewTwin(1))
	o.FlushInterval, o.FlushThorough = 5*time.Millisecond, 20*time.Millisecond
	l = mustOpen(t, o)
	small := mustPut(t, l, "topic", 0, 10)
	eventually(t, "the thorough flush comes", func() bool { return l.FlushedOffset() >= small.EndOffset })
}

// Opening a log that was closed cleanly looks at a few bytes of it, whatever
// its size; after a crash it looks at what came after the hint.
func TestCleanOpeningReadsNoRecords(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	o.SegmentBytes = 64 << 10
	all := writeStore(t, o, 2000, 1000)
	r := func(change func(*hint)) *recovery {
		t.Helper()
		h, err := readHint(disk, o.Dir)
		if err != nil || h == nil {
			t.Fatal(h, err)
		}
		change(h)
		layout, err := loadLayout(disk, filepath.Join(o.Dir, segmentsDirectory), 0, h.SegmentBytes, discard)
		if err != nil {
			t.Fatal(err)
		}
		r := &recovery{disk: disk, layout: layout, hint: h, clean: true, logger: discard}
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	end := all[1999].EndOffset
	if got := r(func(*hint) {}); got.from != end || got.end != end || got.dispatchFrom != end {
		t.Errorf("scanned from %d, dispatch from %d, the log ends at %d", got.from, got.dispatchFrom, end)
	}
	after := all[1900].Offset
	if got := r(func(h *hint) { h.Flushed, h.Queued, h.TailBytes = after, after, 0 }); got.from != after || got.end != end {
		t.Errorf("scanned from %d to %d, want %d to %d", got.from, got.end, after, end)
	}
}

// The mapping still takes the bytes of the last page, and its fdatasync
// succeeds, but the file does not hold them.
func TestFileCutInsideItsLastPageIsNotFlushed(t *testing.T) {
	o := testOptions(t.TempDir())
	o.FlushInterval, o.FlushThorough = time.Hour, time.Hour
	l := mustOpen(t, o)
	a, err := put(l, "topic", 0, []byte("lost"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(l.SegmentPath(a.Offset), a.EndOffset-5); err != nil {
		t.Fatal(err)
	}
	var damage *CorruptError
	if err := l.Flush(); !errors.As(err, &damage) || damage.Path != l.SegmentPath(a.Offset) || damage.Offset != a.EndOffset-5 {
		t.Errorf("flush: %v, want the segment and where it was cut", err)
	}
	if got := l.FlushedOffset(); got > a.Offset {
		t.Errorf("flushed to %d, the file ends at %d", got, a.EndOffset-5)
	}
	if err := l.Writable(); !errors.Is(err, ErrReadOnly) {
		t.Errorf("writable: %v", err)
	}
}
