package engine

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/haengine/haengine/transfer"
)

// departuresMax bounds the memory of replicas that left unwell.
const departuresMax = 64

// departures remembers replicas that left unwell, the latest last. Any
// goroutine.
type departures struct {
	mu  sync.Mutex
	all []departure // guarded by mu
}

type departure struct {
	Departed
	host netip.Addr
}

// note remembers a replica whose connection ended because of its copy: it is
// damaged, or one end does not take the other.
func (d *departures) note(r *replica, why error) {
	damaged := r.damaged.Load()
	if !r.session.Trusted() || damaged < 0 && !unwell(why) { // who is not trusted must not push out who is
		return
	}
	one := departure{host: r.address.Addr(), Departed: Departed{
		Address: r.address.String(), ReplicaID: r.identity, Reason: sentence(why), AckedOffset: r.acked.Load(), Time: time.Now().UnixMilli(),
	}}
	if damaged >= 0 {
		one.DamagedOffset = &damaged
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(r)
	if len(d.all) >= departuresMax {
		d.all = slices.Delete(d.all, 0, 1)
	}
	d.all = append(d.all, one)
}

// unwell tells whether a connection ended for a reason that a new one alone does
// not end.
func unwell(why error) bool {
	var refusal *transfer.RefusalError
	if errors.As(why, &refusal) {
		return refusal.Code != transfer.RefusedStopping && refusal.Code != transfer.RefusedReplaced
	}
	return errors.Is(why, transfer.ErrUnservable)
}

// forget drops what is remembered of a replica that is back.
func (d *departures) forget(r *replica) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(r)
}

// forgetLocked drops a replica's entry. One that left before it said its name is
// known by its host: each connection has a port of its own.
func (d *departures) forgetLocked(r *replica) {
	d.all = slices.DeleteFunc(d.all, func(o departure) bool {
		if o.ReplicaID == "" {
			return o.host == r.address.Addr()
		}
		return o.ReplicaID == r.identity
	})
}

func (d *departures) list() []Departed {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Departed, len(d.all))
	for i, o := range d.all {
		list[i] = o.Departed
	}
	return list
}
