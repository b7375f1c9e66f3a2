package commitlog

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// readCounter counts the bytes that are read.
type readCounter struct {
	File
	read int64
}

func (f *readCounter) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.read += int64(n)
	return n, err
}

// A store that is opened looks for bytes behind the log's end. What was reserved
// and never written must not be read for it: a segment has a GiB.
func TestReservedSpaceIsNotRead(t *testing.T) {
	const size, used = 256 << 20, 1 << 20
	disk, path := OSDisk(), filepath.Join(t.TempDir(), "segment")
	f, err := disk.Create(path, size)
	must(t, err)
	if at, err := f.NextData(size / 2); err != nil || at == size/2 {
		t.Skipf("this file system does not tell reserved space from data (%v)", err)
	}
	if _, err := f.WriteAt(make([]byte, used), 0); err != nil {
		t.Fatal(err)
	}
	must(t, f.Sync())
	must(t, unix.Fadvise(f.(*osFile).fd, 0, 0, unix.FADV_DONTNEED)) // as after a restart of the machine
	must(t, f.Close())

	f, err = disk.Open(path, true)
	must(t, err)
	defer f.Close()
	counting := &readCounter{File: f}
	const from = 5000 // of no page
	if last, err := lastNonZero(counting, from); err != nil || last != from {
		t.Fatalf("last byte at %d, %v", last, err)
	}
	if counting.read > 2*used {
		t.Errorf("read %d bytes of a file that %d were written to", counting.read, used)
	}
}
