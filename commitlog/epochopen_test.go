package commitlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Faults 14 and 16: an epoch that starts beyond the log's end is dropped, said
// once, and does not come back when the log has grown.
func TestEpochsBeyondTheEndAreDroppedForGood(t *testing.T) {
	for _, whose := range []string{"ours", "RocketMQ's"} {
		o := twinOptions(NewTwin(1))
		l := mustOpen(t, o)
		end := putRecords(t, l, 3)[2].EndOffset
		must(t, l.Close())
		list := []Epoch{{1, 11, 0}, {2, 22, end}, {3, 33, end + 1}, {4, 44, end + 5000}}
		if whose == "ours" {
			must(t, o.Disk.WriteFileAtomic(filepath.Join(o.Dir, epochNotesName), encodeEpochNotes(list)))
		} else {
			must(t, o.Disk.WriteFileAtomic(filepath.Join(o.Dir, epochFileName), encodeEpochFile(list)))
			list[0].ID, list[1].ID = 0, 0
		}
		said := &noted{}
		o.Logger = said.logger()
		operations := o.Disk.(*Twin).Operations()
		r, err := OpenReadOnly(o)
		must(t, err)
		if got := r.Epochs(); !slices.Equal(got, list[:2]) {
			t.Errorf("%s, read only: %v", whose, got)
		}
		must(t, r.Close())
		if got := o.Disk.(*Twin).Operations(); got != operations {
			t.Errorf("%s: opening for reading did %d operations", whose, got-operations)
		}
		for range 2 {
			l = mustOpen(t, o)
			checkEpochList(t, l, list[:2]...)
			if got := said.count("beyond the log's end", "first=3", "dropped=2", fmt.Sprint("end_offset=", end)); got != 2 { // the reader's and the first opening's
				t.Errorf("%s: %d warnings: %s", whose, got, said.text())
			}
			putRecords(t, l, 8)
			must(t, l.Close())
		}
	}
}

func TestUnreadableFilesOfEpochsAreNamedAndIgnored(t *testing.T) {
	for _, bad := range []string{epochNotesName, epochFileName} {
		o := twinOptions(NewTwin(1))
		l := mustOpen(t, o)
		at := putRecords(t, l, 3)
		a, b := Epoch{1, 11, 0}, Epoch{2, 22, at[1].Offset}
		must(t, errors.Join(l.AppendEpoch(a), l.AppendEpoch(b), l.Close()))
		must(t, o.Disk.WriteFileAtomic(filepath.Join(o.Dir, bad), []byte("garbage\n")))
		if bad == epochNotesName {
			a.ID, b.ID = 0, 0
		}
		said := &noted{}
		o.Logger = said.logger()
		for range 2 { // repaired by the first
			l = mustOpen(t, o)
			checkEpochList(t, l, a, b)
			must(t, l.Close())
		}
		if got := said.count("not believed", filepath.Join(o.Dir, bad)); got != 1 {
			t.Errorf("%s: %d warnings: %s", bad, got, said.text())
		}
	}
	// With nothing to go by the files stay for somebody to look at.
	o := twinOptions(NewTwin(1))
	must(t, mustOpen(t, o).Close())
	for _, name := range []string{epochNotesName, epochFileName, epochBackupName} {
		must(t, o.Disk.WriteFileAtomic(filepath.Join(o.Dir, name), []byte(name)))
	}
	l := mustOpen(t, o)
	if got := l.Epochs(); len(got) != 0 {
		t.Errorf("epochs %v", got)
	}
	if theirs, backup, ours := epochTexts(o.Disk, o.Dir); theirs != epochFileName || backup != epochBackupName || ours != epochNotesName {
		t.Errorf("the files are %q, %q, %q", theirs, backup, ours)
	}
	must(t, l.AppendEpoch(Epoch{5, 55, 0}))
	checkEpochList(t, l, Epoch{5, 55, 0})
}

