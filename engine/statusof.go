package engine

import (
	"fmt"
	"sort"

	"github.com/haengine/haengine/transfer"
)

// Status describes the node now. Any goroutine; it locks nothing that a put or
// a loop needs for long.
func (e *Engine) Status() Status {
	info, id := e.log.Info(), e.identityNow()
	s := Status{
		Role: e.Role(), MinOffset: e.log.MinOffset(), MaxOffset: e.log.EndOffset(),
		FlushedOffset: e.log.FlushedOffset(), ConfirmedOffset: e.ConfirmedOffset(), QueuedOffset: e.log.DispatchedOffset(),
		SegmentBytes: e.log.SegmentBytes(), Segments: info.Segments, Allocation: info.Allocation.String(), Waiters: e.rings.waiting(),
		HASecret:  len(e.opts.HASecret) > 0,
		ClusterID: id.ClusterID, ReplicaID: id.ReplicaID, Replicas: []ReplicaStatus{},
	}
	if list := e.log.Epochs(); len(list) > 0 {
		s.Epoch = list[len(list)-1].Number
	}
	s.State, s.Reason = e.state()
	if e.master != nil {
		s.HAListen = e.master.listener.Addr().String()
		end := e.served().End
		for _, r := range e.master.list() {
			s.Replicas = append(s.Replicas, r.status(end))
		}
		sort.Slice(s.Replicas, func(i, k int) bool { return s.Replicas[i].Address < s.Replicas[k].Address })
	}
	if e.master != nil {
		s.Departed = e.master.departed.list()
	}
	if slave := e.slave.Load(); slave != nil {
		m := slave.status()
		s.Master = &m
		if e.opts.CompareInterval > 0 {
			s.Comparison = slave.comparing.now()
		}
	}
	if s.Trouble = e.trouble(&s); s.Trouble != nil && e.opts.Remedy != nil {
		s.Trouble.Remedy = e.opts.Remedy(s)
	}
	return s
}

func (e *Engine) state() (State, string) {
	if e.closed.Load() {
		return StateStopping, "the node is stopping"
	}
	if err := e.log.Writable(); err != nil {
		return StateReadOnly, err.Error()
	}
	if l := e.lease.Load(); !l.lasts() && e.Role() != Slave {
		return StateFenced, l.why().Error()
	}
	return StateServing, ""
}

// Ready tells whether the node can do its job: nil, or why not. A master must be
// writable, with room for its next segment; a slave must be transferring.
func (e *Engine) Ready() error {
	if state, why := e.state(); state != StateServing {
		return fmt.Errorf("%s: %s", state, why)
	}
	if err := e.log.Shortage(); err != nil {
		return err
	}
	slave := e.slave.Load()
	if slave == nil {
		return nil
	}
	if m := slave.status(); m.State != transfer.FollowerTransferring.String() {
		return fmt.Errorf("master %s: %s: %s", m.Address, m.State, m.LastError)
	}
	if e.log.EndOffset() == e.log.MinOffset() && !slave.spoke.Load() {
		return fmt.Errorf("master %s has sent nothing yet: RocketMQ's is silent while its log is empty", slave.master)
	}
	return nil
}
