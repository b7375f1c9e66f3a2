package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// flipInStore changes a byte of a stopped store's log.
func flipInStore(t testing.TB, disk *Twin, segmentBytes, offset int64) {
	t.Helper()
	base := offset - offset%segmentBytes
	f, err := disk.Open(filepath.Join(twinStore, segmentsDirectory, segmentName(base)), true)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], offset-base)
	must(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b[:], offset-base)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

func planOf(t testing.TB, o Options, at int64) CutPlan {
	t.Helper()
	l, err := OpenReadOnly(o)
	must(t, err)
	defer l.Close()
	p, err := PlanCut(l, at, nil)
	must(t, err)
	return p
}

func nothingFirst() error { return nil }

// repairStore is a closed store of several segments, and its records.
func repairStore(t *testing.T) (*Twin, Options, []stored) {
	t.Helper()
	disk := NewTwin(1)
	o := twinOptions(disk)
	o.SegmentBytes, o.Limits.BodyBytes = 4096, 2000
	l := mustOpen(t, o)
	var all []stored
	for i := range 12 {
		body := fmt.Sprintf("%d %s", i, strings.Repeat("y", 1000))
		a, err := put(l, "topic", int32(i%2), []byte(body))
		must(t, err)
		all = append(all, stored{a, body})
	}
	must(t, l.Close())
	return disk, o, all
}

// A plan names the border, what goes, and what stays wrong.
func TestACutIsPlannedAtABorder(t *testing.T) {
	disk, o, all := repairStore(t)
	end := all[11].EndOffset
	for i, s := range all {
		for _, at := range []int64{s.Offset, s.Offset + 1, s.EndOffset - 1} {
			p := planOf(t, o, at)
			if p.To != s.Offset || p.Records != int64(12-i) || p.Asked != at || p.End != end || p.Damage != nil || p.Below != nil {
				t.Fatalf("at %d in the record from %d: %+v", at, s.Offset, p)
			}
			removed, replaced := (end-1)/4096-s.Offset/4096, segmentName(s.Offset-s.Offset%4096)
			if s.Offset > 0 && s.Offset%4096 == 0 {
				removed, replaced = removed+1, "" // its segment goes as a whole
			}
			if int64(len(p.Removed)) != removed || (p.Replaced == "") != (replaced == "") || !strings.HasSuffix(p.Replaced, replaced) {
				t.Errorf("at %d: replaces %s, removes %v", at, p.Replaced, p.Removed)
			}
		}
	}
	if p := planOf(t, o, end); !p.Nothing() || p.Records != 0 || p.Replaced != "" {
		t.Errorf("at the end: %+v", p)
	}
	l, err := OpenReadOnly(o)
	must(t, err)
	for _, at := range []int64{-1, end + 1} {
		if _, err := PlanCut(l, at, nil); !errors.Is(err, ErrOutOfRange) || !strings.Contains(err.Error(), fmt.Sprintf("0 to %d", end)) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	must(t, l.Close())
	// Damage is a border, too: the record that it is in begins there.
	flipInStore(t, disk, 4096, all[4].Offset+200)
	if p := planOf(t, o, all[4].Offset+300); p.To != all[4].Offset || p.Below != nil {
		t.Errorf("inside damage: %+v", p)
	}
	if p := planOf(t, o, all[6].Offset); p.Below == nil || p.Below.Offset != all[4].Offset {
		t.Errorf("behind damage: %+v", p)
	}
	l, err = OpenReadOnly(o)
	must(t, err)
	defer l.Close()
	if d := FirstDamage(l, nil); d == nil || d.Offset != all[4].Offset || d.Kind != KindCRC {
		t.Errorf("the first damage: %v", d)
	}
}

// A store that opens read-only because of damage opens writable after the cut,
// and what was cut is kept.
func TestADamagedLogIsWritableAfterTheCut(t *testing.T) {
	for name, spoil := range map[string]func(disk *Twin, all []stored){
		"a changed byte before the flushed offset": func(disk *Twin, all []stored) { flipInStore(t, disk, 4096, all[11].Offset+120) },
		"the last segment is missing": func(disk *Twin, all []stored) {
			must(t, disk.Remove(filepath.Join(twinStore, segmentsDirectory, segmentName(all[11].Offset-all[11].Offset%4096))))
			must(t, disk.SyncDir(filepath.Join(twinStore, segmentsDirectory)))
		},
	} {
		disk, o, all := repairStore(t)
		spoil(disk, all)
		l := mustOpen(t, o)
		var damage *CorruptError
		if err := l.Writable(); !errors.As(err, &damage) {
			t.Fatalf("%s: the log is writable: %v", name, err)
		}
		must(t, l.Close())
		p := planOf(t, o, damage.Offset)
		if p.Damage == nil || p.Nothing() {
			t.Errorf("%s: %+v", name, p)
		}
		kept, err := Cut(o, p.To, nothingFirst)
		must(t, err)
		if p.To < p.End {
			if b, err := disk.ReadFile(kept); err != nil || int64(len(b)) != p.End-p.To {
				t.Errorf("%s: %d bytes kept in %s of %d: %v", name, len(b), kept, p.End-p.To, err)
			}
		}
		l = mustOpen(t, o)
		n, _ := slices.BinarySearchFunc(all, p.To, func(s stored, to int64) int { return int(s.Offset - to) })
		a, err := put(l, "topic", 0, []byte("new"))
		must(t, err)
		must(t, l.Flush())
		checkPrefix(t, l, append(slices.Clone(all[:n]), stored{a, "new"}), a.EndOffset)
		must(t, l.Close())
	}
}

// What must not be cut is not.
func TestACutThatCannotBeIsRefused(t *testing.T) {
	_, o, all := repairStore(t)
	for _, to := range []int64{-1, all[11].EndOffset + 1, all[3].Offset + 1} {
		if _, err := Cut(o, to, nothingFirst); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("to %d: %v", to, err)
		}
	}
	busy := errors.New("busy")
	if _, err := Cut(o, all[3].Offset, func() error { return busy }); !errors.Is(err, busy) {
		t.Errorf("%v", err)
	}
	l := mustOpen(t, o)
	if l.EndOffset() != all[11].EndOffset {
		t.Errorf("the log ends at %d", l.EndOffset())
	}
	if _, err := Cut(o, all[3].Offset, nothingFirst); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a node: %v", err)
	}
	if _, err := SetAside(o); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a node: %v", err)
	}
	must(t, l.Close())
}

