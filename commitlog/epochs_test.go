package commitlog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// epochTexts gives RocketMQ's file, its backup and ours; "": not there.
func epochTexts(disk Disk, root string) (theirs, backup, ours string) {
	text := func(name string) string {
		b, _ := disk.ReadFile(filepath.Join(root, name))
		return string(b)
	}
	return text(epochFileName), text(epochBackupName), text(epochNotesName)
}

// checkEpochList checks what a log says of its epochs, and that both files say
// the same.
func checkEpochList(t testing.TB, l *Log, want ...Epoch) {
	t.Helper()
	if got := l.Epochs(); !slices.Equal(got, want) {
		t.Fatalf("epochs %v, want %v", got, want)
	}
	theirs, backup, ours := epochTexts(l.disk, l.root)
	if len(want) == 0 {
		if theirs+backup+ours != "" {
			t.Fatalf("no epochs, and files %q, %q, %q", theirs, backup, ours)
		}
		return
	}
	if theirs != string(encodeEpochFile(want)) || ours != string(encodeEpochNotes(want)) {
		t.Fatalf("epochs %v, and files %q, %q", want, theirs, ours)
	}
}

// putRecords appends and flushes records of one size, and gives where they are.
func putRecords(t testing.TB, l *Log, n int) (all []Appended) {
	t.Helper()
	for range n {
		all = append(all, mustPut(t, l, "topic", 0, 1000))
	}
	must(t, l.Flush())
	return all
}

