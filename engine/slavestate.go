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
		s.note(state, nil, nil)
		s.shown()
		return
	}
	s.note(state, nil, errors.New(s.follower.Reason()))
}

// note publishes a state. What it means to an operator stands until the state
// changes or a refusal says more: a later error may only be that the master
// cannot be reached.
func (s *slave) note(state transfer.FollowerState, refusal *transfer.RefusalError, err error) {
	s.shared.Lock()
	changed := s.shared.state != state.String()
	s.shared.state = state.String()
	if err != nil {
		s.shared.lastError = sentence(err)
	}
	if cause := causeOf(state, refusal); cause != "" && (changed || refusal != nil) {
		s.shared.trouble = &Trouble{Cause: cause, Reason: sentence(err)}
		var differs *transfer.DivergedError
		if errors.As(err, &differs) {
			s.shared.trouble.Offset = &differs.Offset
		}
	} else if changed {
		s.shared.trouble = nil
	}
	s.shared.Unlock()
	if changed {
		s.e.events.send(Event{Kind: MasterChanged, Master: state.String(), Offset: s.log.EndOffset(), Err: err})
	}
}

// noteBroken shows that the log's trouble has ended replication.
func (s *slave) noteBroken() {
	refusal := &transfer.RefusalError{Code: transfer.RefusedDamaged}
	errors.As(s.broken, &refusal)
	s.note(s.brokenState(), refusal, s.broken)
}

// status describes the master as seen from here. Any goroutine.
func (s *slave) status() MasterStatus {
	s.shared.Lock()
	defer s.shared.Unlock()
	m := MasterStatus{Address: s.shared.address, State: s.shared.state, LastError: s.shared.lastError}
	if s.plain.Load() {
		m.Mode = modePlain
	}
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
