package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// benchOptions are the flags that the benchmarks share.
type benchOptions struct {
	size        byteSize
	producers   int
	outstanding int
	duration    time.Duration
	bytes       byteSize // log bytes at most (sync, async), to copy (catchup)
	rounds      int
	inProcess   bool
	limit       bool // beside the limit
	spin        time.Duration
	congestion  string
	frameBytes  byteSize
	rate        float64 // puts a second, whenever the ones before end; 0: closed loop
	placement   placement
	pins        pins // what placement came to
	set         passed
	dir         string
	json        bool
}

// benchResult is one benchmark's figures. A nil one was not measured.
type benchResult struct {
	Name              string         `json:"name"`
	Messages          int64          `json:"messages"`
	MessagesPerSecond float64        `json:"messages_per_second"`
	BytesPerSecond    float64        `json:"bytes_per_second"`
	P50               *float64       `json:"p50_us"`
	P99               *float64       `json:"p99_us"`
	P999              *float64       `json:"p999_us"`
	Max               *float64       `json:"max_us"`
	Allocs            *float64       `json:"allocs_per_message"`
	CPUSecondsPerGB   *float64       `json:"cpu_seconds_per_gb"`
	MasterCPU         *float64       `json:"master_cpu_us_per_message"`
	Memory            *benchMemory   `json:"memory"`
	Spread            benchSpread    `json:"spread"`
	Limit             *benchLimit    `json:"limit"`
	Ratio             *float64       `json:"ratio_to_limit"`   // rate over limit's rate, or time over limit's time
	Note              string         `json:"note,omitempty"`   // why the figures are not to be believed
	Limits            []benchLimit   `json:"limits,omitempty"` // all that were measured, where limit is the best of several
	Copy              *copyFigures   `json:"copy,omitempty"`
	Sweep             *sweepValue    `json:"sweep,omitempty"`
	Settings          map[string]any `json:"settings"`
}

// benchLimit is what the machine does without a log or a protocol, measured in
// the same run. One of the figures is the one that ratio_to_limit is about.
type benchLimit struct {
	Name           string      `json:"name"`
	BytesPerSecond *float64    `json:"bytes_per_second,omitempty"`
	P50            *float64    `json:"p50_us,omitempty"`
	Spread         *[2]float64 `json:"spread,omitempty"` // of that figure, over the rounds
}

// bench is a benchmark: it measures in rounds, each beside its limit.
type bench struct {
	name, short, long string
	run               func(ctx context.Context, o benchOptions) ([]benchResult, error)
}

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure puts and copies beside the machine's own limits",
		Long: "Measures beside the raw limit of the same machine in the same minutes: both take turns\n" +
			"in rounds, and the medians are compared. Master and slave are separate processes\n" +
			"unless --in-process. Absolute figures say little; the ratio is the result.",
		Example: "  haengine bench sync --producers 1\n" +
			"  haengine bench sync --producers 64 --size 1KiB --json\n" +
			"  haengine bench catchup --bytes 1GiB\n" +
			"  haengine bench clients\n" +
			"  haengine bench limit",
	}
	asGroup(cmd)
	for _, b := range []bench{
		{"sync", "Synchronous puts, each confirmed by a slave", "The limit is an epoll ping-pong of the same sizes, with as many messages under way.", benchSync},
		{"async", "Asynchronous puts, with a slave that follows", "The limit is a copy of the same bytes into a populated map.", benchAsync},
		{"catchup", "A new slave that copies a whole log", "The limit is sendfile of the same bytes into the populated map of a fresh file.", benchCatchup},
		{"limit", "The machine's limits alone", "Copy into a map, ping-pong, stream, and sendfile into a fresh file.", benchLimits},
	} {
		cmd.AddCommand(newBenchVerb(b))
	}
	cmd.AddCommand(newBenchClients(), newBenchPeer())
	addGrowthBenches(cmd)
	return cmd
}

func newBenchVerb(b bench) *cobra.Command {
	o := benchOptions{size: 1 << 10, bytes: 1 << 30, placement: placeAny}
	cmd := &cobra.Command{
		Use:     b.name,
		Short:   b.short,
		Long:    b.short + ". " + b.long,
		Example: "  haengine bench " + b.name + "\n  haengine bench " + b.name + " --size 128 --duration 10s --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd, b.name, o, b.run, eachResult)
		},
	}
	o.addFlags(cmd)
	return cmd
}

