package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// queueFile is one file of a queue.
type queueFile struct {
	base  int64 // position of its first byte in the queue
	path  string
	file  File        // nil while it is not open; guarded by queue.mu
	dirty atomic.Bool // written since it was last synced
}

// usualSize is the size that most of the files have, the larger of two that are
// as common, or 0: an odd file does not make the others odd.
func usualSize(found []foundQueue) int64 {
	count := make(map[int64]int)
	var usual int64
	for _, f := range found {
		for _, info := range f.files {
			if info.Size > 0 && info.Size%queueUnitBytes == 0 {
				count[info.Size]++
			}
		}
	}
	for size, n := range count {
		if n > count[usual] || n == count[usual] && size > usual {
			usual = size
		}
	}
	return usual
}

// readBytes fills b from a position of the queue, across files. A file that
// is shorter than it was is a *CorruptError.
func (qu *queue) readBytes(b []byte, at int64) error {
	return qu.eachFile(b, at, false, func(f *queueFile, part []byte, at int64) error {
		n, err := f.file.ReadAt(part, at)
		if n == len(part) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return &CorruptError{
				Path: f.path, Offset: at, Kind: KindQueue,
				Detail: fmt.Sprintf("%d bytes wanted, the file has %d of them", len(part), n),
			}
		}
		return fmt.Errorf("read consume queue %s: %w", f.path, err)
	})
}

// writeAt writes b at a position of the queue, making files as needed: inside
// them, right behind the last one, or anywhere if there is none.
func (qu *queue) writeAt(b []byte, at int64) error {
	return qu.eachFile(b, at, true, func(f *queueFile, part []byte, at int64) error {
		if _, err := f.file.WriteAt(part, at); err != nil {
			return fmt.Errorf("write consume queue %s: %w", f.path, err)
		}
		f.dirty.Store(true) // after the write: a flush that saw it covers the write
		qu.set.markDirty(qu)
		return nil
	})
}

// eachFile calls do for each part of b that lies in one file, with the part's
// position there and the file open. The queue's lock is held for reading.
func (qu *queue) eachFile(b []byte, at int64, write bool, do func(f *queueFile, part []byte, at int64) error) error {
	size := qu.set.fileBytes
	for len(b) > 0 {
		base := at - at%size
		part := b[:min(int64(len(b)), base+size-at)]
		f, err := qu.acquire(base, write)
		if err != nil {
			return err
		}
		err = do(f, part, at-base)
		qu.mu.RUnlock()
		if err != nil {
			return err
		}
		b, at = b[len(part):], at+int64(len(part))
	}
	return nil
}

// acquire finds and opens the file with a base. On success the queue's lock is
// held for reading.
func (qu *queue) acquire(base int64, create bool) (*queueFile, error) {
	for {
		qu.mu.RLock()
		f := qu.fileLocked(base)
		if f != nil && f.file != nil {
			return f, nil
		}
		qu.mu.RUnlock()
		if f == nil && !create {
			return nil, fmt.Errorf("%w: byte %d of consume queue %s/%d", ErrOutOfRange, base, qu.id.Topic, qu.id.ID)
		}
		if err := qu.set.makeRoom(); err != nil {
			return nil, err
		}
		if err := qu.open(base); err != nil {
			return nil, err
		}
	}
}

// fileLocked finds the file with a base, or nil.
func (qu *queue) fileLocked(base int64) *queueFile {
	if len(qu.files) == 0 {
		return nil
	}
	i := (base - qu.files[0].base) / qu.set.fileBytes
	if base < qu.files[0].base || i >= int64(len(qu.files)) {
		return nil
	}
	return qu.files[i]
}

// open opens the file with a base, or makes it if it is the next one.
func (qu *queue) open(base int64) error {
	qu.mu.Lock()
	defer qu.mu.Unlock()
	f := qu.fileLocked(base)
	switch {
	case f == nil:
		if n := len(qu.files); n > 0 && base != qu.files[n-1].base+qu.set.fileBytes {
			return fmt.Errorf("%w: byte %d of consume queue %s/%d", ErrOutOfRange, base, qu.id.Topic, qu.id.ID)
		}
		if err := qu.sealLocked(); err != nil {
			return err
		}
		made, err := qu.createLocked(base)
		if err != nil {
			return err
		}
		f = made
		qu.files = append(qu.files, f)
	case f.file == nil:
		file, err := qu.set.disk.Open(f.path, !qu.set.readOnly)
		if err != nil {
			return fmt.Errorf("open consume queue: %w", err)
		}
		f.file = file
	default:
		return nil // somebody else was faster
	}
	qu.set.opened(qu, f)
	return nil
}

// sealLocked makes the last file durable, its name included, before there is a
// next one: a crash never leaves a later file without an earlier.
func (qu *queue) sealLocked() error {
	n := len(qu.files)
	if n == 0 {
		return nil
	}
	if err := qu.files[n-1].sync(); err != nil {
		return err
	}
	return qu.syncDirectory()
}

// sync makes the file's bytes durable. The queue's lock is held.
func (f *queueFile) sync() error {
	if !f.dirty.Swap(false) {
		return nil
	}
	err := errNotDurable
	if f.file != nil { // a file is synced before its handle goes
		err = f.file.Sync()
	}
	if err != nil {
		f.dirty.Store(true)
		return fmt.Errorf("sync consume queue %s: %w", f.path, err)
	}
	return nil
}

var errNotDurable = errors.New("it was not durable when it was closed")

func (qu *queue) syncDirectory() error {
	if err := qu.set.disk.SyncDir(qu.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sync consume queue: %w", err)
	}
	return nil
}

// createLocked makes a file of the full size, as RocketMQ expects to find it.
// It is sparse: a queue may never need more than a few units, and a full disk
// is an error of the write here, not a fault in a mapping.
func (qu *queue) createLocked(base int64) (*queueFile, error) {
	if err := qu.set.disk.MkdirAll(qu.dir); err != nil {
		return nil, fmt.Errorf("make consume queue: %w", err)
	}
	path := filepath.Join(qu.dir, fmt.Sprintf("%020d", base))
	file, err := qu.set.disk.Create(path, 0)
	if errors.Is(err, fs.ErrExist) {
		// Left behind by a crash, or by a cut that could not remove it.
		if file, err = qu.set.disk.Open(path, true); err == nil {
			err = file.Truncate(0)
		}
	}
	if err == nil {
		err = file.Truncate(qu.set.fileBytes)
	}
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close(), qu.set.disk.Remove(path))
		}
		return nil, fmt.Errorf("make consume queue %s: %w", path, err)
	}
	f := &queueFile{base: base, path: path, file: file}
	f.dirty.Store(true)
	qu.set.createdIn(qu)
	return f, nil
}

// closeLocked closes the handle of a file, synced.
func (qu *queue) closeLocked(f *queueFile) error {
	if f.file == nil {
		return nil
	}
	err := errors.Join(f.sync(), f.file.Close())
	f.file = nil
	return err
}

// removeLocked takes file i off the disk.
func (qu *queue) removeLocked(i int) error {
	f := qu.files[i]
	f.dirty.Store(false)
	err := qu.closeLocked(f)
	qu.files = slices.Delete(qu.files, i, i+1)
	qu.set.createdIn(qu) // the directory changed
	if e := qu.set.disk.Remove(f.path); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove consume queue: %w", e))
	}
	return err
}
