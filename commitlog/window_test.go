package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	eventually(t, fmt.Sprintf("the window reaches offset %d", offset), func() bool { return w.ready.Load() >= offset })
}

func TestWindowIsAheadOfTheEndAcrossSegments(t *testing.T) {
	const bytes = 512 << 10
	l, _ := openWindow(t, bytes)
	for l.EndOffset() < 3<<20 {
		a := mustPut(t, l, "topic", 0, 4000)
		l.window.await(t, a.EndOffset+bytes/2)
		if to := l.window.ready.Load(); to > a.EndOffset+bytes {
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
		if to := l.window.ready.Load(); to < end {
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
			eventually(t, "the window is populated", func() bool { return disk.populated.Load() >= before+bytes/2 })
		}
	}
}

// Where each few records have a sync of their own, pages ahead are zeros, and not
// mapped: the next sync would undo it for each of them.
func TestPagesAreNotMappedAheadOfSmallSyncs(t *testing.T) {
	const bytes = 256 << 10
	l, disk := openWindow(t, bytes)
	l.window.await(t, bytes)
	fill := func(n, each int64) (populated int64) {
		before := disk.populated.Load()
		for to := l.EndOffset() + n; l.EndOffset() < to; {
			for part := l.EndOffset() + each; l.EndOffset() < part; {
				mustPut(t, l, "topic", 0, 4000)
			}
			must(t, l.Flush())
		}
		l.window.await(t, l.EndOffset()+bytes/2)
		return disk.populated.Load() - before
	}
	fill(8000, 8000) // the window learns it
	if n := fill(bytes, 8000); n != 0 {
		t.Errorf("%d bytes were populated beside syncs of 8 kB", n)
	}
	before := disk.populated.Load()
	for to := l.EndOffset() + bytes; l.EndOffset() < to; {
		l.window.await(t, mustPut(t, l, "topic", 0, 4000).EndOffset+bytes/2)
	}
	if n := disk.populated.Load() - before; n == 0 {
		t.Error("nothing was populated in a burst behind small syncs")
	}
	fill(bytes/4, bytes/4)
	if n := fill(bytes, bytes/4); n == 0 {
		t.Error("nothing was populated beside syncs of a quarter of the window")
	}
}

// Zeros are written ahead of appends that come as fast as they can, and never
// over one.
func TestWindowNeverMeetsARecord(t *testing.T) {
	for name, disk := range map[string]Disk{"heap": NewTwin(1), "files": OSDisk()} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t.TempDir())
			o.Disk, o.SegmentBytes, o.PopulateBytes, o.FlushInterval = disk, 1<<20, 256<<10, 20*time.Millisecond
			l := mustOpen(t, o)
			var mu sync.Mutex
			offsets := map[int64]byte{}
			var producers sync.WaitGroup
			for p := range 4 {
				producers.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(p)))
					for range 600 {
						fill := byte(1 + random.IntN(255))
						a, err := put(l, "topic", int32(p), bytes.Repeat([]byte{fill}, 1+random.IntN(9000)))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						offsets[a.Offset] = fill
						mu.Unlock()
					}
				})
			}
			producers.Wait()
			for offset, fill := range offsets {
				m, err := l.Read(offset)
				must(t, err)
				if len(bytes.Trim(m.Body, string([]byte{fill}))) > 0 {
					t.Fatalf("the record at offset %d has other bytes", offset)
				}
			}
		})
	}
}

