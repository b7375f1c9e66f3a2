package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/haengine/haengine/transfer"
)

// ComparisonStatus is what comparing a slave's log with its master's, again and
// again, has come to.
type ComparisonStatus struct {
	Running         bool   `json:"running"`
	Rounds          int    `json:"rounds"`           // that came to their end
	FinishedMS      *int64 `json:"finished_ms"`      // when the last of them did, ms since 1970; null: none yet
	FromOffset      int64  `json:"from_offset"`      // of the round that runs, or was the last
	ToOffset        int64  `json:"to_offset"`        // where it ends
	ComparedOffset  int64  `json:"compared_offset"`  // up to where both were found equal
	FirstDifference *int64 `json:"first_difference"` // null: none was found
	LastError       string `json:"last_error"`       // why a round did not come to its end
}

// comparing is a slave's background comparison with its master. Any goroutine.
type comparing struct {
	sync.Mutex
	status ComparisonStatus
}

func (c *comparing) set(change func(s *ComparisonStatus)) {
	c.Lock()
	defer c.Unlock()
	change(&c.status)
}

func (c *comparing) now() *ComparisonStatus {
	c.Lock()
	defer c.Unlock()
	s := c.status
	return &s
}

// compareAgain compares this log with the master's, round after round, on a
// goroutine of its own, until the slave is stopped or a difference is found. The
// first round begins as soon as the master is followed.
func (s *slave) compareAgain() {
	defer s.lookups.Done()
	tick := time.NewTicker(min(s.e.opts.CompareInterval, time.Second))
	defer tick.Stop()
	for next := time.Now(); ; {
		select {
		case <-s.context.Done():
			return
		case <-tick.C:
		}
		if time.Now().Before(next) || !s.follows() {
			continue
		}
		next = time.Now().Add(s.e.opts.CompareInterval)
		if at, found := s.compareOnce(); found {
			s.differs(at)
			return
		}
	}
}

// follows tells whether a master that may be asked is followed.
func (s *slave) follows() bool {
	s.shared.Lock()
	defer s.shared.Unlock()
	return s.extended.Load() && s.shared.state == transfer.FollowerTransferring.String() && s.log.DispatchedOffset() > s.log.MinOffset()
}

// compareOnce makes one round over the log as it is now.
func (s *slave) compareOnce() (differs int64, found bool) {
	take := func(c Comparison) {
		s.comparing.set(func(st *ComparisonStatus) {
			st.FromOffset, st.ToOffset, st.ComparedOffset = c.From, c.To, c.From+c.Compared
		})
	}
	s.comparing.set(func(st *ComparisonStatus) { st.Running = true })
	cuts := s.cuts.Load()
	o := CompareOptions{To: s.log.DispatchedOffset(), BytesPerSecond: s.e.opts.CompareRate, Progress: take, Secret: s.e.opts.HASecret}
	c, err := s.compareFollowed(o)
	if err == nil && c.Differs >= 0 {
		take(c)
		// Once more, of that byte alone: this log, or the master's, may have been
		// cut in the midst of it.
		o.From, o.To = c.Differs, c.Differs+1
		c, err = s.compareFollowed(o)
		if err == nil && (c.Differs < 0 || cuts != s.cuts.Load()) {
			err = ErrChanging
		}
	} else if err == nil {
		take(c)
	}
	s.comparing.set(func(st *ComparisonStatus) {
		st.Running = false
		if err != nil {
			st.LastError = err.Error()
			return
		}
		now := time.Now().UnixMilli()
		st.Rounds, st.FinishedMS, st.LastError = st.Rounds+1, &now, ""
		if c.Differs >= 0 {
			st.FirstDifference = &c.Differs
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		s.e.steady.warn("comparison", "the log could not be compared with the master's; it is tried again", "master", s.master, "reason", err.Error())
	}
	return c.Differs, err == nil && c.Differs >= 0
}

// differs ends replication: what this log holds is not the master's, and nothing
// more is acknowledged of it or passed on. A restart begins with a comparison.
func (s *slave) differs(at int64) {
	why := &transfer.RefusalError{Code: transfer.RefusedDiverged, Text: fmt.Sprintf("our log differs from the master's at offset %d, found by comparison", at)}
	s.e.opts.Logger.Error("the log differs from the master's; replication has ended", "master", s.master, "offset", at, "reason", why.Text)
	s.e.events.send(Event{Kind: LogDiffers, Offset: at, Err: why})
	if err := s.e.changeIdentity(func(id *identity) { id.Differs = true }); err != nil {
		s.e.opts.Logger.Error("that the log differs could not be noted: a restart follows the master again", "error", err)
	}
	s.door.close(why)
	s.loop.Post(func() {
		s.broken = why
		if s.conn != nil {
			s.refuse(why)
		} else {
			s.noteBroken()
		}
	})
}

// brokenState is the state of a slave whose log is not to be trusted any more.
func (s *slave) brokenState() transfer.FollowerState {
	if errors.Is(s.broken, transfer.ErrDiverged) {
		return transfer.FollowerDiverged
	}
	return transfer.FollowerStalled
}
