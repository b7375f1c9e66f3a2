package engine

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/internal/invariant"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// Work per turn of the loop, so that a fast replica does not starve the others.
const (
	sendBytesPerTurn = 1 << 20
	readsPerTurn     = 16
)

// replica is the master's connection to one replica (RocketMQ HAConnection with
// its ReadSocketService and WriteSocketService). It carries out what its
// session decides. Loop-confined, as all fields unless they say otherwise.
type replica struct {
	e       *Engine
	host    *host
	index   int // in host.replicas
	conn    *reactor.Conn
	address netip.AddrPort // never changes
	session *transfer.Session
	member  *transfer.Member // nil until the first valid report
	timer   *reactor.Timer
	armed   time.Duration // when timer fires; never when it is not set

	claimed  int64         // its first report
	joinedAt time.Duration // when it made it
	proved   bool          // its acknowledgements may end waits; see counts
	identity string        // of whom it is a connection; set when it joins
	extended bool          // it speaks the extended protocol; set when it joins
	proving  bool          // its tail is being compared, or its question answered
	over     bool          // the connection is closed
	left     atomic.Bool   // the same, for work off the loop

	out     outgoing
	blocked bool // the socket is full, or this turn's share is used up

	inSync      atomic.Bool // stored by the loop and the review; read by status
	catchingUp  atomic.Bool // stored by the loop; read by status
	acked       atomic.Int64
	flushed     atomic.Int64 // -1: it does not say
	damaged     atomic.Int64 // -1: nothing is
	caughtUp    atomic.Int64 // time.Duration: when it last held all that there was
	lastReport  time.Duration
	endAtReport int64
	rate        rateMeter
}

// outgoing is the frame being sent. Its view keeps the segment mapped.
type outgoing struct {
	active     bool
	frame      transfer.Frame
	space      [transfer.ExtendedHeaderBytes]byte
	header     []byte // of space
	headerSent int
	bodySent   int
	view       commitlog.View
	bufs       [2][]byte
}

// Readable takes the replica's reports, then what they make possible.
func (r *replica) Readable(c *reactor.Conn) {
	now := r.host.loop.Now()
	for range readsPerTurn {
		n, err := c.Readv(r.host.readv[:])
		if n > 0 {
			log := r.e.served()
			r.session.SetEpochs(*r.e.terms.Load())
			if bad := r.session.Feed(r.host.read[:n], log, now); bad != nil {
				r.reported(now) // reports before the bad one count
				r.end(bad)
				return
			}
		}
		if err != nil {
			if errors.Is(err, reactor.ErrWouldBlock) {
				break
			}
			// The last reports and the hang-up may come in one event.
			r.reported(now)
			c.Close(err)
			return
		}
		if n < len(r.host.read) {
			break
		}
	}
	if from, to, ok := r.session.Unproved(); ok {
		r.prove(from, to)
	} else if q, ok := r.session.Question(); ok {
		r.answer(q)
	}
	switch {
	case !r.reported(now) || r.blocked:
	case r.mayRest() && len(r.session.Control()) == 0:
		r.rearm() // a first report begins the heartbeats
	default:
		r.send(now)
	}
}

// Writable goes on with what the socket had no room for.
func (r *replica) Writable(*reactor.Conn) {
	r.blocked = false
	r.send(r.host.loop.Now())
}

// Closed gives back all that the connection held.
func (r *replica) Closed(_ *reactor.Conn, err error) {
	r.leave(err)
}

// leave gives back all that the connection held; once.
func (r *replica) leave(err error) {
	if r.over {
		return
	}
	r.over = true
	r.left.Store(true)
	r.out.finish()
	r.timer.Stop()
	r.host.detach(r)
	r.host.m.departed.note(r, err)
	if r.member == nil {
		r.farewell(err)
		return
	}
	r.e.quorum.Leave(r.member)
	r.member = nil
	r.host.m.left(r)
	r.e.steady.info("left "+r.address.Addr().String(), "replica left", "replica", r.address.String(), "acked_offset", r.acked.Load(), "reason", sentence(err))
	r.e.events.send(Event{Kind: ReplicaLeft, Replica: r.address.String(), Offset: r.acked.Load(), Err: err})
}

func sentence(err error) string {
	var better explained
	switch {
	case errors.As(err, &better):
		return better.text
	case err == nil:
		return "closed"
	case errors.Is(err, io.EOF):
		return "the peer closed the connection"
	}
	return err.Error()
}

// reported takes over what the session has learned. It returns false if the
// connection was closed.
func (r *replica) reported(now time.Duration) bool {
	if !r.session.Started() {
		return true
	}
	acked := r.session.Acked()
	if r.member == nil {
		if err := r.join(acked, now); err != nil {
			r.end(err)
			return false
		}
	}
	acks := r.session.Acks()
	end := r.e.served().End
	invariant.Check(acked <= end, "a replica acknowledged what the log does not hold")
	r.acked.Store(acked)
	r.flushed.Store(acks.Flushed)
	r.noteDamage(acks.Damaged)
	r.noteCaughtUp(acked, end, now)
	r.noteSync(end)
	moved := acked != r.member.Acked(transfer.Received) || acks.Flushed > r.member.Acked(transfer.Flushed)
	if moved && r.counts(acked, now) {
		r.member.Ack(acked, acks.Flushed)
		r.e.complete(now)
	}
	return true
}

