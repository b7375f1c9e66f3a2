package commitlog

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

func makeFIFO(t testing.TB, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
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
