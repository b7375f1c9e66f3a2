package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wireLimit is what a synchronous put is compared with: a stream to a peer that
// acknowledges.
type wireLimit struct {
	name string
	peer *rawPeer
	run  func(context.Context, time.Duration) (round, error)
}

// wireLimit starts the limit that fits the options: on the same cores, with as
// many messages under way. With one of them and --spin it is the floor of two
// ends that never sleep.
func (o benchOptions) wireLimit(ctx context.Context) (l wireLimit, err error) {
	underWay := o.producers * o.outstanding
	kind := "stream"
	switch {
	case underWay > 1:
		l.name = fmt.Sprintf("epoll stream, %d under way", underWay)
	case o.spin > 0:
		kind, l.name = "spin", "spinning ping-pong"
	default:
		l.name = "epoll ping-pong"
	}
	if o.placement != placeAny {
		l.name += ", " + string(o.placement)
	}
	err = o.pins.startOnPeerCore(func() (err error) {
		l.peer, err = startRawPeer(ctx, o.congestion, kind)
		return err
	})
	if err != nil {
		return l, err
	}
	l.peer.spin = kind == "spin"
	l.run = func(ctx context.Context, d time.Duration) (round, error) {
		return l.peer.round(ctx, int(o.size), underWay, d)
	}
	return l, nil
}

func (l wireLimit) close() {
	if l.peer != nil {
		l.peer.close()
	}
}

// round is stream as a round.
func (p *rawPeer) round(ctx context.Context, size, underWay int, d time.Duration) (r round, err error) {
	r.latency = new(latencies)
	cpu, own := cpuTime(p.child), cpuTime(nil)
	r.messages, r.took, err = p.stream(ctx, size, underWay, d, r.latency)
	r.cpu, r.masterCPU = cpuTime(p.child)-cpu, cpuTime(nil)-own
	r.bytes = r.messages * int64(size)
	r.memory = memoryWith(p.child)
	return r, err
}

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
	s := rawStream{peer: p, m: m, step: step, source: make([]byte, size), begun: make([]time.Duration, underWay), base: p.acked, l: l}
	start := clock()
	end := start + d
	for now := start; ; {
		for now < end && s.written/int64(step)-s.done < int64(underWay) {
			s.put(now)
		}
		if s.written == s.acked {
			return s.done, clock() - start, ctx.Err()
		}
		if err := s.move(); err != nil {
			return 0, 0, err
		}
		now = clock()
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
	begun                []time.Duration
	l                    *latencies
}

// put copies a message into the map, as an append does.
func (s *rawStream) put(now time.Duration) {
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
	if !s.peer.spin {
		if err := waitFor(s.peer.poll, s.peer.fd, s.sent < s.written); err != nil {
			return err
		}
	}
	if err := s.peer.readAcks(false); err != nil {
		return err
	}
	s.acked = s.peer.acked - s.base
	return nil
}

// settle counts the messages that the acknowledgements cover.
func (s *rawStream) settle(now time.Duration) {
	for (s.done+1)*int64(s.step) <= s.acked {
		s.l.add(now - s.begun[s.done%int64(len(s.begun))])
		s.done++
	}
}