// mayRest tells that a report is no reason to send: its host rests, and the
// replica was sent what there was before that.
func (r *replica) mayRest() bool {
	return r.host.resting.Load() && r.session.SentOffset() >= r.host.sent
}

// counts tells whether the replica's word may end waits. Its first report is a
// claim that nothing proves: a slave of another history makes it too, before it
// has compared a byte, and one that is started at a later segment never had what
// lies before. So a put that was waiting when the replica joined is ended by it
// only after it acknowledged bytes of this connection; without such a put, or
// when the longest of them is over, there is nothing to be wronged.
func (r *replica) counts(acked int64, now time.Duration) bool {
	if r.proved {
		return true
	}
	start, ok := r.session.StartOffset()
	if !ok {
		return false
	}
	wholeLog := start <= max(r.claimed, r.e.served().Min, 1) // 1 skips one byte, a known zero
	r.proved = acked > r.claimed && wholeLog ||
		r.e.rings.waiting() == 0 ||
		now-r.joinedAt >= time.Duration(r.e.slaveTimeout.Load())
	return r.proved
}

func (r *replica) join(acked int64, now time.Duration) error {
	r.identify(acked)
	member, err := r.enlist()
	if err != nil {
		return err
	}
	flushed := r.session.Acks().Flushed
	r.member = member
	r.joinedAt = now
	r.acked.Store(acked)
	r.flushed.Store(flushed)
	r.caughtUp.Store(int64(now))
	r.session.SetPace(transfer.Pace(r.e.paces.of(r.identity)))
	member.Ack(0, min(flushed, 0))
	if r.counts(acked, now) {
		member.Ack(acked, flushed)
	}
	r.host.m.joined(r)
	r.e.steady.info("joined "+r.address.Addr().String(), "replica joined", "replica", r.address.String(), "replica_id", r.identity, "mode", r.mode(), "offset", acked)
	r.e.events.send(Event{Kind: ReplicaJoined, Replica: r.address.String(), Offset: acked})
	return nil
}

// enlist makes the replica a member of the quorum. One that only its address
// names may be a haengine replica that is connected, too; it counts for nothing
// then.
func (r *replica) enlist() (*transfer.Member, error) {
	q, host := r.e.quorum, r.address.Addr().String()
	if r.extended || r.e.opts.PlainIdentity == IdentityConnection {
		return q.Join(r.identity, host)
	}
	return q.JoinUnnamed(host)
}

// noteCaughtUp keeps the time when the replica last held all that there was: if
// it holds what the log had at its previous report, that was the time then.
func (r *replica) noteCaughtUp(acked, end int64, now time.Duration) {
	switch {
	case acked >= end:
		r.caughtUp.Store(int64(now))
	case acked >= r.endAtReport && r.lastReport > 0:
		r.caughtUp.Store(int64(r.lastReport))
	}
	r.lastReport, r.endAtReport = now, end
}

func (r *replica) noteSync(end int64) {
	in := end-r.acked.Load() < r.e.opts.MaxLag
	if r.inSync.Swap(in) == in {
		return
	}
	kind := ReplicaOutOfSync
	if in {
		kind = ReplicaInSync
	}
	r.e.events.send(Event{Kind: kind, Replica: r.address.String(), Offset: r.acked.Load()})
}

// send asks the session for frames and sends them until there are none, the
// socket is full, or the turn's share is used.
func (r *replica) send(now time.Duration) {
	if r.over {
		return
	}
	budget := sendBytesPerTurn
	for {
		if !r.out.active && len(r.session.Control()) == 0 {
			log := r.e.served()
			r.session.SetEpochs(*r.e.terms.Load()) // after the end: a term is there before its bytes
			frame, ok := r.session.Next(log, now)
			if !ok {
				break
			}
			if err := r.begin(frame); err != nil {
				r.end(err)
				return
			}
		}
		n, err := r.push(now)
		if err != nil && !errors.Is(err, reactor.ErrWouldBlock) {
			if errors.Is(err, reactor.ErrShortFile) || errors.Is(err, reactor.ErrFault) {
				err = r.e.log.Fault(r.out.frame.Offset, err)
			}
			r.conn.Close(err)
			return
		}
		budget -= n
		if r.blocked = err != nil || budget <= 0; r.blocked {
			break
		}
	}
	r.catchingUp.Store(r.session.CatchingUp())
	r.conn.WantWrite(r.blocked)
	r.rearm()
}