// addFlags adds those that all benchmarks share.
func (o *benchOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&o.size, "size", "body of a message")
	f.IntVar(&o.producers, "producers", 1, "goroutines that put")
	f.IntVar(&o.outstanding, "outstanding", 1, "puts under way for each producer")
	f.Float64Var(&o.rate, "rate", 0, "puts a second, whether or not earlier ones have ended; 0: each producer puts when its last one has")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "measured time, all rounds together")
	f.Var(&o.bytes, "bytes", "log bytes at most; for catchup: to copy")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, each of the benchmark and its limit")
	f.BoolVar(&o.limit, "limit", true, "measure the limit, too; false for comparing settings in less time")
	f.BoolVar(&o.inProcess, "in-process", false, "run the slave in this process, too")
	f.Var(&o.placement, "placement", "cores of master and slave, and of the limit alike: any, one-core or two-cores")
	f.DurationVar(&o.spin, "spin", 0, "how long idle loops poll before they block")
	f.StringVar(&o.congestion, "tcp-congestion", "", "TCP congestion control of both (default: the kernel's)")
	f.Var(&o.frameBytes, "frame-bytes", "body of a frame at most; 0: the nodes' default")
	f.StringArrayVar((*[]string)(&o.set), "set", nil, "NAME=VALUE: a setting of serve for both nodes, over the flags here; may be repeated")
	f.StringVar(&o.dir, "dir", "", "where the stores are made (default: the temporary directory)")
	addJSONFlag(cmd, &o.json)
}

func (o *benchOptions) check() error {
	var wrong []error
	between := func(name string, v, low, high int64) {
		if v < low || v > high {
			wrong = append(wrong, fmt.Errorf("--%s %d is out of range, want %d to %d", name, v, low, high))
		}
	}
	between("size", int64(o.size), 1, 4<<20)
	between("producers", int64(o.producers), 1, 4096)
	between("outstanding", int64(o.outstanding), 1, 1<<16)
	between("rounds", int64(o.rounds), 1, 1000)
	between("bytes", int64(o.bytes), 1<<20, 1<<40)
	if !(o.rate >= 0 && o.rate <= 1e8) {
		wrong = append(wrong, fmt.Errorf("--rate %g is out of range, want 0 to 1e8", o.rate))
	}
	if o.frameBytes != 0 {
		between("frame-bytes", int64(o.frameBytes), engine.FrameBytesMin, engine.FrameBytesMax)
	}
	if o.duration <= 0 || o.spin < 0 {
		wrong = append(wrong, fmt.Errorf("--duration %v and --spin %v: want more than 0, and 0 or more", o.duration, o.spin))
	}
	wrong = append(wrong, o.set.apply(new(engine.Options)))
	return errors.Join(wrong...)
}

