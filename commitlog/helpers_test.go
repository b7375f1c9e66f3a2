package commitlog

import (
	"bytes"
	"testing"
	"time"

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

// eventually polls until a condition holds; what says what was waited for.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
