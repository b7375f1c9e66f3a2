package transfer

import (
	"errors"
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// dialect is how far a follower's connection has come with its protocol.
type dialect uint8

const (
	dialectPlain    dialect = iota // RocketMQ's
	dialectAsking                  // -1 was sent; with a secret until the master has proved to know it
	dialectGreeted                 // the master's hello is here and waits for Answer
	dialectExtended                // ours went out
)

// peerMemory is what is remembered of a master's address.
type peerMemory struct {
	plainUntil time.Duration // it does not answer -1: do not ask before that
	answers    bool          // it does, or did: silence is the network's before it is its own
	unanswered int           // connections in a row that it was silent on
}

// peersMax bounds the memory: a name has few addresses at once.
const peersMax = 64

// silencesBelieved is how many connections in a row a master that is known to
// have answered before has to leave unanswered until it is taken for RocketMQ's.
// A close says nothing: RocketMQ's masters are silent, and what stands before a
// master that is down may close.
const silencesBelieved = 3

// extension is a follower's state on a connection that asked for the extended
// protocol.
type extension struct {
	payload payload // of a message that is not whole yet
	kind    unitKind
	proving
	gaveUp bool   // it was asked in vain; remembered once a plain frame shows that it works
	hello  Hello  // the master's
	source Source // of its last frame
	epoch  Epoch  // of its last frame
	last   Epoch  // of our log, or of its last frame; Number 0: none
	acks   Acks   // what the next report says, but for Received
	told   Acks   // what the last one said
}

// SetPeer names the address that the next connection goes to. ours tells that our
// log has epochs, and so came from masters that answer.
func (f *Follower) SetPeer(address string, ours bool) {
	f.ours = ours
	if _, known := f.peers[address]; !known && len(f.peers) >= peersMax {
		clear(f.peers)
	}
	f.peer = address
}

// ask begins a connection with -1.
func (f *Follower) ask(now time.Duration) int64 {
	f.connection = connection{
		live: true, dialect: dialectAsking, header: newDecoder(ExtendedHeaderBytes, nil), reported: notSaid, first: helloAsked,
		begun: now, lastRead: now, progress: now, lastWrite: now, seen: now,
	}
	f.acks.Damaged, f.told.Damaged = notSaid, notSaid
	if !f.sticky() {
		f.enter(FollowerNegotiating, "")
	}
	return helloAsked
}

// helloWait is how long a hello is waited for. A master that has answered
// before gets a heartbeat's time. In either case it is over before the
// connection is given up as silent.
func (f *Follower) helloWait() time.Duration {
	wait := f.cfg.HelloWait
	if f.peers[f.peer].answers || f.ours {
		wait = max(wait, f.cfg.Heartbeat)
	}
	return min(wait, f.cfg.Housekeeping/2)
}

// silent tells whether a master has let the time for its hello pass.
func (f *Follower) silent(now time.Duration) bool {
	return f.dialect == dialectAsking && !f.received && now-f.begun >= f.helloWait()
}

// FallBack begins RocketMQ's protocol on a connection whose master has let the
// time for its hello pass, and returns the first report to send. log is what our
// log holds now, whatever is acknowledged of it. Ask it before NextReport.
func (f *Follower) FallBack(log Range, now time.Duration) (report int64, ok bool) {
	if !f.live || f.failed != nil || !f.silent(now) || !f.isPlain() || len(f.cfg.Secret) > 0 {
		return 0, false
	}
	report = f.beginPlain(log, now)
	f.gaveUp = true
	return report, true
}

// isPlain tells whether a silent master is to be taken for RocketMQ's.
func (f *Follower) isPlain() bool {
	m := f.peers[f.peer]
	return !m.answers && !f.ours || m.unanswered+1 >= silencesBelieved
}

// unanswered remembers that a connection ended before a hello came.
func (f *Follower) unanswered(err error) {
	if errors.Is(err, ErrSilent) {
		m := f.peers[f.peer]
		m.unanswered++
		f.peers[f.peer] = m
	}
}

// unit takes a head from a master that was asked.
func (f *Follower) unit(b []byte, log Range, now time.Duration) error {
	h, err := parseExtendedHeader(b)
	switch {
	case err != nil:
		f.enter(FollowerRefused, err.Error())
		return err
	case h.kind != unitLog:
		if h.kind == unitHello && f.dialect != dialectAsking {
			return f.refused(refuse(RefusedProtocol, "the master sent a second hello"))
		}
		if h.kind == unitSums {
			return f.refused(refuse(RefusedProtocol, "the master answered what it was not asked"))
		}
		f.kind = h.kind
		f.payload.expect(int(h.Bytes))
		return nil
	case f.dialect != dialectExtended:
		return f.refused(refuse(RefusedProtocol, "the master sent log before its hello"))
	case h.source.Confirmed < f.source.Confirmed, h.epoch.Number < f.epoch.Number, h.epoch.Number == f.epoch.Number && h.epoch != f.epoch && f.epoch.Number != 0:
		return f.refused(refuse(RefusedProtocol, "the master went back: epoch %d after %d, confirmed %d after %d", h.epoch.Number, f.epoch.Number, h.source.Confirmed, f.source.Confirmed))
	}
	if err := f.follows(h.epoch); err != nil {
		return f.refused(err)
	}
	f.verified = true // it has compared our tail
	if err := f.accept(h.Frame, log, now); err != nil {
		return err
	}
	f.source, f.epoch = h.source, h.epoch
	return nil
}

// follows says why a frame's term cannot continue the terms of our log: their
// bytes would be two histories.
func (f *Follower) follows(e Epoch) error {
	last, known := f.last, f.last.Number > 0
	switch {
	case known && e.Number < last.Number, known && e.Number == last.Number && !e.same(last):
		return refuse(RefusedDiverged, "the master sends epoch %d (id %016x from offset %d), our last is %d (id %016x from offset %d)", e.Number, e.ID, e.Start, last.Number, last.ID, last.Start)
	case known && e.Number > last.Number && e.Start < f.next && f.epoch.Number == 0:
		return refuse(RefusedDiverged, "the master's epoch %d begins at offset %d, our log without it ends at %d", e.Number, e.Start, f.next)
	}
	if e.Number > 0 {
		f.last = e
	}
	return nil
}

// message takes a whole message.
func (f *Follower) message() error {
	b := f.payload.bytes
	f.payload = payload{}
	if f.kind == unitRefusal {
		return f.refused(f.hearsay(parseRefusal(b), f.cfg.Secret))
	}
	h, err := f.helloOf(b)
	if err != nil {
		f.enter(FollowerRefused, err.Error())
		return err
	}
	f.peers[f.peer] = peerMemory{answers: true}
	if !f.challenged {
		f.hello, f.dialect = h, dialectGreeted
	}
	return nil
}

// helloOf takes the payload of a hello, or of what stands before it where there
// is a secret: then Prove is due.
func (f *Follower) helloOf(b []byte) (Hello, error) {
	if f.asked {
		if err := f.takeHello(b, f.cfg.Secret); err != nil {
			return Hello{}, err
		}
	} else if waits, err := f.takeFirst(b, f.cfg.Secret); waits || err != nil {
		return Hello{}, err
	}
	return ParseHello(b)
}

// Challenged tells that the master wants to be proved that we know the secret,
// or should want it: Prove is due.
func (f *Follower) Challenged() bool { return f.challenged }

// Prove returns the bytes that prove to the master that we know the secret; its
// hello comes next. nonce is drawn at random. The error is a *RefusalError with
// RefusedAuth, for Refuse: one of both has no secret.
func (f *Follower) Prove(nonce Nonce, now time.Duration) ([]byte, error) {
	invariant.Check(f.challenged, "only a challenge is answered")
	f.lastWrite, f.lastRead = now, now
	return f.prove(f.cfg.Secret, nonce)
}

// refused enters the state that a refusal stands for.
func (f *Follower) refused(err error) error {
	state := FollowerRefused
	var r *RefusalError
	if errors.As(err, &r) {
		switch r.Code {
		case RefusedDiverged:
			state = FollowerDiverged
		case RefusedRange:
			state = FollowerStalled
		case RefusedStopping:
			f.failed = err
			return err // no state of its own: it ends, and is tried again
		}
	}
	f.enter(state, err.Error())
	f.failed = err
	return err
}

// Greeting returns the master's hello while it waits for Answer or Refuse.
func (f *Follower) Greeting() (Hello, bool) { return f.hello, f.dialect == dialectGreeted }

// Answer returns the bytes that answer the master's hello. own is what our node
// says of itself after whatever Align wanted cut is gone: frames follow from
// own.Start on.
func (f *Follower) Answer(own Hello, now time.Duration) []byte {
	invariant.Check(f.dialect == dialectGreeted, "a hello is answered once")
	f.dialect = dialectExtended
	f.empty = own.Log.Empty() && own.Log.End == 0
	f.last = Epoch{}
	if n := len(own.Epochs); n > 0 {
		f.last = own.Epochs[n-1]
	}
	f.cfg.SegmentBytes = own.SegmentBytes // an empty log may have taken the master's
	f.first, f.next, f.end, f.overlap = own.Start, own.Start, own.Start, own.Start
	f.reported = notSaid
	f.lastWrite, f.lastRead = now, now
	hello := AppendHello(nil, own)
	if f.proved {
		hello = f.said.prove(f.cfg.Secret, proofReplica, hello)
		f.said = nil
	}
	return appendReply(nil, unitHello, hello)
}

// Refuse returns the bytes that tell a haengine master why it is not followed
// any more, or nil; close the connection after them.
func (f *Follower) Refuse(why error) []byte {
	if f.failed != nil || f.dialect != dialectGreeted && f.dialect != dialectExtended && !f.met {
		return nil
	}
	r := refusalOf(why)
	_ = f.refused(r)
	return appendReply(nil, unitRefusal, refusalPayload(r))
}

// SetAcks tells what the next reports say of the copy beside its end: what of
// it is checked and durable, and where damage was found (-1: none).
func (f *Follower) SetAcks(flushed, damaged int64) {
	f.acks.Flushed, f.acks.Damaged = max(flushed, f.told.Flushed), damaged
}

func (f *Follower) acksMoved() bool {
	return f.dialect == dialectExtended && (f.acks.Flushed > f.told.Flushed || f.acks.Damaged != f.told.Damaged)
}

// AppendReport appends the report of an offset that Begin or NextReport gave.
func (f *Follower) AppendReport(dst []byte, offset int64) []byte {
	if f.dialect != dialectExtended {
		return AppendReport(dst, offset)
	}
	f.acks.Flushed = min(f.acks.Flushed, offset)
	return appendExtendedReport(dst, extendedReport{kind: unitLog, acks: Acks{Received: offset, Flushed: f.acks.Flushed, Damaged: f.acks.Damaged}})
}

// HeaderBytes is the size of what stands before a frame's body.
func (f *Follower) HeaderBytes() int { return f.header.size }

// Plain tells whether the connection speaks RocketMQ's protocol.
func (f *Follower) Plain() bool { return f.live && f.dialect == dialectPlain }

// Extended tells whether the connection speaks the extended protocol.
func (f *Follower) Extended() bool { return f.dialect == dialectExtended }

// Source returns what the master's last extended frame said of it.
func (f *Follower) Source() Source { return f.source }

// Epoch returns the term of the bytes that come now; Number 0: not known.
func (f *Follower) Epoch() Epoch { return f.epoch }
