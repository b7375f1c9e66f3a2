package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// plan is what a run does.
type plan struct {
	peers    []Peer
	loads    []Work
	copies   bool // catch-up, too
	turns    int
	duration time.Duration // of a load
	warm     time.Duration // of load before anything is measured of a new system
	bytes    int64         // of a catch-up
	within   time.Duration // after this the run ends, done or not
	dir      string        // the stores
	restless bool          // do not wait for the machine to settle between systems
	talk     io.Writer     // progress
}

// Limits of what a step may take beside what it was asked to.
const (
	startPatience = 2 * time.Minute
	phasePatience = time.Minute
	fillPatience  = 5 * time.Minute
	joinPatience  = 5 * time.Minute
)

// run does the plan and returns what came of it, whatever failed.
func (p *plan) run(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeoutCause(ctx, p.within, fmt.Errorf("the %v that this run may take are over", p.within))
	defer cancel()
	r := newReport(p)
	defer func() { r.TookSeconds = time.Since(r.Started).Seconds() }()
	present := p.prepare(ctx, r)
	longest := time.Duration(0)
	for turn := range p.turns {
		if left := p.within - time.Since(r.Started); left < longest {
			fmt.Fprintf(p.talk, "%d of %d turns: another one of up to %v would not end within %v\n", turn, p.turns, longest.Round(time.Second), p.within)
			break
		}
		begun := time.Now()
		for i := range present {
			peer := present[(i+turn)%len(present)]
			if len(p.loads) > 0 {
				r.keep(turn, peer, "", p.loadTurn(ctx, r, turn, peer))
			}
		}
		for i := range present {
			peer := present[(i+turn)%len(present)]
			if p.copies {
				r.keep(turn, peer, catchUp, p.copyTurn(ctx, r, turn, peer))
			}
		}
		if ctx.Err() != nil {
			break
		}
		r.Turns++
		longest = max(longest, time.Since(begun))
	}
	return r
}

// prepare returns the peers that this machine can run.
func (p *plan) prepare(ctx context.Context, r *Report) (present []Peer) {
	for _, peer := range p.peers {
		about := PeerReport{Name: peer.Name()}
		if err := peer.Prepare(ctx); err != nil {
			about.Absent = err.Error()
			fmt.Fprintf(p.talk, "%s is left out: %v\n", peer.Name(), err)
		} else {
			about.About = peer.About()
			present = append(present, peer)
		}
		r.Peers = append(r.Peers, about)
	}
	return present
}

// fresh starts a system in an empty directory and hands it to do.
func (p *plan) fresh(ctx context.Context, peer Peer, late bool, do func(*System) error) (err error) {
	dir, err := os.MkdirTemp(p.dir, peer.Name()+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	starting, cancel := within(ctx, startPatience, "start")
	defer cancel()
	s, err := peer.Start(starting, Plan{Dir: dir, Late: late, Bytes: p.bytes})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer s.Close()
	return do(s)
}

func (p *plan) settle(ctx context.Context) error {
	if p.restless {
		return nil
	}
	return settle(ctx, p.dir)
}

// within is a deadline that says whose it was.
func within(ctx context.Context, d time.Duration, step string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s took more than %v", step, d))
}

// loadTurn puts all loads on a new system of the peer.
func (p *plan) loadTurn(ctx context.Context, r *Report, turn int, peer Peer) error {
	return p.fresh(ctx, peer, false, func(s *System) error {
		idle := usageOf(s.processes)
		written := int64(0)
		put := func(w Work, d time.Duration) (Result, error) {
			ctx, cancel := within(ctx, d+phasePatience, w.Name)
			defer cancel()
			result, err := s.Put(ctx, w, d)
			written += result.Messages * int64(w.Size)
			return result, err
		}
		if p.warm > 0 {
			if _, err := put(Work{"warm-up", "", recordBytes, 8, 1}, p.warm); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
		for _, w := range p.loads {
			if _, err := put(w, max(p.duration/5, warmUpMin)); err != nil { // connections, buffers and code of this load
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			result, err := put(w, p.duration)
			if err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			r.add(turn, peer, w.Name, result.metrics())
			fmt.Fprintf(p.talk, "turn %d  %-9s %-10s %9.0f/s  p50 %.1f  p99 %.1f  p99.9 %.1f µs%s\n",
				turn+1, peer.Name(), w.Name, result.Rate, result.P50, result.P99, result.P999, failures(result.Failed))
		}
		r.add(turn, peer, memoryWork, memoryMetrics(idle, usageOf(s.processes), written))
		return nil
	})
}

// copyTurn fills a log and has a replica join.
func (p *plan) copyTurn(ctx context.Context, r *Report, turn int, peer Peer) error {
	return p.fresh(ctx, peer, true, func(s *System) error {
		filling, cancel := within(ctx, fillPatience, "filling the log")
		defer cancel()
		if _, err := s.Fill(filling, recordBytes, p.bytes/recordBytes); err != nil {
			return fmt.Errorf("fill the log: %w", err)
		}
		if err := p.settle(ctx); err != nil { // what was written is on the disk before it is copied
			return err
		}
		joining, cancel := within(ctx, joinPatience, "catching up")
		defer cancel()
		c, err := s.Join(joining)
		if err != nil {
			return fmt.Errorf("catch up: %w", err)
		}
		metrics := c.metrics(p.bytes)
		r.add(turn, peer, catchUp, metrics)
		fmt.Fprintf(p.talk, "turn %d  %-9s %-10s %9.0f MB/s from its first byte, %.0f from its start\n",
			turn+1, peer.Name(), catchUp, metrics["bytes_per_second"]/1e6, metrics["bytes_per_second_from_start"]/1e6)
		return nil
	})
}

// warmUpMin is enough for the threads of a load to have begun.
const warmUpMin = 500 * time.Millisecond

func failures(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  %d not acknowledged", n)
}
