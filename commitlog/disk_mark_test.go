package commitlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMarkStaysWithADirectoryAndNotWithItsCopy(t *testing.T) {
	for name, d := range disks(t) {
		t.Run(name, func(t *testing.T) {
			a, b := filepath.Join(d.dir, "a"), filepath.Join(d.dir, "b")
			must(t, d.disk.MkdirAll(a))
			must(t, d.disk.MkdirAll(b)) // at once: the births may be the same
			mark, err := d.disk.Mark(a)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			must(t, err)
			if again, err := d.disk.Mark(a); err != nil || again != mark || again.Differs(mark) || mark == (Mark{}) {
				t.Errorf("%+v, %v; was %+v", again, err, mark)
			}
			if other, err := d.disk.Mark(b); err != nil || !other.Differs(mark) || !mark.Differs(other) {
				t.Errorf("another directory has %+v, %v; want other than %+v", other, err, mark)
			}
			must(t, d.disk.WriteFileAtomic(filepath.Join(a, "f"), []byte("text")))
			must(t, d.disk.Rename(a, filepath.Join(d.dir, "c")))
			if renamed, err := d.disk.Mark(filepath.Join(d.dir, "c")); err != nil || renamed != mark {
				t.Errorf("renamed it has %+v, %v; was %+v", renamed, err, mark)
			}
			if m, err := d.disk.Mark(a); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("nothing has %+v, %v", m, err)
			}
			must(t, d.disk.WriteFileAtomic(filepath.Join(d.dir, "file"), nil))
			if m, err := d.disk.Mark(filepath.Join(d.dir, "file")); !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("a file has %+v, %v", m, err)
			}
		})
	}
}

// Where a mark can be told at all, it is that of the directory behind a link.
func TestMarkFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	must(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	must(t, os.Symlink("a", link))
	direct, err := OSDisk().Mark(filepath.Join(dir, "a"))
	linked, linkErr := OSDisk().Mark(link)
	if linked != direct || (err == nil) != (linkErr == nil) {
		t.Errorf("%+v, %v behind the link; %+v, %v directly", linked, linkErr, direct, err)
	}
}

func TestMarksDifferOnlyInWhatBothKnow(t *testing.T) {
	full := Mark{Inode: 2, Born: "2026-01-02T03:04:05Z", Volume: "ab", Subvolume: 256}
	with := func(change func(*Mark)) Mark { m := full; change(&m); return m }
	for name, c := range map[string]struct {
		m    Mark
		want bool
	}{
		"same":            {full, false},
		"nothing known":   {Mark{}, false},
		"inode":           {with(func(m *Mark) { m.Inode = 3 }), true},
		"no inode":        {with(func(m *Mark) { m.Inode = 0 }), false},
		"birth":           {with(func(m *Mark) { m.Born = "2026-01-02T03:04:05.000000001Z" }), true},
		"no birth":        {with(func(m *Mark) { m.Born = "" }), false},
		"volume":          {with(func(m *Mark) { m.Volume = "ac" }), true},
		"older kernel":    {Mark{Inode: 2, Born: full.Born}, false},
		"snapshot":        {with(func(m *Mark) { m.Subvolume = 257 }), true},
		"other, and less": {Mark{Born: "2026-01-02T03:04:06Z"}, true},
	} {
		if full.Differs(c.m) != c.want || c.m.Differs(full) != c.want {
			t.Errorf("%s: %+v differs: %v, want %v", name, c.m, !c.want, c.want)
		}
	}
}

func TestMarkTakesOnlyWhatLasts(t *testing.T) {
	const all = unix.STATX_INO | unix.STATX_BTIME | unix.STATX_SUBVOL
	born := unix.StatxTimestamp{Sec: 1_700_000_000, Nsec: 5}
	for name, c := range map[string]struct {
		magic uint32
		mask  uint32
		born  unix.StatxTimestamp
		want  Mark
	}{
		"ext4":                   {unix.EXT4_SUPER_MAGIC, unix.STATX_INO | unix.STATX_BTIME, born, Mark{Inode: 12, Born: "2023-11-14T22:13:20.000000005Z"}},
		"ext4 with small inodes": {unix.EXT4_SUPER_MAGIC, unix.STATX_INO, born, Mark{Inode: 12}},
		"a birth at the epoch":   {unix.XFS_SUPER_MAGIC, unix.STATX_INO | unix.STATX_BTIME, unix.StatxTimestamp{}, Mark{Inode: 12}},
		"btrfs":                  {unix.BTRFS_SUPER_MAGIC, all, born, Mark{Inode: 12, Born: "2023-11-14T22:13:20.000000005Z", Subvolume: 7}},
		"overlay":                {unix.OVERLAYFS_SUPER_MAGIC, unix.STATX_INO | unix.STATX_BTIME, born, Mark{Born: "2023-11-14T22:13:20.000000005Z"}},
		"FUSE":                   {unix.FUSE_SUPER_MAGIC, unix.STATX_INO, born, Mark{}},
	} {
		st := unix.Statx_t{Mask: c.mask, Ino: 12, Btime: c.born, Subvol: 7}
		if got := markOf(lastingOf[c.magic], &st); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A copy on the twin is whole and durable, and has directories of its own.
func TestTwinsCopyIsATreeOfItsOwn(t *testing.T) {
	d := NewTwin(1)
	must(t, d.MkdirAll("/a/deep/er"))
	must(t, d.MkdirAll("/ab"))
	must(t, d.WriteFileAtomic("/a/deep/f", []byte("text")))
	f, err := d.Open("/a/deep/f", true)
	must(t, err)
	_, err = f.WriteAt([]byte("NEXT"), 0) // not synced
	must(t, err)
	must(t, d.CopyTree("/a", "/c"))
	if err := d.CopyTree("/a", "/c"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second copy: %v", err)
	}
	if err := d.CopyTree("/none", "/d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy of nothing: %v", err)
	}
	_, err = f.WriteAt([]byte("LAST"), 0)
	must(t, err)
	d.Crash()
	if b, err := d.ReadFile("/c/deep/f"); err != nil || string(b) != "NEXT" {
		t.Errorf("the copy holds %q, %v", b, err)
	}
	for _, below := range []string{"", "/deep", "/deep/er"} {
		a, errA := d.Mark("/a" + below)
		c, errC := d.Mark("/c" + below)
		if errA != nil || errC != nil || !a.Differs(c) {
			t.Errorf("%q: %+v, %v and %+v, %v", below, a, errA, c, errC)
		}
	}
	if _, err := d.Stat("/cb"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a neighbour was copied: %v", err)
	}
}
