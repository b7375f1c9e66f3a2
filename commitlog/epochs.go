package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// epochsMax bounds the list: of more terms the oldest are forgotten.
const epochsMax = 1000

// Epoch is the term of one master: the log's bytes from Start up to where the
// next epoch starts are its (RocketMQ EpochEntry).
type Epoch struct {
	Number int32  // grows from term to term
	ID     uint64 // drawn at random when the term began, the same on all its replicas; 0: not known
	Start  int64  // offset of its first byte, or where that would be
}

// ErrEpoch is what every *EpochError wraps.
var ErrEpoch = errors.New("epoch does not follow the last one")

// EpochError says why an epoch was not taken.
type EpochError struct {
	Epoch    Epoch // the one that was offered
	Last     Epoch // the last of the list; the zero Epoch if there is none
	Min, End int64 // of the log
}

// Error names both epochs and the log's range.
func (e *EpochError) Error() string {
	last := "there is none yet"
	if e.Last != (Epoch{}) {
		last = fmt.Sprintf("that is epoch %d from offset %d", e.Last.Number, e.Last.Start)
	}
	return fmt.Sprintf("epoch %d from offset %d: %v: %s, and the log holds %d to %d",
		e.Epoch.Number, e.Epoch.Start, ErrEpoch, last, e.Min, e.End)
}

// Unwrap gives ErrEpoch.
func (e *EpochError) Unwrap() error { return ErrEpoch }

// Epochs lists the epochs that the log knows, the oldest first; numbers and
// starts grow. Only the last one can be without a byte, and the first may start
// before MinOffset. The slice is never written again, and is not the caller's
// to write. Any goroutine, no lock.
func (l *Log) Epochs() []Epoch { return *l.epochs.Load() }

// publishEpochs makes a list the one that Epochs gives. keeper.mu is held, or
// nobody else knows the log yet.
func (l *Log) publishEpochs(list []Epoch) {
	list = slices.Clip(list) // nobody's append gets into it
	l.epochs.Store(&list)
}

// AppendEpoch begins an epoch; it is durable on return. One that starts where
// the last one does replaces it: that one has no byte, and RocketMQ takes only
// lists in which numbers and starts both grow. Any goroutine; not for the path
// of a message, because it waits for the disk several times.
//
// An epoch whose start lies beyond what a power cut leaves of the log goes with
// those bytes: whoever may not give its number to another one notes it elsewhere
// before, or flushes first.
//
// *EpochError: its number is not above the last one's, or its start is below
// the last one's or above EndOffset. It may be below MinOffset, on a replica
// that has not got the beginning of it. [ErrReadOnly], [ErrClosed].
// Any other error is the disk's, and nothing has changed, or the log takes no
// more writes until an opening tells which list the disk has.
//
// RocketMQ EpochFileCache.appendEntry.
func (l *Log) AppendEpoch(e Epoch) error {
	if l.readOnly {
		return l.Writable()
	}
	k := l.keeper
	k.mu.Lock() // keeps truncation and retention out
	defer k.mu.Unlock()
	if err := l.Writable(); err != nil {
		return err
	}
	list := l.Epochs()
	var last Epoch
	if n := len(list); n > 0 {
		last = list[n-1]
	}
	low, end := l.MinOffset(), l.EndOffset()
	if e.Number <= last.Number || e.Start < last.Start || e.Start > end {
		return &EpochError{Epoch: e, Last: last, Min: low, End: end}
	}
	list = append(slices.Clone(cutEpochs(list, e.Start)), e)
	if err := k.setEpochsLocked(recentEpochs(list, low)); err != nil {
		return fmt.Errorf("begin epoch %d at offset %d: %w", e.Number, e.Start, err)
	}
	return nil
}

// setEpochsLocked makes a list the log's, on the disk first.
func (k *keeper) setEpochsLocked(list []Epoch) error {
	if err := k.saveEpochsLocked(list); err != nil {
		return err
	}
	k.log.publishEpochs(list)
	return nil
}

