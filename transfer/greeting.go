package transfer

import (
	"errors"
	"slices"
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// wire is what a session knows of a replica that speaks the extended protocol.
// The replica asks with -1, the session answers with its hello at once, the
// replica sends its own, and the session serves it when the tail of its log was
// proved. A replica that reports an offset instead, because the hello came too
// late, is served plain and will know better next time.
type wire struct {
	greeted  bool    // our hello was given out
	extended bool    // the replica answered: what it sends is units with a head
	epochs   []Epoch // of our log; replaced, never edited
	control  []byte  // what goes out before the next frame
	payload  payload // of a message that is not whole yet
	kind     unitKind
	replica  Hello // what it said; meaningful from unproved on
	unproved bool  // its hello waits for Prove
	welcome  bool  // a frame is due, so that the replica knows that it was taken
	acks     Acks  // the last; Received is Session.acked
	trust
	questions
}

// payload collects a message's payload.
type payload struct {
	bytes []byte
	left  int
}

func (p *payload) expect(n int) { p.bytes, p.left = make([]byte, 0, n), n }

func (p *payload) missing() int { return p.left }

func (p *payload) take(b []byte) int {
	n := min(len(b), p.left)
	p.bytes = append(p.bytes, b[:n]...)
	p.left -= n
	return n
}

// greet puts our hello in the way of the first frame.
func (s *Session) greet(log Range) {
	if s.cfg.Hello == nil {
		return
	}
	s.greeted = true
	if !s.Trusted() {
		s.challenge()
		return
	}
	s.control = messageOf(unitHello, s.ownHello(log))
}

func (s *Session) ownHello(log Range) []byte {
	h := *s.cfg.Hello
	h.Log, h.Epochs = log, s.epochs
	return AppendHello(nil, h)
}

// Control returns bytes that have to go out before anything else, as far as
// they have not: our hello. Call ControlSent for what the socket took.
func (s *Session) Control() []byte { return s.control }

// ControlSent tells that n bytes of Control went out.
func (s *Session) ControlSent(n int, now time.Duration) {
	s.control = s.control[n:]
	s.lastSent = now
}

// extendedReport takes a head from a haengine replica.
func (s *Session) extendedReport(unit []byte, now time.Duration) error {
	r, err := parseExtendedReport(unit)
	if err != nil {
		return err
	}
	s.kind = r.kind
	switch {
	case !s.Trusted() && r.kind != unitHello && r.kind != unitRefusal:
		return s.unproven(ErrNoProof)
	case r.kind == unitRefusal:
		s.payload.expect(r.bytes)
		return nil
	case r.kind == unitSums:
		if err := s.expectQuestion(); err != nil {
			return err
		}
		s.payload.expect(r.bytes)
		return nil
	case r.kind == unitHello:
		if s.unproved || s.open || s.Started() {
			return refuse(RefusedProtocol, "replica %s sent a hello where none was due", s.cfg.Peer)
		}
		s.payload.expect(r.bytes)
		return nil
	case s.phase != sessionServing:
		return refuse(RefusedProtocol, "replica %s sent a report before its hello was answered", s.cfg.Peer)
	}
	if err := s.advance(r.acks.Received); err != nil {
		return err
	}
	if r.acks.Flushed < s.acks.Flushed {
		return &ReportError{Replica: s.cfg.Peer, Reported: r.acks.Flushed, From: s.acks.Flushed, To: s.acked}
	}
	s.acks, s.lastReport = r.acks, now
	return nil
}

// message takes a whole message.
func (s *Session) message(log Range, now time.Duration) error {
	b := s.payload.bytes
	s.payload = payload{}
	switch s.kind {
	case unitRefusal:
		return parseRefusal(b)
	case unitSums:
		return s.takeQuestion(b, log, now)
	}
	if !s.Trusted() {
		return s.takeOpening(b, log, now)
	}
	if err := s.takeProof(b); err != nil {
		return err
	}
	h, err := ParseHello(b)
	if err != nil {
		return err
	}
	s.replica = h
	if err := s.judge(log); err != nil {
		return err
	}
	s.unproved, s.lastReport = true, now
	return nil
}

// judge says why a replica cannot be served, whatever its log holds.
func (s *Session) judge(log Range) error {
	own, h := s.cfg.Hello, &s.replica
	switch {
	case version(*own, *h) == 0:
		return refuse(RefusedVersion, "replica %s speaks versions %d to %d of the extended protocol, we speak %d to %d", s.cfg.Peer, h.VersionMin, h.VersionMax, own.VersionMin, own.VersionMax)
	case !sameCluster(own.ClusterID, h.ClusterID):
		return refuse(RefusedCluster, "replica %s belongs to cluster %q, this master to %q", s.cfg.Peer, h.ClusterID, own.ClusterID)
	case own.ReplicaID == h.ReplicaID:
		return refuse(RefusedCluster, "replica %s has this master's own id %q", s.cfg.Peer, h.ReplicaID)
	case h.SegmentBytes != own.SegmentBytes:
		return refuse(RefusedSegments, "replica %s has segments of %d bytes, this master of %d", s.cfg.Peer, h.SegmentBytes, own.SegmentBytes)
	case !h.Log.Empty() && h.Log.End-h.TailFrom > TailBytes:
		return refuse(RefusedProtocol, "replica %s wants offsets %d to %d compared, %d bytes at most are", s.cfg.Peer, h.TailFrom, h.Log.End, TailBytes)
	case !h.Log.Empty() && h.Start != h.Log.End:
		return refuse(RefusedProtocol, "replica %s wants offset %d next, its log ends at %d", s.cfg.Peer, h.Start, h.Log.End)
	case h.TailFrom > max(h.Log.End-TailBytes, h.Log.Min, log.Min):
		return refuse(RefusedProtocol, "replica %s proves offsets %d to %d only of a log from %d to %d", s.cfg.Peer, h.TailFrom, h.Log.End, h.Log.Min, h.Log.End)
	case !log.Holds(h.Start) || h.Log.Empty() && h.Start != log.End && h.Start%own.SegmentBytes != 0:
		return refuse(RefusedRange, "replica %s needs offset %d next, the log holds %d to %d", s.cfg.Peer, h.Start, log.Min, log.End)
	}
	return nil
}

// Unproved returns the bytes [from, to) of our log whose checksum the replica's
// hello gave, and whether a hello waits for Prove.
func (s *Session) Unproved() (from, to int64, ok bool) {
	return s.replica.TailFrom, s.replica.Log.End, s.unproved
}

// Prove ends the wait that Unproved tells of: sum is the CRC-32C of our bytes.
// If the replica's are others, the error is a *RefusalError and the connection
// has to be closed; else the replica is served from here on.
func (s *Session) Prove(sum uint32, now time.Duration) error {
	invariant.Check(s.unproved, "only a hello is proved")
	s.unproved = false
	h := &s.replica
	switch {
	case s.failed != nil:
	case h.TailFrom < h.Log.End && sum != h.TailSum:
		s.failed = refuse(RefusedDiverged, "replica %s has other bytes than this master in offsets %d to %d", s.cfg.Peer, h.TailFrom, h.Log.End)
	default:
		h.FrameBytes = min(h.FrameBytes, s.cfg.Hello.FrameBytes)
		s.phase, s.welcome = sessionServing, true
		s.first, s.start, s.sent, s.acked = h.Start, h.Start, h.Start, h.Start
		s.acks = Acks{Damaged: notSaid}
		s.lastReport = now
	}
	return s.failed
}

// SetEpochs tells of what terms our log is. The list is not edited afterwards.
func (s *Session) SetEpochs(list []Epoch) {
	s.epochs = slices.Clip(list)
}

// Replica returns what a haengine replica said of itself; false for a plain one,
// and before its hello.
func (s *Session) Replica() (Hello, bool) { return s.replica, s.replica.ReplicaID != "" }

// Acks returns what a haengine replica last reported of its copy; of a plain
// one only Received is known.
func (s *Session) Acks() Acks {
	if !s.extended {
		return Acks{Received: s.acked, Flushed: notSaid, Damaged: notSaid}
	}
	return Acks{Received: s.acked, Flushed: s.acks.Flushed, Damaged: s.acks.Damaged}
}

func (s *Session) headerBytes() int64 {
	if s.extended {
		return ExtendedHeaderBytes
	}
	return FrameHeaderBytes
}

// AppendHeader appends the header of a frame that Next gave.
func (s *Session) AppendHeader(dst []byte, f Frame, source Source) []byte {
	if !s.extended {
		return AppendFrame(dst, f)
	}
	// Read before the frame was chosen, the end may have been overtaken by it.
	source.End = max(source.End, f.End())
	source.Confirmed = min(source.Confirmed, source.End)
	e, _ := epochAt(s.epochs, f.Offset)
	return appendExtendedHeader(dst, extendedHeader{Frame: f, kind: unitLog, epoch: e, source: source})
}

// LastWords returns what tells a haengine replica why its connection ends, to
// be sent before the close; nil if it cannot be told: a plain replica, a frame
// of which only a part went out, or a refusal of its own. One that has proved
// nothing learns the code alone: a sentence may tell of the log.
func (s *Session) LastWords(why error) []byte {
	var refusal *RefusalError
	if !s.extended || s.left > 0 || len(s.control) > 0 || errors.As(why, &refusal) && refusal.ByPeer {
		return nil
	}
	refusal = refusalOf(why)
	if !s.Trusted() && refusal.Code != RefusedAuth {
		refusal = refuse(refusal.Code, "%s; more is told to those who have proved to know the secret", refusal.Code)
	}
	return messageOf(unitRefusal, refusalPayload(refusal))
}
