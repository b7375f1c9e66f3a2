package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/haengine/haengine/internal/invariant"
)

// Truncate cuts the log to end at an offset, which must be where a record or a
// segment begins. It is durable on return, and every step before can be cut
// off by a crash: the next opening finds the log either as it was or cut. What
// is cut is kept in a file, whose path is returned ("" if nothing was cut), and
// the queues are cut with it.
//
// It replaces the segment that holds the offset by a copy: pages of the old
// file may be on their way to a peer, who must not see them change. Views that
// are held keep reading the old bytes. Epochs that start at the offset or behind
// it go, also when that is where the log ends. Readers see the new end at once or
// [ErrOutOfRange]. Appends and replicas' bytes wait meanwhile; whoever reserved
// bytes must have discarded them and reserves again.
//
// RocketMQ DefaultMessageStore.truncateFiles, MappedFileQueue.truncateDirtyFiles.
func (l *Log) Truncate(to int64) (cut string, err error) {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.flusher.mu.Lock()
	defer l.flusher.mu.Unlock()
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.Writable(); err != nil {
		return "", err
	}
	end := l.append.end
	if to == end {
		return "", l.keeper.cutEpochsLocked(to)
	}
	if to > end {
		return "", l.outOfRange(to, to)
	}
	if err := l.checkBorder(to); err != nil {
		return "", err
	}
	l.dispatcher.stop()
	defer l.dispatcher.start()
	if cut, err = l.keepAside(to, end, l); err != nil {
		return "", err // nothing has changed
	}
	l.cuts.Add(1)
	defer l.cuts.Add(1)
	if err := l.cutLocked(to, end); err != nil {
		// The cut is noted and half done: only a new opening can finish it.
		l.fail(fmt.Errorf("truncate to offset %d: %w", to, err))
		return cut, l.Writable()
	}
	return cut, nil
}

// readRange makes the log a rangeReader.
func (l *Log) readRange(b []byte, offset int64) error {
	n, err := l.copyRange(b, offset)
	if err == nil && n < len(b) {
		err = l.outOfRange(offset, offset+int64(len(b)))
	}
	return err
}

// checkBorder walks the records of a segment to see that one begins at an
// offset.
func (l *Log) checkBorder(to int64) error {
	s := l.list.Load().find(to)
	if s == nil {
		return l.outOfRange(to, to)
	}
	at := s.base
	var head [fillerHeaderBytes]byte
	for at < to {
		if err := l.readRange(head[:], at); err != nil {
			return err
		}
		size := recordSizeWord(head[:])
		if binary.BigEndian.Uint32(head[4:]) == MagicBlank || size < recordFixedBytes {
			break
		}
		if at+size > to {
			return fmt.Errorf("truncate to offset %d: %w: inside the record at %d to %d", to, ErrOutOfRange, at, at+size)
		}
		at += size
	}
	if at != to {
		return fmt.Errorf("truncate to offset %d: %w: behind the last record of its segment, which ends at %d", to, ErrOutOfRange, at)
	}
	return nil
}

