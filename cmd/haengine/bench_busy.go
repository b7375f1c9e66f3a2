package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// errRoundOver ends an open loop as its time would.
var errRoundOver = errors.New("the round is over")

// newBenchVerbWith is a verb whose defaults are others than most benchmarks'.
func newBenchVerbWith(b bench, defaults map[string]string) *cobra.Command {
	cmd := newBenchVerb(b)
	for name, value := range defaults {
		f := cmd.Flags().Lookup(name)
		_ = f.Value.Set(value) // a value of this program
		f.DefValue = f.Value.String()
	}
	return cmd
}

func newBenchBusy() *cobra.Command {
	return newBenchVerbWith(bench{
		"busy", "What a catch-up costs those who put meanwhile, and the other way round",
		"Synchronous puts at a rate, confirmed by a slave that is in sync: alone, and while another slave copies\n" +
			"the whole log; and that copy alone.",
		benchBusy,
	}, map[string]string{"rate": "1000", "rounds": "3"})
}

// benchBusy takes turns between puts, a copy, and both.
func benchBusy(ctx context.Context, o benchOptions) ([]benchResult, error) {
	if o.rate == 0 {
		return nil, errors.New("puts as fast as they go take what is left of the machine, whatever it is; give a --rate")
	}
	p, err := startPair(ctx, engine.SyncMaster, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if _, err := p.fill(ctx); err != nil {
		return nil, err
	}
	another := &benchPair{options: o, master: p.master}
	var alone, beside, copyAlone, copyBeside []round
	for range o.rounds {
		if err := p.waitInSync(ctx); err != nil {
			return nil, err
		}
		r, err := p.puts(ctx, o.duration/time.Duration(o.rounds), int64(o.bytes))
		if err != nil {
			return nil, err
		}
		c, err := another.catchUp(ctx, "copy", p.master.Status().MaxOffset)
		if err != nil {
			return nil, err
		}
		both, copied, err := p.putsBeside(ctx, another)
		if err != nil {
			return nil, err
		}
		alone, copyAlone = append(alone, r), append(copyAlone, c)
		beside, copyBeside = append(beside, both), append(copyBeside, copied)
	}
	results := []benchResult{o.result("puts alone", alone), o.result("puts beside a catch-up", beside), o.copyResult("catch-up alone", copyAlone), o.copyResult("catch-up beside puts", copyBeside)}
	// What is left of the one without the other takes the limit's place.
	results[1].beside("puts alone", true, beside, alone)
	results[3].beside("catch-up alone", false, copyBeside, copyAlone)
	for i, rounds := range [][]round{alone, beside, copyAlone, copyBeside} {
		results[i].judgeLength(shortest(rounds))
	}
	return results, nil
}

// putsBeside puts for as long as another slave needs for its copy.
func (p *benchPair) putsBeside(ctx context.Context, another *benchPair) (puts, copied round, err error) {
	during, over := context.WithCancelCause(ctx)
	defer over(nil)
	type outcome struct {
		r   round
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		r, err := p.puts(during, time.Hour, 1<<50)
		ended <- outcome{r, err}
	}()
	copied, err = another.catchUp(ctx, "copy", p.master.Status().MaxOffset)
	over(errRoundOver)
	o := <-ended
	return o.r, copied, errors.Join(err, o.err)
}

// waitInSync waits until the pair's own slave is.
func (p *benchPair) waitInSync(ctx context.Context) error {
	late, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if !waitForReplicas(late, p.master, 1) {
		return fmt.Errorf("the slave is not in sync: %w", late.Err())
	}
	return nil
}