// rocketMQRan leaves what tells that a broker was started on the store.
func rocketMQRan(t *testing.T, disk *Twin, root string) {
	t.Helper()
	f, err := disk.Open(filepath.Join(root, lockName), true)
	must(t, err)
	_, err = f.WriteAt([]byte("lock"), 0)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

func TestEpochsThatRocketMQHasKeptSinceCount(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	at := putRecords(t, l, 5)
	a, b, c := Epoch{1, 11, 0}, Epoch{2, 22, at[1].Offset}, Epoch{3, 33, at[2].Offset}
	must(t, errors.Join(l.AppendEpoch(a), l.AppendEpoch(b), l.AppendEpoch(c), l.Close()))
	d := Epoch{Number: 5, Start: at[3].Offset}
	must(t, disk.WriteFileAtomic(filepath.Join(o.Dir, epochFileName), encodeEpochFile([]Epoch{a, b, d})))
	rocketMQRan(t, disk, o.Dir)
	for range 2 {
		l = mustOpen(t, o)
		checkEpochList(t, l, a, b, d)
		must(t, l.Close())
	}
}

func TestRocketMQsFileOfEpochsIsWrittenAgainAfterAFailure(t *testing.T) {
	for _, closing := range []bool{true, false} {
		disk := NewTwin(1)
		o := twinOptions(disk)
		l := mustOpen(t, o)
		a, b := Epoch{1, 11, 0}, Epoch{2, 22, putRecords(t, l, 1)[0].EndOffset}
		must(t, l.AppendEpoch(a))
		disk.Fail("rename", &TwinFault{Err: syscall.ENOSPC, Path: epochFileName})
		must(t, l.AppendEpoch(b)) // it is durable in ours
		if theirs, _, _ := epochTexts(disk, o.Dir); theirs != string(encodeEpochFile([]Epoch{a})) {
			t.Errorf("RocketMQ's is %q", theirs)
		}
		l.keeper.look()
		disk.Fail("rename", nil)
		if closing {
			must(t, l.Close())
		} else {
			l.keeper.look()
		}
		checkEpochList(t, l, a, b)
	}
}

func TestEpochThatCannotBeWrittenChangesNothing(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	a := Epoch{1, 11, 0}
	b := Epoch{2, 22, putRecords(t, l, 1)[0].EndOffset}
	must(t, l.AppendEpoch(a))
	for _, operation := range []string{"create", "write", "sync", "rename"} {
		disk.Fail(operation, &TwinFault{Err: syscall.EIO, Path: epochNotesName, Times: 1})
		if err := l.AppendEpoch(b); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), epochNotesName) {
			t.Errorf("%s: %v", operation, err)
		}
		checkEpochList(t, l, a)
		must(t, l.Writable())
	}
	// Its name may be durable or not: nobody knows to whom the next record
	// belongs.
	disk.Fail("syncdir", &TwinFault{Err: syscall.EIO, Path: o.Dir, Times: 1})
	if err := l.AppendEpoch(b); !errors.Is(err, syscall.EIO) || !errors.Is(l.Writable(), ErrReadOnly) {
		t.Errorf("syncdir: %v; writable: %v", err, l.Writable())
	}
	if got := l.Epochs(); !slices.Equal(got, []Epoch{a}) {
		t.Errorf("epochs %v", got)
	}
	must(t, l.Close())
	checkEpochList(t, mustOpen(t, o), a, b)
}

// Damage below what was durable: nothing is changed, the epochs' files neither.
func TestEpochFilesOfADamagedLogStayAsTheyAre(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	l := mustOpen(t, o)
	at := putRecords(t, l, 3)
	must(t, errors.Join(l.AppendEpoch(Epoch{1, 11, 0}), l.AppendEpoch(Epoch{2, 22, at[2].EndOffset}), l.Close()))
	patch(t, o.Dir, o.SegmentBytes, at[2].Offset+200, []byte{1})
	theirs, _, ours := epochTexts(OSDisk(), o.Dir)
	l = mustOpen(t, o)
	if err := l.Writable(); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("writable: %v", err)
	}
	if now, _, own := epochTexts(OSDisk(), o.Dir); now != theirs || own != ours {
		t.Errorf("the files became %q, %q", now, own)
	}
	if err := l.AppendEpoch(Epoch{3, 33, 0}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
}
