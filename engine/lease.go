package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
	"golang.org/x/sys/cpu"
)

// ErrNoLease means that this master may not act as one: its lease has ended, or
// it was not given one yet.
var ErrNoLease = errors.New("this master holds no lease")

// Values of lease.until that are no time of reactor.Now's clock.
const (
	leaseOver    = -1            // ended, for good
	leasePending = 0             // not given yet
	leaseForever = math.MaxInt64 // none is asked for
)

// lease is a master's term of office in one epoch. Each epoch has one of its
// own, and each put belongs to the lease that it began in, so that one which is
// late finds its lease ended, whatever became of the node since.
//
// until only grows while the lease lasts, and never changes once it is over.
// Any goroutine.
type lease struct {
	_     cpu.CacheLinePad // every put reads it: no neighbour may be written often
	epoch int32
	until atomic.Int64 // time.Duration of reactor.Now's clock, or one of the values above
	_     cpu.CacheLinePad
}

func newLease(epoch int32, until int64) *lease {
	l := &lease{epoch: epoch}
	l.until.Store(until)
	return l
}

// lasts asks the clock, not a timer: a process that was frozen wakes up with
// its timers late. Where no lease is asked for, no clock is read.
func (l *lease) lasts() bool {
	until := l.until.Load()
	return until == leaseForever || int64(reactor.Now()) < until
}

func (l *lease) ended() bool { return l.until.Load() != leasePending && !l.lasts() }

// why says what is wrong with a lease that does not last.
func (l *lease) why() error {
	if l.until.Load() == leasePending {
		return fmt.Errorf("%w: none was given to it in epoch %d yet", ErrNoLease, l.epoch)
	}
	return fmt.Errorf("%w: its lease of epoch %d has ended, it needs a new epoch", ErrNoLease, l.epoch)
}

// Renew gives a master its lease, or a longer one, up to a time that must come
// from time.Now: it counts on the monotonic clock, and a wall clock that is set
// changes nothing. epoch is the one that the lease was won for. Only with
// Options.Leased.
//
// Whoever renews takes the time before the coordinator is asked, and adds less
// than the coordinator's own time to live: the lease has to end here before it
// can be someone else's. The monotonic clock stands still while a whole machine
// is suspended; a machine that may be must not hold leases.
//
// When the time is over without another Renew the node stops being a master by
// itself: puts are refused, those that wait end as FLUSH_SLAVE_TIMEOUT, replicas
// are closed and kept out, the confirmed offset stands still, and the state is
// StateFenced. Nothing is handed out as PUT_OK afterwards, even when its record
// was on enough replicas before. That lease cannot be renewed; Follow makes the
// node a slave, Promote begins a new epoch.
//
// A time that is earlier than the present one changes nothing. The error is
// ErrNoLease, ErrNotMaster, ErrClosed or ErrOptions. Any goroutine.
func (e *Engine) Renew(epoch int32, until time.Time) error {
	switch {
	case !e.opts.Leased:
		return fmt.Errorf("%w: a node that was opened without Leased needs no lease", ErrOptions)
	case !strings.Contains(until.String(), " m="): // how time.Time tells of a monotonic reading
		return fmt.Errorf("%w: a lease until %v has no monotonic time; make it from time.Now", ErrOptions, until)
	case e.closed.Load():
		return ErrClosed
	case e.Role() == Slave:
		return ErrNotMaster
	}
	l := e.lease.Load()
	if l.epoch != epoch {
		return fmt.Errorf("%w of epoch %d: it is in epoch %d", ErrNoLease, epoch, l.epoch)
	}
	now := reactor.Now() // before the other clock is read: what passes between makes the lease shorter
	at := int64(now + min(time.Until(until), leaseForever-1-now))
	for {
		old := l.until.Load()
		switch {
		case old != leasePending && old <= int64(now), at <= int64(now) && old == leasePending:
			e.endLease(l)
			return l.why()
		case at <= old:
			return nil
		case !l.until.CompareAndSwap(old, at):
			continue
		}
		e.leaseTimer.Wake()
		if old == leasePending {
			e.opts.Logger.Info("this master holds a lease", "epoch", epoch)
			state, _ := e.state()
			e.events.send(Event{Kind: StateChanged, State: state})
		}
		return nil
	}
}

// noLease is the lease of a node that has just been opened.
func (o *Options) noLease() *lease {
	if o.Leased {
		return newLease(0, leaseOver)
	}
	return newLease(0, leaseForever)
}

// awaitLease begins a new epoch's lease, which Renew has yet to give.
func (e *Engine) awaitLease() {
	if e.opts.Leased {
		e.lease.Store(newLease(lastOf(*e.terms.Load()).Number, leasePending))
	}
}

// leaseEnded tells whether this is a master that has to keep replicas out.
func (e *Engine) leaseEnded() bool { return e.lease.Load().ended() && e.Role() != Slave }

// watchLease makes the waker that keeps a timer on the present lease. The timer
// is there so that its end is noticed in every state and without traffic; what
// is handed out asks the clock itself.
func (e *Engine) watchLease() *reactor.Waker {
	loop := e.group.Loop(0)
	var timer *reactor.Timer
	look := func() {
		l := e.lease.Load()
		switch until := l.until.Load(); {
		case until == leaseOver, until == leasePending, until == leaseForever:
		case l.lasts():
			timer.ResetAt(time.Duration(until))
		default:
			e.endLease(l)
		}
	}
	timer = loop.NewTimer(look)
	return loop.NewWaker(look)
}

// endLease ends a lease for good, if nobody has. Any goroutine, loops too.
func (e *Engine) endLease(l *lease) {
	if l.until.Swap(leaseOver) == leaseOver {
		return
	}
	why := l.why()
	e.opts.Logger.Warn("puts are refused and replicas are kept out", "epoch", l.epoch, "confirmed_offset", e.confirmed.Load(), "reason", why.Error())
	e.rings.stop()
	if e.master != nil {
		e.master.end(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: why.Error()})
	}
	e.events.send(Event{Kind: StateChanged, State: StateFenced, Err: why})
	e.progress.wake()
}