// Power is cut, or the process killed, at each operation of a cut: of a sound
// log, and of a damaged one. It is as it was or cut, with its epochs.
func TestACutOffAtEachOperationIsWholeOrNot(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		base, o, all := repairStore(t)
		l := mustOpen(t, o)
		epochs := []Epoch{{1, 11, 0}, {2, 22, all[5].Offset}, {3, 33, all[8].Offset}}
		for _, e := range epochs {
			must(t, l.AppendEpoch(e))
		}
		must(t, l.Close())
		if damaged {
			flipInStore(t, base, 4096, all[11].Offset+120)
		}
		to, end := all[5].Offset, all[11].EndOffset
		for n, finished := 0, false; !finished; n++ {
			for _, powerCut := range []bool{true, false} {
				disk := base.clone()
				disk.rng = rand.New(rand.NewPCG(uint64(n), 7))
				o.Disk = disk
				disk.PowerOffAfter(n)
				kept, err := Cut(o, to, nothingFirst)
				finished = err == nil && !disk.Off()
				if powerCut {
					disk.Crash()
				} else {
					disk.Kill()
				}
				where := fmt.Sprintf("damaged %v, stopped after %d operations (power cut %v), cut said %v", damaged, n, powerCut, err)
				l, oerr := Open(o)
				if oerr != nil {
					t.Fatalf("%s: %v", where, oerr)
				}
				switch now := l.EndOffset(); {
				case now == to && l.Writable() == nil && slices.Equal(l.Epochs(), epochs[:1]):
					checkPrefix(t, l, all[:5], to)
				case now == end && err != nil && (l.Writable() != nil) == damaged && slices.Equal(l.Epochs(), epochs):
				default:
					t.Fatalf("%s: the log ends at %d, writable %v, epochs %v", where, now, l.Writable(), l.Epochs())
				}
				if err == nil && !damaged {
					checkCut(t, disk, kept, all[5:])
				}
				must(t, l.Close())
			}
		}
	}
}

// snapshot reads all files of a twin below a directory.
func snapshot(disk *Twin, dir string) map[string]string {
	disk.mu.Lock()
	defer disk.mu.Unlock()
	files := map[string]string{}
	for path, n := range disk.live {
		if below, ok := strings.CutPrefix(path, dir+"/"); ok && !n.dir {
			files[below] = string(n.data)
		}
	}
	return files
}

