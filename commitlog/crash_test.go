package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// put is mustPut that may fail, with a body that tells records apart.
func put(l *Log, topic string, id int32, body []byte) (Appended, error) {
	e, err := l.Encode(&Message{Topic: topic, QueueID: id, Body: body, Properties: "TAGS\x01TagA\x02"})
	if err != nil {
		return Appended{}, err
	}
	defer e.Release()
	return l.Append(e, nil)
}

// stored is a record that was appended, with what is expected of it.
type stored struct {
	Appended
	body string
}

// checkPrefix checks that a log holds the first records of those that were
// appended, at least up to an offset, and nothing else.
func checkPrefix(t testing.TB, l *Log, all []stored, acknowledged int64) {
	t.Helper()
	if err := l.Writable(); err != nil {
		t.Fatalf("the log is not writable: %v", err)
	}
	if l.EndOffset() < acknowledged {
		t.Fatalf("the log ends at %d, acknowledged up to %d", l.EndOffset(), acknowledged)
	}
	i, _ := slices.BinarySearchFunc(all, l.MinOffset(), func(s stored, at int64) int { return int(s.Offset - at) })
	for r, err := range l.Records(l.MinOffset()) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(all) {
			t.Fatalf("a record at %d that nobody appended", r.PhysicalOffset)
		}
		if want := all[i]; r.PhysicalOffset != want.Offset || string(r.Body) != want.body || r.QueueOffset != want.QueueOffset {
			t.Fatalf("record %d is at %d (queue offset %d), want %d (%d)", i, r.PhysicalOffset, r.QueueOffset, want.Offset, want.QueueOffset)
		}
		i++
	}
	if i < len(all) && all[i].EndOffset <= l.EndOffset() {
		t.Fatalf("the log ends at %d, its records before %d", l.EndOffset(), all[i].EndOffset)
	}
	checkRecords(t, l, -1)
}

// Faults 3 and 19: power is cut after each operation of a log that grows over
// several segments, every put synced. What was acknowledged is there.
func TestPowerCutAtEachOperationKeepsWhatWasAcknowledged(t *testing.T) {
	const puts = 14
	for seed := uint64(1); seed <= 3; seed++ {
		for n := 0; ; n++ {
			disk := NewTwin(seed)
			o := twinOptions(disk)
			disk.PowerOffAfter(n)
			var all []stored
			var acknowledged int64
			l, err := Open(o)
			for i := 0; err == nil && i < puts; i++ {
				body := fmt.Sprintf("%d %s", i, strings.Repeat("x", 1500))
				var a Appended
				if a, err = put(l, "topic", int32(i%2), []byte(body)); err != nil {
					break
				}
				all = append(all, stored{a, body})
				if err = l.Flush(); err == nil {
					acknowledged = a.EndOffset
				}
			}
			if l != nil {
				_ = l.Close()
			}
			done := !disk.Off()
			disk.Crash()
			l, err = Open(o)
			if err != nil {
				t.Fatalf("seed %d, cut after %d operations: %v", seed, n, err)
			}
			checkPrefix(t, l, all, acknowledged)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if done {
				if acknowledged == 0 || n < 50 {
					t.Fatalf("the whole run took %d operations and acknowledged %d", n, acknowledged)
				}
				break
			}
		}
	}
}

// Fault 2: power is cut, or the process killed, at each operation of a
// truncation over a segment's border.
func TestTruncationCutOffAtEachOperationIsWholeOrNot(t *testing.T) {
	base := NewTwin(1)
	o := twinOptions(base)
	o.SegmentBytes = 4096
	o.Limits.BodyBytes = 2000
	var all []stored
	l := mustOpen(t, o)
	for i := range 12 {
		body := fmt.Sprintf("%d %s", i, strings.Repeat("y", 1000))
		a, err := put(l, "topic", 0, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored{a, body})
	}
	end := l.EndOffset()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if end < 3*4096 {
		t.Fatalf("the log is in one segment less than wanted: it ends at %d", end)
	}
	for _, keep := range []int{1, 3, 4, 11} { // inside the first segment, at a border, …
		to := all[keep].Offset
		for _, powerCut := range []bool{true, false} {
			for n := 0; ; n++ {
				o.Disk = base.clone()
				disk := o.Disk.(*Twin)
				l := mustOpen(t, o)
				disk.PowerOffAfter(n)
				cut, err := l.Truncate(to)
				if err == nil {
					checkCut(t, disk, cut, all[keep:])
				}
				if now := l.EndOffset(); now != to && now != end || err == nil && now != to {
					t.Fatalf("truncate said %v, the log ends at %d", err, now)
				}
				finished := err == nil && !disk.Off()
				_ = l.Close()
				if powerCut {
					disk.Crash()
				} else {
					disk.Kill()
				}
				l, oerr := Open(o)
				if oerr != nil {
					t.Fatalf("cut to %d, stopped after %d operations (truncate said %v): %v", to, n, err, oerr)
				}
				if now := l.EndOffset(); now != to && (now != end || err == nil) {
					t.Fatalf("cut to %d, stopped after %d operations (truncate said %v): the log ends at %d", to, n, err, now)
				}
				have := all
				if l.EndOffset() == to {
					have = all[:keep]
				}
				a, perr := put(l, "topic", 0, []byte("new"))
				if perr != nil {
					t.Fatal(perr)
				}
				have = append(slices.Clone(have), stored{a, "new"})
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				_ = l.Close()
				disk.Crash()
				l = mustOpen(t, o)
				checkPrefix(t, l, have, a.EndOffset)
				_ = l.Close()
				if finished {
					break
				}
			}
		}
	}
}

