package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// ErrDiffers means that a node whose log is known to differ from its master's was
// to become a master: what differs would be everybody's then.
var ErrDiffers = errors.New("this node's log is known to differ from its master's")

// ErrMaster means that a node which is a master already was to become one.
var ErrMaster = errors.New("this node is a master already")

// ErrEpochPast means that a node was to become a master in an epoch that is not
// above its log's last one: somebody else was elected since.
var ErrEpochPast = errors.New("the epoch is past")

// RoleChange is what a change of a node's role came to.
type RoleChange struct {
	Role      Role   `json:"role"`
	Epoch     int32  `json:"epoch"`
	EndOffset int64  `json:"end_offset"`
	Cut       string `json:"cut,omitempty"` // the file that keeps what was cut
}

// roles is a node's role, which may change while it runs.
type roles struct {
	sync.Mutex // one change at a time, and not beside Close
	ended      bool
}

// Role is what the node does now. Any goroutine.
func (e *Engine) Role() Role { return Role(e.role.Load()) }

// PromoteOptions say how a node becomes a master.
type PromoteOptions struct {
	Role Role // AsyncMaster or SyncMaster
	// NewEpoch lets a master begin another epoch; without it, or an Epoch,
	// promoting a master is refused.
	NewEpoch bool
	// Epoch is the number of the new epoch, from a coordinator that counts its
	// elections; it must be above the log's last one. A master in that very epoch
	// stays as it is. 0: the number after the last.
	Epoch int32
	// Force promotes a slave whose log is known to differ from its master's, too:
	// when nobody else is left.
	Force bool
}