// A log that is set aside is whole where it went, and the store is empty.
func TestALogIsSetAsideWhole(t *testing.T) {
	disk, o, all := repairStore(t)
	must(t, disk.WriteFileAtomic(filepath.Join(twinStore, "haengine.identity"), []byte("me")))
	p, err := PlanAside(o)
	must(t, err)
	if !slices.Contains(p.Names, "commitlog") || !slices.Contains(p.Names, "consumequeue") || slices.Contains(p.Names, "haengine.identity") || p.Files < 5 || p.Bytes < all[11].EndOffset {
		t.Errorf("planned %+v", p)
	}
	path, err := SetAside(o)
	must(t, err)
	old := o
	old.Dir = path
	l, err := OpenReadOnly(old)
	must(t, err)
	if l.EndOffset() != all[11].EndOffset || l.Info().Damage != nil || !l.Info().CleanShutdown {
		t.Errorf("aside: %+v", l.Info())
	}
	must(t, l.Close())
	l = mustOpen(t, o)
	if l.EndOffset() != 0 || len(l.Queues()) != 0 || len(l.Epochs()) != 0 {
		t.Errorf("the store still has %d bytes, queues %v, epochs %v", l.EndOffset(), l.Queues(), l.Epochs())
	}
	at := putRecords(t, l, 2)
	must(t, l.Close())
	l = mustOpen(t, o) // what is put next is not set aside
	if l.EndOffset() != at[1].EndOffset {
		t.Errorf("the new log ends at %d, want %d", l.EndOffset(), at[1].EndOffset)
	}
	must(t, l.Close())
	if b, err := disk.ReadFile(filepath.Join(twinStore, "haengine.identity")); err != nil || string(b) != "me" {
		t.Errorf("the identity is %q, %v", b, err)
	}
}

// Power is cut, or the process killed, at each operation of setting a log aside:
// it is where it was, or it says that it is half done and an opening, or the next
// call, brings it to its place. No byte is lost.
func TestSettingAsideCutOffAtEachOperationLosesNothing(t *testing.T) {
	base, o, all := repairStore(t)
	before := snapshot(base, twinStore)
	delete(before, lockName)
	for n, finished := 0, false; !finished; n++ {
		for _, powerCut := range []bool{true, false} {
			for _, again := range []string{"open", "reseed"} {
				disk := base.clone()
				disk.rng = rand.New(rand.NewPCG(uint64(n), 5))
				o.Disk = disk
				disk.PowerOffAfter(n)
				path, err := SetAside(o)
				finished = err == nil && !disk.Off()
				if powerCut {
					disk.Crash()
				} else {
					disk.Kill()
				}
				where := fmt.Sprintf("stopped after %d operations (power cut %v), it said %v, then %s", n, powerCut, err, again)
				reader, rerr := OpenReadOnly(o)
				if rerr == nil {
					must(t, reader.Close())
				}
				half := errors.Is(rerr, ErrHalfAside)
				if again == "reseed" && (half || rerr == nil) {
					path, err = SetAside(o)
					if err != nil {
						t.Fatalf("%s: %v", where, err)
					}
				}
				l, oerr := Open(o)
				if oerr != nil {
					t.Fatalf("%s: %v", where, oerr)
				}
				end := l.EndOffset()
				must(t, l.Close())
				switch {
				case end == all[11].EndOffset && err != nil && !half:
					continue
				case end != 0:
					t.Fatalf("%s: the log ends at %d, half done %v", where, end, half)
				}
				if path == "" {
					entries, derr := disk.ReadDir(filepath.Join(twinStore, cutDirectory))
					if derr != nil || len(entries) != 1 {
						t.Fatalf("%s: %v, %v", where, entries, derr)
					}
					path = filepath.Join(twinStore, cutDirectory, entries[0].Name)
				}
				got := snapshot(disk, path)
				for name, data := range before {
					if got[name] != data {
						t.Fatalf("%s: %s is not in %s as it was; there are %v", where, name, path, sortedNames(got))
					}
				}
			}
		}
	}
}

func sortedNames(m map[string]string) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A log that is cut by its operator knows no puts behind the cut to be complete.
func TestARepairTakesBackWhatIsConfirmed(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	all := writeStore(t, o, 30, 1000)
	l := mustOpen(t, o)
	l.NoteConfirmed(all[25].EndOffset)
	must(t, l.Close())
	if _, err := Cut(o, all[10].EndOffset, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	if got := l.Confirmed(); got != all[10].EndOffset || l.EndOffset() != got {
		t.Errorf("confirmed %d of a log that was cut to %d and ends at %d", got, all[10].EndOffset, l.EndOffset())
	}
	must(t, l.Close())
}

// noRename is a disk where the segments' directory cannot be moved, as one that
// is a file system of its own.
type noRename struct{ *Twin }

func (d noRename) Rename(from, to string) error {
	if filepath.Base(from) == segmentsDirectory {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.EBUSY}
	}
	return d.Twin.Rename(from, to)
}

func TestALogThatCannotBeSetAsideOpensAsBefore(t *testing.T) {
	disk := NewTwin(3)
	o := twinOptions(disk)
	all := writeStore(t, o, 5, 100)
	o.Disk = noRename{disk}
	if _, err := SetAside(o); !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	l := mustOpen(t, o)
	if l.EndOffset() != all[4].EndOffset {
		t.Errorf("the log ends at %d, want %d", l.EndOffset(), all[4].EndOffset)
	}
	must(t, l.Close())
}