// push hands the kernel as much of the frame as it takes in one call.
func (r *replica) push(now time.Duration) (int, error) {
	o := &r.out
	if control := r.session.Control(); len(control) > 0 {
		o.bufs[0] = control
		n, err := r.conn.Writev(o.bufs[:1])
		r.session.ControlSent(n, now)
		return n, err
	}
	n, err := o.write(r.conn, r.e.opts.SendfileMinBytes)
	if n > 0 {
		head := min(n, len(o.header)-o.headerSent)
		body := n - head
		o.headerSent += head
		o.bodySent += body
		r.session.Sent(o.frame, int32(body), now)
		r.rate.add(int64(body), now)
	}
	if o.headerSent == len(o.header) && o.bodySent == int(o.frame.Bytes) {
		o.finish()
	}
	return n, err
}

// begin makes a frame the next to go out.
func (r *replica) begin(f transfer.Frame) error {
	o := &r.out
	o.active, o.frame, o.headerSent, o.bodySent = true, f, 0, 0
	var source transfer.Source
	if r.extended {
		source = r.e.source()
	}
	o.header = r.session.AppendHeader(o.space[:0], f, source)
	if f.Bytes == 0 {
		return nil
	}
	view, err := r.e.log.View(f.Offset, f.Offset+int64(f.Bytes))
	if err != nil {
		o.active = false
		return fmt.Errorf("read %d bytes at offset %d for a replica: %w", f.Bytes, f.Offset, err)
	}
	o.view = view
	return nil
}

// write makes one system call: a small frame goes by one writev, a large one's
// body by sendfile behind a header that waits for it.
func (o *outgoing) write(c *reactor.Conn, sendfileMin int) (int, error) {
	fd, position := -1, int64(0)
	if o.frame.Bytes > 0 {
		fd, position = o.view.File()
	}
	large := fd >= 0 && int(o.frame.Bytes) >= sendfileMin
	switch {
	case large && o.headerSent < len(o.header):
		o.bufs[0] = o.header[o.headerSent:]
		return c.WritevMore(o.bufs[:1])
	case large:
		return c.Sendfile(fd, position+int64(o.bodySent), int(o.frame.Bytes)-o.bodySent)
	case o.frame.Bytes == 0:
		o.bufs[0] = o.header[o.headerSent:]
		return c.Writev(o.bufs[:1])
	case o.headerSent < len(o.header):
		o.bufs[0], o.bufs[1] = o.header[o.headerSent:], o.view.Bytes()
		return c.Writev(o.bufs[:2])
	}
	o.bufs[0] = o.view.Bytes()[o.bodySent:]
	return c.Writev(o.bufs[:1])
}

// finish gives the segment back.
func (o *outgoing) finish() {
	if o.active && o.frame.Bytes > 0 {
		o.view.Release()
		o.view = commitlog.View{}
	}
	o.active, o.bufs = false, [2][]byte{}
}

// due runs when time alone may have changed what the session wants.
func (r *replica) due() {
	now := r.host.loop.Now()
	r.armed = never
	if err := r.session.Expired(now); err != nil {
		r.end(err)
		return
	}
	if !r.blocked {
		r.send(now)
		return
	}
	r.rearm()
}

// rearm sets the timer to the session's next deadline. A later deadline than
// the armed one is left to the timer to find out, so that frames and reports do
// not set timers.
func (r *replica) rearm() {
	if at := r.session.Deadline(r.e.served()); at < r.armed {
		r.armed = at
		r.timer.ResetAt(at)
	}
}

// status describes the replica. Any goroutine.
func (r *replica) status(end int64) ReplicaStatus {
	acked := r.acked.Load()
	s := ReplicaStatus{
		Address: r.address.String(), ReplicaID: r.identity, Mode: r.mode(),
		AckedOffset: acked, LagBytes: max(end-acked, 0), BytesPerSecond: r.rate.perSecond(reactor.Now()),
		Phase: r.phase(), Pace: r.e.paces.of(r.identity),
	}
	if flushed := r.flushed.Load(); flushed >= 0 {
		s.FlushedOffset = &flushed
	}
	if damaged := r.damaged.Load(); damaged >= 0 {
		s.DamagedOffset = &damaged
	}
	if s.LagBytes > 0 {
		s.LagSeconds = (reactor.Now() - time.Duration(r.caughtUp.Load())).Seconds()
	}
	s.InSync = s.LagBytes < r.e.opts.MaxLag
	if r.e.quorum.Hidden(r.identity) {
		s.InSync, s.Reason = false, "not counted: a haengine replica is connected from the same address, and this may be the same one (plain-identity connection tells them apart)"
	} else if s.InSync {
		s.Reason = fmt.Sprintf("%d bytes behind, less than max-lag %d", s.LagBytes, r.e.opts.MaxLag)
	} else {
		s.Reason = fmt.Sprintf("%d bytes behind, max-lag is %d", s.LagBytes, r.e.opts.MaxLag)
	}
	return s
}
