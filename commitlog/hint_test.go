package commitlog

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestHintIsReadAsItWasWritten(t *testing.T) {
	for _, h := range []hint{
		{CutTo: -1},
		{Flushed: 1 << 40, Queued: 77, Confirmed: 1 << 39, Timestamp: 1700000000000, SegmentBytes: 1 << 30, Created: true, Uncovered: true,
			TailBytes: 4096, TailCRC: 1<<32 - 1, Fingerprints: []string{"aa", "bb"}, CutTo: 5, CutFrom: 9, Start: 1 << 30},
	} {
		got, err := decodeHint(h.encode())
		if err != nil || !reflect.DeepEqual(*got, h) {
			t.Errorf("%+v is read as %+v, %v", h, got, err)
		}
	}
}

func FuzzHint(f *testing.F) {
	h := hint{Flushed: 5000, Fingerprints: []string{"aa"}, TailBytes: 4096, CutTo: 3}
	good := h.encode()
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("flushed 5000"), []byte("flushed 5001"), 1))
	f.Add([]byte("checksum 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHint(b)
		if err != nil {
			return
		}
		again, err := decodeHint(h.encode())
		if err != nil || !reflect.DeepEqual(h, again) {
			t.Errorf("%+v is written back as %+v, %v", h, again, err)
		}
	})
}

// A hint that cannot be read is as none: RocketMQ's rules find the same end.
func TestUnreadableHintIsSaidAndIgnored(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	all := writeStore(t, o, 50, 1000)
	good, err := disk.ReadFile(filepath.Join(o.Dir, hintName))
	must(t, err)
	for _, bad := range [][]byte{nil, []byte("garbage"), good[:len(good)/2], bytes.ReplaceAll(good, []byte("flushed"), []byte("flashed"))} {
		must(t, disk.WriteFileAtomic(filepath.Join(o.Dir, hintName), bad))
		warned := &noted{}
		o.Logger = warned.logger()
		l := mustOpen(t, o)
		if l.EndOffset() != all[49].EndOffset || warned.count("hint", "not believed") != 1 {
			t.Errorf("the log ends at %d, want %d; %s", l.EndOffset(), all[49].EndOffset, warned.text())
		}
		checkRecords(t, l, 50)
		must(t, l.Close())
	}
}

// Fault 28: a store on a file system that is mounted for reading only.
func TestReadOnlyFileSystemIsReadAndNotWritten(t *testing.T) {
	mount := loopDisk(t, "16")
	o := testOptions(filepath.Join(mount, "store"))
	writeStore(t, o, 50, 1000)
	if out, err := exec.Command("mount", "-o", "remount,ro", mount).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "cannot be written") || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("open: %v", err)
	}
	l, err := OpenReadOnly(o)
	must(t, err)
	checkRecordsReadable(t, l, 50)
	must(t, l.Close())
}

// What is known to be complete on other nodes is known after a clean stop and,
// as far as it was noted, after a power cut; a log that was cut knows no more
// than it holds.
func TestConfirmedOffsetIsKept(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	all := writeStore(t, o, 50, 1000)
	l := mustOpen(t, o)
	if got := l.Confirmed(); got != 0 {
		t.Fatalf("confirmed %d of a log that was never told", got)
	}
	l.NoteConfirmed(all[30].EndOffset)
	l.NoteConfirmed(all[20].EndOffset) // late
	must(t, l.Close())

	l = mustOpen(t, o)
	if got := l.Confirmed(); got != all[30].EndOffset {
		t.Errorf("confirmed %d after a clean stop, want %d", got, all[30].EndOffset)
	}
	l.NoteConfirmed(1 << 40)
	if got := l.Confirmed(); got != l.EndOffset() {
		t.Errorf("confirmed %d of a log that ends at %d", got, l.EndOffset())
	}
	l.keeper.look()
	disk.Crash()
	_ = l.Close()

	l = mustOpen(t, o)
	if got := l.Confirmed(); got != all[49].EndOffset {
		t.Errorf("confirmed %d after a power cut, want %d", got, all[49].EndOffset)
	}
	if _, err := l.Truncate(all[10].EndOffset); err != nil {
		t.Fatal(err)
	}
	if got := l.Confirmed(); got != all[10].EndOffset {
		t.Errorf("confirmed %d of a log that was cut to %d", got, all[10].EndOffset)
	}
	putRecords(t, l, 20)
	if got := l.Confirmed(); got != all[10].EndOffset {
		t.Errorf("confirmed %d after other records followed the cut at %d", got, all[10].EndOffset)
	}
	must(t, l.Close())
}
