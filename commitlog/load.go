package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
)

// layout is what the directory of segments holds: full segments in a row, and
// behind them files that were made for later and never used.
type layout struct {
	segmentBytes int64
	files        []segmentFile // each of segmentBytes, without gaps
	unused       []segmentFile // empty, short or full of zeros
}

type segmentFile struct {
	base, size int64
	path       string
}

// end is one past the last file.
func (d *layout) end() int64 {
	if len(d.files) == 0 {
		return 0
	}
	return d.files[len(d.files)-1].base + d.segmentBytes
}

// loadLayout reads the directory, opening files for reading only. Names that
// are no segment's are left alone with one warning. It fails, naming files and
// numbers, when what is there cannot be one log.
//
// given is the segment size asked for or 0, made the one that our hint
// remembers or 0. RocketMQ MappedFileQueue.load and checkSelf.
func loadLayout(disk Disk, dir string, given, made int64, logger *slog.Logger) (*layout, error) {
	files, foreign, err := listSegments(disk, dir)
	if err != nil {
		return nil, err
	}
	if len(foreign) > 0 {
		logger.Warn("not segments, left alone; a RocketMQ broker would not start with files among them",
			"dir", dir, "names", strings.Join(foreign, ", "))
	}
	d := &layout{files: files, segmentBytes: commonSize(files)}
	if err := d.dropUnusedFirst(disk, given, made); err != nil {
		return nil, err
	}
	if d.segmentBytes == 0 {
		d.segmentBytes = firstOf(given, made, segmentBytesDefault)
	}
	if given != 0 && given != d.segmentBytes && len(d.files) > 0 && d.files[0].size > 0 {
		return nil, fmt.Errorf("segment size %d bytes was given, the segments in %s have %d bytes; leave the size out or give that one",
			given, dir, d.segmentBytes)
	}
	if d.segmentBytes < segmentBytesMin || d.segmentBytes > segmentBytesMax {
		return nil, fmt.Errorf("segments in %s have %d bytes, want %d to %d", dir, d.segmentBytes, segmentBytesMin, segmentBytesMax)
	}
	for _, f := range append(d.unused, d.files...) {
		if f.base%d.segmentBytes != 0 {
			return nil, fmt.Errorf("segment %s (%d bytes): its offset is no multiple of the segment size %d that %s has; move it away, or restore it under its own name",
				f.path, f.size, d.segmentBytes, dir)
		}
	}
	if err := d.splitUnused(disk); err != nil {
		return nil, err
	}
	return d, d.check(dir)
}

func firstOf(values ...int64) int64 {
	for _, v := range values {
		if v != 0 {
			return v
		}
	}
	return 0
}

// listSegments lists the regular files with segment names, and the other names.
func listSegments(disk Disk, dir string) (files []segmentFile, foreign []string, err error) {
	entries, err := disk.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read segments: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		base, ok, fits := parseSegmentName(e.Name)
		if ok && e.Mode&fs.ModeSymlink != 0 {
			if e, err = disk.Stat(path); err != nil {
				return nil, nil, fmt.Errorf("segment is a link that leads nowhere: %w", err)
			}
		}
		switch {
		case !ok || !e.Mode.IsRegular():
			foreign = append(foreign, e.Name)
		case !fits:
			return nil, nil, fmt.Errorf("segment %s: its name is beyond any offset; move it out of the directory", path)
		default:
			files = append(files, segmentFile{base: base, size: e.Size, path: path})
		}
	}
	slices.SortFunc(files, func(a, b segmentFile) int { return int(min(1, max(-1, a.base-b.base))) })
	return files, foreign, nil
}

// commonSize is the size that most of the files have, the larger of two that
// are as common; 0 if all are empty.
func commonSize(files []segmentFile) int64 {
	counts := make(map[int64]int)
	for _, f := range files {
		if f.size > 0 {
			counts[f.size]++
		}
	}
	var best int64
	for size, n := range counts {
		if n > counts[best] || n == counts[best] && size > best {
			best = size
		}
	}
	return best
}

