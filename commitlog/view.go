package commitlog

import "fmt"

// View is a counted read of published bytes inside one segment. The segment
// stays mapped, whatever retention and truncation do, until Release. A View is
// a small value; copies share one count.
type View struct {
	log      *Log
	segment  *segment
	file     *openFile
	from, to int64
}

// View opens the bytes [from, to), cut off at the end of from's segment and at
// the end of the log, so that there is at least one. [ErrOutOfRange]: from is
// not in [MinOffset, EndOffset), or to is not above it.
func (l *Log) View(from, to int64) (View, error) {
	for {
		end := l.end.Load()
		list := *l.list.Load()
		s := list.find(from)
		if s == nil || from >= end || to <= from {
			if l.gone.Load() {
				return View{}, ErrClosed
			}
			return View{}, l.outOfRange(from, to)
		}
		if !s.acquire() {
			continue // it went since the list was read
		}
		f, err := s.use()
		if err != nil {
			s.release()
			return View{}, l.faulted(err)
		}
		return View{log: l, segment: s, file: f, from: from, to: min(to, end, s.end())}, nil
	}
}

func (l *Log) outOfRange(from, to int64) error {
	return fmt.Errorf("bytes %d to %d: %w: the log holds %d to %d", from, to, ErrOutOfRange, l.MinOffset(), l.end.Load())
}

// From and To are the range that was opened, half-open.
func (v View) From() int64 { return v.from }

// To is one past the last byte.
func (v View) To() int64 { return v.to }

// Bytes is mapped memory, to hand to writev and to nothing else: our own code
// would not survive a fault in it. Valid until Release.
func (v View) Bytes() []byte { return v.file.data[v.from-v.segment.base : v.to-v.segment.base] }

// File is the descriptor and the position in it for sendfile, or -1 if there
// is no descriptor. Valid until Release.
func (v View) File() (fd int, position int64) { return v.file.file.Fd(), v.from - v.segment.base }

// CopyTo copies as many of the bytes as fit into dst, guarded against faults.
func (v View) CopyTo(dst []byte) (int, error) {
	n := min(int64(len(dst)), v.to-v.from)
	if err := v.file.read(v.from-v.segment.base, dst[:n]); err != nil {
		return 0, v.log.faulted(err)
	}
	return int(n), nil
}

// Release ends the read; once for each View that was opened.
func (v View) Release() { v.segment.release() }
