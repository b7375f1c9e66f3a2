package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/transfer"
)

// verify compares what we hold below an offset with the master's log, by
// checksums that the master gives, before anything is cut or followed on the word
// of epochs alone:
//
//   - all of it, once, if the store came from elsewhere or is known to differ;
//   - the bytes just before a cut: epochs say where to cut, not that what stays is
//     the master's.
//
// A master of an earlier version gives none; then only the tail is compared, as
// always, when the hello is answered. Not for a loop.
func (s *slave) verify(own, master transfer.Hello, keep int64) error {
	id := s.e.identityNow()
	whole := id.Unverified || id.Differs
	from := max(own.Log.Min, master.Log.Min)
	switch {
	case own.Log.Empty():
		return s.verified(whole)
	case !whole && keep == own.Log.End, master.Questions == (transfer.QuestionLimits{}):
		return nil
	case whole:
		s.e.opts.Logger.Info("the store came from elsewhere, or differed; it is compared with the master before it is followed", "master", s.master, "from_offset", from, "to_offset", keep)
	default:
		from = max(from, keep-transfer.TailBytes)
	}
	began := time.Now()
	if from < keep {
		c, err := Compare(s.context, s.address, s.log, CompareOptions{From: from, To: keep, node: master.ReplicaID, Secret: s.e.opts.HASecret})
		switch {
		case err != nil:
			return s.unfinished(err)
		case c.Differs >= 0:
			why := &transfer.RefusalError{Code: transfer.RefusedDiverged, Text: fmt.Sprintf("our log differs from the master's at offset %d, before %d, up to where the epochs say that they agree; nothing was cut", c.Differs, keep)}
			s.door.close(why)
			return why
		case c.To < keep || c.From > from:
			return s.unfinished(fmt.Errorf("the master gives checksums of offsets %d to %d only", c.From, c.To))
		}
	}
	if err := s.verified(whole); err != nil {
		return err
	}
	if keep < own.Log.End && time.Since(began) > s.e.opts.Housekeeping/2 {
		// The hello says what the master was before. Nothing is cut for it.
		return &transfer.RefusalError{Code: transfer.RefusedStopping, Text: "the logs were compared; the next connection decides what is cut"}
	}
	return nil
}

// verified notes that nothing is suspect any more.
func (s *slave) verified(whole bool) error {
	s.door.open()
	if !whole {
		return nil
	}
	return s.e.changeIdentity(func(id *identity) { id.Unverified, id.Differs = false, false })
}

// unfinished makes an error of a comparison a reason to try again: it says nothing
// about the two logs. Soon if the connection was lost, else later, since all is
// read again then.
func (s *slave) unfinished(err error) error {
	if errors.Is(err, transfer.ErrRefused) {
		return err
	}
	s.later.Store(errors.Is(err, transfer.ErrUnanswered) || errors.Is(err, ErrNotSpoken))
	return &transfer.RefusalError{Code: transfer.RefusedStopping, Text: "the logs could not be compared: " + err.Error()}
}

// compareFollowed compares this log, up to an offset, with the master's that is
// followed, as far as epochs say that both are the same: who answers at its
// address may be another one by now, or the same with another history.
func (s *slave) compareFollowed(o CompareOptions) (Comparison, error) {
	s.shared.Lock()
	address, node := s.shared.connected, s.shared.node
	s.shared.Unlock()
	own := s.e.hello()
	own.Log, own.Epochs = transfer.Range{Min: s.log.MinOffset(), End: o.To}, *s.e.terms.Load()
	o.node = node
	o.until = func(node transfer.Hello) (int64, error) {
		to, err := transfer.Align(own, node, 0)
		if err != nil {
			return 0, fmt.Errorf("%w: the master is not what it was when it was followed: %w", ErrChanging, err)
		}
		return to, nil
	}
	return Compare(s.context, address, s.log, o)
}
