package commitlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Fault 5: segments cut by somebody under a running log. Each reader gets an
// error that names segment and offset; the process lives.
func TestSealedSegmentCutUnderARunningLogIsAnError(t *testing.T) {
	o := testOptions(t.TempDir())
	l := mustOpen(t, o)
	var all []Appended
	for range 150 { // three segments
		all = append(all, mustPut(t, l, "topic", 0, 1000))
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	view, err := l.View(all[10].Offset, all[10].EndOffset)
	if err != nil {
		t.Fatal(err)
	}
	path := l.SegmentPath(0)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	fault := func(what string, err error) {
		t.Helper()
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.Kind != KindFault || bad.Path != path || bad.Offset < 4096 || bad.Offset > 64<<10 {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = view.CopyTo(make([]byte, 4096))
	fault("view", err)
	view.Release()
	_, err = l.Read(all[10].Offset)
	fault("read", err)
	_, err = l.ReadAt(make([]byte, 60<<10), 0)
	fault("range", err)
	for _, err = range l.Records(0) {
		if err != nil {
			break
		}
	}
	fault("iteration", err)
	fault("dispatch", l.Fault(all[10].Offset, io.ErrUnexpectedEOF))
	if _, err := l.Read(all[140].Offset); err != nil {
		t.Errorf("another segment: %v", err)
	}
	if err := l.Writable(); !errors.Is(err, ErrReadOnly) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("writable: %v", err)
	}
}

func TestOpenSegmentCutUnderARunningLogIsAnError(t *testing.T) {
	o := testOptions(t.TempDir())
	l := mustOpen(t, o)
	first := mustPut(t, l, "topic", 0, 1000)
	if err := os.Truncate(l.SegmentPath(0), 4096); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 10 {
		if _, err = put(l, "topic", 0, make([]byte, 1000)); err != nil {
			break
		}
	}
	var bad *CorruptError
	if !errors.As(err, &bad) || bad.Kind != KindFault || bad.Path != l.SegmentPath(0) {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Read(first.Offset); err != nil {
		t.Errorf("what is still there: %v", err)
	}
	if _, err := put(l, "topic", 0, []byte("x")); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append after it: %v", err)
	}

	replica := mustOpen(t, testOptions(t.TempDir()))
	room := mustReserve(t, replica)
	if err := os.Truncate(replica.SegmentPath(0), 0); err != nil {
		t.Fatal(err)
	}
	// The kernel's side of a readv.
	r, w := pipe(t)
	if _, err := unix.Write(w, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Readv(r, [][]byte{room[:100]}); !errors.Is(err, unix.EFAULT) {
		t.Fatalf("readv: %v, want EFAULT", err)
	}
	if err := replica.Fault(replica.EndOffset(), unix.EFAULT); !errors.As(err, &bad) || bad.Path != replica.SegmentPath(0) {
		t.Errorf("fault: %v", err)
	}
	if err := replica.Discard(100); !errors.As(err, &bad) {
		t.Errorf("discard: %v", err)
	}

	replica = mustOpen(t, testOptions(t.TempDir()))
	mustReserve(t, replica)
	if err := os.Truncate(replica.SegmentPath(0), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := replica.Place(0, make([]byte, 100)); n != 0 || !errors.As(err, &bad) || bad.Kind != KindFault {
		t.Errorf("place: %d, %v", n, err)
	}

	replica = mustOpen(t, testOptions(t.TempDir()))
	mustReserve(t, replica)
	page := os.Getpagesize()
	if err := os.Truncate(replica.SegmentPath(0), int64(page)); err != nil {
		t.Fatal(err)
	}
	if n, err := replica.Place(page-60, bytes.Repeat([]byte{1}, 300)); n != 60 || !errors.As(err, &bad) {
		t.Errorf("place over two pages, of which the second is gone: %d, %v", n, err)
	}
}

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

// loopDisk mounts a small ext4 file system.
func loopDisk(t *testing.T, mib string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", mib + "M", image},
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no loop file system here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}

// Faults 5 and 31 on a real file system: a full disk refuses what needs a new
// segment, and nothing sticks once there is space again.
func TestFullDiskRefusesUntilSpaceIsFreed(t *testing.T) {
	mount := loopDisk(t, "24")
	o := testOptions(filepath.Join(mount, "store"))
	o.SegmentBytes = 1 << 20
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	filler := filepath.Join(mount, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil || !errors.Is(err, ErrSegmentUnavailable); n++ {
		if _, err = put(l, "topic", 0, make([]byte, 30000)); err != nil && !errors.Is(err, ErrSegmentUnavailable) || n > 1000 {
			t.Fatalf("put %d: %v", n, err)
		}
	}
	n--
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("refused with %v", err)
	}
	if err := l.Flush(); err != nil {
		t.Errorf("what was taken must be flushed on a full disk: %v", err)
	}
	if _, err := put(l, "topic", 0, make([]byte, 30000)); !errors.Is(err, ErrSegmentUnavailable) {
		t.Errorf("the next put: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := put(l, "topic", 0, make([]byte, 30000)); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
	awaitDispatch(t, l)
	checkRecords(t, l, n+1)
}

// Without preallocation a full disk is met in the mapping: still an error, and
// still not for good.
func TestFullDiskUnderASparseSegmentIsNoDamage(t *testing.T) {
	mount := loopDisk(t, "24")
	o := testOptions(filepath.Join(mount, "store"))
	o.SegmentBytes, o.Preallocate = 8<<20, false
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mustPut(t, l, "topic", 0, 10)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(mount, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	err = nil
	n := 1
	for ; err == nil && n < 1000; n++ {
		_, err = put(l, "topic", 0, make([]byte, 30000))
	}
	if !errors.Is(err, ErrSegmentUnavailable) {
		t.Fatalf("put %d: %v", n, err)
	}
	if err := l.Writable(); err != nil {
		t.Fatalf("a full disk is no damage: %v", err)
	}
	if err := l.Shortage(); !errors.Is(err, ErrSegmentUnavailable) {
		t.Errorf("shortage on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shortage is over", func() bool { return l.Shortage() == nil })
	if _, err := put(l, "topic", 0, make([]byte, 30000)); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
}