// Promote makes a slave a master: it leaves its master, cuts a record that it
// has not got whole, makes what it holds durable, and begins an epoch before it
// takes the first put. The caller sees to it that the old master takes no more puts, or lets go
// of what they wrote: it does when it follows this node.
//
// A master with NewEpoch or a higher Epoch begins another epoch; puts wait
// meanwhile. With Options.Leased it then waits for that epoch's lease; see Renew.
// The error is ErrMaster, ErrEpochPast, ErrDiffers, ErrNoLease (its own epoch, whose lease has
// ended), ErrClosed, ErrOptions, or the log's; the role is as it was then, but
// that a slave has left its master and dials it again. The epoch's number may be
// used up: a disk that failed may have noted it.
//
// RocketMQ: AutoSwitchHAService.changeToMaster.
func (e *Engine) Promote(ctx context.Context, o PromoteOptions) (RoleChange, error) {
	if o.Role != AsyncMaster && o.Role != SyncMaster {
		return RoleChange{}, fmt.Errorf("role %v is no master's: %w", o.Role, ErrOptions)
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	if e.changing.ended {
		return RoleChange{}, ErrClosed
	}
	was, last := e.Role(), lastOf(*e.terms.Load()).Number
	var change RoleChange
	switch {
	case o.Epoch == 0 && was != Slave && !o.NewEpoch:
		return change, fmt.Errorf("%w, in epoch %d; a new epoch has to be asked for", ErrMaster, last)
	case o.Epoch != 0 && o.Epoch == last && was != Slave:
		if l := e.lease.Load(); l.ended() {
			return change, l.why()
		}
		return e.present(), nil
	case was == Slave && e.identityNow().Differs && !o.Force:
		return change, fmt.Errorf("%w: promote another one, or force it", ErrDiffers)
	case o.Epoch < 0, o.Epoch != 0 && o.Epoch <= e.highestEpoch():
		return change, fmt.Errorf("%w: epoch %d was asked for, epoch %d was seen", ErrEpochPast, o.Epoch, e.highestEpoch())
	}
	var err error
	if was == Slave {
		e.slave.Load().stop()
		if change.Cut, err = e.log.TakeOver(); err == nil {
			e.loadTerms()
			e.rings.restart()
			// Puts of the old master's that it acknowledged may be on its disk and
			// in this node's memory alone, and it will cut what this log does not have.
			err = e.log.Flush()
		}
		if err == nil {
			err = e.beginEpoch(o.Epoch)
		}
		if err == nil {
			err = e.trust()
		}
		if err != nil {
			return change, fmt.Errorf("promote: %w", errors.Join(err, e.follow(e.slave.Load().master)))
		}
		e.awaitLease()
	} else {
		release, err := e.holdPuts(ctx, func() {})
		if err != nil {
			return change, err
		}
		err = e.beginEpoch(o.Epoch)
		if err == nil && e.opts.Leased {
			e.endLease(e.lease.Load()) // its puts do not go on in another's
			e.awaitLease()
		}
		release()
		if err != nil {
			return change, fmt.Errorf("begin an epoch: %w", err)
		}
	}
	e.slave.Store(nil)
	e.role.Store(uint32(o.Role))
	e.changed(&change)
	return change, nil
}

// Follow makes the node a slave of the master at an address, HOST:PORT. A master
// takes no more puts from the call on; those that wait for replicas end at once,
// as not replicated. What this log holds and the new master does not is cut when
// that one's epochs tell so. A slave changes its master.
//
// RocketMQ: AutoSwitchHAService.changeToSlave.
func (e *Engine) Follow(ctx context.Context, address string) (RoleChange, error) {
	if err := e.checkMaster(address); err != nil {
		return RoleChange{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	if e.changing.ended {
		return RoleChange{}, ErrClosed
	}
	if s := e.slave.Load(); s != nil {
		s.stop()
	} else {
		// Waits end again and again, because puts may wait for room in a ring.
		release, err := e.holdPuts(ctx, e.rings.expireReplicaWaits)
		if err != nil {
			return RoleChange{}, err
		}
		defer release()
		open := func() {}
		if e.master != nil { // whom it serves, and up to where, changes with the role
			open = e.master.closeDoor(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "this node is no master any more; it follows " + address})
		}
		e.role.Store(uint32(Slave))
		if e.opts.Leased {
			e.lease.Load().until.Store(leaseOver) // no put of its time ends as confirmed
		}
		e.rings.expireReplicaWaits()
		open()
	}
	if err := e.follow(address); err != nil {
		return RoleChange{}, err
	}
	var change RoleChange
	e.changed(&change)
	return change, nil
}

// trust forgets what was found when this log was compared with a master's: from
// here on it is the one that others are compared with.
func (e *Engine) trust() error {
	id := e.identityNow()
	if id.Differs {
		e.opts.Logger.Warn("this log is known to differ from its last master's; it is the one that counts from here on")
	}
	if !id.Differs && !id.Unverified {
		return nil
	}
	return e.changeIdentity(func(id *identity) { id.Differs, id.Unverified = false, false })
}

// checkMaster says why nobody can be followed at an address.
func (e *Engine) checkMaster(address string) error {
	if err := checkAddress("master", address); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(address)
	switch {
	case host == "" || strings.ContainsAny(host, " \t") || port == "0":
		return fmt.Errorf("master %q: want HOST:PORT", address)
	case address == e.HAAddr().String():
		return fmt.Errorf("master %s is this node itself", address)
	}
	return nil
}

// follow starts a connection to a master. What this store began as a master is
// over: it would go on with other bytes in the same term, and what nobody else
// has of it is kept from consumers.
func (e *Engine) follow(address string) error {
	own := e.identityNow()
	doubtful := e.doubtful(address, own)
	if own.Term != "" || doubtful != own.Doubtful {
		if err := e.changeIdentity(func(id *identity) { id.Term, id.Doubtful = "", doubtful }); err != nil {
			return err
		}
	}
	s := newSlave(e, address)
	s.doubtful.Store(doubtful)
	e.slave.Store(s)
	if err := e.log.Writable(); err != nil {
		s.diskTrouble(err) // met before there was a slave to tell
	}
	s.start()
	return nil
}

// present is the role as it is.
func (e *Engine) present() RoleChange {
	return RoleChange{Role: e.Role(), Epoch: lastOf(*e.terms.Load()).Number, EndOffset: e.log.EndOffset()}
}

// changed tells of a change that was made.
func (e *Engine) changed(c *RoleChange) {
	now := e.present()
	now.Cut = c.Cut
	*c = now
	e.opts.Logger.Info("role changed", "role", c.Role.String(), "epoch", c.Epoch, "end_offset", c.EndOffset)
	e.events.send(Event{Kind: RoleChanged, Role: c.Role, Offset: c.EndOffset})
	e.progress.wake()
	e.moved(VisibleAppended)
}

// holdPuts keeps puts before their append until release is called, and waits
// for those that are in it.
func (e *Engine) holdPuts(ctx context.Context, meanwhile func()) (release func(), err error) {
	gate := make(chan struct{})
	e.held.Store(&gate)
	release = func() {
		e.held.Store(nil)
		close(gate)
	}
	if err := e.awaitAppends(ctx, meanwhile); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// awaitAppends waits until no put is before or in its append, and does
// something meanwhile.
func (e *Engine) awaitAppends(ctx context.Context, meanwhile func()) error {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for e.inflight.Load() > 0 {
		meanwhile()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// startEpoch begins a term if this master needs a new one: when the log's last
// is not its own, after an unclean stop, since it may have lost what a replica
// holds, and when a broker has written meanwhile, who notes no epoch.
func (e *Engine) startEpoch() error {
	list, own := e.log.Epochs(), e.identityNow()
	found := e.log.Info()
	if n := len(list); n > 0 && own.Term == termName(list[n-1].ID) && found.CleanShutdown && found.Untouched {
		return nil
	}
	return e.beginEpoch(0)
}

// beginEpoch begins a term of this node's at the log's end: of a given number above
// the last one's, or the one after the last. Number and id are durable then, as a
// term that is over after a power cut if that takes bytes before its start.
func (e *Engine) beginEpoch(number int32) error {
	last := e.highestEpoch()
	if number == 0 {
		if last == math.MaxInt32 {
			return errors.New("there is no epoch after the last one")
		}
		number = last + 1
	}
	next := commitlog.Epoch{Number: number, ID: newTermID(), Start: e.log.EndOffset()}
	// The number first: a power cut may take bytes before the epoch's start, and with
	// them the epoch, from the log, but a replica may know it. No other may ever have
	// its number.
	if err := e.changeIdentity(func(id *identity) { id.Term, id.EpochSeen = termName(next.ID), next.Number }); err != nil {
		return err
	}
	return e.addEpoch(next)
}

// highestEpoch is the number of the last epoch that this node has heard of. Its
// log may not have it: a master that took over was met, this log cut for it, and
// the connection lost before a byte of the new epoch came.
func (e *Engine) highestEpoch() int32 {
	return max(lastOf(*e.terms.Load()).Number, e.identityNow().EpochSeen)
}

// noteEpoch makes it durable that another node is in an epoch: this log may lose
// what it has of it.
func (e *Engine) noteEpoch(number int32) error {
	if number <= e.identityNow().EpochSeen {
		return nil
	}
	return e.changeIdentity(func(id *identity) { id.EpochSeen = max(id.EpochSeen, number) })
}

func termName(id uint64) string { return fmt.Sprintf("%016x", id) }
