package reactor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// spliceTo opens a file of zeros and returns what it holds.
func spliceTo(t *testing.T, flags int) (fd int, content func() []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return int(file.Fd()), func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestSpliceMovesWhatCameToItsPlaceInAFile(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	fd, content := spliceTo(t, os.O_RDWR)
	writeRaw(t, raw, []byte("headbodytail"))
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		if n, err := c.Readv([][]byte{make([]byte, 4)}); n != 4 || err != nil {
			t.Errorf("head: %d, %v", n, err)
		}
		if n, err := c.Splice(fd, 1000, 4); n != 4 || err != nil {
			t.Errorf("body: %d, %v", n, err)
		}
		if n, err := c.Splice(fd, 0, 0); n != 0 || !errors.Is(err, ErrNoBytes) {
			t.Errorf("no bytes: %d, %v", n, err)
		}
		rest := make([]byte, 100)
		if n, err := c.Readv([][]byte{rest}); err != nil || string(rest[:n]) != "tail" {
			t.Errorf("read behind it: %q, %v", rest[:n], err)
		}
		if n, err := c.Splice(fd, 0, 100); n != 0 || !errors.Is(err, ErrWouldBlock) {
			t.Errorf("nothing there: %d, %v", n, err)
		}
	})
	shut(t, raw)
	on(t, g.Loop(0), func() {
		if n, err := c.Splice(fd, 0, 100); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("end of the stream: %d, %v", n, err)
		}
		if n, err := c.Splice(fd, 0, 100); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after it: %d, %v", n, err)
		}
	})
	want := make([]byte, 4000)
	copy(want[1000:], "body")
	if !bytes.Equal(content(), want) {
		t.Error("the file has other bytes, or has them elsewhere")
	}
}

// More than a pipe holds comes in pieces, in order.
func TestSpliceOfManyBytes(t *testing.T) {
	fd, content := spliceTo(t, os.O_RDWR)
	want := make([]byte, 5<<20)
	for i := range want {
		want[i] = byte(i >> 8)
	}
	h, done, at := &hooks{}, make(chan error, 1), 0
	h.readable = func(c *Conn) {
		n, err := c.Splice(fd, int64(at), len(want)-at)
		if at += n; at == len(want) || err != nil && !errors.Is(err, ErrWouldBlock) {
			c.Close(nil)
			done <- err
		}
	}
	raw, _ := pair(t, open(t, Options{}), h)
	defer shut(t, raw)
	writeRaw(t, raw, want)
	if err := await(t, done, "all bytes"); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(content(), want) {
		t.Error("the file has other bytes")
	}
}

// A file that cannot be written to says nothing of the peer; but what came is lost.
func TestSpliceToABadFile(t *testing.T) {
	g := open(t, Options{})
	for _, x := range []struct {
		name  string
		flags int
		kind  error
	}{{"read only", os.O_RDONLY, ErrFault}, {"no splice to it", os.O_WRONLY | os.O_APPEND, ErrUnsupported}} {
		raw, c := pair(t, g, &hooks{})
		defer shut(t, raw)
		bad, _ := spliceTo(t, x.flags)
		good, content := spliceTo(t, os.O_RDWR)
		writeRaw(t, raw, []byte("lost"))
		on(t, g.Loop(0), func() {
			c.WantRead(false)
			if n, err := c.Splice(bad, 0, 4); n != 0 || !errors.Is(err, x.kind) {
				t.Errorf("%s: %d, %v, want %v", x.name, n, err, x.kind)
			}
		})
		writeRaw(t, raw, []byte("next"))
		on(t, g.Loop(0), func() {
			if n, err := c.Splice(good, 0, 100); n != 4 || err != nil {
				t.Errorf("%s, then a good one: %d, %v", x.name, n, err)
			}
		})
		if got := content()[:5]; string(got) != "next\x00" {
			t.Errorf("%s: the next file got %q", x.name, got)
		}
	}
}

// What is in the file before it fails counts.
func TestSpliceThatFailsInTheMiddle(t *testing.T) {
	page := os.Getpagesize()
	fd, err := unix.MemfdCreate("file", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, fd)
	if err := unix.Ftruncate(fd, int64(page)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	writeRaw(t, raw, make([]byte, 2*page))
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		if n, err := c.Splice(fd, 0, 2*page); n != page || !errors.Is(err, ErrFault) {
			t.Errorf("%d bytes, %v, want %d and a fault", n, err, page)
		}
	})
}

// Where the kernel refuses the socket's side nothing is lost: the bytes can be read.
func TestSpliceThatCannotBegin(t *testing.T) {
	g := open(t, Options{})
	raw, c := pair(t, g, &hooks{})
	defer shut(t, raw)
	fd, _ := spliceTo(t, os.O_RDWR)
	writeRaw(t, raw, []byte("body"))
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		c.loop.pipe = pipe{from: fd, to: fd, open: true} // no pipe: EINVAL
		if n, err := c.Splice(fd, 0, 4); n != 0 || !errors.Is(err, ErrNotSpliced) {
			t.Errorf("%d, %v, want ErrNotSpliced", n, err)
		}
		c.loop.pipe.open = false
		b := make([]byte, 4)
		if n, err := c.Readv([][]byte{b}); n != 4 || err != nil || string(b) != "body" {
			t.Errorf("read instead: %q, %v", b[:n], err)
		}
	})
}

// A loop that has spliced leaves no descriptor behind.
func TestAPipeIsClosedWithItsLoop(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	fd, _ := spliceTo(t, os.O_RDWR)
	before := count()
	g, err := Open(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	raw, c := pair(t, g, &hooks{})
	writeRaw(t, raw, []byte("x"))
	on(t, g.Loop(0), func() {
		c.WantRead(false)
		if _, err := c.Splice(fd, 0, 1); err != nil {
			t.Error(err)
		}
		if !c.loop.pipe.open {
			t.Error("spliced without a pipe")
		}
	})
	shut(t, raw)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