// dropUnusedFirst deals with a store whose only files were being made when the
// process died: their size says nothing then.
func (d *layout) dropUnusedFirst(disk Disk, given, made int64) error {
	want := firstOf(made, given)
	for _, f := range d.files {
		if f.size != 0 && (want == 0 || f.size == want) {
			return nil
		}
		zero, err := f.allZero(disk)
		if err != nil || !zero {
			return err
		}
	}
	d.files, d.unused, d.segmentBytes = nil, d.files, 0
	return nil
}

// splitUnused takes the files at the end that were never used from the list.
// The first stays if it is whole: its name is where the log begins.
func (d *layout) splitUnused(disk Disk) error {
	for n := len(d.files); n > 0; n-- {
		f := d.files[n-1]
		if n == 1 && f.size == d.segmentBytes || f.size > d.segmentBytes {
			return nil
		}
		zero, err := f.allZero(disk)
		if err != nil || !zero {
			return err
		}
		d.files = d.files[:n-1]
		d.unused = append(d.unused, f)
	}
	return nil
}

// check refuses what is no row of equal segments.
func (d *layout) check(dir string) error {
	for i, f := range d.files {
		if f.size != d.segmentBytes && (i < len(d.files)-1 && f.size < d.segmentBytes) {
			return fmt.Errorf("hole in the log: segment %s has %d bytes and %d are expected, offsets %d to %d; restore it from a copy, or move it and all later segments out of the directory",
				f.path, f.size, d.segmentBytes, f.base, f.base+d.segmentBytes)
		}
		if f.size != d.segmentBytes {
			return fmt.Errorf("segment %s has %d bytes, the others in %s have %d; restore it from a copy, or move it and all later segments out of the directory",
				f.path, f.size, dir, d.segmentBytes)
		}
		if i == 0 {
			continue
		}
		if want := d.files[i-1].base + d.segmentBytes; f.base != want {
			return fmt.Errorf("hole in the log: segment %s is missing, offsets %d to %d, between %s and %s; restore it from a copy, or move %[5]s and all later segments out of the directory",
				filepath.Join(dir, segmentName(want)), want, f.base, filepath.Base(d.files[i-1].path), filepath.Base(f.path))
		}
	}
	return nil
}

// allZero tells whether the file holds nothing but zeros. What was reserved and
// never written is skipped, so that an unused segment is not read.
func (f *segmentFile) allZero(disk Disk) (bool, error) {
	if f.size == 0 {
		return true, nil
	}
	file, err := disk.Open(f.path, false)
	if err != nil {
		return false, fmt.Errorf("open segment: %w", err)
	}
	defer file.Close()
	at, err := firstNonZero(file, 0)
	return at < 0, err
}

// searchBytes is how much is read at a time in search of a byte that is not
// zero, up to a multiple of it: with half of a page read, the kernel would count
// the other half as data.
const searchBytes = 64 << 10

// firstNonZero finds the first byte at or after from that is not zero, or
// returns -1.
func firstNonZero(file File, from int64) (int64, error) {
	first := int64(-1)
	err := eachData(file, from, func(at int64, b []byte) bool {
		for i, c := range b {
			if c != 0 {
				first = at + int64(i)
				return false
			}
		}
		return true
	})
	return first, err
}

// lastNonZero finds one past the last byte at or after from that is not zero,
// or returns from.
func lastNonZero(file File, from int64) (int64, error) {
	last := from
	err := eachData(file, from, func(at int64, b []byte) bool {
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != 0 {
				last = at + int64(i) + 1
				break
			}
		}
		return true
	})
	return last, err
}

// eachData gives what may be something other than zeros, in order, until visit
// returns false.
func eachData(file File, from int64, visit func(at int64, b []byte) bool) error {
	buf := make([]byte, searchBytes)
	for {
		at, err := file.NextData(from)
		if err != nil {
			return err
		}
		n, err := file.ReadAt(buf[:searchBytes-at%searchBytes], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 || !visit(at, buf[:n]) {
			return nil
		}
		from = at + int64(n)
	}
}
