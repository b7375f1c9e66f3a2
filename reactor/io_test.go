package reactor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSendfileOfAShortFileIsNotThePeersFault(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	path := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	on(t, g.Loop(0), func() {
		fd := int(file.Fd())
		if n, err := c.Sendfile(fd, 4, 100); n != 6 || err != nil {
			t.Errorf("got %d, %v, want the 6 bytes there are", n, err)
		}
		if n, err := c.Sendfile(fd, 10, 100); n != 0 || !errors.Is(err, ErrShortFile) {
			t.Errorf("got %d, %v, want ErrShortFile", n, err)
		}
		if n, err := c.Sendfile(-1, 0, 100); n != 0 || !errors.Is(err, ErrFault) {
			t.Errorf("got %d, %v, want ErrFault", n, err)
		}
		if n, err := c.Sendfile(fd, 0, 0); n != 0 || !errors.Is(err, ErrNoBytes) {
			t.Errorf("got %d, %v, want ErrNoBytes", n, err)
		}
		if n, err := c.Writev([][]byte{[]byte("ok")}); n != 2 || err != nil {
			t.Errorf("got %d, %v: the connection must go on", n, err)
		}
	})
	got := make([]byte, 8)
	if _, err := readRaw(raw, got); err != nil || string(got) != "456789ok" {
		t.Errorf("peer got %q, %v", got, err)
	}
}

func TestAShortReadIsTheLastForNow(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	writeRaw(t, raw, []byte("abcdefgh"))
	_, cut := cutPages(t)
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		if _, err := c.Readv([][]byte{cut[:100]}); !errors.Is(err, ErrFault) || c.Drained() {
			t.Errorf("a fault: %v, drained %v", err, c.Drained())
		}
		one, two := make([]byte, 2), make([]byte, 4)
		for _, want := range []struct {
			n       int
			drained bool
			err     error
		}{{6, false, nil}, {2, true, nil}, {0, true, ErrWouldBlock}} {
			if n, err := c.Readv([][]byte{one, nil, two}); n != want.n || !errors.Is(err, want.err) || c.Drained() != want.drained {
				t.Errorf("%d bytes, %v, drained %v, want %+v", n, err, c.Drained(), want)
			}
		}
	})
}

// cutPages are a page of a mapping, and the next, which is no longer in the file.
func cutPages(t *testing.T) (whole, cut []byte) {
	t.Helper()
	page := os.Getpagesize()
	file, err := os.Create(filepath.Join(t.TempDir(), "cut"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(int64(2 * page)); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(file.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	if err := file.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	return m[:page], m[page:]
}

func TestACutMappingIsAFaultAndTheConnectionGoesOn(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	whole, cut := cutPages(t)
	writeRaw(t, raw, []byte("abcd"))
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		if n, err := c.Writev([][]byte{cut[:100]}); n != 0 || !errors.Is(err, ErrFault) {
			t.Errorf("write: %d, %v, want ErrFault", n, err)
		}
		if n, err := c.Readv([][]byte{cut[:100]}); n != 0 || !errors.Is(err, ErrFault) {
			t.Errorf("read: %d, %v, want ErrFault", n, err)
		}
		if n, err := c.Readv([][]byte{nil, whole[:100]}); n != 4 || err != nil || string(whole[:4]) != "abcd" {
			t.Errorf("read after the fault: %d, %v, %q, want the same bytes", n, err, whole[:4])
		}
		if n, err := c.Writev([][]byte{whole[:2], {}, whole[2:4]}); n != 4 || err != nil {
			t.Errorf("write after the fault: %d, %v", n, err)
		}
	})
	got := make([]byte, 4)
	if _, err := readRaw(raw, got); err != nil || string(got) != "abcd" {
		t.Errorf("peer got %q, %v", got, err)
	}
}
