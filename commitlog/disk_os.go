package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// osDisk is the operating system's Disk. It has no state.
type osDisk struct {
	fallocate fallocate
}

// fallocate is the system call of that name; tests put others in its place, as
// file systems do.
type fallocate func(fd int, mode uint32, off, n int64) error

// OSDisk returns the operating system's file system.
func OSDisk() Disk { return osDisk{fallocate: unix.Fallocate} }

func (d osDisk) Open(path string, write bool) (File, error) {
	// O_NONBLOCK keeps a FIFO with a segment's name from hanging the open.
	flags := os.O_RDONLY | unix.O_NONBLOCK
	if write {
		flags = os.O_RDWR | unix.O_NONBLOCK
	}
	f, err := d.open(path, flags)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d osDisk) open(path string, flags int) (*osFile, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return &osFile{fd: fd, path: path, fallocate: d.fallocate}, nil
	}
}

func (d osDisk) Create(path string, size int64) (File, error) {
	f, err := d.open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		return f, nil
	}
	if err := f.Allocate(0, size); err != nil {
		return nil, errors.Join(err, f.Close(), unix.Unlink(path))
	}
	return f, nil
}

func (osDisk) Stat(path string) (FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return FileInfo{}, err
	}
	return fileInfo(info), nil
}

func fileInfo(info fs.FileInfo) FileInfo {
	return FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode().Type(), ModTime: info.ModTime()}
}

func (osDisk) ReadDir(path string) ([]FileInfo, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	list := make([]FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		list = append(list, fileInfo(info))
	}
	return list, nil
}

