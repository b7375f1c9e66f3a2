package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// cutDirectory is where bytes go that a recovery or a truncation takes out of
// the log, as files named <from>-<to>-<time>.
const cutDirectory = "cut"

// settle makes the files be what the recovery found: nothing but zeros behind
// the end, and no file behind the one that holds it, but for the next segment.
// Every step can be cut off by a crash and done again. What is taken away is
// kept aside and named in one warning.
func (l *Log) settle(r *recovery) error {
	// A process that was killed may have left changes of names to the next power
	// cut. They come first: the note of a cut before the files that it explains,
	// a last segment's end before that of the one before it.
	if err := errors.Join(l.disk.SyncDir(l.root), l.disk.SyncDir(l.dir)); err != nil {
		return err
	}
	if r.hint != nil && r.hint.CutTo >= 0 && len(r.layout.files) > 0 {
		// What is cut was copied before the cut was noted.
		to := max(r.limit(), r.layout.files[0].base)
		if err := l.cutFiles(r.layout.files, to); err != nil {
			return err
		}
		r.layout.files = r.layout.files[:tailOf(r.layout.files, to)+1]
	}
	var kept []string
	files := r.layout.files
	for i := len(files) - 1; i > 0 && files[i].base >= r.end; i-- {
		name, err := l.moveAside(files[i])
		if err != nil {
			return err
		}
		kept = append(kept, name)
	}
	name, err := l.clearBehind(files, r.end)
	if err != nil {
		return err
	}
	if name != "" {
		kept = append(kept, name)
	}
	if len(kept) > 0 {
		l.logger().Warn("the log ends here; what stood behind was no part of it and is kept aside",
			"end_offset", r.end, "reason", r.stopped, "kept", strings.Join(kept, ", "))
	}
	return l.settleUnused(r)
}

// tailOf is the index of the file that will be the last of a log that ends at
// end, or -1.
func tailOf(files []segmentFile, end int64) int {
	for i := len(files) - 1; i >= 0; i-- {
		if files[i].base < end || i == 0 {
			return i
		}
	}
	return -1
}

// clearBehind zeroes the last file behind the end, keeping a copy of what is
// there: a torn record, or whatever followed damage.
func (l *Log) clearBehind(files []segmentFile, end int64) (kept string, err error) {
	i := tailOf(files, end)
	if i < 0 {
		return "", nil
	}
	f := files[i]
	at := end - f.base
	if at >= f.size {
		return "", nil
	}
	file, err := l.disk.Open(f.path, true)
	if err != nil {
		return "", fmt.Errorf("open segment for writing: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	last, err := lastNonZero(file, at)
	if err != nil || last == at {
		return "", err
	}
	if kept, err = l.keepAside(end, f.base+last, fileReader{file: file, base: f.base}); err != nil {
		return "", err
	}
	if err := file.Zero(at, last-at); err != nil { // no more: a sparse file would grow, on a disk that may be full
		return "", fmt.Errorf("clear segment %s behind the end: %w", f.path, err)
	}
	return kept, file.Sync()
}

// moveAside moves a whole file out of the log.
func (l *Log) moveAside(f segmentFile) (string, error) {
	path, err := l.cutPath(f.base, f.base+f.size)
	if err != nil {
		return "", err
	}
	if err := l.disk.Rename(f.path, path); err != nil {
		return "", fmt.Errorf("move segment aside: %w", err)
	}
	// The new name first: a crash between leaves two, not none.
	return path, errors.Join(l.disk.SyncDir(filepath.Dir(path)), l.disk.SyncDir(l.dir))
}

// rangeReader reads bytes of the log by their offset.
type rangeReader interface {
	readRange(b []byte, offset int64) error
}

// fileReader is a rangeReader of one segment's file.
type fileReader struct {
	file File
	base int64
}

func (r fileReader) readRange(b []byte, offset int64) error {
	_, err := r.file.ReadAt(b, offset-r.base)
	return err
}

// keepAside copies [from, to) of the log into a file of its own, durably.
func (l *Log) keepAside(from, to int64, r rangeReader) (string, error) {
	path, err := l.cutPath(from, to)
	if err != nil {
		return "", err
	}
	temp := path + temporarySuffix
	if err := l.disk.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("keep aside what is cut: %w", err)
	}
	file, err := l.disk.Create(temp, 0)
	if err != nil {
		return "", fmt.Errorf("keep aside what is cut: %w", err)
	}
	buf := make([]byte, min(to-from, copyBytes))
	for at := from; at < to && err == nil; {
		b := buf[:min(int64(len(buf)), to-at)]
		if err = r.readRange(b, at); err == nil {
			_, err = file.WriteAt(b, at-from)
		}
		at += int64(len(b))
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = l.disk.Rename(temp, path)
	}
	if err == nil {
		err = l.disk.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return "", fmt.Errorf("keep aside what is cut: %w", err)
	}
	return path, nil
}

// cutPath makes a name that is not taken.
func (l *Log) cutPath(from, to int64) (string, error) {
	return l.cutPathOf(fmt.Sprintf("%d-%d-%s", from, to, l.opts.Now().UTC().Format("20060102T150405.000")))
}

func (l *Log) cutPathOf(name string) (string, error) {
	dir := filepath.Join(l.root, cutDirectory)
	if err := l.disk.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("keep aside what is cut: %w", err)
	}
	path := filepath.Join(dir, name)
	for n := 2; ; n++ {
		if _, err := l.disk.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
		path = filepath.Join(dir, fmt.Sprintf("%s-%d", name, n))
	}
}

// settleUnused completes the file that is next behind the last, and removes
// the other ones that were made and never used.
func (l *Log) settleUnused(r *recovery) error {
	next := r.end
	if i := tailOf(r.layout.files, r.end); i >= 0 {
		next = r.layout.files[i].base + l.segmentBytes.Load()
	}
	var completed, removed []string
	for _, f := range r.layout.unused { // the last first
		if f.base == next && f.base > 0 {
			if err := l.completeUnused(f); err != nil {
				return err
			}
			completed = append(completed, filepath.Base(f.path))
			continue
		}
		if err := l.disk.Remove(f.path); err != nil {
			return fmt.Errorf("remove unused segment: %w", err)
		}
		if err := l.disk.SyncDir(l.dir); err != nil {
			return err
		}
		removed = append(removed, filepath.Base(f.path))
	}
	if len(completed)+len(removed) > 0 {
		// As every crash leaves one, it is no trouble.
		l.logger().Info("segments that were made ahead and never used: the next one is kept, others are removed", "dir", l.dir,
			"kept", strings.Join(completed, ", "), "removed", strings.Join(removed, ", "))
	}
	return nil
}

// completeUnused gives an unused file its full size and makes it the next
// segment.
func (l *Log) completeUnused(f segmentFile) error {
	s := newSegment(l.disk, l.dir, f.base, l.segmentBytes.Load())
	file, err := l.disk.Open(f.path, true)
	if err != nil {
		return fmt.Errorf("open unused segment: %w", err)
	}
	if l.opts.Preallocate {
		err = file.Allocate(0, s.size)
	} else {
		err = file.Truncate(s.size)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.disk.SyncDir(l.dir)
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("complete unused segment %s: %w", f.path, err)
	}
	if _, err := s.adopt(file, true); err != nil {
		return err
	}
	l.roller.mu.next, l.roller.mu.want = s, s.base
	return nil
}
