package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
)

// retainDiskHard is the percentage of the file system from which on segments go
// even though a connected replica still needs them. That is the limit of what a
// slow replica can keep (RocketMQ diskSpaceWarningLevelRatio).
const retainDiskHard = 90

// SetKeep says from which offset on a connected replica needs the log;
// math.MaxInt64: there is none. Retention keeps that much, unless the disk is
// more than 90 percent full. Any goroutine.
func (l *Log) SetKeep(offset int64) {
	if l.keeper != nil {
		l.keeper.keep.Store(offset)
	}
}

// retainLocked removes the oldest segments: those whose last record is older
// than Options.Retention, and while the disk is fuller than
// Options.RetentionDisk any. The last segment stays, and so does what is not
// flushed or dispatched. A store that somebody else made is cleaned only when
// that was asked for. RocketMQ CleanCommitLogService.
func (k *keeper) retainLocked() error {
	o := &k.log.opts
	if !o.RetentionGiven && !k.log.opened.created || o.Retention == 0 && o.RetentionDisk == 0 {
		return nil
	}
	var removed int
	defer func() {
		if removed > 0 {
			k.log.logger().Info("old segments were removed", "segments", removed, "min_offset", k.log.MinOffset())
		}
	}()
	for {
		s, err := k.expendable()
		if err != nil || s == nil {
			return err
		}
		if err := k.remove(s); err != nil {
			return err
		}
		removed++
	}
}

// expendable is the first segment, if it may go now.
func (k *keeper) expendable() (*segment, error) {
	l := k.log
	list := *l.list.Load()
	if len(list) < 2 || list[0].end() > min(l.flushed.Load(), l.DispatchedOffset()) {
		return nil, nil
	}
	full, err := k.diskPercent()
	if err != nil {
		return nil, err
	}
	limit := l.opts.RetentionDisk
	needed := list[0].end() > k.keep.Load()
	switch {
	case needed && full < max(limit, retainDiskHard):
		return nil, nil
	case needed:
		// A replica that does not move must not fill the disk.
		return list[0], nil
	case limit > 0 && full >= limit:
		return list[0], nil
	case l.opts.Retention == 0:
		return nil, nil
	}
	old, err := k.olderThan(list[0], list[1], l.opts.Now().UnixMilli()-l.opts.Retention.Milliseconds())
	if err != nil || !old {
		return nil, err
	}
	return list[0], nil
}

// diskPercent is how full the log's file system is, rounded up as RocketMQ
// does.
func (k *keeper) diskPercent() (int, error) {
	used, total, err := k.log.disk.Usage(k.log.dir)
	if err != nil || total <= 0 {
		return 0, err
	}
	return int(math.Ceil(100 * float64(used) / float64(total))), nil
}

// olderThan tells whether the last record of a segment was stored before a
// time in milliseconds. The first records of it and of the next one answer
// that in most cases; else its records are walked through, once.
func (k *keeper) olderThan(s, next *segment, before int64) (bool, error) {
	l := k.log
	if t := s.lastTimestamp.Load(); t != 0 {
		return t < before, nil
	}
	r, err := l.Read(s.base)
	if err == nil && r.StoreTimestamp >= before {
		return false, nil
	}
	if r, err := l.Read(next.base); err == nil && r.StoreTimestamp < before {
		return true, nil
	}
	w := &walker{disk: l.disk, layout: &layout{
		segmentBytes: l.segmentBytes.Load(), files: []segmentFile{{base: s.base, size: s.size, path: s.path}},
	}}
	defer w.close()
	scan := recovery{disk: l.disk, layout: w.layout, hint: &hint{CutTo: -1}, clean: true}
	if err := scan.scan(w, s.base); err != nil {
		return false, err
	}
	if scan.stopped != nil {
		// Nobody knows how old it is: it is kept, and Records says why.
		return false, fmt.Errorf("age of segment %s: %w", s.path, scan.stopped)
	}
	s.lastTimestamp.Store(scan.timestamp)
	return scan.timestamp < before, nil
}

// remove takes the first segment out of the log and off the disk. Readers that
// hold it go on; the queues forget its records.
func (k *keeper) remove(s *segment) error {
	l := k.log
	l.append.Lock()
	list := *l.list.Load()
	if len(list) < 2 || list[0] != s {
		l.append.Unlock()
		return nil
	}
	rest := append(segments{}, list[1:]...)
	l.list.Store(&rest)
	l.append.Unlock()
	s.release()
	if err := l.disk.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old segment: %w", err)
	}
	// Durable one by one: a crash must not bring back one without its successor.
	if err := l.disk.SyncDir(l.dir); err != nil {
		return err
	}
	return l.queues.trimBefore(rest[0].base)
}
