package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// idleResult is what one node of a pair costs while nothing happens.
type idleResult struct {
	Name     string         `json:"name"`    // idle
	Process  string         `json:"process"` // master, slave
	CPU      float64        `json:"cpu_percent_of_core"`
	Memory   *memoryUse     `json:"memory"`
	Spread   benchSpread    `json:"spread"`
	Settings map[string]any `json:"settings"`
}

func newBenchIdle() *cobra.Command {
	o := benchOptions{size: 1 << 10, bytes: 1 << 30, placement: placeAny, producers: 1, outstanding: 1}
	cmd := &cobra.Command{
		Use: "idle", Short: "CPU and memory of a pair at rest", Args: noArgs,
		Long: "Starts a master and a slave with default settings, has the master put a few thousand messages, and measures\n" +
			"both when all of it is replicated and on the disk.",
		Example: "  haengine bench idle\n  haengine bench idle --duration 30s --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd, "idle", o, benchIdle, printIdle)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.duration, "duration", 10*time.Second, "measured time, all rounds together")
	f.IntVar(&o.rounds, "rounds", 5, "rounds")
	f.StringVar(&o.dir, "dir", "", "where the stores are made (default: the temporary directory)")
	addJSONFlag(cmd, &o.json)
	return cmd
}

func benchIdle(ctx context.Context, o benchOptions) ([]idleResult, error) {
	late, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	start := func(name string, args ...string) (*child, servingLine, error) {
		c, err := startChild(name, nil, append([]string{
			"serve", "--store", filepath.Join(o.dir, name), "--ha-listen", "127.0.0.1:0",
			"--admin-listen", "127.0.0.1:0", "--client-listen", "", "--log-format", "json",
		}, args...)...)
		if err != nil {
			return nil, servingLine{}, err
		}
		s, err := c.waitServing(late)
		if err != nil {
			c.kill()
		}
		return c, s, err
	}
	master, m, err := start("master", "--role", "SYNC_MASTER", "--load", "0,1KiB,5000", "--load-replicas", "1")
	if err != nil {
		return nil, err
	}
	defer master.kill()
	slave, _, err := start("slave", "--role", "SLAVE", "--master", m.HAListen)
	if err != nil {
		return nil, err
	}
	defer slave.kill()
	if err := waitAtRest(late, m.AdminListen, 5000<<10); err != nil {
		return nil, fmt.Errorf("%w; a node at rest is not reached", err)
	}
	return o.measureIdle(ctx, []*child{master, slave})
}

// waitAtRest waits until a master's log is at least so long, on its replica and on
// the disk.
func waitAtRest(ctx context.Context, admin string, end int64) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s, _, err := fetchStatus(ctx, admin)
		if err != nil {
			return err
		}
		if s.Max >= end && s.Flushed == s.Max && s.Confirmed == s.Max && s.Waiters == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (o benchOptions) measureIdle(ctx context.Context, nodes []*child) ([]idleResult, error) {
	each := o.duration / time.Duration(o.rounds)
	percent := make([][]float64, len(nodes))
	read := func() ([]time.Duration, error) {
		used := make([]time.Duration, len(nodes))
		for i, c := range nodes {
			var err error
			if used[i], err = runTime(c.cmd.Process.Pid); err != nil {
				return nil, c.failure(err)
			}
		}
		return used, nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Timers of the last puts still tick for a second; the first round is for them.
	for n := -1; n < o.rounds; n++ {
		before, err := read()
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if !sleep(ctx, timer, max(each, time.Second)) {
			return nil, ctx.Err()
		}
		took := time.Since(begun)
		after, err := read()
		if err != nil {
			return nil, err
		}
		for i := range nodes {
			if n >= 0 {
				percent[i] = append(percent[i], 100*(after[i]-before[i]).Seconds()/took.Seconds())
			}
		}
	}
	results := make([]idleResult, len(nodes))
	for i, c := range nodes {
		spread := benchSpread{}
		spread.values("cpu_percent_of_core", percent[i])
		results[i] = idleResult{
			Name: "idle", Process: c.name, CPU: median(percent[i]), Memory: memoryOf(c.cmd.Process.Pid), Spread: spread,
			Settings: map[string]any{"duration_seconds": o.duration.Seconds(), "rounds": o.rounds},
		}
	}
	return results, nil
}

func printIdle(w io.Writer, results []idleResult) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "process\tCPU, % of a core\tanonymous\tmapped\t")
	for _, r := range results {
		anonymous, mapped := "", ""
		if r.Memory != nil {
			anonymous, mapped = shortBytes(r.Memory.Anonymous), shortBytes(r.Memory.Mapped)
		}
		fmt.Fprintf(tw, "%s\t%.3g%s\t%s\t%s\t\n", r.Process, r.CPU, r.Spread.text("cpu_percent_of_core", threeDigits), anonymous, mapped)
	}
	tw.Flush()
}
