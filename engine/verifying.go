package engine

import (
	"errors"
	"fmt"

	"github.com/haengine/haengine/transfer"
)

// verify compares what we hold below an offset with the master's log, by
// checksums that the master gives, before anything is cut or followed on the word
// of epochs alone:
//
//   - all of it, once, if the store is a copy or came from elsewhere;
//   - the bytes just before a cut: epochs say where to cut, not that what stays is
//     the master's.
//
// A master of an earlier version gives none; then only the tail is compared, as
// always, when the hello is answered. Not for a loop.
func (s *slave) verify(own, master transfer.Hello, keep int64) error {
	whole := s.e.identityNow().Unverified
	if own.Log.Empty() || !whole && keep == own.Log.End || master.Questions == (transfer.QuestionLimits{}) {
		return nil
	}
	from := max(own.Log.Min, master.Log.Min)
	if !whole {
		from = max(from, keep-transfer.TailBytes)
	}
	if whole {
		s.e.opts.Logger.Info("the store came from elsewhere; it is compared with the master before it is followed", "master", s.master, "from_offset", from, "to_offset", keep)
	}
	if from < keep {
		c, err := Compare(s.context, s.address, s.log, CompareOptions{From: from, To: keep, Secret: s.e.opts.HASecret})
		switch {
		case err != nil:
			return unfinished(err)
		case c.Differs >= 0:
			why := &transfer.RefusalError{Code: transfer.RefusedDiverged, Text: fmt.Sprintf("our log differs from the master's at offset %d, before %d, up to where the epochs say that they agree; nothing was cut", c.Differs, keep)}
			s.passOnNothing(why)
			return why
		case c.To < keep || c.From > from:
			return unfinished(fmt.Errorf("the master gives checksums of offsets %d to %d only", c.From, c.To))
		}
	}
	if !whole {
		return nil
	}
	return s.e.changeIdentity(func(id *identity) { id.Unverified = false })
}

// passOnNothing keeps replicas of this slave out, until it is a slave or a master
// anew: what it holds is not its master's. Not for a loop.
func (s *slave) passOnNothing(why error) {
	if s.e.master != nil {
		s.e.master.closeDoor(why)
	}
}

// unfinished makes an error of a comparison a reason to try again soon: it says
// nothing about the two logs.
func unfinished(err error) error {
	if errors.Is(err, transfer.ErrRefused) {
		return err
	}
	return &transfer.RefusalError{Code: transfer.RefusedStopping, Text: "the logs could not be compared: " + err.Error()}
}
