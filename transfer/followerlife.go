package transfer

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// emptyCloses is how many connections in a row must be closed by the master
// without a byte before an empty follower believes that its request for the
// first byte was refused. One close may be a master being stopped, and taking
// it for a refusal would leave the history behind for good.
const emptyCloses = 2

// Expired returns why the connection has to end, or nil: an *ExpiredError when
// the master let its time pass, ErrFirstSegmentGone when an empty follower has
// to ask again, or what failed before. It also notices a stall, which is a
// state and no error. An empty follower that was sent nothing at all is only
// waiting: an empty master is silent.
func (f *Follower) Expired(now time.Duration) error {
	f.seen = now
	if !f.live || f.failed != nil {
		return f.failed
	}
	if f.dialect == dialectPlain && !f.verified && f.state != FollowerStalled && now-f.progress >= f.cfg.Heartbeat {
		f.enter(FollowerStalled, fmt.Sprintf("master has sent nothing past offset %d, our log ends at %d: it is behind us, has deleted what follows, or has another history", f.next, f.end))
	}
	limit := f.cfg.Housekeeping
	switch {
	case f.silent(now) && f.isPlain() && len(f.cfg.Secret) > 0:
		_ = f.refused(refuseAuth(ErrPlainPeer, "the master was silent for %v when it was asked for its proof: it is RocketMQ's, or a node with --wire plain; this node has a secret and follows only masters that prove to know it", now-f.begun))
	case f.silent(now) && !f.isPlain():
		f.failed = &ExpiredError{Peer: "master", What: ErrSilent, After: now - f.begun}
	case f.asksInVain() && now-f.heartbeatAt >= f.cfg.Heartbeat:
		f.failed = ErrFirstSegmentGone
	case f.header.Held() > 0 && now-f.headerBegun >= limit:
		f.failed = &ExpiredError{Peer: "master", What: ErrSilent, After: now - f.headerBegun}
	case !f.waiting() && now-f.lastRead >= limit:
		f.failed = &ExpiredError{Peer: "master", What: ErrSilent, After: now - f.lastRead}
	}
	return f.failed
}

// asksInVain tells whether the master answered our request for the first byte
// with nothing but heartbeats. The first alone proves nothing: a real master
// that was idle sends one before its first frame.
func (f *Follower) asksInVain() bool {
	return f.dialect == dialectPlain && f.empty && f.first == 1 && f.heartbeats > 0 && !f.moved
}

// waiting tells whether silence is in order.
func (f *Follower) waiting() bool { return f.dialect == dialectPlain && f.empty && !f.received }

// Deadline returns when NextReport, Expired or State may next change by time
// alone. What is due already is not a deadline: ask NextReport and Expired
// first. A failed connection's deadline lies in the past.
func (f *Follower) Deadline() time.Duration {
	switch {
	case !f.live:
		return math.MaxInt64
	case f.failed != nil:
		return math.MinInt64
	}
	at := earlier(math.MaxInt64, addTime(f.lastWrite, f.cfg.Heartbeat), f.seen)
	if f.dialect == dialectAsking && !f.received {
		at = earlier(at, addTime(f.begun, f.helloWait()), f.seen)
	}
	if !f.waiting() {
		at = min(at, addTime(f.lastRead, f.cfg.Housekeeping))
	}
	if f.header.Held() > 0 {
		at = min(at, addTime(f.headerBegun, f.cfg.Housekeeping))
	}
	if f.asksInVain() {
		at = min(at, addTime(f.heartbeatAt, f.cfg.Heartbeat))
	}
	if f.dialect == dialectPlain && !f.verified && f.state != FollowerStalled {
		at = min(at, addTime(f.progress, f.cfg.Heartbeat))
	}
	return at
}

// Ended tells that the connection is over, or that a dial failed, and why. It
// decides what the next Begin reports and which state is shown meanwhile: dial
// again as after a refusal if that is Diverged or Refused, else as after a
// loss. io.EOF means that the master closed.
func (f *Follower) Ended(err error, now time.Duration) {
	c := f.connection
	f.connection = connection{reported: -1}
	if !c.live {
		if !f.sticky() {
			f.enter(FollowerConnecting, reasonOf(err))
		}
		return
	}
	if c.empty && c.dialect == dialectPlain {
		f.remember(&c, err)
	}
	closed := errors.Is(err, io.EOF) && !c.received
	switch {
	case c.dialect == dialectAsking:
		f.unanswered(err)
		if !f.sticky() {
			f.enter(FollowerConnecting, reasonOf(err))
		}
	case f.state == FollowerDiverged || f.state == FollowerRefused:
	case f.state == FollowerStalled && (errors.Is(err, ErrSilent) || errors.Is(err, ErrRefused)):
	case closed && !c.empty:
		f.enter(FollowerRefused, fmt.Sprintf("master closed the connection without a byte after we asked for offset %d (our log ends at %d): it does not hold that offset, or refuses us", c.first, c.end))
	default:
		f.enter(FollowerConnecting, reasonOf(err))
	}
}

// remember decides how an empty log asks the next time.
func (f *Follower) remember(c *connection, err error) {
	switch {
	case c.first == 0:
		f.askLast, f.closes = false, 0
	case errors.Is(err, ErrFirstSegmentGone):
		f.askLast = true
	case errors.Is(err, io.EOF) && !c.received:
		f.closes++
		f.askLast = f.closes >= emptyCloses
	default:
		f.closes = 0
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, io.EOF) {
		return "master closed the connection"
	}
	return err.Error()
}