func TestEpochsAreKeptAndRefused(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	at := putRecords(t, l, 4)
	refuse := func(e Epoch) {
		t.Helper()
		before := slices.Clone(l.Epochs())
		err := l.AppendEpoch(e)
		var typed *EpochError
		if !errors.Is(err, ErrEpoch) || !errors.As(err, &typed) || typed.Epoch != e || typed.End != l.EndOffset() {
			t.Errorf("%v: %v", e, err)
		}
		checkEpochList(t, l, before...)
	}
	refuse(Epoch{0, 1, 0})
	refuse(Epoch{-1, 1, 0})
	refuse(Epoch{1, 1, -1})
	refuse(Epoch{1, 1, at[3].EndOffset + 1})
	a, b, c := Epoch{2, 22, 0}, Epoch{3, 33, at[1].Offset}, Epoch{7, 77, at[3].EndOffset}
	must(t, l.AppendEpoch(a))
	checkEpochList(t, l, a)
	must(t, l.AppendEpoch(b))
	held := l.Epochs()
	refuse(Epoch{3, 34, at[2].Offset})
	refuse(Epoch{2, 34, at[2].Offset})
	refuse(Epoch{4, 44, at[0].EndOffset - 1})
	must(t, l.AppendEpoch(c))
	checkEpochList(t, l, a, b, c)
	// A term without a record is replaced by the next one.
	d := Epoch{8, 88, c.Start}
	must(t, l.AppendEpoch(d))
	checkEpochList(t, l, a, b, d)
	if _, backup, _ := epochTexts(o.Disk, o.Dir); backup != string(encodeEpochFile([]Epoch{a, b, c})) {
		t.Errorf("the backup is %q", backup)
	}
	if !slices.Equal(held, []Epoch{a, b}) {
		t.Errorf("a list that somebody holds became %v", held)
	}
	r, err := OpenReadOnly(o)
	must(t, err)
	if got := r.Epochs(); !slices.Equal(got, []Epoch{a, b, d}) {
		t.Errorf("beside it: %v", got)
	}
	if err := r.AppendEpoch(Epoch{9, 9, d.Start}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("beside it: %v", err)
	}
	must(t, r.Close())
	must(t, l.Close())
	if err := l.AppendEpoch(Epoch{9, 9, d.Start}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	checkEpochList(t, mustOpen(t, o), a, b, d)
}

func TestStoreWithoutEpochsHasNoFilesOfThem(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	at := putRecords(t, l, 4)
	_, err := l.Truncate(at[2].Offset)
	must(t, err)
	checkEpochList(t, l)
	must(t, l.Close())
	checkEpochList(t, mustOpen(t, o))
	files, err := disk.ReadDir(twinStore)
	must(t, err)
	for _, f := range files {
		if strings.Contains(f.Name, "poch") {
			t.Errorf("there is a file %s", f.Name)
		}
	}
}

func TestOldestOfTooManyEpochsAreForgotten(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	at := putRecords(t, l, 6)
	var all []Epoch
	for i := range epochsMax + 5 {
		all = append(all, Epoch{int32(i + 1), uint64(i), int64(i)})
	}
	l.keeper.mu.Lock()
	must(t, l.keeper.setEpochsLocked(slices.Clone(all[:epochsMax])))
	l.keeper.mu.Unlock()
	if at[5].EndOffset < epochsMax+5 {
		t.Fatal("the log is too short")
	}
	for _, e := range all[epochsMax:] {
		must(t, l.AppendEpoch(e))
	}
	checkEpochList(t, l, all[5:]...)
	must(t, l.Close())
	must(t, o.Disk.WriteFileAtomic(filepath.Join(o.Dir, epochFileName), encodeEpochFile(all)))
	must(t, o.Disk.Remove(filepath.Join(o.Dir, epochNotesName)))
	for i := range all {
		all[i].ID = 0
	}
	checkEpochList(t, mustOpen(t, o), all[5:]...)
}

func TestTruncationCutsTheEpochs(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	at := putRecords(t, l, 12)
	var list []Epoch
	for i, r := range []int{0, 4, 6, 10} {
		list = append(list, Epoch{int32(i + 1), uint64(i + 11), at[r].Offset})
		must(t, l.AppendEpoch(list[i]))
	}
	empty := Epoch{9, 99, l.EndOffset()}
	must(t, l.AppendEpoch(empty))
	for _, c := range []struct {
		to   int64
		want []Epoch
	}{
		{empty.Start, list},          // the end: only the epoch without a record goes
		{empty.Start, list},          // nothing to do
		{at[11].Offset, list},        // inside the last epoch
		{at[10].Offset, list[:3]},    // where it starts
		{at[5].Offset, list[:2]},     // inside the second
		{at[0].EndOffset, list[:1]},  // inside the first
		{at[0].Offset, []Epoch(nil)}, // all of it
	} {
		held := l.Epochs()
		whole := slices.Clone(held)
		if _, err := l.Truncate(c.to); err != nil {
			t.Fatal(err)
		}
		checkEpochList(t, l, c.want...)
		_ = append(l.Epochs(), Epoch{99, 99, 99})
		if !slices.Equal(held, whole) {
			t.Errorf("a list that somebody holds became %v", held)
		}
		must(t, l.Close())
		l = mustOpen(t, o)
		checkEpochList(t, l, c.want...)
	}
	must(t, l.AppendEpoch(Epoch{1, 12, 0}))
	checkEpochList(t, l, Epoch{1, 12, 0})
}

func TestEpochsWithoutAByteGoWithRetention(t *testing.T) {
	for _, another := range []bool{true, false} {
		var o Options
		l, hours, _ := aged(t, func(p *Options) { o = *p })
		size := l.SegmentBytes()
		for i := range int64(5) {
			must(t, l.AppendEpoch(Epoch{int32(i + 1), uint64(i + 11), i*size + i}))
		}
		list := l.Epochs()
		hours.Store(76)
		if first := retain(t, l); first != 2 {
			t.Fatalf("segment %d is the first", first)
		}
		// Epoch 2 starts at size+1, epoch 3 at 2·size+2: the first byte is of 2.
		want := list[1:]
		if another {
			e := Epoch{9, 99, l.EndOffset()}
			var typed *EpochError
			if err := l.AppendEpoch(Epoch{9, 99, l.MinOffset() - 1}); !errors.As(err, &typed) || typed.Min != l.MinOffset() {
				t.Errorf("below the first byte: %v", err)
			}
			must(t, l.AppendEpoch(e))
			want = slices.Concat(want, []Epoch{e})
			checkEpochList(t, l, want...)
		}
		must(t, l.Close())
		o.RetentionDisk, o.Retention = 0, 0
		checkEpochList(t, mustOpen(t, o), want...)
	}
}

// A term without a byte says nothing of a log that begins elsewhere.
func TestEpochsGoWhenAnEmptyLogIsGivenItsStart(t *testing.T) {
	o := twinOptions(NewTwin(1))
	l := mustOpen(t, o)
	must(t, errors.Join(l.AppendEpoch(Epoch{1, 11, 0}), l.StartAt(0)))
	checkEpochList(t, l, Epoch{1, 11, 0})
	base := 4 * o.SegmentBytes
	must(t, l.StartAt(base))
	checkEpochList(t, l)
	must(t, l.AppendEpoch(Epoch{1, 11, base}))
	must(t, l.Close())
	checkEpochList(t, mustOpen(t, o), Epoch{1, 11, base})
}

// Readers of the list meet appends and truncations.
func TestEpochsAreReadWhileTheyChange(t *testing.T) {
	l := mustOpen(t, twinOptions(NewTwin(1)))
	at := putRecords(t, l, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int32(40) {
			if err := l.AppendEpoch(Epoch{i + 1, uint64(i), at[0].EndOffset - int64(i%2)}); err != nil && !errors.Is(err, ErrEpoch) {
				t.Error(err)
			}
			if _, err := l.Truncate(at[0].EndOffset); err != nil {
				t.Error(err)
			}
		}
	}()
	limit := time.After(20 * time.Second)
	for {
		select {
		case <-done:
			return
		case <-limit:
			t.Fatal("it hangs")
		default:
			list := l.Epochs()
			if err := checkEpochs(list); err != nil {
				t.Error(err)
			}
			_ = append(list, Epoch{1 << 30, 0, 1 << 40})
		}
	}
}