// runBench checks the settings, measures, and prints: with --json one object for
// each result, otherwise what text writes of all of them.
func runBench[T any](cmd *cobra.Command, name string, o benchOptions, measure func(context.Context, benchOptions) ([]T, error), text func(io.Writer, []T)) error {
	if err := o.check(); err != nil {
		return usage(cmd, err)
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	dir, err := os.MkdirTemp(o.dir, "haengine-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	takeProcessors(producersProcessors(processors(), runtime.NumCPU()))
	at, undo, err := o.placement.pin()
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	defer undo()
	o.pins = at
	results, err := measure(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return fmt.Errorf("bench %s: %w", name, err)
	}
	if !o.json {
		text(cmd.OutOrStdout(), results)
		return nil
	}
	for _, r := range results {
		if err := writeJSON(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	}
	return nil
}

// eachResult prints one after the other.
func eachResult(w io.Writer, results []benchResult) {
	for _, r := range results {
		r.print(w)
	}
}

func (o *benchOptions) settings() map[string]any {
	return map[string]any{
		"size_bytes": int64(o.size), "producers": o.producers, "outstanding": o.outstanding, "duration_seconds": o.duration.Seconds(),
		"rounds": o.rounds, "in_process": o.inProcess, "spin_us": µs(o.spin), "tcp_congestion": o.congestion, "frame_bytes": int64(o.frameBytes),
		"rate": o.rate, "placement": string(o.placement),
		"set": o.set.settings(),
	}
}

// roundMin is the shortest round whose figures say something.
const roundMin = 500 * time.Millisecond

// judge says in Note why the figures are not to be believed, if they are not.
// shortest is the shortest round, of the benchmark or of its limit.
func (r *benchResult) judge(shortest time.Duration) {
	if r.Ratio != nil {
		faster := *r.Ratio > 1
		if r.Limit.P50 != nil { // a ratio of times
			faster = *r.Ratio < 1
		}
		if faster {
			r.note("faster than the limit: that sleeps between messages where loops look for the next one first; or the sample is too small, or the machine not quiet")
		}
	}
	r.judgeLength(shortest)
}

// judgeLength is judge without a limit.
func (r *benchResult) judgeLength(shortest time.Duration) {
	if shortest < roundMin {
		r.note(fmt.Sprintf("a round took %s only, which is too small a sample; give a longer --duration or more --bytes", shortDuration(shortest)))
	}
}

// note adds a reason not to believe the figures.
func (r *benchResult) note(why string) {
	if r.Note != "" {
		why = r.Note + "; " + why
	}
	r.Note = why
}

func (r benchResult) print(w io.Writer) {
	pairs := []any{"benchmark", r.Name}
	if r.Messages > 0 {
		pairs = append(pairs, "messages", fmt.Sprintf("%s, %s a second%s", count(r.Messages), count(int64(r.MessagesPerSecond)), r.Spread.text("messages_per_second", threeDigits)))
	}
	if r.BytesPerSecond > 0 {
		size := func(v float64) string { return shortBytes(int64(v)) }
		pairs = append(pairs, "bytes", shortBytes(int64(r.BytesPerSecond))+" a second"+r.Spread.text("bytes_per_second", size))
	}
	if r.P50 != nil {
		pairs = append(pairs, "latency", fmt.Sprintf("p50 %.4g µs%s  p99 %.4g µs%s  p99.9 %.4g µs%s  max %.4g µs",
			*r.P50, r.Spread.text("p50_us", threeDigits), *r.P99, r.Spread.text("p99_us", threeDigits), *r.P999, r.Spread.text("p999_us", threeDigits), *r.Max))
	}
	if r.Allocs != nil {
		pairs = append(pairs, "allocations", fmt.Sprintf("%.3f a message", *r.Allocs))
	}
	if r.CPUSecondsPerGB != nil {
		pairs = append(pairs, "cpu", fmt.Sprintf("%.3g s a GB%s", *r.CPUSecondsPerGB, r.Spread.text("cpu_seconds_per_gb", threeDigits)))
	}
	if r.MasterCPU != nil {
		pairs = append(pairs, "master's cpu", fmt.Sprintf("%.3g µs a message", *r.MasterCPU))
	}
	if r.Memory != nil {
		pairs = append(pairs, "memory", r.Memory)
	}
	if l := r.Limit; l != nil {
		switch {
		case l.P50 != nil:
			pairs = append(pairs, "limit", fmt.Sprintf("%s: p50 %.4g µs%s", l.Name, *l.P50, l.spread(threeDigits)))
		case l.BytesPerSecond != nil:
			size := func(v float64) string { return shortBytes(int64(v)) }
			pairs = append(pairs, "limit", fmt.Sprintf("%s: %s a second%s", l.Name, shortBytes(int64(*l.BytesPerSecond)), l.spread(size)))
		}
	}
	for _, l := range r.Limits {
		pairs = append(pairs, "", fmt.Sprintf("%s: %s a second", l.Name, shortBytes(int64(*l.BytesPerSecond))))
	}
	if r.Ratio != nil {
		pairs = append(pairs, "ratio to limit", fmt.Sprintf("%.3g%s", *r.Ratio, r.Spread.text("ratio_to_limit", threeDigits)))
	}
	if c := r.Copy; c != nil {
		pairs = append(pairs, "first acknowledgement", fmt.Sprintf("%.3g ms after the first report%s", c.FirstAck, r.Spread.text("first_ack_ms", threeDigits)),
			"verified and queued", fmt.Sprintf("after %.3g times the copy's time%s", c.Queued, r.Spread.text("queued_to_copied", threeDigits)))
	}
	if r.Note != "" {
		pairs = append(pairs, "note", r.Note)
	}
	fields(w, pairs...)
	fmt.Fprintln(w)
}

func (l *benchLimit) spread(format func(float64) string) string {
	if l.Spread == nil {
		return ""
	}
	return benchSpread{"": *l.Spread}.text("", format)
}