func (d osDisk) MkdirAll(path string) error {
	info, err := os.Stat(path)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := d.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(parent)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (d osDisk) SyncDir(path string) error {
	f, err := d.open(path, os.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return errors.Join(retryPath("fsync", path, func() error { return unix.Fsync(f.fd) }), f.Close())
}

func (osDisk) Usage(dir string) (used, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	used = int64(st.Blocks-st.Bfree) * st.Bsize
	return used, used + int64(st.Bavail)*st.Bsize, nil
}

// Lock writes nothing into a lock file that exists: its time tells when a
// RocketMQ broker started last (see hint.go).
func (d osDisk) Lock(path string) (io.Closer, error) {
	f, err := d.open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	// An open-file-description lock conflicts with the POSIX lock that a JVM
	// takes and, unlike one, excludes a second open in this process and is not
	// dropped when another descriptor of the file is closed.
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_SETLK, &lk); err != nil {
		f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	size, err := f.Size()
	if err == nil && size == 0 {
		_, err = f.WriteAt([]byte("lock"), 0)
		err = errors.Join(err, f.Sync(), d.SyncDir(filepath.Dir(path)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osDisk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// temporarySuffix marks a small file that was not finished.
const temporarySuffix = ".tmp"

func (d osDisk) WriteFileAtomic(path string, data []byte) error {
	temp := path + temporarySuffix
	f, err := d.open(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, unix.Unlink(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// osFile is a descriptor and, perhaps, its one mapping.
type osFile struct {
	fd         int
	path       string
	fallocate  fallocate
	mapped     []byte
	allocation Allocation
	sparse     bool // nothing is read ahead: see NextData
}

// retryPath runs a system call again while a signal interrupts it, and names
// the file in its error.
func retryPath(op, path string, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
}

func (f *osFile) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		m, err := unix.Pread(f.fd, b[n:], off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, &fs.PathError{Op: "read", Path: f.path, Err: err}
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

func (f *osFile) WriteAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		m, err := unix.Pwrite(f.fd, b[n:], off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, &fs.PathError{Op: "write", Path: f.path, Err: err}
		}
		n += m
	}
	return n, nil
}

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	err := retryPath("stat", f.path, func() error { return unix.Fstat(f.fd, &st) })
	return st.Size, err
}

func (f *osFile) Truncate(size int64) error {
	f.allocation = AllocationOnDemand
	return retryPath("truncate", f.path, func() error { return unix.Ftruncate(f.fd, size) })
}

// noFallocate tells the answers of file systems that cannot reserve space. A
// signal is retried before; no space is never one of them.
func noFallocate(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL)
}

func (f *osFile) Allocate(off, n int64) error {
	err := retryPath("fallocate", f.path, func() error { return f.fallocate(f.fd, 0, off, n) })
	if err == nil {
		f.allocation = AllocationReserved
		return nil
	}
	if !noFallocate(err) {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	// Written, and never left sparse: only bytes that were written are sure to
	// have a place. What is there already is written again as it is.
	if end := min(off+n, size); off < end {
		if err := f.Rewrite(off, end-off); err != nil {
			return err
		}
		n -= end - off
		off = end
	}
	if n > 0 {
		if err := f.writeZeros(off, n); err != nil {
			return err
		}
	}
	f.allocation = AllocationWritten
	return nil
}

const copyBytes = 1 << 20 // a read and write of this package's copies

func (f *osFile) writeZeros(off, n int64) error {
	zeros := make([]byte, min(n, copyBytes))
	for n > 0 {
		m, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off += int64(m)
		n -= int64(m)
	}
	return nil
}

func (f *osFile) Zero(off, n int64) error {
	if n == 0 {
		return nil
	}
	err := retryPath("zero range", f.path, func() error {
		return f.fallocate(f.fd, unix.FALLOC_FL_ZERO_RANGE, off, n)
	})
	if err != nil && noFallocate(err) {
		return f.writeZeros(off, n)
	}
	return err
}

func (f *osFile) Rewrite(off, n int64) error {
	buf := make([]byte, min(n, copyBytes))
	for n > 0 {
		b := buf[:min(n, int64(len(buf)))]
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
		n -= int64(len(b))
	}
	return nil
}

func (f *osFile) NextData(off int64) (int64, error) {
	size, err := f.Size()
	if err != nil || off >= size {
		return size, err
	}
	if !f.sparse {
		// The kernel counts as data what is in memory: pages that a mapping has
		// dirtied, which has to be so, and those that it has read ahead, with
		// which a search would read all of a segment that was reserved and never
		// written. The latter are dropped, and no more come.
		_ = unix.Fadvise(f.fd, off, 0, unix.FADV_DONTNEED)
		_ = unix.Fadvise(f.fd, 0, 0, unix.FADV_RANDOM)
		f.sparse = true
	}
	next, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case noFallocate(err):
		return off, nil // it cannot tell
	case err != nil:
		return 0, &fs.PathError{Op: "seek", Path: f.path, Err: err}
	}
	return next, nil
}

func (f *osFile) Sync() error {
	return retryPath("fdatasync", f.path, func() error { return unix.Fdatasync(f.fd) })
}

func (f *osFile) Map(n int64, write bool) ([]byte, error) {
	if f.mapped != nil {
		return nil, fmt.Errorf("map %s: it is mapped", f.path)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	err := retryPath("mmap", f.path, func() (err error) {
		f.mapped, err = unix.Mmap(f.fd, 0, int(n), prot, unix.MAP_SHARED)
		return err
	})
	return f.mapped, err
}

func (f *osFile) Unmap() error {
	if f.mapped == nil {
		return nil
	}
	b := f.mapped
	f.mapped = nil
	return retryPath("munmap", f.path, func() error { return unix.Munmap(b) })
}

func (f *osFile) Populate(off, n int64) error {
	if n <= 0 || f.mapped == nil {
		return nil
	}
	page := int64(os.Getpagesize())
	from := off &^ (page - 1)
	to := min((off+n+page-1)&^(page-1), int64(len(f.mapped)))
	return retryPath("populate", f.path, func() error {
		return unix.Madvise(f.mapped[from:to], unix.MADV_POPULATE_WRITE)
	})
}

func (f *osFile) Forget(off, n int64) error {
	page := int64(os.Getpagesize())
	from := (off + page - 1) &^ (page - 1)
	to := min(off+n, int64(len(f.mapped))) &^ (page - 1)
	if to <= from {
		return nil
	}
	return retryPath("forget", f.path, func() error {
		return unix.Madvise(f.mapped[from:to], unix.MADV_DONTNEED)
	})
}

func (f *osFile) Pin() error {
	if len(f.mapped) == 0 {
		return nil
	}
	// MLOCK_ONFAULT: locking at once would make the whole segment present, and
	// dirty pages that the first fdatasync has to write.
	return retryPath("mlock", f.path, func() error { return mlockOnFault(f.mapped) })
}

func (f *osFile) Unpin() error {
	if len(f.mapped) == 0 {
		return nil
	}
	return retryPath("munlock", f.path, func() error { return unix.Munlock(f.mapped) })
}

func (f *osFile) Allocation() Allocation { return f.allocation }

func (f *osFile) Fd() int { return f.fd }

func (f *osFile) Close() error {
	if f.fd < 0 {
		return nil
	}
	fd := f.fd
	f.fd = -1
	if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) {
		return &fs.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}

func mlockOnFault(b []byte) error {
	const onFault = 1 // MLOCK_ONFAULT
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), onFault)
	if errno != 0 {
		return errno
	}
	return nil
}
