package tune

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

const page = 4096

// scratch is a new file without a name in dir: nothing is left of it when it is
// closed, or when this process dies.
func scratch(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "a file without a name")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOENT) {
		return nil, &os.PathError{Op: "make a file without a name in", Path: dir, Err: err}
	}
	f, err := os.CreateTemp(dir, ".haengine-tune-") // the filesystem knows no others
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// measureSync writes 4 KiB after 4 KiB, as a log does, each with its fdatasync.
func measureSync(ctx context.Context, dir string) (*SyncTime, error) {
	f, err := scratch(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	piece := make([]byte, page)
	var took []float64
	for end := time.Now().Add(syncFor); time.Now().Before(end) && ctx.Err() == nil && len(took) < 2000; {
		at := int64(len(took)) * page
		start := time.Now()
		if _, err := f.WriteAt(piece, at); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, os.NewSyscallError("fdatasync", err)
		}
		took = append(took, micros(time.Since(start)))
	}
	if len(took) == 0 {
		return nil, ctx.Err()
	}
	p50 := median(took)
	return &SyncTime{Count: len(took), P50: p50, Max: took[len(took)-1]}, nil // sorted now
}

// measureFirstTouch takes turns between the ways to bring a new file's pages into
// being.
func measureFirstTouch(ctx context.Context, dir string, populate bool) (*FirstTouch, error) {
	const bytes = 64 << 20
	result := &FirstTouch{Reserved: true}
	var sparse, allocated, populated, syncs []float64
	end := time.Now().Add(touchFor)
	for round := 0; ctx.Err() == nil && (round == 0 || time.Now().Before(end)); round++ {
		took, _, err := touch(dir, bytes, false, false)
		if err != nil {
			return nil, err
		}
		sparse = append(sparse, bytes/took.Seconds())
		took, _, err = touch(dir, bytes, true, false)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
			result.Reserved = false
			continue
		}
		if err != nil {
			return nil, err
		}
		allocated = append(allocated, bytes/took.Seconds())
		if !populate {
			continue
		}
		took, sync, err := touch(dir, bytes, true, true)
		if err != nil {
			return nil, err
		}
		populated, syncs = append(populated, bytes/took.Seconds()), append(syncs, sync.Seconds())
	}
	if len(sparse) == 0 {
		return nil, ctx.Err()
	}
	result.Sparse, result.Allocated, result.Populated, result.SyncAfter = newRate(sparse), newRate(allocated), newRate(populated), median(syncs)
	return result, nil
}

// touch makes all pages of a new file present and writable, by one system call
// or by writing to each. sync is how long the fdatasync after a populate took.
func touch(dir string, bytes int64, reserve, populate bool) (took, sync time.Duration, err error) {
	f, err := scratch(dir)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	fd := int(f.Fd())
	if reserve {
		if err := unix.Fallocate(fd, 0, 0, bytes); err != nil {
			return 0, 0, fmt.Errorf("reserve %s: %w", size(bytes), err)
		}
	} else if err := f.Truncate(bytes); err != nil {
		return 0, 0, err
	}
	m, err := mapOf(f, int(bytes))
	if err != nil {
		return 0, 0, err
	}
	defer unmap(m)
	start := time.Now()
	if !populate {
		err := writeEach(m)
		return time.Since(start), 0, err
	}
	if err := unix.Madvise(m, unix.MADV_POPULATE_WRITE); err != nil {
		return 0, 0, os.NewSyscallError("madvise", err)
	}
	took = time.Since(start)
	start = time.Now()
	err = os.NewSyscallError("fdatasync", unix.Fdatasync(fd))
	return took, time.Since(start), err
}

func mapOf(f *os.File, bytes int) ([]byte, error) {
	m, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return m, os.NewSyscallError("mmap", err)
}

func unmap(m []byte) {
	_ = unix.Munmap(m) // an error would mean that m is no map of ours
}

// writeEach writes to each page. One for which the disk has no room is a SIGBUS,
// which becomes the error.
func writeEach(m []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("write to a page of a new file: %v; is the disk full?", fault)
		}
	}()
	for at := 0; at < len(m); at += page {
		m[at] = 1
	}
	return nil
}
