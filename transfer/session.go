package transfer

import (
	"fmt"
	"math"
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// Intervals and sizes that hold where a configuration says 0.
const (
	DefaultHeartbeat    = 5 * time.Second  // haSendHeartbeatInterval
	DefaultHousekeeping = 20 * time.Second // haHousekeepingInterval
	DefaultFrameBytes   = 32 << 10         // haTransferBatchSize
)

// SessionConfig is what a session needs to know. Zero values are defaults.
type SessionConfig struct {
	Peer          string // the replica's name in errors
	FrameBytesMax int32  // largest body; 0: DefaultFrameBytes, never above FrameBytesMax
	SegmentBytes  int64  // segment size of the log; must be set
	HistoryFirst  bool   // a replica that reports 0 gets the whole log, not the last segment
	// Hello is what this node says of itself to a haengine replica; its log's
	// range is filled in. nil: RocketMQ's own protocol only.
	Hello *Hello
	// Secret makes this node serve and tell of its log only those that prove to
	// know it, in the extended protocol; empty: anybody. Nonce is this
	// connection's, drawn at random.
	Secret       []byte
	Nonce        Nonce
	Heartbeat    time.Duration
	Housekeeping time.Duration
	Pace         Pace
	CatchUpBytes int64 // a replica further behind is catching up; 0: DefaultCatchUpBytes
}

type sessionPhase uint8

const (
	sessionSilent  sessionPhase = iota // no report yet
	sessionHello                       // -1 came: the next report is the first
	sessionHeld                        // 0 or 1 came for an empty log: wait for its first byte
	sessionServing                     // the place in the log is known
)

// Session is the master's view of one replica on one connection: where it
// stands, what it is sent next, and whether it is alive. Loop-confined.
//
// Invariant, once serving: start <= sent <= end of the log; acked is the first
// report or in [start, sent], and never goes back.
//
// RocketMQ: DefaultHAConnection with its ReadSocketService and
// WriteSocketService.
type Session struct {
	cfg     SessionConfig
	pacing  pacing
	reports Decoder
	phase   sessionPhase
	begun   time.Duration // the connection's start

	wire // of a haengine replica

	first      int64 // the first report
	start      int64 // where serving began
	sent       int64 // one past the last body byte that went out
	acked      int64
	left       int32 // body bytes of the frame in flight
	lastReport time.Duration
	lastSent   time.Duration // last progress of a frame or a heartbeat
	offered    bool          // Next returned a frame of which nothing was sent yet
	offeredAt  time.Duration
	seen       time.Duration // what is due by now was answered

	failed error // why the connection has to end; sticky
}

// NewSession returns the session of a connection that begins now.
func NewSession(cfg SessionConfig, now time.Duration) *Session {
	invariant.Check(cfg.SegmentBytes > 0, "a session knows its log's segment size")
	invariant.Check(len(cfg.Secret) == 0 || cfg.Hello != nil, "a proof takes the extended protocol")
	if cfg.FrameBytesMax <= 0 {
		cfg.FrameBytesMax = DefaultFrameBytes
	}
	cfg.FrameBytesMax = min(cfg.FrameBytesMax, FrameBytesMax)
	cfg.Heartbeat = orDefault(cfg.Heartbeat, DefaultHeartbeat)
	cfg.Housekeeping = orDefault(cfg.Housekeeping, DefaultHousekeeping)
	return &Session{
		cfg: cfg, pacing: newPacing(cfg.Pace, cfg.CatchUpBytes), reports: NewReportDecoder(),
		begun: now, lastReport: now, lastSent: now, seen: now,
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Feed takes bytes from the replica, cut anywhere. Reports are taken in order;
// those before a bad one count. The error is a *ReportError, an
// *UnservableError, a *RefusalError or wraps ErrControllerHandshake; the connection must be
// closed then, and every later call fails the same way.
func (s *Session) Feed(b []byte, log Range, now time.Duration) error {
	for s.failed == nil && len(b) > 0 {
		if s.payload.missing() > 0 {
			b = b[s.payload.take(b):]
			if s.payload.missing() == 0 {
				s.failed = s.message(log, now)
			}
			continue
		}
		unit, n := s.reports.Take(b)
		b = b[n:]
		switch {
		case unit == nil:
		case s.extended:
			s.failed = s.extendedReport(unit, now)
		default:
			s.failed = s.report(ParseReport(unit), b, log, now)
		}
	}
	return s.failed
}

// report takes one report; rest is what follows it in the same read.
func (s *Session) report(offset int64, rest []byte, log Range, now time.Duration) error {
	switch s.phase {
	case sessionSilent, sessionHello:
		switch {
		case offset == helloAsked && s.phase == sessionSilent:
			s.phase = sessionHello
			s.greet(log)
			return nil
		case offset == extendedMark && s.greeted:
			s.extended = true
			s.reports = newDecoder(ExtendedReportBytes, AppendReport(nil, extendedMark))
			return nil
		case !s.Trusted():
			return s.plainPeer(offset)
		}
		if err := s.begin(offset, rest, log); err != nil {
			return err
		}
	case sessionHeld:
		if offset != s.first {
			return &ReportError{Replica: s.cfg.Peer, Reported: offset, From: s.first, To: s.first}
		}
	case sessionServing:
		if err := s.advance(offset); err != nil {
			return err
		}
	}
	s.lastReport = now
	return nil
}

// begin takes the first report, which chooses the start.
func (s *Session) begin(offset int64, rest []byte, log Range) error {
	switch {
	case isControllerHandshake(offset, rest, log):
		return s.controllerHandshake()
	case offset == 0, offset == 1 && log.Empty() && log.Min <= 1:
		s.phase, s.first = sessionHeld, offset
		return s.anchor(log)
	case offset < 0 || !log.Holds(offset):
		return &ReportError{Replica: s.cfg.Peer, Reported: offset, From: log.Min, To: log.End, First: true}
	}
	s.phase = sessionServing
	s.first, s.start, s.sent, s.acked = offset, offset, offset, offset
	return nil
}

// anchor starts serving a held replica once the log has a byte. Before that
// there is no right place: the log may begin at any segment, and a heartbeat
// would make a real slave create a file for an offset that never comes.
func (s *Session) anchor(log Range) error {
	if log.Empty() {
		return nil
	}
	switch {
	case s.first == 1:
		s.start, s.acked = 1, 1
	case s.cfg.HistoryFirst:
		s.start = log.Min
	default:
		s.start = max(log.End-log.End%s.cfg.SegmentBytes, log.Min)
	}
	s.sent, s.phase = s.start, sessionServing
	if !log.Holds(s.start) {
		return s.unservable(log)
	}
	return nil
}

// advance takes a later report. A replica that was started at a later segment
// may repeat its 0 until it has stored something.
func (s *Session) advance(offset int64) error {
	from := max(s.acked, s.start)
	if offset == s.acked || from <= offset && offset <= s.sent {
		s.acked = offset
		return nil
	}
	if offset < s.acked && looksLikeController(s.first) {
		return s.controllerHandshake()
	}
	return &ReportError{Replica: s.cfg.Peer, Reported: offset, From: from, To: s.sent}
}

func (s *Session) controllerHandshake() error {
	return fmt.Errorf("replica %s: %w", s.cfg.Peer, ErrControllerHandshake)
}

func (s *Session) unservable(log Range) error {
	return &UnservableError{Replica: s.cfg.Peer, Needs: s.sent, Min: log.Min, End: log.End, Remaining: s.left}
}

// isControllerHandshake tells a controller-mode handshake from a report. Its
// first 8 bytes are also the offsets 2^32, 2^32+1, 2^32+65536 and 2^32+65537,
// and 2^32 is a segment border that real replicas do stop at. So such a value
// is a report if the log holds it, unless a smaller one follows at once: the
// handshake is sent whole, and its next 8 bytes are the replica's id.
func isControllerHandshake(offset int64, rest []byte, log Range) bool {
	if !looksLikeController(offset) {
		return false
	}
	return !log.Holds(offset) || len(rest) >= ReportBytes && ParseReport(rest) < offset
}

// looksLikeController matches int32 1 followed by two int16 flags of 0 or 1.
// RocketMQ: AutoSwitchHAClient.HANDSHAKE_HEADER_SIZE and its fields.
func looksLikeController(offset int64) bool {
	const flags = 1<<16 | 1
	return offset&^flags == 1<<32
}

// Started tells whether a valid first report was made: only then is the
// connection a replica. A haengine replica's hello is one when it was proved.
func (s *Session) Started() bool { return s.phase >= sessionHeld }

// Acked returns one past what the replica said it holds; 0 until its place in
// the log is known.
func (s *Session) Acked() int64 { return s.acked }

// StartOffset returns where this connection began to serve, and whether it
// did. A replica that reported 0 holds nothing below it, whatever it acks.
func (s *Session) StartOffset() (int64, bool) { return s.start, s.phase == sessionServing }

// SentOffset returns one past the last byte that went out.
func (s *Session) SentOffset() int64 { return s.sent }

// Next returns the frame to send now; Bytes 0 is a heartbeat. ok is false when
// nothing is due, a frame is in flight, or the session is failing (ask
// Expired). Until Sent is called it may be asked again and may answer with a
// longer frame.
func (s *Session) Next(log Range, now time.Duration) (f Frame, ok bool) {
	s.seen = now
	if s.failed != nil || s.left > 0 || !s.Started() || !s.Trusted() || len(s.control) > 0 {
		return Frame{}, false
	}
	if s.phase == sessionHeld {
		if s.failed = s.anchor(log); s.failed != nil || s.phase == sessionHeld {
			return Frame{}, false
		}
	}
	if !log.Holds(s.sent) {
		s.failed = s.unservable(log)
		return Frame{}, false
	}
	switch n := s.frameBytes(log); {
	case n > 0 && s.pacing.pacer().Ready(now):
		f = Frame{Offset: s.sent, Bytes: n}
	case now-s.lastSent >= s.cfg.Heartbeat || s.welcome:
		f = Frame{Offset: s.sent}
	default:
		return Frame{}, false
	}
	if !s.offered {
		s.offered, s.offeredAt = true, now
	}
	return f, true
}

// firstFrameBytes is how large the frames of the extended protocol may be at the
// beginning of a connection.
const firstFrameBytes = 64 << 10

// frameBytes returns the size of the next frame's body: it ends with the
// segment, because a real slave drops a body that does not.
func (s *Session) frameBytes(log Range) int32 {
	left := log.End - s.sent
	most := min(left, s.cfg.SegmentBytes-s.sent%s.cfg.SegmentBytes)
	if s.extended {
		_, end := epochAt(s.epochs, s.sent)
		// No larger than what this connection has carried already: a frame counts
		// only when it is whole, and on a link that breaks again and again large
		// ones never would be.
		most = min(most, end-s.sent, int64(s.replica.FrameBytes), max(firstFrameBytes, s.acked-s.start))
	} else {
		most = min(most, int64(s.cfg.FrameBytesMax))
	}
	return int32(s.pacing.cut(left, most))
}

// Sent tells that something of the frame f, which Next gave, went out: with
// bodyBytes 0 a part of its header, else that many more bytes of its body. From
// the first call on a frame with a body is in flight, and a heartbeat is done:
// do not ask Next before its header is out.
func (s *Session) Sent(f Frame, bodyBytes int32, now time.Duration) {
	s.lastSent, s.offered, s.welcome = now, false, false
	if f.Bytes == 0 {
		return
	}
	if s.left == 0 {
		invariant.Check(f.Offset == s.sent, "a frame begins where the last one ended")
		s.left = f.Bytes
		s.pacing.pacer().Take(s.headerBytes()+int64(f.Bytes), now)
	}
	invariant.Check(0 <= bodyBytes && bodyBytes <= s.left, "no more goes out than the frame holds")
	s.left -= bodyBytes
	s.sent += int64(bodyBytes)
	invariant.Check(s.sent+int64(s.left) == f.End(), "sent and left make up the frame")
}

// Expired returns why the connection has to end: an *ExpiredError when the
// replica let its time pass (no first report, no report, no progress of a
// send), or what failed before. nil: alive.
func (s *Session) Expired(now time.Duration) error {
	s.seen = now
	limit := s.cfg.Housekeeping
	switch {
	case s.failed != nil:
	case !s.Started():
		if since, ok := s.waitingSince(); ok && now-since >= limit {
			what := ErrNoReport
			if s.asks {
				what = ErrSilent
			}
			s.failed = s.expired(what, now-since)
		}
	case now-s.lastReport >= limit:
		s.failed = s.expired(ErrSilent, now-s.lastReport)
	case s.left > 0 && now-s.lastSent >= limit:
		s.failed = s.expired(ErrSendStalled, now-s.lastSent)
	case s.offered && now-s.offeredAt >= limit:
		s.failed = s.expired(ErrSendStalled, now-s.offeredAt)
	}
	return s.failed
}

func (s *Session) expired(what error, after time.Duration) error {
	return &ExpiredError{Peer: "replica " + s.cfg.Peer, What: what, After: after}
}

// Deadline returns when Next or Expired may next change by time alone. What is
// due already is not a deadline: ask Next and Expired first, and if the socket
// does not take what is due, wait for the socket. A failed session's deadline
// lies in the past.
func (s *Session) Deadline(log Range) time.Duration {
	if s.failed != nil {
		return math.MinInt64
	}
	limit := s.cfg.Housekeeping
	if !s.Started() {
		if since, ok := s.waitingSince(); ok {
			return addTime(since, limit)
		}
		return math.MaxInt64
	}
	at := addTime(s.lastReport, limit)
	if s.offered {
		at = min(at, addTime(s.offeredAt, limit))
	}
	switch {
	case s.left > 0:
		at = min(at, addTime(s.lastSent, limit))
	case s.phase == sessionServing:
		at = earlier(at, addTime(s.lastSent, s.cfg.Heartbeat), s.seen)
		if log.End > s.sent {
			at = earlier(at, s.pacing.pacer().FreeAt(), s.seen)
		}
	}
	return at
}

// earlier returns the earlier of at and candidate, if the candidate is not due
// by seen already.
func earlier(at, candidate, seen time.Duration) time.Duration {
	if candidate <= seen {
		return at
	}
	return min(at, candidate)
}
