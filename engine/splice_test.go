package engine

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// fdDisk gives descriptors of its choice for files that are written to, and counts how
// often one is asked for.
type fdDisk struct {
	commitlog.Disk
	flags int // of the descriptor; 0: the file's own
	asked atomic.Int64
}

type fdFile struct {
	commitlog.File
	disk  *fdDisk
	other *os.File
}

func (d *fdDisk) Create(path string, size int64) (commitlog.File, error) {
	f, err := d.Disk.Create(path, size)
	if err != nil {
		return nil, err
	}
	w := &fdFile{File: f, disk: d}
	if d.flags != 0 {
		if w.other, err = os.OpenFile(path, d.flags, 0); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (f *fdFile) Fd() int {
	f.disk.asked.Add(1)
	if f.other != nil {
		return int(f.other.Fd())
	}
	return f.File.Fd()
}

func (f *fdFile) Close() error {
	if f.other != nil {
		f.other.Close()
	}
	return f.File.Close()
}

// masterWith opens a master with a log of so many bytes.
func masterWith(t *testing.T, bytes int64) *Engine {
	m := openMaster(t, Options{SegmentBytes: 16 << 20})
	batch := make([]*Message, 64)
	for i := range batch {
		batch[i] = message("topic", 0, string(make([]byte, 4000)))
	}
	for m.Status().MaxOffset < bytes {
		if _, err := m.PutBatch(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestLargeFramesGoThroughTheFile(t *testing.T) {
	m := masterWith(t, 40<<20)
	disk := &fdDisk{Disk: commitlog.OSDisk()}
	s := openSlave(t, m, Options{SegmentBytes: 16 << 20, Disk: disk})
	caughtUp := func() {
		t.Helper()
		end := m.Status().MaxOffset
		eventually(t, "the slave has all, checked", func() bool { return s.Status().QueuedOffset == end })
		sameLog(t, m, s)
	}
	caughtUp()
	before := disk.asked.Load()
	if before == 0 {
		t.Error("40 MiB came without a splice")
	}
	for i := range 20 { // through the mapping
		mustPut(t, m, message("topic", 0, string(make([]byte, i*10))))
	}
	caughtUp()
	if n := disk.asked.Load(); n != before {
		t.Errorf("single puts were spliced %d times", n-before)
	}
}

// Where there is no splice, the slave reads.
func TestLargeFramesWithoutSplice(t *testing.T) {
	m := masterWith(t, 10<<20)
	disk := &fdDisk{Disk: commitlog.OSDisk(), flags: os.O_WRONLY | os.O_APPEND} // splice(2): EINVAL
	s := openSlave(t, m, Options{SegmentBytes: 16 << 20, Disk: disk})
	end := m.Status().MaxOffset
	eventually(t, "the slave has all", func() bool { return s.Status().QueuedOffset == end })
	sameLog(t, m, s)
	if n := disk.asked.Load(); n != 1 {
		t.Errorf("splice was tried %d times", n)
	}
}

// A file that cannot be written to is the disk's trouble, as a mapping that faults is.
func TestSpliceIntoAFileThatFails(t *testing.T) {
	m := masterWith(t, 10<<20)
	disk := &fdDisk{Disk: commitlog.OSDisk(), flags: os.O_RDONLY | os.O_SYNC} // splice(2): EBADF
	s := openSlave(t, m, Options{SegmentBytes: 16 << 20, Disk: disk})
	eventually(t, "the slave's log is read-only", func() bool { return s.log.Writable() != nil })
	eventually(t, "the state says so", func() bool { return s.Status().Trouble != nil })
}
