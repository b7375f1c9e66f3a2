package commitlog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// disks gives each kind of Disk with a directory on it.
func disks(t *testing.T) map[string]struct {
	disk Disk
	dir  string
} {
	t.Helper()
	twin := NewTwin(1)
	if err := twin.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		disk Disk
		dir  string
	}{"os": {OSDisk(), t.TempDir()}, "twin": {twin, "/d"}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The twin does what the operating system does.
func TestDisksBehaveAlike(t *testing.T) {
	for name, d := range disks(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(d.dir, "a")
			if _, err := d.disk.Open(path, false); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open of nothing: %v", err)
			}
			f, err := d.disk.Create(path, 10000)
			must(t, err)
			if _, err := d.disk.Create(path, 1); !errors.Is(err, fs.ErrExist) {
				t.Errorf("create of what is there: %v", err)
			}
			if f.Allocation() != AllocationReserved {
				t.Errorf("allocation is %v", f.Allocation())
			}
			m, err := f.Map(10000, true)
			must(t, err)
			copy(m[5000:], "hello")
			b := make([]byte, 5)
			if _, err := f.ReadAt(b, 5000); err != nil || string(b) != "hello" {
				t.Errorf("a mapping's bytes are read as %q, %v", b, err)
			}
			if at, err := f.NextData(0); err != nil || at > 5000 {
				t.Errorf("next data at %d, %v", at, err)
			}
			if at, err := f.NextData(9000); err != nil || at < 9000 {
				t.Errorf("next data after 9000 at %d, %v", at, err)
			}
			must(t, f.Rewrite(4000, 3000))
			must(t, f.Populate(0, 10000))
			must(t, f.Sync())
			if !bytes.Equal(m[5000:5005], []byte("hello")) {
				t.Error("rewriting changed the bytes")
			}
			must(t, f.Zero(4500, 1000))
			if !bytes.Equal(m, make([]byte, 10000)) {
				t.Error("zeroing left bytes")
			}
			must(t, f.Pin())
			must(t, f.Unpin())
			must(t, f.Unmap())
			must(t, f.Close())
			must(t, d.disk.WriteFileAtomic(filepath.Join(d.dir, "b"), []byte("one")))
			must(t, d.disk.WriteFileAtomic(filepath.Join(d.dir, "b"), []byte("two")))
			must(t, d.disk.Rename(path, filepath.Join(d.dir, "b")))
			if info, err := d.disk.Stat(filepath.Join(d.dir, "b")); err != nil || info.Size != 10000 {
				t.Errorf("%+v, %v", info, err)
			}
			must(t, d.disk.MkdirAll(filepath.Join(d.dir, "c", "d")))
			names, err := d.disk.ReadDir(d.dir)
			if err != nil || len(names) != 2 || names[0].Name != "b" || !names[1].Mode.IsDir() {
				t.Errorf("%+v, %v", names, err)
			}
			lock, err := d.disk.Lock(filepath.Join(d.dir, "lock"))
			must(t, err)
			before, _ := d.disk.Stat(filepath.Join(d.dir, "lock"))
			if _, err := d.disk.Lock(filepath.Join(d.dir, "lock")); !errors.Is(err, ErrLocked) {
				t.Errorf("second lock: %v", err)
			}
			must(t, lock.Close())
			lock, err = d.disk.Lock(filepath.Join(d.dir, "lock"))
			must(t, err)
			must(t, lock.Close())
			if after, _ := d.disk.Stat(filepath.Join(d.dir, "lock")); after != before {
				t.Error("locking changed the lock file")
			}
			must(t, d.disk.Remove(filepath.Join(d.dir, "b")))
			must(t, d.disk.SyncDir(d.dir))
			if used, total, err := d.disk.Usage(d.dir); err != nil || used < 0 || total < used {
				t.Errorf("usage %d of %d, %v", used, total, err)
			}
		})
	}
}