// The same on a replica, whose bytes come through a mapping and through the file in turns.
func TestWindowNeverMeetsWhatIsReceived(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes = 1 << 20
	master := mustOpen(t, o)
	for master.EndOffset() < 6<<20 {
		mustPut(t, master, "topic", 0, 1+int(master.EndOffset()%7000))
	}
	o.Dir, o.PopulateBytes = t.TempDir(), 256<<10
	l := mustOpen(t, o)
	random := rand.New(rand.NewPCG(1, 2))
	for through := false; l.EndOffset() < master.EndOffset(); through = !through {
		want := min(int64(1+random.IntN(200_000)), master.EndOffset()-l.EndOffset())
		if !through {
			replicate(t, master, l, l.EndOffset()+want, 1+random.IntN(40_000))
			continue
		}
		mustReserveUpTo(t, l, 1) // the next segment is there
		fd, at, room, err := l.ReserveFile(want)
		must(t, err)
		b := make([]byte, room)
		_, err = master.ReadAt(b, l.EndOffset())
		must(t, err)
		if _, err := unix.Pwrite(fd, b, at); err != nil {
			t.Fatal(err)
		}
		must(t, l.Publish(len(b)))
	}
	want, got := make([]byte, master.EndOffset()), make([]byte, master.EndOffset())
	_, err := master.ReadAt(want, 0)
	must(t, err)
	_, err = l.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(want, got) {
		t.Error("the logs differ")
	}
	awaitDispatch(t, l)
}

func TestNoPagesAheadOfBytesThatComeThroughTheFile(t *testing.T) {
	l, _ := openWindow(t, 512<<10)
	end := l.EndOffset()
	l.window.rest(true)
	l.window.cut(end)
	l.window.grown(end)
	l.window.fill()
	if ready := l.window.ready.Load(); ready != end {
		t.Errorf("the log ends at %d, all is ready up to %d", end, ready)
	}
	l.window.rest(false)
	l.window.await(t, end+256<<10)
}

// A slave that had its last bytes through the file is a master with a window.
func TestWindowGoesOnAfterATakeOver(t *testing.T) {
	l, _ := openWindow(t, 512<<10)
	awaitDispatch(t, l)
	l.window.rest(true)
	l.window.cut(l.EndOffset())
	_, err := l.TakeOver()
	must(t, err)
	end := mustPut(t, l, "topic", 0, 10).EndOffset
	l.window.await(t, end+256<<10)
}

// An append that has ended looks at the window once more, when Close may be over and
// the file be somebody else's.
func TestWindowIsHeldAfterClose(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes, o.PopulateBytes = 1<<20, 256<<10
	l := mustOpen(t, o)
	end := mustPut(t, l, "topic", 0, 10).EndOffset
	must(t, l.Close())
	if ready := l.window.ready.Load(); ready != windowOff {
		t.Errorf("the window ends at %d after Close", ready)
	}
	l.window.grown(end)
}

// What somebody cut off would look whole again.
func TestWindowDoesNotMakeACutFileGrow(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes, o.PopulateBytes = 1<<20, 256<<10
	l := mustOpen(t, o)
	mustPut(t, l, "topic", 0, 10)
	l.window.await(t, 128<<10)
	path := l.SegmentPath(0)
	must(t, os.Truncate(path, 4096))
	l.window.skip(512 << 10)
	l.window.fill()
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() != 4096 {
		t.Errorf("the file has %d bytes, was cut to 4096", info.Size())
	}
	if _, _, _, err := l.ReserveFile(100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("bytes for the file: %v", err)
	}
}

// Views that are held keep the bytes that a truncation cut, and the log has
// zeros in their place, with the window at work before and after.
func TestWindowAndTruncation(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes, o.PopulateBytes = 4<<20, 256<<10
	l := mustOpen(t, o)
	to := mustPut(t, l, "topic", 0, 1000).EndOffset
	for range 20 {
		for range 50 {
			if _, err := put(l, "topic", 0, bytes.Repeat([]byte{7}, 3000)); err != nil {
				t.Fatal(err)
			}
		}
		view, err := l.View(to, l.EndOffset())
		must(t, err)
		before, after := make([]byte, l.EndOffset()-to), make([]byte, l.EndOffset()-to)
		_, err = view.CopyTo(before)
		must(t, err)
		_, err = l.Truncate(to)
		must(t, err)
		l.window.fill()
		_, err = view.CopyTo(after)
		must(t, err)
		view.Release()
		if !bytes.Equal(before, after) {
			t.Fatal("a view shows other bytes after the truncation")
		}
		if ready := l.window.ready.Load(); ready < to || ready > to+o.PopulateBytes {
			t.Fatalf("after a truncation to %d all is ready up to %d", to, ready)
		}
	}
}