// A killed process has noted a cut, and its note is lost by a power cut while
// the next opening finishes the cut: the log is whole or cut all the same.
func TestCutThatIsStoppedAgainInTheOpeningIsWholeOrNot(t *testing.T) {
	base := NewTwin(1)
	o := twinOptions(base)
	o.SegmentBytes, o.Limits.BodyBytes = 4096, 2000
	all := writeStore(t, o, 12, 1000)
	to, end := all[1].Offset, all[11].EndOffset
	for kept := 8; kept < 24; kept++ { // around the operations that write the note
		for finished := range 16 {
			disk := base.clone()
			disk.rng = rand.New(rand.NewPCG(uint64(kept), uint64(finished)))
			o.Disk = disk
			l := mustOpen(t, o)
			disk.PowerOffAfter(kept)
			_, _ = l.Truncate(to)
			_ = l.Close()
			disk.Kill()
			disk.PowerOffAfter(finished)
			if l, err := Open(o); err == nil {
				_ = l.Close()
			}
			disk.Crash()
			l = mustOpen(t, o)
			if now := l.EndOffset(); l.Writable() != nil || now != to && now != end {
				t.Fatalf("stopped after %d operations, and again after %d: the log ends at %d, want %d or %d: %v", kept, finished, now, to, end, l.Writable())
			}
			must(t, l.Close())
		}
	}
}

// checkCut checks that what was cut is kept, whole.
func checkCut(t *testing.T, disk *Twin, path string, cut []stored) {
	t.Helper()
	b, err := disk.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range cut {
		at := s.Offset - cut[0].Offset
		if _, err := CheckRecord(b[at:], s.Offset, true); err != nil {
			t.Errorf("record at %d of the cut: %v", s.Offset, err)
		}
	}
}

// Fault 4: a failed fsync is believed for good.
func TestFailedFsyncEndsTheWrites(t *testing.T) {
	for _, mode := range []FlushMode{SyncFlush, AsyncFlush} {
		disk := NewTwin(4)
		o := twinOptions(disk)
		o.Flush = mode
		told := make(chan error, 2)
		o.OnTrouble = func(err error) { told <- err }
		l := mustOpen(t, o)
		first, err := put(l, "topic", 0, []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		disk.Fail("sync", &TwinFault{Err: syscall.EIO, Path: segmentName(0), Times: 1})
		second, err := put(l, "topic", 0, []byte("second"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.EIO) {
			t.Errorf("flush: %v", err)
		}
		if err := <-told; !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), segmentName(0)) {
			t.Errorf("told %v", err)
		}
		if _, err := put(l, "topic", 0, []byte("third")); !errors.Is(err, ErrReadOnly) {
			t.Errorf("append: %v", err)
		}
		if err := l.Flush(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("a second flush was believed: %v", err)
		}
		if got := l.FlushedOffset(); got != first.EndOffset {
			t.Errorf("flushed %d, want %d", got, first.EndOffset)
		}
		if r, err := l.Read(second.Offset); err != nil || string(r.Body) != "second" {
			t.Errorf("reads must go on: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if got := l.FlushedOffset(); got != first.EndOffset {
			t.Errorf("closing believed a second sync: flushed %d, want %d", got, first.EndOffset)
		}
		if len(told) > 0 {
			t.Error("told twice")
		}

		// The kernel took the page for clean. A restart of the process finds the
		// record in memory; before it counts as flushed it is written again.
		disk.Kill()
		l = mustOpen(t, o)
		if l.EndOffset() != second.EndOffset {
			t.Errorf("the log ends at %d, want %d", l.EndOffset(), second.EndOffset)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		flushed := l.FlushedOffset()
		disk.PowerOffAfter(0)
		_ = l.Close()
		disk.Crash()
		l = mustOpen(t, o)
		if l.EndOffset() < flushed || flushed != second.EndOffset {
			t.Errorf("the log ends at %d, %d was flushed, want %d", l.EndOffset(), flushed, second.EndOffset)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed sync of a queue takes nothing from the log, and the queues are right
// after the next opening.
func TestFailedSyncOfAQueueIsRepairedByTheNextOpening(t *testing.T) {
	disk := NewTwin(5)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	var all []stored
	for i := range 5 {
		body := fmt.Sprint(i)
		a, err := put(l, "topic", 0, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored{a, body})
	}
	awaitOffset(t, l, l.EndOffset())
	disk.Fail("sync", &TwinFault{Err: syscall.EIO, Path: queuesDirectory, Times: 1})
	l.keeper.look()
	if err := l.Writable(); err != nil {
		t.Errorf("the log is hit, too: %v", err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.keeper.look()
	disk.PowerOffAfter(0)
	_ = l.Close()
	disk.Crash()
	l = mustOpen(t, o)
	checkPrefix(t, l, all, all[4].EndOffset)
}
