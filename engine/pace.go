package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// Pace limits what a replica is sent on each of its connections, in bytes a
// second, frame headers included; 0: no limit. A replica is live until it is
// more than 16 MiB behind, and then catching up until all that is left goes out
// in one frame. Each limit holds in its phase only, so that a limit for catching
// up never slows a replica that puts wait for. One below the rate at which
// producers write keeps a replica from ever getting there.
type Pace struct {
	Live    int64 `json:"live_limit_bytes_per_second"`
	CatchUp int64 `json:"catchup_limit_bytes_per_second"`
}

// KeepRate leaves a rate of a Pace as it is.
const KeepRate = -1

// ErrUnknownReplica means that there is no replica of an identity.
var ErrUnknownReplica = errors.New("no such replica")

// ErrPacesFull means that no more replicas may have a pace of their own.
var ErrPacesFull = errors.New("too many replicas with a pace of their own")

// pacesMax bounds the paces that are kept for replicas, gone ones included.
const pacesMax = transfer.MembersMax

// PhaseLive and PhaseCatchUp are the phases of a replica; see Pace.
const (
	PhaseLive    = "live"
	PhaseCatchUp = "catch-up"
)

// paces is how fast each replica may be sent. Any goroutine.
type paces struct {
	mu  sync.Mutex
	all Pace
	own map[string]Pace // by identity: of those that are not as all; outlives connections
}

func (p *paces) init(all Pace) { p.all, p.own = all, map[string]Pace{} }

// of returns the pace of a replica.
func (p *paces) of(identity string) Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own, ok := p.own[identity]; ok {
		return own
	}
	return p.all
}

// list returns the pace of those that have none of their own, and a copy of the
// others.
func (p *paces) list() (all Pace, own map[string]Pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all, maps.Clone(p.own)
}

// setAll changes everybody's pace.
func (p *paces) setAll(to Pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = to.over(p.all)
	for identity, own := range p.own {
		p.note(identity, to.over(own))
	}
}

// setOwn changes one replica's pace.
func (p *paces) setOwn(identity string, to Pace) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.own[identity]
	if !known {
		was = p.all
	}
	if to = to.over(was); to != p.all && !known && len(p.own) >= pacesMax {
		return fmt.Errorf("%d replicas have a pace of their own; set one for all first: %w", len(p.own), ErrPacesFull)
	}
	p.note(identity, to)
	return nil
}

// note keeps a pace if it is another one than all others have: since a change of
// all changes each, nobody can tell the difference.
func (p *paces) note(identity string, own Pace) {
	if own == p.all {
		delete(p.own, identity)
		return
	}
	p.own[identity] = own
}

// over returns p with the rates that are to be kept taken from was.
func (p Pace) over(was Pace) Pace {
	if p.Live == KeepRate {
		p.Live = was.Live
	}
	if p.CatchUp == KeepRate {
		p.CatchUp = was.CatchUp
	}
	return p
}

// pace is what the options ask for: TransferRate limits everything.
func (o *Options) pace() Pace {
	p := Pace{Live: o.TransferRate, CatchUp: o.CatchUpRate}
	if p.CatchUp == 0 || 0 < p.Live && p.Live < p.CatchUp {
		p.CatchUp = p.Live
	}
	return p
}

// SetPace changes the pace of the replica with an identity (ReplicaStatus.ReplicaID)
// from its next frame on, and keeps it when the replica comes back, until this
// node is closed. With an empty identity it changes that of all replicas, those
// with a pace of their own and those to come included. A rate that is KeepRate
// stays as it is. Errors: ErrUnknownReplica, for an identity that is neither
// connected nor has a pace of its own; ErrPacesFull; ErrOptions. Any goroutine.
func (e *Engine) SetPace(replicaID string, to Pace) error {
	if to.Live < KeepRate || to.CatchUp < KeepRate {
		return fmt.Errorf("pace of %d and %d bytes a second, want 0 (no limit) or more: %w", to.Live, to.CatchUp, ErrOptions)
	}
	if replicaID == "" {
		e.paces.setAll(to)
	} else {
		if err := e.knowsReplica(replicaID); err != nil {
			return err
		}
		if err := e.paces.setOwn(replicaID, to); err != nil {
			return err
		}
	}
	if e.master != nil {
		e.master.repace()
	}
	now := e.paces.of(replicaID)
	e.opts.Logger.Info("pace changed", "replica_id", cmp.Or(replicaID, "all"), "live_limit_bytes_per_second", now.Live, "catchup_limit_bytes_per_second", now.CatchUp)
	return nil
}

