package commitlog

import (
	"io"
	"io/fs"
	"time"
)

// Disk is everything this package asks of a file system. It is the only way to
// a mapping, a sync, an allocation, a rename or an unlink, so that a twin on
// the heap ([Twin]) can stand in for the operating system's ([OSDisk]).
//
// All methods may be called by any goroutine. Paths are absolute or relative
// to the working directory, as the caller has them. A name is durable only
// after SyncDir of its directory; bytes and a size only after File.Sync.
type Disk interface {
	// Open opens an existing regular file, to read it or to read and write it.
	// It follows symbolic links. A file that is not there: fs.ErrNotExist.
	Open(path string, write bool) (File, error)

	// Create makes a file of size zero bytes that are allocated on the disk, so
	// that a full disk is an error here and never a fault in a mapping later.
	// It fails if the name exists, and leaves no file behind when it fails.
	// Neither the size nor the name is durable yet.
	Create(path string, size int64) (File, error)

	// Stat describes a file, following symbolic links.
	Stat(path string) (FileInfo, error)

	// ReadDir lists a directory in the order of names. Links are not followed.
	ReadDir(path string) ([]FileInfo, error)

	// MkdirAll makes a directory and what is missing above it, and makes the
	// new names durable.
	MkdirAll(path string) error

	// Rename moves a file, replacing what stands at the new name, in one step.
	// Durable after SyncDir of both directories; sync the new one first, so that
	// a crash between leaves two names and not none.
	Rename(from, to string) error

	// Remove unlinks a file or an empty directory. Mappings of it stay valid.
	Remove(path string) error

	// SyncDir makes the names in a directory durable.
	SyncDir(path string) error

	// Usage tells the bytes of the file system that holds dir: used, and used
	// plus what an ordinary process may still take.
	Usage(dir string) (used, total int64, err error)

	// Mark tells the directory dir, links followed, from every copy of it; see
	// [Mark]. It writes nothing. Any error means that it cannot be told here:
	// errors.ErrUnsupported where the file system keeps nothing to tell it by.
	Mark(dir string) (Mark, error)

	// Lock takes an exclusive lock on byte 0 of the file at path, making the
	// file (with the text "lock") if there is none, until the closer is closed
	// or the process ends. It excludes a RocketMQ broker, another process and a
	// second Lock in this process. [ErrLocked]: somebody else holds it.
	Lock(path string) (io.Closer, error)

	// ReadFile reads a small file whole.
	ReadFile(path string) ([]byte, error)

	// WriteFileAtomic replaces a small file as a whole: temporary name, sync,
	// rename, sync of the directory. Durable on return; a crash leaves the old
	// text or the new.
	WriteFileAtomic(path string, data []byte) error
}

// FileInfo is what a directory says of a file.
type FileInfo struct {
	Name    string      // without the directory
	Size    int64       // bytes
	Mode    fs.FileMode // type bits only
	ModTime time.Time
}

// Allocation tells how the bytes of a file came to the disk.
type Allocation uint8

// How a file was allocated.
const (
	AllocationUnknown  Allocation = iota // not allocated through this handle
	AllocationReserved                   // fallocate
	AllocationWritten                    // zeros written, where there is no fallocate
	AllocationOnDemand                   // left sparse
)

// String names the way of allocation as the status does.
func (a Allocation) String() string {
	switch a {
	case AllocationReserved:
		return "fallocate"
	case AllocationWritten:
		return "written zeros"
	case AllocationOnDemand:
		return "sparse"
	}
	return "unknown"
}

// File is an open file. ReadAt, Sync and a writer of disjoint bytes (through
// WriteAt or a mapping) may overlap; Close and Unmap overlap with nothing.
type File interface {
	io.ReaderAt
	io.WriterAt

	// Size is the file's length in bytes now.
	Size() (int64, error)

	// Truncate sets the length. What is added reads as zero and is sparse.
	Truncate(size int64) error

	// Allocate makes sure that [off, off+n) has space on the disk and that the
	// file is at least that long. Bytes that are there stay as they are.
	Allocate(off, n int64) error

	// Zero makes [off, off+n), inside the file, read as zero and keeps it
	// allocated.
	Zero(off, n int64) error

	// Rewrite writes [off, off+n) again with the bytes that are there, so that
	// the next Sync takes them to the disk even if an earlier one failed and the
	// kernel has forgotten that they are dirty.
	Rewrite(off, n int64) error

	// NextData returns the first position at or after off that may hold
	// something other than zeros, or the file's size if there is none. The file
	// is not read ahead any more.
	NextData(off int64) (int64, error)

	// Sync makes the bytes and the length durable (fdatasync). After an error
	// nothing is known about any byte since the last Sync that returned nil.
	Sync() error

	// Map maps the first n bytes, shared; a file is mapped at most once through
	// one handle. The slice is memory that may fault: touch it only through a
	// mapping (guard.go).
	Map(n int64, write bool) ([]byte, error)

	// Unmap ends what Map began.
	Unmap() error

	// Populate makes the pages of [off, off+n) of a writable mapping present,
	// so that writing them does not fault. They become dirty.
	Populate(off, n int64) error

	// Forget takes the pages that lie in [off, off+n) out of a mapping, not out of memory:
	// the next read of one maps it again, with those around it, the next write it alone. A page that is
	// mapped costs the Sync that writes it a word to all processors.
	Forget(off, n int64) error

	// Pin keeps the pages of the mapping in memory from when they are first
	// touched; Unpin ends that.
	Pin() error
	Unpin() error

	// Allocation tells how Create or Allocate got the space.
	Allocation() Allocation

	// Fd is the descriptor for sendfile, or -1 if there is none.
	Fd() int

	// Close closes the handle; a mapping must be unmapped before.
	Close() error
}