// cutLocked cuts the files, the queues and the log's own state. Everything is
// stopped.
func (l *Log) cutLocked(to, end int64) error {
	k := l.keeper
	// From here on a crash is followed by the same cut.
	noted := k.last
	noted.Flushed, noted.Queued, noted.Confirmed = min(noted.Flushed, to), min(noted.Queued, to), min(noted.Confirmed, to)
	noted.CutTo, noted.CutFrom = to, end
	if err := k.noteQueues(&noted); err != nil {
		return err
	}
	if err := l.sumTail(&noted); err != nil {
		return err
	}
	var err error
	if noted.Fingerprints, err = k.fingerprintsLocked(Checkpoint{}, false); err != nil {
		return err
	}
	if err := writeHint(l.disk, l.root, &noted); err != nil {
		return err
	}
	old := *l.list.Load()
	files := make([]segmentFile, len(old))
	for i, s := range old {
		files[i] = segmentFile{base: s.base, size: s.size, path: s.path}
	}
	// The end goes back before a file does: no new reader looks for its bytes.
	l.append.end = to
	l.end.Store(to)
	whole := l.Epochs()
	l.publishEpochs(cutEpochs(whole, to))
	l.flushed.Store(min(l.flushed.Load(), to))
	l.window.hold()
	l.flusher.rewriteTo = min(l.flusher.rewriteTo, to)
	l.flusher.border.Store(min(l.flusher.border.Load(), to))
	if err := l.cutFiles(files, to); err != nil {
		return err
	}
	if err := l.replaceList(old, files, to); err != nil {
		return err
	}
	l.window.cut(to)
	l.dispatcher.restart(min(l.dispatcher.Offset(), to))
	if err := l.queues.truncate(to); err != nil {
		return err
	}
	// The cut took the next queue offsets back to what is in the queues. What
	// the dispatcher had not come to yet has taken some, too.
	if err := l.dispatcher.catchUp(); err != nil {
		return err
	}
	if err := l.queues.flush(); err != nil {
		return err
	}
	k.queued = min(k.queued, to)
	// While the cut is noted, an opening cuts the epochs, too; so neither before
	// the note nor after it goes.
	if kept := l.Epochs(); len(kept) < len(whole) {
		if err := k.saveEpochsLocked(kept); err != nil {
			return err
		}
	}
	noted.CutTo = -1
	if err := writeHint(l.disk, l.root, &noted); err != nil {
		return err
	}
	k.last = noted
	l.confirmed.Store(min(l.confirmed.Load(), to))
	return nil
}

// replaceList takes the cut files out of the list, and puts the copy in for the
// last one.
func (l *Log) replaceList(old segments, files []segmentFile, to int64) error {
	n := tailOf(files, to)
	list := append(segments{}, old[:n+1]...)
	var replaced *segment
	if to < list[n].end() {
		replaced = list[n]
		list[n] = newSegment(l.disk, l.dir, replaced.base, replaced.size)
	}
	// A full segment is not written any more, and may be open for reading.
	open := list[n].use
	if replaced != nil {
		open = func() (*openFile, error) { return list[n].open(true) }
	}
	file, err := open()
	if err != nil {
		return err
	}
	l.list.Store(&list)
	l.append.tail, l.append.file = list[n], file
	if replaced != nil {
		replaced.release()
	}
	for _, s := range old[n+1:] {
		s.release()
	}
	l.roller.expect(list[n].end())
	return nil
}

// cutFiles makes files end at an offset: later ones are removed, the last
// first, and the one that holds the offset is replaced by a copy. Whoever calls
// has kept the bytes and noted the cut.
func (l *Log) cutFiles(files []segmentFile, to int64) error {
	n := tailOf(files, to)
	for i := len(files) - 1; i > n; i-- {
		if err := l.disk.Remove(files[i].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cut segment: %w", err)
		}
		if err := l.disk.SyncDir(l.dir); err != nil {
			return err
		}
	}
	if n < 0 || to >= files[n].base+files[n].size {
		return nil
	}
	return l.replaceByCopy(files[n], to)
}

// replaceByCopy puts a file with the same bytes below an offset, and zeros from
// there on, in a segment's place.
func (l *Log) replaceByCopy(f segmentFile, to int64) error {
	invariant.Check(to >= f.base && to <= f.base+f.size, "a cut outside its segment")
	dir := filepath.Join(l.root, cutDirectory)
	if err := l.disk.MkdirAll(dir); err != nil {
		return err
	}
	// Not in the segments' directory: a broker takes any file there for one.
	temp := filepath.Join(dir, segmentName(f.base)+temporarySuffix)
	if err := l.disk.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from, err := l.disk.Open(f.path, false)
	if err != nil {
		return err
	}
	defer from.Close()
	reserve := f.size
	if !l.opts.Preallocate {
		reserve = 0
	}
	file, err := l.disk.Create(temp, reserve)
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", f.path, err)
	}
	err = file.Truncate(f.size)
	buf := make([]byte, min(max(to-f.base, 1), copyBytes))
	for at := int64(0); at < to-f.base && err == nil; {
		b := buf[:min(int64(len(buf)), to-f.base-at)]
		if _, err = from.ReadAt(b, at); err == nil {
			_, err = file.WriteAt(b, at)
		}
		at += int64(len(b))
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = l.disk.Rename(temp, f.path)
	}
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", f.path, err)
	}
	return errors.Join(l.disk.SyncDir(l.dir), l.disk.SyncDir(dir))
}
