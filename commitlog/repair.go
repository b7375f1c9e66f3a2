package commitlog

import (
	"errors"
	"fmt"
)

// CutPlan is what a cut of a stopped store's log would do.
type CutPlan struct {
	Asked    int64         // where it was asked for
	To       int64         // where it would be: a record's or a segment's border, at Asked or below
	Min, End int64         // the log as it is
	Records  int64         // whole records in [To, End)
	Replaced string        // the segment that would be replaced by a copy; empty: none
	Removed  []string      // segments that would go, in order
	Damage   *CorruptError // what makes a node that opens the store read-only; nil: nothing does
	Below    *CorruptError // the first damage below To, which a cut there leaves; nil: none
}

// Nothing tells whether the log already is what the cut would make of it.
func (p *CutPlan) Nothing() bool { return p.To == p.End && p.Damage == nil }

// PlanCut says what [Cut] would do, from a log that was opened by OpenReadOnly.
// The whole log is read, to count records and to find damage; progress, which
// may be nil, is told how many bytes are done. [ErrOutOfRange]: at is outside
// the log.
func PlanCut(l *Log, at int64, progress func(done, total int64)) (CutPlan, error) {
	p := CutPlan{Asked: at, Min: l.MinOffset(), End: l.EndOffset(), Damage: l.opened.damage}
	if at < p.Min || at > p.End {
		return p, fmt.Errorf("cut at offset %d: %w: the log holds %d to %d", at, ErrOutOfRange, p.Min, p.End)
	}
	p.To = l.borderAt(at)
	for item := range l.Scan(p.Min, p.End) {
		switch {
		case item.Kind == ItemRecord && item.Offset >= p.To:
			p.Records++
		case item.Kind == ItemDamage && item.Offset < p.To && p.Below == nil:
			p.Below = item.Err
		}
		if progress != nil {
			progress(item.Offset-p.Min, p.End-p.Min)
		}
	}
	if p.Nothing() {
		return p, nil
	}
	for _, s := range *l.list.Load() {
		switch {
		case s.base >= p.To && s.base > p.Min:
			p.Removed = append(p.Removed, s.path)
		case p.To < s.end():
			p.Replaced = s.path
		}
	}
	return p, nil
}

// borderAt finds the last place at or below an offset of the log where a record
// or a segment begins, or damage does.
func (l *Log) borderAt(at int64) int64 {
	base := max(at-at%l.segmentBytes.Load(), l.MinOffset())
	border := base
	if at == base {
		return base
	}
	for item := range l.Scan(base, at+1) {
		if item.Offset > at {
			break
		}
		border = item.Offset
	}
	return border
}

// FirstDamage finds the first bytes of a log that are neither a good record nor
// a filler, or what recovery found to be wrong, whichever is first; nil: all is
// well. The whole log is read up to there.
func FirstDamage(l *Log, progress func(done, total int64)) *CorruptError {
	low, end := l.MinOffset(), l.EndOffset()
	for item := range l.Scan(low, end) {
		if item.Kind == ItemDamage {
			if d := l.opened.damage; d != nil && d.Offset < item.Offset {
				return d
			}
			return item.Err
		}
		if progress != nil {
			progress(item.Offset-low, end-low)
		}
	}
	return l.opened.damage
}

// Cut cuts the log of a store that nobody has open to end at an offset, where a
// plan of PlanCut has its To. It also cuts a log with damage below its flushed
// offset, which no node would open for writing; afterwards one does. What is cut
// is copied into a file first, whose path is returned ("" if that was no byte).
// A crash leaves the log as it was, or the next opening finishes the cut.
//
// first is called when the store is held and nothing has changed; its error ends
// the cut. [ErrLocked]: somebody has the store open.
func Cut(o Options, to int64, first func() error) (kept string, err error) {
	noted := false
	err = underLock(o, func(l *Log) error {
		if err := first(); err != nil {
			return err
		}
		kept, noted, err = l.noteCut(to)
		return err
	})
	if err != nil {
		return kept, err
	}
	l, err := Open(o)
	if err != nil {
		if noted {
			err = fmt.Errorf("the cut to offset %d is noted, and the next opening finishes it: %w", to, err)
		}
		return kept, err
	}
	cut, err := l.Truncate(to) // all that is left, or nothing
	if cut != "" {
		kept = cut
	}
	return kept, errors.Join(err, l.Close())
}

// CheckFree is nil if nobody has a store open; [ErrLocked], or why it cannot be
// told.
func CheckFree(o Options) error { return underLock(o, func(*Log) error { return nil }) }

// underLock calls do with a log that is not open yet, under the store's lock.
func underLock(o Options, do func(l *Log) error) error {
	l, err := newLog(o)
	if err != nil {
		return err
	}
	into, err := l.halfAside()
	if _, serr := l.disk.Stat(l.dir); serr != nil && into == "" {
		err = errors.Join(err, fmt.Errorf("store %s has no log: %w", l.root, serr))
	}
	if err != nil {
		return err // before the lock, which would be made there
	}
	lock, err := lockStore(l.disk, l.root)
	if err != nil {
		return err
	}
	return errors.Join(do(l), lock.Close())
}

// noteCut keeps aside what a cut takes and notes the cut in the hint, as Truncate
// does, so that the next opening carries it out and looks at nothing behind it.
// A store whose hint does not count, as one of RocketMQ's, has no damage that
// keeps it from being opened: nothing is noted there.
func (l *Log) noteCut(to int64) (kept string, noted bool, err error) {
	if _, _, err := l.finishAside(); err != nil {
		return "", false, err
	}
	l.readOnly = true
	r, err := l.recover()
	if l.queues != nil {
		defer func() { err = errors.Join(err, l.queues.close()) }()
	}
	if err != nil {
		return "", false, err
	}
	l.take(r)
	defer l.letGo()
	if to < l.MinOffset() || to > r.end {
		return "", false, l.outOfRange(to, to)
	}
	if border := l.borderAt(to); border != to {
		return "", false, fmt.Errorf("cut at offset %d: %w: inside of what begins at %d", to, ErrOutOfRange, border)
	}
	if r.hint == nil || to == r.end && r.damage == nil {
		return "", false, nil
	}
	if to < r.end {
		if kept, err = l.keepAside(to, r.end, l); err != nil {
			return "", false, err
		}
	}
	h := *r.hint
	h.Flushed, h.Queued, h.Confirmed = min(h.Flushed, to), min(h.Queued, to), min(h.Confirmed, to)
	h.CutTo, h.CutFrom = to, r.end
	if h.Queues, err = l.queues.ends(l.MinOffset(), h.Queued); err != nil {
		return kept, false, err
	}
	if err := l.sumTail(&h); err != nil {
		return kept, false, err
	}
	now, err := fingerprintNow(l.disk, l.root)
	if err != nil {
		return kept, false, err
	}
	h.Fingerprints = []string{now}
	return kept, true, writeHint(l.disk, l.root, &h)
}
