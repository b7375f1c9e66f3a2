package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/engine"
)

// lagProbe is how often the lag is looked at.
const lagProbe = 5 * time.Millisecond

// lagPatience is how long a replica may be behind.
const lagPatience = 30 * time.Second

// lag puts for d as an asynchronous master, and meanwhile measures with single
// puts that wait for the replica how long it takes until it has what was just
// appended. The round's latencies are theirs.
func (p *benchPair) lag(ctx context.Context, d time.Duration, bytes int64) (round, error) {
	probing, stop := context.WithCancel(ctx)
	defer stop()
	lags, probed := new(latencies), make(chan error, 1)
	go func() { probed <- p.probe(probing, lags) }()
	r, err := p.puts(ctx, d, bytes)
	stop()
	err = errors.Join(err, <-probed)
	r.latency = lags
	return r, err
}

// copied waits until the replica has the log up to an offset, however soon the
// load has ended.
func (p *benchPair) copied(offset int64) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lagPatience, fmt.Errorf("the replica does not have offset %d after %v", offset, lagPatience))
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for _, r := range p.master.Status().Replicas {
			if r.AckedOffset >= offset {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// probe looks at the lag until the load ends, and then once if that was too soon.
func (p *benchPair) probe(ctx context.Context, lags *latencies) error {
	m := engine.Message{Topic: "bench", QueueID: 3, Body: make([]byte, p.options.size)}
	tick := time.NewTicker(lagProbe)
	defer tick.Stop()
	for looked := false; ; looked = true {
		select {
		case <-ctx.Done():
			if looked {
				return nil
			}
		case <-tick.C:
		}
		begun := time.Now()
		// Not ctx: the last one ends as the replica does, or it would not count.
		result, err := p.master.PutWaiting(context.Background(), &m, engine.Waits{Copies: 2})
		if result.Status == engine.PutSlaveNotAvailable {
			// The replica is further behind than a synchronous put waits for.
			err = p.copied(result.EndOffset)
		}
		if err != nil {
			return err
		}
		lags.add(time.Since(begun))
	}
}
