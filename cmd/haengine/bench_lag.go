package main

import (
	"context"
	"errors"
	"time"

	"github.com/haengine/haengine/engine"
)

// lagProbe is how often the lag is looked at.
const lagProbe = 5 * time.Millisecond

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

func (p *benchPair) probe(ctx context.Context, lags *latencies) error {
	m := engine.Message{Topic: "bench", QueueID: 3, Body: make([]byte, p.options.size)}
	tick := time.NewTicker(lagProbe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		begun := time.Now()
		// Not ctx: the last one ends as the replica does, or it would not count.
		if _, err := p.master.PutWaiting(context.Background(), &m, engine.Waits{Copies: 2}); err != nil {
			return err
		}
		lags.add(time.Since(begun))
	}
}
