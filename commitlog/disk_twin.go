package commitlog

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// twinPage is how much of a file is written or lost as one.
const twinPage = 4096

// ErrPowerOff is what every operation of a [Twin] returns from where it was cut
// off until Crash.
var ErrPowerOff = errors.New("the disk is off")

// Twin is a Disk on the heap, with a power switch. What was not synced may be
// lost in a crash, page by page and name by name: which of it is lost is drawn
// from the seed. It also fails on demand. Its mappings are ordinary memory, so
// the race detector sees what is done to them.
//
// It forgets more than any real file system does: sizes without the bytes, a
// later rename without the earlier one, half of a page.
//
// All methods may be called by any goroutine.
type Twin struct {
	mu       sync.Mutex
	rng      *rand.Rand
	life     int    // grows at each Crash; older handles are dead
	ops      int    // operations that change the disk or sync it
	offAt    int    // operations from this number on fail; 0: none
	inodes   uint64 // given to directories so far
	clock    time.Time
	capacity int64 // bytes; 0: no limit
	faults   map[string]*TwinFault

	live    map[string]*twinNode // names as they are
	durable map[string]*twinNode // names as a crash leaves them at least
	locks   map[string]*twinLock
}

// TwinFault says how an operation of a Twin fails.
type TwinFault struct {
	Err   error
	Path  string // only files whose path contains it
	After int    // so many go well first
	Times int    // so many fail; 0: all that follow
}

// twinNode is a file or a directory.
type twinNode struct {
	dir     bool
	inode   uint64 // of a directory
	mtime   time.Time
	data    []byte           // as readers see it
	stable  []byte           // as a crash leaves it at least
	dropped map[int64][]byte // pages that a failed Sync took for clean, as they were then
}

type twinLock struct {
	twin *Twin
	path string
	life int
}

// NewTwin makes an empty disk. The seed decides what its crashes lose.
func NewTwin(seed uint64) *Twin {
	t := &Twin{
		rng: rand.New(rand.NewPCG(seed, 0x7477696e)), clock: time.UnixMilli(1_700_000_000_000),
		live: map[string]*twinNode{}, durable: map[string]*twinNode{}, locks: map[string]*twinLock{},
		faults: map[string]*TwinFault{},
	}
	root := t.newDirLocked()
	t.live["/"], t.durable["/"] = root, root
	return t
}

// Operations counts what changed or synced the disk so far.
func (t *Twin) Operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}

// PowerOffAfter lets n more operations through; then the disk is off until
// Crash. Stores to mappings go on and are lost. n < 0: never.
func (t *Twin) PowerOffAfter(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offAt = 0
	if n >= 0 {
		t.offAt = t.ops + n + 1
	}
}

// Off tells whether the disk is off.
func (t *Twin) Off() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offAt > 0 && t.ops >= t.offAt-1
}

// Fail makes an operation fail: "sync", "allocate", "create", "write",
// "rename", "remove", "syncdir", "open" or "mark". A nil fault ends that. A
// failed sync is a real one's: what it did not write counts as clean from then
// on.
func (t *Twin) Fail(operation string, fault *TwinFault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fault == nil {
		delete(t.faults, operation)
		return
	}
	f := *fault
	t.faults[operation] = &f
}

// SetCapacity limits the bytes of all files together; 0: no limit.
func (t *Twin) SetCapacity(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.capacity = bytes
}

// beginLocked counts an operation, and fails it if it must.
func (t *Twin) beginLocked(operation, path string) error {
	if t.offAt > 0 && t.ops+1 >= t.offAt {
		t.ops = max(t.ops, t.offAt-1)
		return &fs.PathError{Op: operation, Path: path, Err: ErrPowerOff}
	}
	t.ops++
	t.clock = t.clock.Add(time.Microsecond)
	return t.faultLocked(operation, path)
}

// faultLocked fails what was asked to fail.
func (t *Twin) faultLocked(operation, path string) error {
	f := t.faults[operation]
	if f == nil || !strings.Contains(path, f.Path) {
		return nil
	}
	if f.After > 0 {
		f.After--
		return nil
	}
	if f.Times > 0 {
		if f.Times--; f.Times == 0 {
			delete(t.faults, operation)
		}
	}
	return &fs.PathError{Op: operation, Path: path, Err: f.Err}
}

// cleaned gives every path one name, below the root.
func cleaned(path string) string { return filepath.Clean("/" + path) }

func (t *Twin) findLocked(op, path string) (*twinNode, error) {
	if n := t.live[cleaned(path)]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
}

// usedLocked is the bytes of all files.
func (t *Twin) usedLocked() int64 {
	var sum int64
	for _, n := range t.live {
		sum += int64(len(n.data))
	}
	return sum
}

// growLocked refuses bytes that the disk has no room for.
func (t *Twin) growLocked(path string, n int64) error {
	if t.capacity > 0 && n > 0 && t.usedLocked()+n > t.capacity {
		return &fs.PathError{Op: "allocate", Path: path, Err: syscall.ENOSPC}
	}
	return nil
}

// Open implements [Disk].
func (t *Twin) Open(path string, write bool) (File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if write {
		if err := t.beginLocked("open", path); err != nil {
			return nil, err
		}
	}
	n, err := t.findLocked("open", path)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	return &twinFile{twin: t, node: n, path: path, life: t.life, write: write}, nil
}

