package commitlog

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// countingDisk counts the bytes that are populated.
type countingDisk struct {
	Disk
	populated atomic.Int64
}

type countingFile struct {
	File
	disk *countingDisk
}

func (d *countingDisk) Create(path string, size int64) (File, error) {
	f, err := d.Disk.Create(path, size)
	return &countingFile{f, d}, err
}

func (f *countingFile) Populate(off, n int64) error {
	f.disk.populated.Add(n)
	return f.File.Populate(off, n)
}

func openWindow(t *testing.T, bytes int64) (*Log, *countingDisk) {
	disk := &countingDisk{Disk: NewTwin(1)}
	o := twinOptions(nil)
	o.Disk, o.SegmentBytes, o.PopulateBytes, o.FlushInterval = disk, 1<<20, bytes, time.Hour
	l := mustOpen(t, o)
	mustPut(t, l, "topic", 0, 10)
	return l, disk
}

// await waits for the window's goroutine to come to an offset.
func (w *window) await(t *testing.T, offset int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the window reaches offset %d", offset), func() bool { return w.to.Load() >= offset })
}

func TestWindowIsAheadOfTheEndAcrossSegments(t *testing.T) {
	const bytes = 512 << 10
	l, _ := openWindow(t, bytes)
	for l.EndOffset() < 3<<20 {
		a := mustPut(t, l, "topic", 0, 4000)
		l.window.await(t, a.EndOffset+bytes/2)
		if to := l.window.to.Load(); to > a.EndOffset+bytes {
			t.Fatalf("the window reaches from %d to %d", a.EndOffset, to)
		}
	}
}

// While the goroutine gets no processor, appends populate in its place.
func TestAppendsPopulateWhenTheWindowIsBehind(t *testing.T) {
	l, disk := openWindow(t, 512<<10)
	l.window.stop()
	l.window.quit, l.window.done = make(chan struct{}), make(chan struct{})
	defer l.window.start()
	before := disk.populated.Load()
	for end := l.EndOffset(); end < 900<<10; {
		end = mustPut(t, l, "topic", 0, 4000).EndOffset
		if to := l.window.to.Load(); to < end {
			t.Fatalf("the log ends at %d, what is present at %d", end, to)
		}
	}
	if n := disk.populated.Load() - before; n == 0 || n > 1<<20 {
		t.Fatalf("%d bytes were populated", n)
	}
}

func TestWindowIsPopulatedAgainAfterALargeSyncOnly(t *testing.T) {
	const bytes = 256 << 10
	l, disk := openWindow(t, bytes)
	l.window.await(t, bytes/2)
	must(t, l.Flush())
	for _, c := range []struct {
		bytes int64
		again bool
	}{{bytes / 8, false}, {bytes / 2, true}} {
		for to := l.EndOffset() + c.bytes; l.EndOffset() < to; {
			mustPut(t, l, "topic", 0, 4000)
		}
		l.window.stop() // what grows is populated
		l.window.quit, l.window.done = make(chan struct{}), make(chan struct{})
		before := disk.populated.Load()
		must(t, l.Flush())
		if l.window.washed.Load() != c.again {
			t.Errorf("after a sync of %d bytes the window of %d is due: %v", c.bytes, bytes, !c.again)
		}
		l.window.start()
		if c.again {
			eventually(t, "the window is populated", func() bool { return disk.populated.Load() >= before+bytes })
		}
	}
}
