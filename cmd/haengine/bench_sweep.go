package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// sweepValue says which point of a sweep a result is.
type sweepValue struct {
	Axis  string `json:"axis"`
	Value int64  `json:"value"`
}

// sweepAxis is a setting of which a sweep tries several values, to show how cost
// grows with it.
type sweepAxis struct {
	name, short, long string
	values            string // that are tried when none are given
	most              int64
	unit              string                             // of the values, in the table
	set               func(o *benchOptions, value int64) // nil: replicas, which are no setting
	lag               bool                               // how late a replica is, in place of how long a put takes
}

func sweepAxes() []sweepAxis {
	return []sweepAxis{
		{
			name: "size", short: "Throughput and latency against the size of a record", values: "128,512,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB",
			long: "By 64 blocking producers unless --producers.",
			most: 4 << 20, unit: "body", set: func(o *benchOptions, v int64) { o.size = byteSize(v) },
		},
		{
			name: "outstanding", short: "Throughput and latency against the puts under way", values: "1,10,100,1000,10000",
			long: "By one producer that keeps so many under way.",
			most: 1 << 16, unit: "outstanding", set: func(o *benchOptions, v int64) { o.producers, o.outstanding = 1, int(v) },
		},
		{
			name: "producers", short: "Throughput and latency against the number of blocking producers", values: "1,2,4,8,16,32,64,128",
			most: 4096, unit: "producers", set: func(o *benchOptions, v int64) { o.producers, o.outstanding = int(v), 1 },
		},
		{
			name: "replicas", short: "Throughput, latency and the master's CPU against the number of replicas", values: "1,2,4,8,16,32,64",
			long: "Replicas are connections of one thread in another process that read, acknowledge and forget, so that the\nmaster's part can be seen; a put waits for the fastest of them.",
			most: 64, unit: "replicas",
		},
		{
			name: "load", short: "Latency against load: puts at a rate, whenever the ones before end", values: "1000,2000,5000,10000,20000,50000,100000,150000,200000",
			long: "Latencies count from when a put was due. A rate that is not reached is said in a note.",
			most: 1e8, unit: "puts/s", set: func(o *benchOptions, v int64) { o.rate, o.producers, o.outstanding = float64(v), 1, 1 },
		},
		{
			name: "lag", short: "How late an asynchronous replica is, against load", values: "1000,10000,50000,100000,200000,400000,0",
			long: "Every few milliseconds one put waits until the replica has it, which is what the lag is: the latencies are\ntheirs. The rate 0 is as many as one producer can.",
			most: 1e8, unit: "puts/s", set: func(o *benchOptions, v int64) { o.rate, o.producers, o.outstanding = float64(v), 1, 1 }, lag: true,
		},
	}
}

func newBenchSweep() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "How cost grows: throughput and latency against size, load, replicas and more",
		Long: "Measures the same work at several values of one setting. In each round every value has its turn,\n" +
			"on a new pair with a new store, its limit just before it; --bytes and --duration are those of one value.",
		Example: "  haengine bench sweep load\n  haengine bench sweep size --values 128,1KiB --duration 2s --rounds 3 --json",
	}
	asGroup(cmd)
	for _, a := range sweepAxes() {
		cmd.AddCommand(newSweepVerb(a))
	}
	return cmd
}

func newSweepVerb(a sweepAxis) *cobra.Command {
	o := benchOptions{size: 1 << 10, bytes: 1 << 30, placement: placeAny}
	s := sweep{axis: a}
	var values string
	cmd := &cobra.Command{
		Use: a.name, Short: a.short, Long: strings.TrimSpace(a.short + ". " + a.long), Args: noArgs,
		Example: "  haengine bench sweep " + a.name + "\n  haengine bench sweep " + a.name + " --values " + strings.Join(strings.Split(a.values, ",")[:3], ",") + " --duration 3s --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.values, err = parseValues(values, a.most); err != nil {
				return usage(cmd, err)
			}
			if a.name == "size" && !cmd.Flags().Changed("producers") {
				o.producers = 64
			}
			return runBench(cmd, "sweep "+a.name, o, s.run, s.table)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&values, "values", a.values, "what is tried, separated by commas")
	if !a.lag {
		cmd.Flags().BoolVar(&s.async, "async", false, "puts of an asynchronous master, which wait for nobody")
	}
	return cmd
}

func parseValues(s string, most int64) ([]int64, error) {
	var values []int64
	for part := range strings.SplitSeq(s, ",") {
		v, err := parseByteSize(part)
		if err != nil {
			return nil, fmt.Errorf("--values: %w", err)
		}
		if int64(v) > most {
			return nil, fmt.Errorf("--values: %s is too much, want at most %d", part, most)
		}
		values = append(values, int64(v))
	}
	return values, nil
}

// sweep is one run.
type sweep struct {
	axis   sweepAxis
	values []int64
	async  bool
}

// sweepPoint is one value of it, with its rounds so far.
type sweepPoint struct {
	value     int64
	o         benchOptions
	limit     wireLimit // its run is nil without a limit
	ours, raw []round
}

