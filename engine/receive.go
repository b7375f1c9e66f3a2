package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// Readable takes what the master sent, then acknowledges it once.
func (s *slave) Readable(c *reactor.Conn) {
	if !c.Open() {
		return // we go on by ourselves, after a pause
	}
	now := s.loop.Now()
	for taken, more := 0, true; more && !s.paused && !s.preparing; {
		n, err := s.receive(c, now)
		taken += n
		more = len(s.ahead) > 0 || !c.Drained() && taken < receivedPerTurn
		if err == nil {
			continue
		}
		if errors.Is(err, reactor.ErrWouldBlock) {
			break
		}
		if errors.Is(err, reactor.ErrFault) {
			err = s.log.Fault(s.log.EndOffset()+int64(s.unpublished), err)
		}
		if errors.Is(err, transfer.ErrRefused) {
			s.refuse(err) // the master is told, unless it was the one to say so
			return
		}
		c.Close(err)
		return
	}
	s.noteState()
	s.sendReport(now)
	s.rearm()
}

// receive takes bytes once, to where the follower wants them.
func (s *slave) receive(c *reactor.Conn, now time.Duration) (int, error) {
	want := s.follower.Want()
	switch want.Kind {
	case transfer.WantCompare:
		return s.receiveAgain(c, want, now)
	case transfer.WantStore:
		return s.receiveNew(c, want, now)
	}
	buf := s.header[:]
	if want.Bytes > int64(len(buf)) {
		buf = s.compare
	}
	b := buf[:min(int64(len(buf)), want.Bytes)]
	n, err := s.read(c, b)
	if err != nil {
		return n, err
	}
	return n, s.takeHeader(b[:n], now)
}

// aheadBytes is how large a body is at most that comes in one system call with its
// header. It is copied then, as are so many bytes of a larger one behind a small one.
const aheadBytes = 2 << 10

// read fills dst with what was read ahead, or else from the socket, and reads ahead
// where bodies are small.
func (s *slave) read(c *reactor.Conn, dst []byte) (int, error) {
	if len(s.ahead) > 0 && len(dst) > 0 {
		n := copy(dst, s.ahead)
		s.ahead = s.ahead[n:]
		return n, nil
	}
	s.iov[0], s.iov[1] = dst, nil
	if s.small && len(dst) > 0 {
		s.iov[1] = s.beyond[:]
	}
	n, err := c.Readv(s.iov[:])
	s.iov[0] = nil
	if own := min(n, len(dst)); own < n {
		s.ahead, n = s.beyond[:n-own], own
	}
	return n, err
}

func (s *slave) takeHeader(b []byte, now time.Duration) error {
	s.splices = false
	if _, err := s.follower.Header(b, s.held(), now); err != nil {
		return err
	}
	if !s.spoke.Load() {
		s.spoke.Store(true)
	}
	if s.follower.Challenged() {
		return s.prove(now)
	}
	if hello, waits := s.follower.Greeting(); waits {
		s.greeted(hello)
	} else if s.follower.Extended() {
		s.heard(now)
	}
	return nil
}

// receiveAgain compares what the master has at our end with what we have.
func (s *slave) receiveAgain(c *reactor.Conn, want transfer.Want, now time.Duration) (int, error) {
	n, err := s.read(c, s.compare[:min(int64(len(s.compare)), want.Bytes)])
	if err != nil {
		return n, err
	}
	got, own := s.compare[:n], s.own[:n]
	if _, err := s.log.ReadAt(own, want.Offset); err != nil {
		return n, fmt.Errorf("read our own bytes at offset %d: %w", want.Offset, err)
	}
	if bytes.Equal(got, own) {
		return n, s.follower.Compared(int64(n), -1, now)
	}
	same := 0
	for got[same] == own[same] {
		same++
	}
	return n, s.follower.Compared(int64(same), want.Offset+int64(same), now)
}

