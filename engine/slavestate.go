package engine

import (
	"errors"

	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// noteState publishes the follower's state when it has changed.
func (s *slave) noteState() {
	state := s.follower.State()
	if s.conn == nil || state.String() == s.shared.state { // only this loop writes it
		return
	}
	if state == transfer.FollowerTransferring {
		s.e.steady.info("following", "following the master", "master", s.master, "end_offset", s.log.EndOffset())
		s.note(state.String(), nil)
		return
	}
	err := errors.New(s.follower.Reason())
	if state == transfer.FollowerStalled {
		s.e.steady.warn("master-stalled", "replication is stalled", "master", s.master, "reason", err.Error())
	}
	s.note(state.String(), err)
}

func (s *slave) note(state string, err error) {
	s.shared.Lock()
	changed := s.shared.state != state
	s.shared.state = state
	if err != nil {
		s.shared.lastError = sentence(err)
	}
	s.shared.Unlock()
	if changed {
		s.e.events.send(Event{Kind: MasterChanged, Master: state, Offset: s.log.EndOffset(), Err: err})
	}
}

// status describes the master as seen from here. Any goroutine.
func (s *slave) status() MasterStatus {
	s.shared.Lock()
	defer s.shared.Unlock()
	m := MasterStatus{Address: s.shared.address, State: s.shared.state, Mode: modePlain, LastError: s.shared.lastError}
	if !s.extended.Load() {
		return m
	}
	m.Mode = modeExtended
	end := s.log.EndOffset()
	master := max(s.shared.source.End, end)
	lag, seconds := master-end, 0.0
	if lag > 0 {
		seconds = (reactor.Now() - s.shared.caughtUp).Seconds()
	}
	m.MaxOffset, m.LagBytes, m.LagSeconds = &master, &lag, &seconds
	return m
}
