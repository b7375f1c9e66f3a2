package commitlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Fault 12: what a kill leaves of the next segment.
func TestUnusedNextSegmentsAreCompletedOrRemoved(t *testing.T) {
	const size = 64 << 10
	for name, sizes := range map[string][]int64{
		"empty": {0}, "half": {size / 2}, "whole": {size}, "two": {size, size}, "whole and empty": {size, 0},
		"empty and whole": {0, size}, "two empty": {0, 0}, "half and half": {size / 2, 100},
	} {
		for _, asRocketMQ := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, asRocketMQ), func(t *testing.T) {
				o := testOptions(filepath.Join(t.TempDir(), "store"))
				all := writeStore(t, o, 100, 1000) // two segments
				end := all[len(all)-1].EndOffset
				crashed(t, o.Dir, all[50].Offset, asRocketMQ)
				for i, n := range sizes {
					path := filepath.Join(o.Dir, segmentsDirectory, segmentName(int64(2+i)*size))
					if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				told := &noted{infos: true}
				o.Logger = told.logger()
				l := mustOpen(t, o)
				if l.EndOffset() != end {
					t.Errorf("the log ends at %d, want %d", l.EndOffset(), end)
				}
				if n := told.count("never used"); n != 1 || told.count("never used", segmentName(2*size)) != 1 {
					t.Errorf("told %d times: %s", n, told.text())
				}
				for range 100 {
					mustPut(t, l, "topic", 0, 1000)
				}
				checkRecords(t, l, 200)
			})
		}
	}
}

func storeFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(dir, segmentsDirectory), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		info, _ := e.Info()
		found[e.Name()] = fmt.Sprint(len(b), hex.EncodeToString(sum[:8]), info.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What cannot be one log is refused by name and number, and left as it is.
func TestBadSegmentFilesAreRefusedAndLeftAlone(t *testing.T) {
	const size = 64 << 10
	cases := map[string]struct {
		spoil func(segments string) error
		given int64
		says  []string
	}{
		"hole": {
			spoil: func(d string) error { return os.Remove(filepath.Join(d, segmentName(size))) },
			says:  []string{segmentName(size), "65536 to 131072", "restore", "hole"},
		},
		"empty in the middle": {
			spoil: func(d string) error { return os.Truncate(filepath.Join(d, segmentName(size)), 0) },
			says:  []string{segmentName(size), "65536 to 131072", "restore", "hole"},
		},
		"short first": {
			spoil: func(d string) error { return os.Truncate(filepath.Join(d, segmentName(0)), 100) },
			says:  []string{segmentName(0), "100 bytes", "65536"},
		},
		"short last with data": {
			spoil: func(d string) error { return os.Truncate(filepath.Join(d, segmentName(2*size)), 1000) },
			says:  []string{segmentName(2 * size), "1000 bytes", "65536"},
		},
		"long": {
			spoil: func(d string) error { return os.Truncate(filepath.Join(d, segmentName(2*size)), 2*size) },
			says:  []string{segmentName(2 * size), "131072 bytes", "65536"},
		},
		"misaligned": {
			spoil: func(d string) error { return os.WriteFile(filepath.Join(d, segmentName(3*size+1)), []byte("x"), 0o644) },
			says:  []string{segmentName(3*size + 1), "1 bytes", "65536"},
		},
		"misaligned and empty": {
			spoil: func(d string) error { return os.WriteFile(filepath.Join(d, segmentName(123)), nil, 0o644) },
			says:  []string{segmentName(123), "0 bytes", "65536"},
		},
		"beyond any offset": {
			spoil: func(d string) error {
				return os.WriteFile(filepath.Join(d, strings.Repeat("9", 20)), make([]byte, size), 0o644)
			},
			says: []string{strings.Repeat("9", 20)},
		},
		"another size given": {
			spoil: func(string) error { return nil }, given: 1 << 20,
			says: []string{"1048576", "65536"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := testOptions(filepath.Join(t.TempDir(), "store"))
			writeStore(t, o, 170, 1000) // three segments
			if err := c.spoil(filepath.Join(o.Dir, segmentsDirectory)); err != nil {
				t.Fatal(err)
			}
			before := storeFiles(t, o.Dir)
			o.SegmentBytes = c.given
			for _, open := range []func(Options) (*Log, error){Open, OpenReadOnly} {
				_, err := open(o)
				if err == nil {
					t.Fatal("opened")
				}
				for _, part := range c.says {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
			}
			for name, was := range before {
				if now := storeFiles(t, o.Dir)[name]; now != was {
					t.Errorf("%s was changed: %s, before %s", name, now, was)
				}
			}
		})
	}
}

// Fault 47: names that are no segment's.
func TestForeignNamesAreIgnoredWithOneWarning(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 100, 1000)
	segments := filepath.Join(o.Dir, segmentsDirectory)
	names := []string{".DS_Store", segmentName(0) + ".bak", segmentName(0)[1:], "lost+found", "fifo", segmentName(1 << 30)}
	for _, name := range names[:3] {
		if err := os.WriteFile(filepath.Join(segments, name), []byte("foreign"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{names[3], names[5]} {
		if err := os.Mkdir(filepath.Join(segments, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeFIFO(t, filepath.Join(segments, names[4]))
	warned := &noted{}
	o.Logger, o.SegmentBytes = warned.logger(), 0
	l := mustOpen(t, o)
	if l.SegmentBytes() != 64<<10 || l.EndOffset() != all[99].EndOffset {
		t.Errorf("segments of %d bytes, end %d", l.SegmentBytes(), l.EndOffset())
	}
	if n := warned.count("not segments"); n != 1 {
		t.Errorf("%d warnings: %s", n, warned.text())
	}
	for _, name := range names {
		if warned.count("not segments", name) != 1 {
			t.Errorf("the warning does not name %s: %s", name, warned.text())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(segments, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestUnwritableStoreIsSaidClearly(t *testing.T) {
	parent := t.TempDir()
	if err := os.WriteFile(filepath.Join(parent, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(parent, "file"), filepath.Join(parent, "file", "store"), "/proc/haengine"} {
		_, err := Open(testOptions(dir))
		if err == nil || !strings.Contains(err.Error(), "cannot be written") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := OpenReadOnly(testOptions(filepath.Join(parent, "none"))); err == nil || !strings.Contains(err.Error(), "has no log") {
		t.Errorf("a store that is not there: %v", err)
	}
}

func TestMissingSegmentsBelowTheFlushedOffsetAreDamage(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	writeStore(t, o, 170, 1000) // three segments
	if err := os.Remove(filepath.Join(o.Dir, segmentsDirectory, segmentName(128<<10))); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, o)
	var where *CorruptError
	if err := l.Writable(); !errors.As(err, &where) || where.Kind != KindMissing || where.Offset != 128<<10 {
		t.Errorf("%v", err)
	}
	checkRecordsReadable(t, l, 100)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(o.Dir, segmentsDirectory)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), hintName) {
		t.Errorf("a store whose log was moved away: %v", err)
	}
}
