package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

func newBenchStuck() *cobra.Command {
	return newBenchVerbWith(bench{
		"stuck", "What a replica that reads nothing costs the others",
		"Synchronous puts with two replicas, and with a third one that is connected and reads nothing. Replicas are as\n" +
			"in bench sweep replicas. The limit is the same without the stuck one.",
		benchStuck,
	}, map[string]string{"producers": "8"})
}

// benchStuck takes turns between both. In each turn the master is a new one.
func benchStuck(ctx context.Context, o benchOptions) ([]benchResult, error) {
	var without, with []round
	for range o.rounds {
		for _, stuck := range []int{0, 1} {
			r, err := o.besideStuck(ctx, stuck)
			if err != nil {
				return nil, err
			}
			if stuck == 0 {
				without = append(without, r)
			} else {
				with = append(with, r)
			}
		}
	}
	results := []benchResult{o.result("two replicas", without), o.result("two replicas and a stuck one", with)}
	results[1].beside("two replicas", true, with, without)
	results[0].judgeLength(shortest(without))
	results[1].judgeLength(shortest(with))
	return results, nil
}

func (o benchOptions) besideStuck(ctx context.Context, stuck int) (round, error) {
	o.dir = filepath.Join(o.dir, "turn")
	defer os.RemoveAll(o.dir)
	p, err := openMaster(engine.SyncMaster, o)
	if err != nil {
		return round{}, err
	}
	defer p.close()
	if err := p.startReplicas(ctx, 2, stuck); err != nil {
		return round{}, err
	}
	each := o.duration / time.Duration(o.rounds)
	if _, err := p.puts(ctx, each/4, int64(o.bytes)/8); err != nil { // warm, and the stuck one's buffers full
		return round{}, err
	}
	r, err := p.puts(ctx, each, int64(o.bytes)/int64(o.rounds))
	if behind := p.behind(); err == nil && stuck > 0 && behind == 0 {
		err = fmt.Errorf("the replica that reads nothing holds all: it is not stuck")
	}
	return r, err
}

// behind is the lag of the replica that is furthest behind, in bytes.
func (p *benchPair) behind() (most int64) {
	for _, r := range p.master.Status().Replicas {
		most = max(most, r.LagBytes)
	}
	return most
}
