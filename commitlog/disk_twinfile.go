package commitlog

import (
	"io"
	"io/fs"
)

// twinFile is a handle of a Twin's file.
type twinFile struct {
	twin       *Twin
	node       *twinNode
	path       string
	life       int
	write      bool
	allocation Allocation // guarded by twin.mu
}

// useLocked fails for a handle that a crash has outlived.
func (f *twinFile) useLocked(op string) error {
	if f.life != f.twin.life {
		return &fs.PathError{Op: op, Path: f.path, Err: ErrPowerOff}
	}
	return nil
}

// changeLocked begins an operation that changes the file.
func (f *twinFile) changeLocked(op string) error {
	if err := f.useLocked(op); err != nil {
		return err
	}
	if !f.write {
		return &fs.PathError{Op: op, Path: f.path, Err: fs.ErrPermission}
	}
	if err := f.twin.beginLocked(op, f.path); err != nil {
		return err
	}
	f.node.mtime = f.twin.clock
	return nil
}

func (f *twinFile) ReadAt(b []byte, off int64) (int, error) {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.useLocked("read"); err != nil {
		return 0, err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copyUnseen(b, f.node.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *twinFile) WriteAt(b []byte, off int64) (int, error) {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.changeLocked("write"); err != nil {
		return 0, err
	}
	if end := off + int64(len(b)); end > int64(len(f.node.data)) {
		if err := f.twin.growLocked(f.path, end-int64(len(f.node.data))); err != nil {
			return 0, err
		}
		f.node.data = resized(f.node.data, end)
	}
	f.forgetDropped(off, int64(len(b)))
	return copy(f.node.data[off:], b), nil
}

// forgetDropped makes pages dirty again.
func (f *twinFile) forgetDropped(off, n int64) {
	for page := off - off%twinPage; page < off+n; page += twinPage {
		delete(f.node.dropped, page)
	}
}

func (f *twinFile) Size() (int64, error) {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	return int64(len(f.node.data)), f.useLocked("stat")
}

func (f *twinFile) Truncate(size int64) error {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.changeLocked("write"); err != nil {
		return err
	}
	if size != int64(len(f.node.data)) {
		if err := f.twin.growLocked(f.path, size-int64(len(f.node.data))); err != nil {
			return err
		}
		f.allocation = AllocationOnDemand
		f.node.data = resized(f.node.data, size)
	}
	return nil
}

func (f *twinFile) Allocate(off, n int64) error {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	way := AllocationReserved
	if err := f.changeLocked("allocate"); err != nil {
		if !noFallocate(err) {
			return err
		}
		way = AllocationWritten
	}
	if end := off + n; end > int64(len(f.node.data)) {
		if err := f.twin.growLocked(f.path, end-int64(len(f.node.data))); err != nil {
			return err
		}
		f.node.data = resized(f.node.data, end)
	}
	f.allocation = way
	return nil
}

func (f *twinFile) Zero(off, n int64) error {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.changeLocked("write"); err != nil {
		return err
	}
	clear(f.node.data[off : off+n])
	f.forgetDropped(off, n)
	return nil
}

func (f *twinFile) Rewrite(off, n int64) error {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.changeLocked("write"); err != nil {
		return err
	}
	f.forgetDropped(off, n)
	return nil
}

func (f *twinFile) NextData(off int64) (int64, error) {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.useLocked("seek"); err != nil {
		return 0, err
	}
	data := unseen(f.node.data)
	for i := off; i < int64(len(data)); i++ {
		if data[i] != 0 {
			return i - i%twinPage + max(off-(i-i%twinPage), 0), nil
		}
	}
	return int64(len(data)), nil
}

// Sync makes the bytes stable, but for pages that a failed one took for clean.
func (f *twinFile) Sync() error {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.useLocked("sync"); err != nil {
		return err
	}
	n := f.node
	if err := f.twin.beginLocked("sync", f.path); err != nil {
		if f.twin.offAt == 0 || f.twin.ops+1 < f.twin.offAt {
			n.drop()
		}
		return err
	}
	data := unseen(n.data)
	old := n.stable
	n.stable = data
	for at, page := range n.dropped {
		if at >= int64(len(data)) || !n.wasDropped(data, at) {
			continue // written since
		}
		before := make([]byte, len(page))
		if at < int64(len(old)) {
			copy(before, old[at:])
		}
		copy(n.stable[at:], before)
	}
	for at := range n.dropped {
		if at >= int64(len(data)) || string(n.stable[at:min(at+twinPage, int64(len(data)))]) == string(unseen(n.data[at:min(at+twinPage, int64(len(n.data)))])) {
			delete(n.dropped, at)
		}
	}
	return nil
}

// drop takes all dirty pages for clean without having written them.
func (n *twinNode) drop() {
	data := unseen(n.data)
	if n.dropped == nil {
		n.dropped = map[int64][]byte{}
	}
	for at := int64(0); at < int64(len(data)); at += twinPage {
		end := min(at+twinPage, int64(len(data)))
		if end > int64(len(n.stable)) || string(data[at:end]) != string(n.stable[at:end]) {
			n.dropped[at] = data[at:end]
		}
	}
}

// Map gives the file's memory. A file must not change its size while it is
// mapped.
func (f *twinFile) Map(n int64, _ bool) ([]byte, error) {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	if err := f.useLocked("mmap"); err != nil {
		return nil, err
	}
	return f.node.data[:n:n], nil
}

func (f *twinFile) Unmap() error                { return nil }
func (f *twinFile) Populate(int64, int64) error { return nil }
func (f *twinFile) Forget(int64, int64) error   { return nil }
func (f *twinFile) Pin() error                  { return nil }
func (f *twinFile) Unpin() error                { return nil }
func (f *twinFile) Fd() int                     { return -1 }
func (f *twinFile) Close() error                { return nil }

func (f *twinFile) Allocation() Allocation {
	f.twin.mu.Lock()
	defer f.twin.mu.Unlock()
	return f.allocation
}