// receiveNew takes body bytes into the segment, and perhaps the next header with
// them.
func (s *slave) receiveNew(c *reactor.Conn, want transfer.Want, now time.Duration) (int, error) {
	n, err := 0, s.beginLog()
	if err == nil {
		n, err = s.receiveBody(c, want.Bytes)
	}
	stored := int(min(int64(n), want.Bytes))
	s.unpublished += stored
	if errors.Is(err, commitlog.ErrSegmentPending) {
		s.paused = true
		c.WantRead(false)
		err = reactor.ErrWouldBlock
	}
	if err != nil {
		return n, err
	}
	if publish := s.follower.Stored(int64(stored), now); publish > 0 {
		s.small = publish <= aheadBytes
		if err := s.log.Publish(int(publish)); err != nil {
			return n, err
		}
		s.unpublished -= int(publish)
		s.grew()
		if s.e.opts.Ack == AckFlushed || s.follower.Source().FlushWanted {
			s.log.RequestFlush(s.log.EndOffset())
		}
		s.e.progress.wake()
	}
	if n > stored {
		return n, s.takeHeader(s.header[:n-stored], now)
	}
	return n, nil
}

// spliceMin is how large a body is at least whose bytes are spliced into the
// segment's file. A smaller one takes fewer system calls through the mapping,
// with the next header in the same call.
const spliceMin = 64 << 10

// receiveBody gets body bytes into the segment: what was read ahead, and then the rest in
// one way or the other, which it keeps to the body's end.
func (s *slave) receiveBody(c *reactor.Conn, want int64) (int, error) {
	if len(s.ahead) > 0 {
		n, err := s.log.Place(s.unpublished, s.ahead[:min(int64(len(s.ahead)), want)])
		s.ahead = s.ahead[n:]
		if n == 0 && err == nil {
			err = reactor.ErrNoBytes
		}
		return n, err
	}
	if want >= spliceMin && !s.readsOnly {
		s.splices = true
	}
	if !s.splices {
		return s.readBody(c, want)
	}
	n, err := s.spliceBody(c, want)
	switch {
	case errors.Is(err, reactor.ErrNotSpliced):
		s.splices = false
		return s.readBody(c, want)
	case errors.Is(err, reactor.ErrUnsupported):
		s.readsOnly = true
		s.e.opts.Logger.Info("large frames are read, not spliced, into the log", "reason", err)
	}
	return n, err
}

// readBody reads body bytes into the segment's mapping, and the next header behind
// the last of them.
func (s *slave) readBody(c *reactor.Conn, want int64) (int, error) {
	room, err := s.log.Reserve(int64(s.unpublished) + want)
	if err != nil {
		return 0, err
	}
	s.iov[0] = room[s.unpublished:]
	bufs := s.iov[:1]
	if int64(len(s.iov[0])) >= want {
		bufs = s.iov[:2]
		s.iov[1] = s.header[:s.follower.HeaderBytes()]
	}
	n, err := c.Readv(bufs)
	s.iov[0] = nil
	return n, err
}

// spliceBody has the kernel move body bytes into the segment's file.
func (s *slave) spliceBody(c *reactor.Conn, want int64) (int, error) {
	fd, at, room, err := s.log.ReserveFile(int64(s.unpublished) + want)
	switch {
	case err != nil:
		return 0, err
	case fd < 0:
		return s.readBody(c, want)
	}
	return c.Splice(fd, at+int64(s.unpublished), int(room)-s.unpublished)
}

// grew notes that the connection does its work: only new bytes show that.
func (s *slave) grew() {
	if s.grown {
		return
	}
	s.grown = true
	s.backoff.Succeeded()
	for _, reason := range reasons {
		s.e.steady.over("master-" + reason)
	}
}

// beginLog begins an empty log where the master's first frame says.
func (s *slave) beginLog() error {
	base, ok := s.follower.StartOffset()
	if ok && s.log.EndOffset() == 0 && s.unpublished == 0 {
		if err := s.log.StartAt(base); err != nil {
			return err
		}
		if base > 0 {
			s.e.opts.Logger.Warn("this copy begins after the log's first byte: what the master has from before was not sent; for all of it copy the master's segments first, or, from a haengine master, use its --plain-history first",
				"master", s.master, "min_offset", base)
		}
		if s.follower.SkipByte() {
			// Offset 0 is the top byte of the first record's size, a known
			// zero, and a new segment's bytes are zero.
			if _, err := s.log.Reserve(1); err != nil {
				return err
			}
			return s.log.Publish(1)
		}
	}
	return nil
}

// resume goes on when the next segment is there.
func (s *slave) resume() {
	if s.conn == nil || !s.paused || s.preparing {
		return
	}
	s.paused = false
	s.conn.WantRead(true)
	s.Readable(s.conn)
}