// Create implements [Disk].
func (t *Twin) Create(path string, size int64) (File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beginLocked("create", path); err != nil {
		return nil, err
	}
	name := cleaned(path)
	if t.live[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	if parent := t.live[filepath.Dir(name)]; parent == nil || !parent.dir {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrNotExist}
	}
	if err := t.beginLocked("allocate", path); err != nil {
		if !noFallocate(err) {
			if errors.Is(err, ErrPowerOff) {
				t.live[name] = &twinNode{mtime: t.clock} // the file is there, its bytes are not
			}
			return nil, err
		}
	}
	if err := t.growLocked(path, size); err != nil {
		return nil, err
	}
	n := &twinNode{mtime: t.clock, data: make([]byte, size)}
	t.live[name] = n
	f := &twinFile{twin: t, node: n, path: path, life: t.life, write: true}
	if size > 0 {
		f.allocation = AllocationReserved
	}
	return f, nil
}

// Stat implements [Disk].
func (t *Twin) Stat(path string) (FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.findLocked("stat", path)
	if err != nil {
		return FileInfo{}, err
	}
	return n.info(filepath.Base(path)), nil
}

func (n *twinNode) info(name string) FileInfo {
	i := FileInfo{Name: name, Size: int64(len(n.data)), ModTime: n.mtime}
	if n.dir {
		i.Mode = fs.ModeDir
	}
	return i
}

// ReadDir implements [Disk].
func (t *Twin) ReadDir(path string) ([]FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.findLocked("readdir", path); err != nil {
		return nil, err
	}
	var list []FileInfo
	for _, p := range sortedKeys(t.live) {
		if p != "/" && filepath.Dir(p) == cleaned(path) {
			list = append(list, t.live[p].info(filepath.Base(p)))
		}
	}
	return list, nil
}

// MkdirAll implements [Disk].
func (t *Twin) MkdirAll(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []string
	for p := cleaned(path); t.live[p] == nil; p = filepath.Dir(p) {
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		if err := t.beginLocked("mkdir", p); err != nil {
			return err
		}
		n := t.newDirLocked()
		t.live[p], t.durable[p] = n, n
	}
	return nil
}

// Rename implements [Disk].
func (t *Twin) Rename(from, to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beginLocked("rename", from); err != nil {
		return err
	}
	n, err := t.findLocked("rename", from)
	if err != nil {
		return err
	}
	if old := t.live[cleaned(to)]; n.dir && old != nil && old.dir {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.ENOTEMPTY}
	}
	moveNames(t.live, cleaned(from), cleaned(to))
	return nil
}

// moveNames gives a file, or a directory with all that is below it, another name.
func moveNames(names map[string]*twinNode, from, to string) {
	for _, p := range sortedKeys(names) {
		if below, ok := strings.CutPrefix(p, from); ok && (below == "" || below[0] == '/') {
			n := names[p]
			delete(names, p)
			names[to+below] = n
		}
	}
}

// renamedLocked finds the durable name of a file or directory that has another
// one now.
func (t *Twin) renamedLocked(to string) (from string, ok bool) {
	n := t.live[to]
	if t.durable[to] == n {
		return "", false
	}
	for _, from := range sortedKeys(t.durable) {
		if t.durable[from] == n && t.live[from] == nil {
			return from, true
		}
	}
	return "", false
}

// Remove implements [Disk].
func (t *Twin) Remove(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beginLocked("remove", path); err != nil {
		return err
	}
	n, err := t.findLocked("remove", path)
	if err != nil {
		return err
	}
	if n.dir {
		for p := range t.live {
			if filepath.Dir(p) == cleaned(path) && p != "/" {
				return &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
			}
		}
	}
	delete(t.live, cleaned(path))
	return nil
}

// SyncDir implements [Disk].
func (t *Twin) SyncDir(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beginLocked("syncdir", path); err != nil {
		return err
	}
	if _, err := t.findLocked("syncdir", path); err != nil {
		return err
	}
	dir := cleaned(path)
	for _, p := range sortedKeys(t.live) { // a directory is moved with what is durable in it
		if from, ok := t.renamedLocked(p); ok && t.live[p].dir && filepath.Dir(p) == dir {
			moveNames(t.durable, from, p)
		}
	}
	for p, n := range t.live {
		if filepath.Dir(p) == dir {
			t.durable[p] = n
		}
	}
	for p := range t.durable {
		if filepath.Dir(p) == dir && t.live[p] == nil {
			delete(t.durable, p)
		}
	}
	return nil
}

// Usage implements [Disk].
func (t *Twin) Usage(string) (used, total int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used = t.usedLocked()
	if t.capacity > 0 {
		return used, t.capacity, nil
	}
	return used, 1 << 40, nil
}

// Lock implements [Disk].
func (t *Twin) Lock(path string) (io.Closer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := cleaned(path)
	if t.locks[name] != nil {
		return nil, ErrLocked
	}
	if t.live[name] == nil {
		if err := t.beginLocked("create", path); err != nil {
			return nil, err
		}
		n := &twinNode{mtime: t.clock, data: []byte("lock"), stable: []byte("lock")}
		t.live[name], t.durable[name] = n, n
	}
	l := &twinLock{twin: t, path: name, life: t.life}
	t.locks[name] = l
	return l, nil
}

// Close gives the lock back.
func (l *twinLock) Close() error {
	l.twin.mu.Lock()
	defer l.twin.mu.Unlock()
	if l.twin.locks[l.path] == l {
		delete(l.twin.locks, l.path)
	}
	return nil
}

// ReadFile implements [Disk].
func (t *Twin) ReadFile(path string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.findLocked("read", path)
	if err != nil {
		return nil, err
	}
	return slices.Clone(n.data), nil
}

// WriteFileAtomic implements [Disk], step by step as the real one.
func (t *Twin) WriteFileAtomic(path string, data []byte) error {
	temp := path + temporarySuffix
	if _, err := t.Stat(temp); err == nil {
		if err := t.Remove(temp); err != nil {
			return err
		}
	}
	f, err := t.Create(temp, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := t.Rename(temp, path); err != nil {
		return err
	}
	return t.SyncDir(filepath.Dir(path))
}