// What was synced survives each crash; of what was not, each crash loses some,
// in whole and half pages, and names too.
func TestTwinForgetsWhatWasNotSynced(t *testing.T) {
	lost, kept, torn, namesLost := 0, 0, 0, 0
	for seed := range uint64(40) {
		d := NewTwin(seed)
		must(t, d.MkdirAll("/d"))
		f, err := d.Create("/d/a", 4*twinPage)
		must(t, err)
		m, err := f.Map(4*twinPage, true)
		must(t, err)
		copy(m, "durable")
		must(t, f.Sync())
		must(t, d.SyncDir("/d"))
		for i := range 3 {
			copy(m[(i+1)*twinPage:], bytes.Repeat([]byte{9}, twinPage))
		}
		_, err = d.Create("/d/b", 0)
		must(t, err)
		d.Crash()
		copy(m, "stores of a dead process")
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrPowerOff) {
			t.Errorf("a handle outlived the crash: %v", err)
		}
		b, err := d.ReadFile("/d/a")
		must(t, err)
		if string(b[:7]) != "durable" {
			t.Fatalf("seed %d: synced bytes are %q", seed, b[:7])
		}
		for i := range 3 {
			switch n := bytes.Count(b[(i+1)*twinPage:(i+2)*twinPage], []byte{9}); n {
			case 0:
				lost++
			case twinPage:
				kept++
			default:
				torn++
			}
		}
		if _, err := d.Stat("/d/b"); err != nil {
			namesLost++
		}
	}
	if lost == 0 || kept == 0 || torn == 0 || namesLost == 0 || namesLost == 40 {
		t.Errorf("%d pages lost, %d kept, %d torn, %d names lost", lost, kept, torn, namesLost)
	}
}

// After a failed sync the pages count as clean: the next one leaves them out,
// unless they were written again.
func TestTwinsFailedSyncForgetsDirtyPages(t *testing.T) {
	for _, again := range []string{"", "rewrite", "store"} {
		d := NewTwin(1)
		must(t, d.MkdirAll("/d"))
		f, err := d.Create("/d/a", twinPage)
		must(t, err)
		must(t, f.Sync())
		must(t, d.SyncDir("/d"))
		m, err := f.Map(twinPage, true)
		must(t, err)
		copy(m, "bytes")
		d.Fail("sync", &TwinFault{Err: unix.EIO, Times: 1})
		if err := f.Sync(); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		switch again {
		case "rewrite":
			must(t, f.Rewrite(0, 10))
		case "store":
			m[100] = 1
		}
		must(t, f.Sync())
		d.Crash()
		b, err := d.ReadFile("/d/a")
		must(t, err)
		if got, want := string(b[:5]) == "bytes", again != ""; got != want {
			t.Errorf("written again by %q: the bytes are there: %v", again, got)
		}
	}
}

// Fault 41: what fallocate answers on one file system or another.
func TestFallocatesAnswersAreTakenAsMeant(t *testing.T) {
	with := func(answers ...error) osDisk {
		return osDisk{fallocate: func(fd int, mode uint32, off, n int64) error {
			if len(answers) > 0 {
				err := answers[0]
				answers = answers[1:]
				return err
			}
			return unix.Fallocate(fd, mode, off, n)
		}}
	}
	blocks := func(path string) int64 {
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		return st.Blocks * 512
	}
	for name, c := range map[string]struct {
		answers []error
		way     Allocation
	}{
		"interrupted":   {[]error{unix.EINTR, unix.EINTR, unix.EINTR}, AllocationReserved},
		"not supported": {[]error{unix.EOPNOTSUPP}, AllocationWritten},
		"not there":     {[]error{unix.ENOSYS}, AllocationWritten},
		"invalid":       {[]error{unix.EINVAL}, AllocationWritten},
	} {
		path := filepath.Join(t.TempDir(), "a")
		f, err := with(c.answers...).Create(path, 3<<20)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must(t, f.Sync())
		size, _ := f.Size()
		if f.Allocation() != c.way || size != 3<<20 || blocks(path) < 3<<20 {
			t.Errorf("%s: %v, %d bytes in %d", name, f.Allocation(), size, blocks(path))
		}
		must(t, f.Close())
	}
	path := filepath.Join(t.TempDir(), "a")
	if _, err := with(unix.ENOSPC).Create(path, 1<<20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("no space: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused file is left: %v", err)
	}

	// What is there already is kept where there is no fallocate.
	path = filepath.Join(t.TempDir(), "b")
	must(t, os.WriteFile(path, []byte("there"), 0o644))
	f, err := with(unix.EOPNOTSUPP).Open(path, true)
	must(t, err)
	must(t, f.Allocate(0, 1<<20))
	must(t, f.Close())
	if b, err := os.ReadFile(path); err != nil || len(b) != 1<<20 || string(b[:5]) != "there" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestLogSaysOnceThatSegmentsAreWrittenFullOfZeros(t *testing.T) {
	warned := &noted{}
	o := testOptions(t.TempDir())
	o.Logger = warned.logger()
	o.Disk = osDisk{fallocate: func(int, uint32, int64, int64) error { return unix.EOPNOTSUPP }}
	l := mustOpen(t, o)
	for range 200 {
		mustPut(t, l, "topic", 0, 1000)
	}
	if n := warned.count("cannot reserve space"); n != 1 {
		t.Errorf("said %d times: %s", n, warned.text())
	}
	if got := l.Info().Allocation; got != AllocationWritten {
		t.Errorf("the status says %v", got)
	}
	checkRecords(t, l, 200)
}
