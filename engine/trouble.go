package engine

import (
	"errors"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// troubleInterval is how often a node looks whether it is in trouble. The log
// shows it once a minute.
const troubleInterval = 10 * time.Second

// Causes of trouble that no refusal names.
const (
	causeDamaged = "damaged"
	causeDisk    = "disk"
	causeRefused = "refused" // by a peer that does not say why
	causeLease   = "lease"
	causeSpace   = "space" // for the log
)

// trouble is what keeps the node from its job, or nil.
func (e *Engine) trouble(s *Status) *Trouble {
	if err := e.log.Writable(); err != nil && s.State == StateReadOnly {
		t := Trouble{Cause: causeDisk, Reason: err.Error()}
		var damage *commitlog.CorruptError
		if errors.As(err, &damage) {
			t.Cause, t.Offset = causeDamaged, &damage.Offset
			if damage.Kind == commitlog.KindFiller && e.Role() == Slave {
				t.Cause = transfer.RefusedSegments.String() // the master's are smaller
			}
		}
		return &t
	}
	if s.State == StateFenced {
		return &Trouble{Cause: causeLease, Reason: s.Reason}
	}
	if err := e.log.Shortage(); err != nil {
		return &Trouble{Cause: causeSpace, Reason: err.Error()}
	}
	if slave := e.slave.Load(); slave != nil {
		return slave.trouble()
	}
	return nil
}

// trouble is what keeps the slave from its master, or nil. The caller may edit
// it. Any goroutine.
func (s *slave) trouble() *Trouble {
	s.shared.Lock()
	defer s.shared.Unlock()
	if s.shared.trouble == nil {
		return nil
	}
	t := *s.shared.trouble
	return &t
}

// causeOf names what keeps a slave in a state, in one word; empty: it does not
// need anybody.
func causeOf(state transfer.FollowerState, refusal *transfer.RefusalError) string {
	switch {
	case refusal != nil && refusal.Code == transfer.RefusedStopping:
		return ""
	case refusal != nil:
		return refusal.Code.String()
	case state == transfer.FollowerStalled:
		return transfer.RefusedBehind.String()
	case state == transfer.FollowerDiverged:
		return transfer.RefusedDiverged.String()
	case state == transfer.FollowerRefused:
		return causeRefused
	}
	return ""
}

// vigil writes a line a minute while the node is in trouble. Confined to the
// loop of its timer.
type vigil struct {
	e     *Engine
	loop  *reactor.Loop
	timer *reactor.Timer
}

func newVigil(e *Engine) *vigil {
	v := &vigil{e: e, loop: e.group.Loop(0)}
	v.timer = v.loop.NewTimer(v.look)
	v.loop.Post(func() { v.timer.ResetAt(v.loop.Now() + troubleInterval) })
	return v
}

func (v *vigil) look() {
	s := v.e.Status()
	if t := s.Trouble; t != nil {
		v.e.steady.warn("trouble", "this node needs an operator", "cause", t.Cause, "reason", t.Reason, "remedy", t.Remedy,
			"min_offset", s.MinOffset, "end_offset", s.MaxOffset)
	} else {
		v.e.steady.over("trouble")
	}
	v.timer.ResetAt(v.loop.Now() + troubleInterval)
}
