package commitlog

import "fmt"

// TakeOver ends the time in which the log was filled by Reserve: from here on it
// is appended to. Bytes of a record that is not whole are cut and kept aside, as
// by Truncate, and every record before them is checked and in its queue, so that
// queue offsets go on. Nobody may hold reserved bytes.
//
// An error says why the log cannot be appended to: damage, or queues that cannot
// be written.
func (l *Log) TakeOver() (cut string, err error) {
	l.awaitDispatched(dispatchedAtClose)
	if err := l.Writable(); err != nil {
		return "", err
	}
	border, end := l.dispatcher.Offset(), l.end.Load()
	if border < end {
		if !l.dispatcher.idle() {
			err := fmt.Errorf("records from offset %d on are not in their queues: %w", border, ErrNotQueued)
			if why := l.dispatcher.trouble(); why != nil {
				err = fmt.Errorf("%w: %w", err, why)
			}
			return "", err
		}
		if cut, err = l.Truncate(border); err != nil {
			return cut, err
		}
	}
	l.replica.Store(false)
	l.window.rest(false)
	return cut, nil
}