// SetTransferRate changes the bytes a second sent to each replica, whatever they
// are; 0 is no limit. See SetPace.
func (e *Engine) SetTransferRate(bytesPerSecond int64) {
	rate := max(bytesPerSecond, 0)
	_ = e.SetPace("", Pace{Live: rate, CatchUp: rate}) // it cannot fail for all
}

// knowsReplica says who is known if an identity is not.
func (e *Engine) knowsReplica(identity string) error {
	var known []string
	for _, r := range e.paceStatus().Replicas {
		if r.ReplicaID == identity {
			return nil
		}
		known = append(known, r.ReplicaID)
	}
	if len(known) == 0 {
		return fmt.Errorf("replica %q: %w: none is connected", identity, ErrUnknownReplica)
	}
	return fmt.Errorf("replica %q: %w; there are: %s", identity, ErrUnknownReplica, strings.Join(slices.Compact(known), ", "))
}

// PaceStatus is the pace in force. Its JSON is the answer of /pace.
type PaceStatus struct {
	Pace                   // of replicas that have none of their own, and of new ones
	Replicas []ReplicaPace `json:"replicas"` // by identity and address
}

// ReplicaPace is the pace of one connection of a replica, or of a replica that
// is gone and has a pace of its own.
type ReplicaPace struct {
	ReplicaID string `json:"replica_id"`
	Address   string `json:"address,omitempty"` // empty: gone
	Phase     string `json:"phase,omitempty"`   // live or catch-up; empty: gone
	Pace
	BytesPerSecond float64 `json:"bytes_per_second"`
	LagBytes       *int64  `json:"lag_bytes"` // null: gone
}

// Pace returns the limits in force and what they act on: of one replica, or with
// an empty identity of all. The error is ErrUnknownReplica, as SetPace's. Any
// goroutine.
func (e *Engine) Pace(replicaID string) (PaceStatus, error) {
	if replicaID == "" {
		return e.paceStatus(), nil
	}
	if err := e.knowsReplica(replicaID); err != nil {
		return PaceStatus{}, err
	}
	s := e.paceStatus()
	s.Replicas = slices.DeleteFunc(s.Replicas, func(r ReplicaPace) bool { return r.ReplicaID != replicaID })
	return s, nil
}

func (e *Engine) paceStatus() PaceStatus {
	all, own := e.paces.list()
	s := PaceStatus{Pace: all, Replicas: []ReplicaPace{}}
	if e.master != nil {
		end := e.served().End
		for _, r := range e.master.list() {
			lag := max(end-r.acked.Load(), 0)
			s.Replicas = append(s.Replicas, ReplicaPace{
				ReplicaID: r.identity, Address: r.address.String(), Phase: r.phase(), Pace: e.paces.of(r.identity),
				BytesPerSecond: r.rate.perSecond(reactor.Now()), LagBytes: &lag,
			})
			delete(own, r.identity)
		}
	}
	for identity, pace := range own {
		s.Replicas = append(s.Replicas, ReplicaPace{ReplicaID: identity, Pace: pace})
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaPace) int {
		return cmp.Or(strings.Compare(a.ReplicaID, b.ReplicaID), strings.Compare(a.Address, b.Address))
	})
	return s
}

// phase is how status names what the replica is sent now. Any goroutine.
func (r *replica) phase() string {
	if r.catchingUp.Load() {
		return PhaseCatchUp
	}
	return PhaseLive
}
