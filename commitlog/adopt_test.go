package commitlog

import (
	"errors"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ownSize is a log that was opened without a segment size.
func ownSize(disk *Twin) Options {
	o := twinOptions(disk)
	o.SegmentBytes = 0
	return o
}

func TestEmptyLogTakesItsMastersSegmentSize(t *testing.T) {
	o := ownSize(NewTwin(1))
	l := mustOpen(t, o)
	if got := l.SegmentBytes(); got != segmentBytesDefault {
		t.Fatalf("segments of %d bytes", got)
	}
	for _, n := range []int64{128 << 10, 64 << 10, math.MaxInt32, 64 << 10} { // again, as long as it is empty
		must(t, l.AdoptSegmentBytes(n))
		if l.SegmentBytes() != n || l.Info().SegmentBytes != n {
			t.Errorf("segments of %d bytes, want %d", l.SegmentBytes(), n)
		}
	}
	for _, n := range []int64{0, -1, 64<<10 - 1, math.MaxInt32 + 1} {
		if err := l.AdoptSegmentBytes(n); !errors.Is(err, ErrSegmentBytes) || errors.Is(err, ErrNotEmpty) {
			t.Errorf("%d: %v", n, err)
		}
	}
	// A restart of the empty log keeps it, a kill too.
	for _, end := range []func(){func() { must(t, l.Close()) }, func() {
		o.Disk.(*Twin).PowerOffAfter(0)
		_ = l.Close()
		o.Disk.(*Twin).Crash()
	}} {
		end()
		if l = mustOpen(t, o); l.SegmentBytes() != 64<<10 {
			t.Errorf("segments of %d bytes after a restart", l.SegmentBytes())
		}
	}
	// It is the size that the log is made with.
	base := int64(3 * 64 << 10)
	must(t, l.StartAt(base))
	if room := mustReserve(t, l); len(room) != 64<<10 {
		t.Errorf("%d bytes are reserved", len(room))
	}
	if err := l.AdoptSegmentBytes(128 << 10); !errors.Is(err, ErrSegmentBytes) || !errors.Is(err, ErrNotEmpty) {
		t.Errorf("with a segment: %v", err)
	}
	must(t, l.AdoptSegmentBytes(64<<10)) // it has that
	must(t, l.Close())
	if err := l.AdoptSegmentBytes(128 << 10); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestSegmentSizeThatIsSettledStays(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	if err := l.AdoptSegmentBytes(64 << 10); !errors.Is(err, ErrSegmentBytes) || !strings.Contains(err.Error(), "8192") {
		t.Errorf("one was given: %v", err)
	}
	mustPut(t, l, "topic", 0, 10)
	must(t, l.Close())
	o.SegmentBytes = 0
	l = mustOpen(t, o)
	if err := l.AdoptSegmentBytes(64 << 10); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("with a record: %v", err)
	}
	must(t, l.Close())
	r, err := OpenReadOnly(o)
	must(t, err)
	if err := r.AdoptSegmentBytes(64 << 10); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read only: %v", err)
	}
	must(t, r.Close())

	// A start was chosen: the roller makes the first segment.
	l = mustOpen(t, ownSize(NewTwin(1)))
	must(t, l.AdoptSegmentBytes(64<<10))
	must(t, l.StartAt(64<<10))
	if err := l.AdoptSegmentBytes(128 << 10); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("with a start: %v", err)
	}
}

func TestSegmentSizeThatCannotBeNotedIsNotTaken(t *testing.T) {
	o := ownSize(NewTwin(1))
	l := mustOpen(t, o)
	o.Disk.(*Twin).Fail("create", &TwinFault{Err: syscall.ENOSPC, Path: hintName})
	if err := l.AdoptSegmentBytes(64 << 10); !errors.Is(err, syscall.ENOSPC) || l.SegmentBytes() != segmentBytesDefault {
		t.Errorf("%v, segments of %d bytes", err, l.SegmentBytes())
	}
	o.Disk.(*Twin).Fail("create", nil)
	must(t, l.AdoptSegmentBytes(64<<10))
}

// Whoever uses the size meets a change of it: a message that was encoded for a
// larger segment is refused, and nobody is disturbed.
func TestSegmentSizeChangesUnderItsReaders(t *testing.T) {
	o := ownSize(NewTwin(1))
	o.Limits.BodyBytes = 1 << 20
	l := mustOpen(t, o)
	e, err := l.Encode(&Message{Topic: "topic", Body: make([]byte, 100<<10)})
	must(t, err)
	defer e.Release()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for _, read := range []func(){
		func() { _ = l.SegmentBytes() + l.Info().SegmentBytes },
		func() { _ = l.SegmentPath(1 << 40) },
		func() { _, _ = l.Read(0) },
		func() { l.keeper.look() },
		func() {
			for range l.Scan(0, 100) {
				continue
			}
		},
		func() {
			if e, err := l.Encode(&Message{Topic: "topic", Body: make([]byte, 1000)}); err == nil {
				e.Release()
			}
		},
	} {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					read()
				}
			}
		})
	}
	for i := range int64(30) {
		must(t, l.AdoptSegmentBytes(64<<10+i%2*4096))
	}
	must(t, l.AdoptSegmentBytes(64<<10))
	close(stop)
	readers.Wait()
	if _, err := l.Append(e, nil); !errors.Is(err, ErrMessageIllegal) {
		t.Errorf("a record that is too large now: %v", err)
	}
	for range 100 {
		mustPut(t, l, "topic", 0, 1000)
	}
	checkRecords(t, l, 100)
	if n := l.Info().Segments; n < 2 {
		t.Errorf("%d segments", n)
	}
}
