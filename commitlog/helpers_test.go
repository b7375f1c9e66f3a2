package commitlog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func makeFIFO(t testing.TB, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// onTwin copies a store of the file system to a twin, durable, under the same
// path.
func onTwin(t testing.TB, dir string) *Twin {
	t.Helper()
	twin := NewTwin(1)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return twin.MkdirAll(path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return twin.WriteFileAtomic(path, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	// The lock file has another time than the one that the hint remembers.
	h, err := readHint(twin, dir)
	if err != nil || h == nil {
		return twin
	}
	now, err := fingerprintNow(twin, dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Fingerprints = []string{now}
	if err := writeHint(twin, dir, h); err != nil {
		t.Fatal(err)
	}
	return twin
}

// clone copies a disk as it is, dirty state and all handles left out.
func (t *Twin) clone() *Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := NewTwin(1)
	c.clock = t.clock
	for path, n := range t.live {
		m := &twinNode{dir: n.dir, mtime: n.mtime, data: bytes.Clone(n.data), stable: bytes.Clone(n.data)}
		c.live[path], c.durable[path] = m, m
	}
	return c
}

const twinStore = "/store"

func twinOptions(disk *Twin) Options {
	o := testOptions(twinStore)
	o.Disk, o.SegmentBytes = disk, 8192
	o.Limits.BodyBytes = 4096
	return o
}
