package commitlog

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"
)

// mustReserve waits for the reserved bytes.
func mustReserve(t testing.TB, l *Log) []byte { return mustReserveUpTo(t, l, math.MaxInt32) }

func mustReserveUpTo(t testing.TB, l *Log, n int64) []byte {
	t.Helper()
	for {
		room, err := l.Reserve(n)
		if err == nil {
			return room
		}
		if !errors.Is(err, ErrSegmentPending) {
			t.Fatal(err)
		}
		if err := l.roller.await(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDispatch waits until the dispatcher has caught up.
func awaitDispatch(t testing.TB, l *Log) {
	t.Helper()
	if !l.awaitDispatched(20 * time.Second) {
		t.Fatalf("dispatched to %d of %d: %v", l.DispatchedOffset(), l.EndOffset(), l.dispatcher.trouble())
	}
}

// replicate copies [from, to) of a log into another in pieces.
func replicate(t testing.TB, from, to *Log, end int64, piece int) {
	t.Helper()
	for to.EndOffset() < end {
		room := mustReserveUpTo(t, to, min(int64(piece), end-to.EndOffset()))
		if _, err := from.ReadAt(room, to.EndOffset()); err != nil {
			t.Fatal(err)
		}
		if err := to.Publish(len(room)); err != nil {
			t.Fatal(err)
		}
	}
}

// A replica's log, filled in pieces of any size, is its master's to the byte,
// before and after a restart in the middle of a record.
func TestReplicaIsItsMastersLogToTheByte(t *testing.T) {
	master := mustOpen(t, testOptions(t.TempDir()))
	for i := range 200 {
		mustPut(t, master, "topic", int32(i%4), i*13%3000)
	}
	for _, piece := range []int{1 << 20, 4096, 777} {
		o := twinOptions(NewTwin(1))
		o.SegmentBytes = 64 << 10
		replica := mustOpen(t, o)
		if err := replica.StartAt(0); err != nil {
			t.Fatal(err)
		}
		half := master.EndOffset()/2 + 11
		replicate(t, master, replica, half, piece)
		if err := replica.Close(); err != nil {
			t.Fatal(err)
		}
		if _, exists, _ := readAbort(o.Disk, o.Dir); !exists {
			t.Error("a replica that ends inside a record looks cleanly closed")
		}
		replica = mustOpen(t, o)
		if end := replica.EndOffset(); end > half || end < half-4000 {
			t.Errorf("the replica ends at %d after %d", end, half)
		}
		replicate(t, master, replica, master.EndOffset(), piece)
		if logSum(t, replica) != logSum(t, master) {
			t.Error("the logs differ")
		}
		checkRecords(t, replica, 200)
		if err := replica.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := replica.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Bytes that were read already stand beside those that a reader fills in, up to the
// segment's end and never behind it.
func TestPlacedBytesAreReservedOnes(t *testing.T) {
	disk := NewTwin(5)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	mustReserve(t, l)
	a, b, c := bytes.Repeat([]byte{1}, 100), bytes.Repeat([]byte{2}, 200), bytes.Repeat([]byte{3}, 300)
	for skip, piece := range map[int][]byte{0: a, 100: b, 300: c} { // in any order
		if n, err := l.Place(skip, piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if l.EndOffset() != 0 {
		t.Error("placed bytes are in the log")
	}
	if room := mustReserve(t, l); !bytes.Equal(room[:700], slices.Concat(a, b, c, make([]byte, 100))) {
		t.Error("they are not where they belong")
	}
	if err := l.Discard(600); err != nil {
		t.Fatal(err)
	}
	if room := mustReserve(t, l); !bytes.Equal(room[:700], make([]byte, 700)) {
		t.Error("they were not discarded")
	}
	last := int(o.SegmentBytes) - 50
	if n, err := l.Place(last, a); n != 50 || err != nil {
		t.Errorf("at the segment's end: %d, %v", n, err)
	}
	if n, err := l.Place(last+50, a); n != 0 || err != nil {
		t.Errorf("behind the segment's end: %d, %v", n, err)
	}
}

// What was received and not published is gone: for readers, and after a crash.
func TestDiscardedBytesAreZeroAgain(t *testing.T) {
	disk := NewTwin(3)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	room := mustReserve(t, l)
	copy(room, bytes.Repeat([]byte{7}, 3000))
	if l.EndOffset() != 0 {
		t.Error("reserved bytes are in the log")
	}
	if err := l.Discard(3000); err != nil {
		t.Fatal(err)
	}
	if room = mustReserve(t, l); !bytes.Equal(room[:4000], make([]byte, 4000)) {
		t.Error("discarded bytes are still there")
	}
}

func TestLogWithoutAByteBeginsWhereItIsTold(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	base := 5 * o.SegmentBytes
	for _, bad := range []int64{-o.SegmentBytes, base + 1, 100} {
		if err := l.StartAt(bad); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("start at %d: %v", bad, err)
		}
	}
	for range 2 { // the same start twice is no other
		if err := l.StartAt(base); err != nil {
			t.Fatal(err)
		}
	}
	check := func(l *Log) {
		t.Helper()
		if l.MinOffset() != base || l.EndOffset() != base || l.FlushedOffset() != base || l.DispatchedOffset() != base {
			t.Errorf("log is [%d, %d), flushed %d, dispatched %d, want %d",
				l.MinOffset(), l.EndOffset(), l.FlushedOffset(), l.DispatchedOffset(), base)
		}
	}
	check(l)
	mustReserve(t, l)
	check(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	check(l)
	a := mustPut(t, l, "topic", 0, 10)
	if a.Offset != base {
		t.Errorf("the first record is at %d, want %d", a.Offset, base)
	}
	if err := l.StartAt(base + o.SegmentBytes); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("start of a log with a record: %v", err)
	}
	checkRecords(t, l, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	if l.MinOffset() != base || l.EndOffset() != a.EndOffset {
		t.Errorf("log is [%d, %d), want [%d, %d)", l.MinOffset(), l.EndOffset(), base, a.EndOffset)
	}
}

// A replica on a full disk is told when to try again, and why it cannot.
func TestReserveOnAFullDiskIsRefusedAndGoesOn(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	ready := make(chan struct{}, 16)
	o.OnSegmentReady = func() { ready <- struct{}{} }
	l := mustOpen(t, o)
	disk.Fail("create", &TwinFault{Err: syscall.ENOSPC, Path: segmentsDirectory})
	var errs []error
	for range 4 {
		_, err := l.Reserve(math.MaxInt32)
		errs = append(errs, err)
		if errors.Is(err, ErrSegmentPending) {
			<-ready
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, ErrSegmentUnavailable) && errors.Is(err, syscall.ENOSPC)
	}) || slices.Contains(errs, nil) {
		t.Errorf("reserve: %v", errs)
	}
	disk.Fail("create", nil)
	for {
		_, err := l.Reserve(math.MaxInt32)
		if err == nil {
			break
		}
		if errors.Is(err, ErrSegmentPending) {
			<-ready
		} else if !errors.Is(err, ErrSegmentUnavailable) {
			t.Fatal(err)
		}
	}
}