// cutEpochsLocked drops the epochs that start at an offset or behind it. None
// has a byte: the log ends there.
func (k *keeper) cutEpochsLocked(to int64) error {
	list := k.log.Epochs()
	kept := cutEpochs(list, to)
	if len(kept) == len(list) {
		return nil
	}
	if err := k.setEpochsLocked(kept); err != nil {
		return fmt.Errorf("cut the epochs from offset %d on: %w", to, err)
	}
	return nil
}

// cutEpochs gives the epochs that start before an offset: what is left of a log
// that is cut there (EpochFileCache.truncateSuffixByOffset).
func cutEpochs(list []Epoch, to int64) []Epoch {
	i, _ := slices.BinarySearchFunc(list, to, func(e Epoch, to int64) int { return cmp.Compare(e.Start, to) })
	return list[:i]
}

// recentEpochs leaves out the epochs of which a log that begins at low has no
// byte, and the oldest of too many (EpochFileCache.truncatePrefixByOffset; the
// epoch that holds low keeps its start, which tells it from others).
func recentEpochs(list []Epoch, low int64) []Epoch {
	first := max(0, len(list)-epochsMax)
	for first+1 < len(list) && list[first+1].Start <= low {
		first++
	}
	return list[first:]
}

// recoverEpochs finds the list that fits the log which the recovery has found.
// It only reads; settleEpochs makes the files say the same.
func (l *Log) recoverEpochs(r *recovery) {
	found := findEpochs(l.disk, l.root)
	for _, err := range found.bad {
		l.logger().Warn("a file of epochs is not believed, as if it were not there", "error", err)
	}
	list, same := found.judge(r.hint != nil)
	whole := len(list)
	if r.hint != nil && r.hint.CutTo >= 0 {
		// Also of an epoch that starts exactly there: it is cut, and must not
		// come back because the log ends where it did.
		list = cutEpochs(list, r.hint.CutTo)
	}
	if kept := cutEpochs(list, r.end+1); len(kept) < len(list) {
		// As with every watermark: what the log holds counts.
		l.logger().Warn("epochs start beyond the log's end, which counts; they are dropped",
			"end_offset", r.end, "first_start", list[len(kept)].Start, "first", list[len(kept)].Number, "dropped", len(list)-len(kept))
		list = kept
	}
	low := r.end
	if len(r.layout.files) > 0 {
		low = r.layout.files[0].base
	}
	r.epochs = recentEpochs(list, low)
	r.epochsSettled = same && len(r.epochs) == whole
}

// settleEpochs makes the files say the list that was recovered. It is done
// before the cut mark goes and before the first byte is appended: a dropped
// epoch would seem to fit again when the log has grown past its start.
func (l *Log) settleEpochs(r *recovery) error {
	if r.epochsSettled {
		return nil
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if err := l.keeper.saveEpochsLocked(r.epochs); err != nil {
		return fmt.Errorf("epochs that fit the log could not be written: %w", err)
	}
	return nil
}

// retryEpochsLocked writes RocketMQ's file again if that did not go well.
func (k *keeper) retryEpochsLocked() error {
	if !k.epochsBehind {
		return nil
	}
	return k.saveEpochsLocked(k.log.Epochs())
}

// saveEpochsLocked makes both files say a list. It counts, and is durable, with
// the first of them, ours: RocketMQ's is written again until it goes well, here
// or at the next opening. An error: what the files said before still counts,
// unless the log failed.
func (k *keeper) saveEpochsLocked(list []Epoch) error {
	l := k.log
	if changed, err := writeEpochNotes(l.disk, l.root, list); err != nil {
		if changed {
			// Its name may be on the disk or not, and what is appended next
			// belongs to one epoch or the other: an opening tells.
			l.fail(err)
		}
		return err
	}
	err := replaceEpochFile(l.disk, l.root, list)
	if k.epochsBehind = err != nil; k.epochsBehind {
		k.warnLocked(l.opts.Monotonic(), "epochs are kept, but RocketMQ's file of them could not be written; it is tried again", err)
	}
	return nil
}
