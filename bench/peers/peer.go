package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrAbsent means that this machine lacks what a peer is run from.
var ErrAbsent = errors.New("not on this machine")

// Peer is a replicated log that the work is done on. Its methods are called by
// one goroutine at a time.
type Peer interface {
	// Name is the peer's name on the command line and in the tables.
	Name() string
	// About says what is run, and how far it compares. It is called after
	// Prepare.
	About() About
	// Prepare finds or builds what the peer is run from. The error wraps
	// ErrAbsent if this machine lacks it, and says how to get it.
	Prepare(ctx context.Context) error
	// Start brings up a new system below the plan's directory and returns when
	// it takes puts. What it started is gone when it returns an error.
	Start(ctx context.Context, p Plan) (*System, error)
}

// About is what a reader has to know to believe a comparison.
type About struct {
	Version      string `json:"version"`
	Nodes        string `json:"nodes"`        // processes, and who replicates to whom
	Acknowledged string `json:"acknowledged"` // where a record is when its put returns
	Load         string `json:"load"`         // where the load runs
	Settings     string `json:"settings"`     // those that are not the defaults, and why
	CatchUp      string `json:"catch_up"`     // what is copied, and how its end is seen
}

// Plan is what a system is started for.
type Plan struct {
	Dir string // exists and is empty
	// Late leaves one replica out until System.Join, and lets puts do without
	// it. Bytes is then what the log will hold, without headers.
	Late  bool
	Bytes int64
}

// System is a running peer.
type System struct {
	driver    *process
	processes []*process // all of them, the driver too
	// join starts the replica that was left out.
	join func(ctx context.Context) (*process, error)
	// held is how much the replica holds, in the driver's unit; nil: it is asked
	// for its status.
	held func() (int64, error)
}

// add remembers a process, so that Close ends it.
func (s *System) add(p *process, err error) (*process, error) {
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

// Close ends all processes at once: their stores are thrown away.
func (s *System) Close() {
	for _, p := range s.processes {
		p.kill()
	}
}

// Put has the driver put as the work says, for some time.
func (s *System) Put(ctx context.Context, w Work, d time.Duration) (Result, error) {
	spec := fmt.Sprintf("size=%d,threads=%d,seconds=%.3f", w.Size, w.Producers, d.Seconds())
	if w.Outstanding > 1 {
		spec += fmt.Sprintf(",outstanding=%d", w.Outstanding)
	}
	return s.phase(ctx, spec)
}

// Fill has the driver put so many records of some size.
func (s *System) Fill(ctx context.Context, size int, records int64) (Result, error) {
	return s.phase(ctx, fmt.Sprintf("size=%d,threads=1,count=%d,outstanding=1000", size, records))
}

func (s *System) phase(ctx context.Context, spec string) (Result, error) {
	before := usageOf(s.processes)
	e, err := s.driver.ask(ctx, "phase "+spec, "phase")
	if err != nil {
		return Result{}, err
	}
	return e.result(usageOf(s.processes).since(before))
}

// waitInSync waits until the driver's replicas hold everything.
func (s *System) waitInSync(ctx context.Context) error {
	e, err := s.driver.ask(ctx, "wait 60", "wait")
	if err == nil && !e.InSync {
		err = s.driver.failure(fmt.Errorf("no replica follows within a minute: %s", e.Reason))
	}
	return err
}

// pollInterval is how exactly the end of a catch-up is seen.
const pollInterval = 5 * time.Millisecond

// Join starts the replica that was left out and waits until it holds all that
// was put.
func (s *System) Join(ctx context.Context) (Copy, error) {
	master, err := s.driver.ask(ctx, "status", "status")
	if err != nil {
		return Copy{}, err
	}
	if master.MaxOffset == 0 {
		return Copy{}, s.driver.failure(errors.New("there is nothing to copy"))
	}
	before, start := usageOf(s.processes), time.Now()
	replica, err := s.add(s.join(ctx))
	if err != nil {
		return Copy{}, err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for first := (time.Time{}); ; {
		held, err := s.heldBy(ctx, replica)
		now := time.Now()
		switch {
		case err != nil:
			return Copy{}, fmt.Errorf("follow the catch-up: %w", err)
		case held > 0 && first.IsZero():
			first = now
		}
		if held >= master.MaxOffset {
			return Copy{FromStart: now.Sub(start), FromFirst: max(now.Sub(first), pollInterval), Usage: usageOf(s.processes).since(before)}, nil
		}
		select {
		case <-tick.C:
		case <-replica.exited:
			return Copy{}, replica.failure(errors.New("ended in the middle of its catch-up"))
		case <-ctx.Done():
			return Copy{}, fmt.Errorf("the replica holds %d of %d: %w", held, master.MaxOffset, context.Cause(ctx))
		}
	}
}

func (s *System) heldBy(ctx context.Context, replica *process) (int64, error) {
	if s.held != nil {
		return s.held()
	}
	e, err := replica.ask(ctx, "status", "status")
	return e.MaxOffset, err
}

// allPeers are the peers in the order of the tables; haengine is the first.
func allPeers() []Peer {
	return []Peer{
		&haengine{}, &rocketmq{}, &redis{}, &jetstream{},
		&raftPeer{name: "raft"}, &raftPeer{name: "raft-wal", durable: true},
	}
}

// choosePeers picks peers by a list of names; haengine is always among them,
// since all is compared with it.
func choosePeers(names string) ([]Peer, error) {
	all := allPeers()
	if names == "" {
		return all, nil
	}
	chosen := slices.Clone(all[:1])
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(p Peer) bool { return p.Name() == name })
		if i < 0 {
			var known []string
			for _, p := range all {
				known = append(known, p.Name())
			}
			return nil, fmt.Errorf("no peer %q; peers: %s", name, strings.Join(known, ", "))
		}
		if !slices.Contains(chosen, all[i]) {
			chosen = append(chosen, all[i])
		}
	}
	return chosen, nil
}
