package main

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// rawFrameHeader is what a frame adds to a record on the wire, so that the
// limit moves what the engine must move.
const rawFrameHeader = 12

// stream copies messages into a populated map, sends them from there, and
// counts a message as done when the peer's acknowledgement covers it. With one
// under way it is a ping-pong. Latencies are added to l.
func (p *rawPeer) stream(ctx context.Context, size, underWay int, d time.Duration, l *latencies) (messages int64, took time.Duration, err error) {
	step := size + rawFrameHeader
	room := max(step*underWay*2, 1<<20) / step * step
	m, err := populatedMap(int64(room))
	if err != nil {
		return 0, 0, err
	}
	defer unmap(m)
	s := rawStream{peer: p, m: m, step: step, source: make([]byte, size), begun: make([]time.Time, underWay), base: p.acked, l: l}
	start := time.Now()
	end := start.Add(d)
	for now := start; ; {
		for now.Before(end) && s.written/int64(step)-s.done < int64(underWay) {
			s.put(now)
		}
		if s.written == s.acked {
			return s.done, time.Since(start), ctx.Err()
		}
		if err := s.move(); err != nil {
			return 0, 0, err
		}
		now = time.Now()
		s.settle(now)
		if ctx.Err() != nil {
			end = now
		}
	}
}

// rawStream is one run of stream: byte counts since the start, done <= acked
// <= sent <= written.
type rawStream struct {
	peer                 *rawPeer
	m                    []byte
	step                 int
	source               []byte
	written, sent, acked int64
	base                 int64 // the peer's count when the run began
	done                 int64 // messages
	begun                []time.Time
	l                    *latencies
}

// put copies a message into the map, as an append does.
func (s *rawStream) put(now time.Time) {
	at := int(s.written % int64(len(s.m)))
	copy(s.m[at+rawFrameHeader:at+s.step], s.source)
	s.begun[(s.written/int64(s.step))%int64(len(s.begun))] = now
	s.written += int64(s.step)
}

// move sends what is not sent and takes in acknowledgements; it blocks until
// there is one.
func (s *rawStream) move() error {
	for s.sent < s.written {
		at := int(s.sent % int64(len(s.m)))
		n, err := unix.Write(s.peer.fd, s.m[at:min(at+int(s.written-s.sent), len(s.m))])
		if n > 0 {
			s.sent += int64(n)
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("write", err)
		}
	}
	if err := waitFor(s.peer.poll, s.peer.fd, s.sent < s.written); err != nil {
		return err
	}
	if err := s.peer.readAcks(false); err != nil {
		return err
	}
	s.acked = s.peer.acked - s.base
	return nil
}

// settle counts the messages that the acknowledgements cover.
func (s *rawStream) settle(now time.Time) {
	for (s.done+1)*int64(s.step) <= s.acked {
		s.l.add(now.Sub(s.begun[s.done%int64(len(s.begun))]))
		s.done++
	}
}
