package transfer

import (
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// offsetMax bounds the first offset an empty follower takes, so that sums of
// offsets and sizes stay far from overflow.
const offsetMax = 1 << 62

// Follower is the slave's side of one connection after another: what to
// report, where the bytes go, and whether the master is alive and has our
// history. Loop-confined.
//
// Invariant: what is stored continues our log without a gap, and only after
// every byte of the overlap window came again and was equal.
//
// RocketMQ: DefaultHAClient.
type Follower struct {
	cfg    FollowerConfig
	state  FollowerState
	reason string

	// What is remembered from one connection to the next.
	askLast bool // report 0: the master did not serve the first byte
	closes  int  // connections closed without a byte while asking for it
	peer    string
	ours    bool // our log has epochs
	peers   map[string]peerMemory

	connection
}

// connection is a follower's state on one connection.
type connection struct {
	live    bool
	dialect dialect
	extension
	header   Decoder
	first    int64 // the first report
	empty    bool  // our log held nothing and had no place
	verified bool  // the overlap, if any, came again and was equal
	overlap  int64 // stream bytes below are compared; our end at Begin
	next     int64 // offset of the next body byte; -1: the master chooses
	end      int64 // our log's end, published bytes only
	left     int32 // body bytes still to come of the frame
	stored   int64 // body bytes in place that are not published yet
	base     int64 // where an empty log begins
	starting bool  // base was just chosen
	master   int64 // highest frame end seen

	received bool // at least one byte came
	moved    bool // at least one body byte came
	grown    bool // at least one body was published

	begun       time.Duration
	lastRead    time.Duration
	progress    time.Duration // last overlap byte, or begun
	headerBegun time.Duration // first byte of an incomplete header
	heartbeatAt time.Duration // first heartbeat; meaningful with heartbeats > 0
	heartbeats  int

	reported  int64 // last report; -1: none
	lastWrite time.Duration
	seen      time.Duration // what is due by now was answered
	failed    error
}

// NewFollower returns a follower without a connection.
func NewFollower(cfg FollowerConfig) *Follower {
	invariant.Check(cfg.SegmentBytes > 0, "a follower knows its log's segment size")
	invariant.Check(len(cfg.Secret) == 0 || cfg.Extended, "a proof takes the extended protocol")
	cfg.Heartbeat = orDefault(cfg.Heartbeat, DefaultHeartbeat)
	cfg.Housekeeping = orDefault(cfg.Housekeeping, DefaultHousekeeping)
	if cfg.OverlapBytes == 0 {
		cfg.OverlapBytes = DefaultOverlapBytes
	}
	if cfg.FrameBytesLimit <= 0 {
		cfg.FrameBytesLimit = DefaultFrameBytesLimit
	}
	cfg.HelloWait = orDefault(cfg.HelloWait, DefaultHelloWait)
	cfg.PlainMemory = orDefault(cfg.PlainMemory, DefaultPlainMemory)
	return &Follower{cfg: cfg, peers: map[string]peerMemory{}}
}

// Begin starts a connection and returns the first report to send on it: -1 to
// ask for the extended protocol, else what beginPlain says.
func (f *Follower) Begin(log Range, now time.Duration) (report int64) {
	if f.cfg.Extended && now >= f.peers[f.peer].plainUntil {
		return f.ask(now)
	}
	return f.beginPlain(log, now)
}

// beginPlain starts RocketMQ's protocol.
//
// An empty log asks for everything by reporting 1: a master takes 0 for "your
// last segment", and the byte skipped is the top byte of a record's size, which
// is 0. If that brought nothing, the next connection reports 0. A log that
// holds data reports an offset up to OverlapBytes before its end, in the
// segment of its last byte and never 0, and compares what comes again. One that
// has to begin at an offset is refused at once: ask Expired before the report goes
// out.
func (f *Follower) beginPlain(log Range, now time.Duration) (report int64) {
	c := connection{
		live: true, header: NewHeaderDecoder(), reported: -1,
		begun: now, lastRead: now, progress: now, lastWrite: now, seen: now,
		end: log.End, overlap: log.End,
	}
	switch {
	case log.Empty() && log.End == 0:
		c.empty, c.first = true, 1
		c.next = 1
		if f.askLast || f.cfg.LastSegment {
			c.first, c.next = 0, -1
		}
		c.overlap = 0
	default:
		c.first = f.overlapStart(log)
		c.next = c.first
	}
	c.verified = c.empty || c.first == log.End
	f.connection = c
	switch {
	case c.empty && f.cfg.Elsewhere:
		f.failed = refuse(RefusedProtocol, "a RocketMQ master cannot be asked for a copy that begins at an offset, only for all it has or for its last segment")
		f.enter(FollowerRefused, f.failed.Error())
	case f.sticky():
	case c.verified:
		f.enter(FollowerTransferring, "")
	default:
		f.enter(FollowerNegotiating, "")
	}
	return c.first
}

// overlapStart returns the first report of a log that has a place.
func (f *Follower) overlapStart(log Range) int64 {
	if log.Empty() || f.cfg.OverlapBytes < 0 {
		return log.End
	}
	last := log.End - 1
	base := last - last%f.cfg.SegmentBytes
	return max(log.End-f.cfg.OverlapBytes, base, log.Min, 1)
}

// sticky tells whether the state was reached by evidence that a new connection
// alone does not undo.
func (f *Follower) sticky() bool { return f.state >= FollowerStalled }

func (f *Follower) enter(s FollowerState, reason string) { f.state, f.reason = s, reason }

// Want returns what the next bytes of the stream are. Bytes is 0 when the
// connection failed or there is none, and while the master waits for Prove, or a
// hello for its answer.
func (f *Follower) Want() Want {
	switch {
	case f.failed != nil || !f.live || f.challenged || f.dialect == dialectGreeted:
		return Want{}
	case f.payload.missing() > 0:
		return Want{Kind: WantHeader, Offset: f.next, Bytes: int64(f.payload.missing())}
	case f.left == 0:
		return Want{Kind: WantHeader, Offset: f.next, Bytes: int64(f.header.Missing())}
	case f.next < f.overlap:
		return Want{Kind: WantCompare, Offset: f.next, Bytes: min(int64(f.left), f.overlap-f.next)}
	default:
		return Want{Kind: WantStore, Offset: f.next, Bytes: int64(f.left)}
	}
}

// Header takes up to the missing bytes of a frame header from b and returns
// how many. When the header is whole it is checked: a *FrameError means that
// the connection must be closed, and nothing of the frame was taken. log is
// what our log holds now. Call it only when Want says WantHeader.
func (f *Follower) Header(b []byte, log Range, now time.Duration) (n int, err error) {
	invariant.Check(f.live && f.left == 0, "a header stands between two bodies")
	if f.failed != nil || len(b) == 0 {
		return 0, f.failed
	}
	if f.header.Held() == 0 {
		f.headerBegun = now
	}
	f.lastRead, f.received, f.starting = now, true, false
	if f.payload.missing() > 0 {
		n = f.payload.take(b)
		if f.payload.missing() == 0 {
			f.failed = f.message()
		}
		return n, f.failed
	}
	unit, n := f.header.Take(b)
	switch {
	case unit == nil:
	case f.dialect == dialectPlain:
		f.failed = f.accept(ParseFrame(unit), log, now)
	default:
		f.failed = f.unit(unit, log, now)
	}
	return n, f.failed
}

// accept checks a whole header and makes its body the next bytes.
func (f *Follower) accept(fr Frame, log Range, now time.Duration) error {
	if f.dialect == dialectPlain && fr.Offset == notSaid && f.cfg.Extended {
		f.peers[f.peer] = peerMemory{answers: true}
		return ErrHelloLate
	}
	if what := f.check(fr); what != nil {
		err := &FrameError{What: what, Frame: fr, Want: f.next, BytesLimit: f.cfg.FrameBytesLimit, SegmentBytes: f.cfg.SegmentBytes}
		f.enter(FollowerRefused, err.Error())
		return err
	}
	if f.gaveUp {
		// A hello would have come before it.
		f.gaveUp = false
		f.peers[f.peer] = peerMemory{plainUntil: addTime(now, f.cfg.PlainMemory)}
	}
	f.next = fr.Offset
	f.master = max(f.master, fr.End())
	if f.verified {
		f.enter(FollowerTransferring, "")
	}
	if fr.Bytes == 0 {
		if f.heartbeats == 0 {
			f.heartbeatAt = now
		}
		f.heartbeats++
		return nil
	}
	if f.empty && !f.moved {
		f.starting = true
		f.base = fr.Offset - fr.Offset%f.cfg.SegmentBytes
		f.end, f.overlap = fr.Offset, fr.Offset
	} else {
		invariant.Check(log.End == f.end, "the log ends where the follower published last")
	}
	f.moved = true
	f.left = fr.Bytes
	return nil
}

// check returns what is wrong with a header, or nil.
func (f *Follower) check(fr Frame) error {
	segment := f.cfg.SegmentBytes
	switch {
	case fr.Bytes < 0 || fr.Bytes > f.cfg.FrameBytesLimit:
		return ErrFrameSize
	case f.next >= 0 && fr.Offset != f.next:
		return ErrFrameOffset
	case f.next < 0 && (fr.Offset < 0 || fr.Offset > offsetMax || fr.Offset%segment != 0):
		return ErrFrameBase
	case int64(fr.Bytes) > segment-fr.Offset%segment:
		return ErrFrameBorder
	}
	return nil
}

// StartOffset tells an empty log where it begins: ok from the first header
// with a body until the next call that takes bytes. Start the log there, then,
// if SkipByte says so, publish one zero byte, before the body is read.
func (f *Follower) StartOffset() (base int64, ok bool) { return f.base, f.starting }

// SkipByte tells whether the byte before the first frame was not asked for and
// has to be published as 0 first.
func (f *Follower) SkipByte() bool { return f.starting && f.next == f.base+1 }

// Compared tells that the next n bytes of the stream were equal to ours. If
// the byte after them was not, differsAt is its offset, otherwise it is
// negative. The error is a *DivergedError: close the connection.
func (f *Follower) Compared(n, differsAt int64, now time.Duration) error {
	invariant.Check(n >= 0 && n <= int64(f.left) && f.next+n <= f.overlap, "only the overlap is compared")
	if f.failed != nil {
		return f.failed
	}
	f.lastRead = now
	f.next += n
	f.left -= int32(n)
	if n > 0 {
		f.progress = now
		if f.state == FollowerStalled {
			f.enter(FollowerNegotiating, "")
		}
	}
	if differsAt >= 0 {
		err := &DivergedError{Offset: differsAt, End: f.end}
		f.enter(FollowerDiverged, err.Error())
		f.failed = err
		return err
	}
	if f.next == f.overlap && !f.verified {
		f.verified = true
		f.enter(FollowerTransferring, "")
	}
	return nil
}

// Stored tells that n body bytes are in place at the offset Want gave. When
// the body is whole it returns how many bytes to publish, else 0: a replica
// holds whole bodies only.
func (f *Follower) Stored(n int64, now time.Duration) (publish int64) {
	invariant.Check(f.live && f.verified && n >= 0 && n <= int64(f.left) && f.next >= f.overlap, "only what continues our log is stored")
	f.lastRead, f.starting = now, false
	f.next += n
	f.left -= int32(n)
	f.stored += n
	if f.left > 0 || f.stored == 0 {
		return 0
	}
	publish, f.stored = f.stored, 0
	f.end += publish
	f.grown = true
	return publish
}

// Unpublished returns how many bytes are in place past the log's end. When the
// connection ends they must be zeroed before anyone is told an offset.
func (f *Follower) Unpublished() int64 { return f.stored }

// NextReport returns the report to send now: after progress, or when a
// heartbeat is due. Until the overlap is verified it repeats the first report,
// because nothing beyond it is known to be the master's. log is what our log
// holds now.
func (f *Follower) NextReport(log Range, now time.Duration) (report int64, ok bool) {
	f.seen = now
	if !f.live || f.failed != nil {
		return 0, false
	}
	if f.dialect != dialectPlain && !(f.dialect == dialectExtended && f.verified) {
		return 0, false
	}
	report = f.first
	if f.verified && (!f.empty || f.grown) {
		report = max(log.End, f.first)
	}
	return report, report > f.reported || now-f.lastWrite >= f.cfg.Heartbeat || f.acksMoved()
}

// Reported tells that a report was written.
func (f *Follower) Reported(offset int64, now time.Duration) {
	f.reported, f.lastWrite, f.told = max(f.reported, offset), now, f.acks
}

// State returns what the follower is doing.
func (f *Follower) State() FollowerState { return f.state }

// Reason returns a sentence that explains the state, or "".
func (f *Follower) Reason() string { return f.reason }

// MasterOffset returns the highest offset that the master showed to have on
// this connection: the end of its last frame, or what an extended frame said.
func (f *Follower) MasterOffset() int64 { return max(f.master, f.source.End) }