func (s *sweep) run(ctx context.Context, o benchOptions) ([]benchResult, error) {
	points := make([]sweepPoint, len(s.values))
	defer func() {
		for _, p := range points {
			p.limit.close()
		}
	}()
	var wrong []error
	for i, v := range s.values {
		p := &points[i]
		p.value, p.o = v, o
		if s.axis.set != nil {
			s.axis.set(&p.o, v)
		}
		wrong = append(wrong, p.o.check())
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	for i := range points {
		if err := s.findLimit(ctx, &points[i]); err != nil {
			return nil, err
		}
	}
	for range o.rounds {
		for i := range points {
			if err := s.turn(ctx, &points[i]); err != nil {
				return nil, fmt.Errorf("%s %d: %w", s.axis.name, points[i].value, err)
			}
		}
	}
	results := make([]benchResult, len(points))
	for i := range points {
		results[i] = s.result(&points[i])
	}
	return results, nil
}

func (s *sweep) findLimit(ctx context.Context, p *sweepPoint) (err error) {
	switch {
	case s.axis.lag || !p.o.limit:
	case s.async:
		p.limit = wireLimit{name: "copy into a populated map", run: func(_ context.Context, d time.Duration) (round, error) {
			return copyIntoMap(int(p.o.size), d)
		}}
	default:
		p.limit, err = p.o.wireLimit(ctx)
	}
	return err
}

// turn measures a point once, and its limit before it.
func (s *sweep) turn(ctx context.Context, p *sweepPoint) error {
	each := p.o.duration / time.Duration(p.o.rounds)
	if p.limit.run != nil {
		l, err := p.limit.run(ctx, each)
		if err != nil {
			return fmt.Errorf("limit: %w", err)
		}
		p.raw = append(p.raw, l)
	}
	r, err := s.measure(ctx, p, each)
	p.ours = append(p.ours, r)
	return err
}

// measure makes a pair for one turn, so that no turn finds what the one before
// it left: pages, a long log, a large heap.
func (s *sweep) measure(ctx context.Context, p *sweepPoint, each time.Duration) (r round, err error) {
	o := p.o
	o.dir = filepath.Join(o.dir, "turn")
	defer os.RemoveAll(o.dir)
	debug.FreeOSMemory() // the last turn's master was in this process, too
	role := engine.SyncMaster
	if s.async || s.axis.lag {
		role = engine.AsyncMaster
	}
	var pair *benchPair
	if s.axis.set == nil {
		if pair, err = openMaster(role, o); err != nil {
			return r, err
		}
		defer pair.close()
		if err := pair.startReplicas(ctx, int(p.value), 0); err != nil {
			return r, err
		}
	} else {
		if pair, err = startPair(ctx, role, o); err != nil {
			return r, err
		}
		defer pair.close()
	}
	if _, err := pair.puts(ctx, each/4, int64(o.bytes)/8); err != nil { // warm
		return r, err
	}
	most := int64(o.bytes) / int64(o.rounds)
	if s.axis.lag {
		return pair.lag(ctx, each, most)
	}
	return pair.puts(ctx, each, most)
}

func (s *sweep) result(p *sweepPoint) benchResult {
	name := "sync"
	switch {
	case s.axis.lag:
		name = "lag"
	case s.async:
		name = "async"
	}
	r := p.o.result(name, p.ours)
	r.Sweep = &sweepValue{s.axis.name, p.value}
	if p.limit.run != nil {
		r.besideLimit(p.limit.name, p.o.producers*p.o.outstanding == 1, p.ours, p.raw)
	} else {
		r.judge(shortest(p.ours))
	}
	// The open loop ends when its last put does: a rate that is not reached shows in the time.
	if offered := p.o.rate; offered > 0 && r.MessagesPerSecond < 0.95*offered {
		r.note(fmt.Sprintf("of %s puts a second %s were reached: the latencies are those of a queue that grows", threeDigits(offered), threeDigits(r.MessagesPerSecond)))
	}
	return r
}

// table prints a row for each value.
func (s *sweep) table(w io.Writer, results []benchResult) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	what := "latency"
	if s.axis.lag {
		what = "lag"
	}
	fmt.Fprintf(tw, "%s\tmessages/s\tbytes/s\t%s p50 µs\tp99 µs\tp99.9 µs\tto limit\tmaster's CPU\tmaster's memory\t\n", s.axis.unit, what)
	for _, r := range results {
		to, cpu, memory := "", "", ""
		if r.Ratio != nil {
			to = threeDigits(*r.Ratio) + r.Spread.text("ratio_to_limit", threeDigits)
		}
		if r.MasterCPU != nil {
			cpu = threeDigits(*r.MasterCPU) + " µs a message"
		}
		if m := r.Memory; m != nil && m.Master != nil {
			memory = shortBytes(m.Master.Anonymous) + " + " + shortBytes(m.Master.Mapped) + " mapped"
		}
		fmt.Fprintf(tw, "%d\t%s%s\t%s\t%s%s\t%s%s\t%s%s\t%s\t%s\t%s\t\n", r.Sweep.Value, count(int64(r.MessagesPerSecond)), r.Spread.text("messages_per_second", threeDigits),
			shortBytes(int64(r.BytesPerSecond)), threeDigits(*r.P50), r.Spread.text("p50_us", threeDigits), threeDigits(*r.P99), r.Spread.text("p99_us", threeDigits),
			threeDigits(*r.P999), r.Spread.text("p999_us", threeDigits), to, cpu, memory)
	}
	tw.Flush()
	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(w, "%s %d: %s\n", s.axis.name, r.Sweep.Value, r.Note)
		}
	}
}
