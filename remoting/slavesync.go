package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/engine"
)

const (
	syncInterval = 10 * time.Second // RocketMQ: 60 s
	syncTimeout  = 5 * time.Second
)

// masterSync has a slave's topics, groups and offsets follow its master's, ours or
// RocketMQ's, which name servers know the address of (SlaveSynchronize). It asks
// without fields: every version answers that with all there is. One goroutine.
type masterSync struct {
	b      *Broker
	master chan string // capacity 1: the master's address, as last told
	addr   string
	client *Client
	last   map[int32][]byte // answers that were taken over
	failed time.Time        // when that was logged last; zero: the last copy succeeded
}

func newMasterSync(b *Broker) *masterSync {
	return &masterSync{b: b, master: make(chan string, 1), last: map[int32][]byte{}}
}

// told is called with what a slave's registration says, on each name server's
// goroutine.
func (s *masterSync) told(r Registered) {
	if r.MasterAddress == "" {
		return
	}
	select {
	case <-s.master:
	default:
	}
	select {
	case s.master <- r.MasterAddress:
	default: // another one was told at the same time
	}
}

func (s *masterSync) run(ctx context.Context) {
	defer s.drop()
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case addr := <-s.master:
			if addr == s.addr {
				continue
			}
			s.drop()
			s.addr = addr
			clear(s.last)
		case <-tick.C:
		}
		if s.addr == "" || s.b.o.Engine.Role() != engine.Slave {
			s.drop()
			clear(s.last)
			continue
		}
		s.note(s.sync(ctx), time.Now())
	}
}

// syncSaid is how often it is said that the copy fails, and why now: the first
// reason, as a connection that broke, is not always the one to look at.
const syncSaid = time.Minute

// note logs when the copy begins to fail, while it does, and when it no longer does.
func (s *masterSync) note(err error, now time.Time) {
	switch {
	case err != nil && now.Sub(s.failed) >= syncSaid:
		s.b.o.Logger.Warn("topics, groups and offsets do not follow the master; trying again", "master", s.addr, "every", syncInterval, "error", err)
		s.failed = now
	case err == nil && !s.failed.IsZero():
		s.b.o.Logger.Info("topics, groups and offsets follow the master again", "master", s.addr)
		s.failed = time.Time{}
	}
}

func (s *masterSync) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, step := range []struct {
		code int32
		take func(body []byte, may func() error) error
	}{
		{CodeGetAllTopicConfig, s.b.topics.Replace},
		{CodeGetAllGroups, s.b.groups.Replace},
		{CodeGetAllConsumerOffset, s.b.offsets.Merge},
	} {
		body, err := s.ask(ctx, step.code)
		if err == nil && !bytes.Equal(body, s.last[step.code]) {
			if err = step.take(body, s.follows); err == nil {
				s.last[step.code] = body
			}
		}
		if s.follows() != nil {
			return nil // any more; what it has is its own
		}
		if err != nil {
			return fmt.Errorf("code %d: %w", step.code, err)
		}
	}
	return nil
}

var errNoSlave = errors.New("this broker is no slave any more")

// follows gives an error once this broker is no slave: what it has is its own
// then, and no master's copy may replace it.
func (s *masterSync) follows() error {
	if s.b.o.Engine.Role() != engine.Slave {
		return errNoSlave
	}
	return nil
}

func (s *masterSync) ask(ctx context.Context, code int32) ([]byte, error) {
	if s.client == nil {
		c, err := Dial(ctx, s.addr, nil)
		if err != nil {
			return nil, err
		}
		s.client = c
	}
	answer, err := s.client.Call(ctx, &Command{Code: code})
	if err != nil {
		s.drop()
		return nil, err
	}
	return answer.Body, answer.Err()
}

func (s *masterSync) drop() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}
