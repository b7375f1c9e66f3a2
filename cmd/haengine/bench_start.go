package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// startResult is how long a node takes from its start until it serves.
type startResult struct {
	Name     string         `json:"name"` // start
	State    string         `json:"state"`
	LogBytes int64          `json:"log_bytes"`
	Unsynced int64          `json:"unsynced_bytes"` // appended, and not flushed when the process was killed
	Start    float64        `json:"start_ms"`       // median
	Rate     *float64       `json:"recovered_bytes_per_second"`
	Memory   *benchMemory   `json:"memory"` // of the node that has just started, as master
	Spread   benchSpread    `json:"spread"`
	Settings map[string]any `json:"settings"`
}

// The states in which a store is found.
const (
	startClean  = "clean"
	startKilled = "killed"            // SIGKILL while it was at rest
	startTail   = "killed under load" // SIGKILL with bytes that were never flushed
)

func newBenchStart() *cobra.Command {
	o := benchOptions{size: 1 << 10, bytes: 1 << 30, placement: placeAny}
	s := startBench{tail: 256 << 20}
	var values string
	cmd := &cobra.Command{
		Use: "start", Short: "Recovery time against log size: clean, after SIGKILL, with an unflushed tail", Args: noArgs,
		Long: "Starts nodes on logs of several sizes and measures from the start of the process until it serves: after\n" +
			"a clean stop, after SIGKILL at rest, and after SIGKILL with --tail bytes that no flush has reached. The log\n" +
			"is in the page cache, as it is after a crash of the process alone.",
		Example: "  haengine bench start\n  haengine bench start --values 64MiB,1GiB --rounds 3 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.values, err = parseValues(values, 1<<40); err != nil {
				return usage(cmd, err)
			}
			return runBench(cmd, "start", o, s.run, printStarts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&values, "values", "64MiB,256MiB,1GiB,4GiB", "log bytes, separated by commas")
	f.Var(&s.tail, "tail", "bytes that no flush has reached")
	f.Var(&o.size, "size", "body of a message")
	f.IntVar(&o.rounds, "rounds", 5, "starts in each state")
	f.StringVar(&o.dir, "dir", "", "where the stores are made (default: the temporary directory)")
	o.producers, o.outstanding, o.duration = 1, 1, time.Second // not used
	addJSONFlag(cmd, &o.json)
	return cmd
}

type startBench struct {
	values []int64
	tail   byteSize
}

func (s startBench) run(ctx context.Context, o benchOptions) ([]startResult, error) {
	var results []startResult
	for _, bytes := range s.values {
		o := o
		o.bytes, o.dir = byteSize(bytes), filepath.Join(o.dir, "start")
		if err := o.check(); err != nil {
			return nil, err
		}
		more, err := s.size(ctx, o)
		os.RemoveAll(o.dir)
		if err != nil {
			return nil, fmt.Errorf("log of %s: %w", shortBytes(bytes), err)
		}
		results = append(results, more...)
	}
	return results, nil
}

// size measures all states on a log of one size, which is new in each round: a
// tail makes it longer.
func (s startBench) size(ctx context.Context, o benchOptions) ([]startResult, error) {
	type state struct {
		name   string
		tail   int64
		took   []float64
		memory benchMemory
	}
	clean, killed, tail := &state{name: startClean}, &state{name: startKilled}, &state{name: startTail, tail: int64(s.tail)}
	once := func(st *state, end func(*child) error) error {
		took, node, err := o.startNode(ctx)
		if err != nil {
			return err
		}
		st.took = append(st.took, took.Seconds()*1e3)
		st.memory.atLeast(benchMemory{Master: memoryOf(node.cmd.Process.Pid)})
		return end(node)
	}
	kill := func(c *child) error { c.kill(); return nil }
	for range o.rounds {
		os.RemoveAll(o.dir)
		if err := o.fillStore(ctx, 0); err != nil {
			return nil, err
		}
		if err := once(clean, kill); err != nil {
			return nil, err
		}
		if err := once(killed, (*child).stop); err != nil {
			return nil, err
		}
		if s.tail == 0 {
			continue
		}
		if err := o.fillStore(ctx, int64(s.tail)); err != nil {
			return nil, err
		}
		if err := once(tail, (*child).stop); err != nil {
			return nil, err
		}
	}
	var results []startResult
	for _, st := range []*state{clean, killed, tail} {
		if len(st.took) == 0 {
			continue
		}
		r := startResult{Name: "start", State: st.name, LogBytes: int64(o.bytes), Unsynced: st.tail, Start: median(st.took), Memory: &st.memory, Spread: benchSpread{}}
		r.Spread.values("start_ms", st.took)
		r.Settings = map[string]any{"size_bytes": int64(o.size), "rounds": o.rounds, "segment_bytes": o.segment()}
		if more := r.Start - median(clean.took); st.tail > 0 && more > 0 {
			r.Rate = ratio(float64(st.tail), more/1e3)
		}
		results = append(results, r)
	}
	return results, nil
}

// startNode starts a node on the store and measures until it says that it
// serves.
func (o benchOptions) startNode(ctx context.Context) (time.Duration, *child, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	begun := time.Now()
	node, err := startChild("node", nil, "serve", "--store", filepath.Join(o.dir, "store"), "--ha-listen", "127.0.0.1:0", "--admin-listen", "", "--client-listen", "",
		"--log-format", "json")
	if err != nil {
		return 0, nil, err
	}
	if _, err := node.waitServing(ctx); err != nil {
		node.kill()
		return 0, nil, err
	}
	return time.Since(begun), node, nil
}

// fillStore has another process fill the store, and kills it if it is to leave a
// tail. Without one the store is left clean.
func (o benchOptions) fillStore(ctx context.Context, tail int64) error {
	filled := make(chan struct{}, 1)
	c, err := startChild("filler", func([]byte) { filled <- struct{}{} }, "bench", "peer", "fill", filepath.Join(o.dir, "store"),
		strconv.FormatInt(int64(o.bytes), 10), strconv.FormatInt(o.segment(), 10), strconv.FormatInt(int64(o.size), 10), strconv.FormatInt(tail, 10))
	if err != nil {
		return err
	}
	defer c.kill()
	select {
	case <-filled:
		return nil
	case <-c.exited:
		return c.failure(errors.New("ended in the middle"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// peerFill is that process. Arguments: the store, the log's bytes, a segment's,
// a body's, the tail's. It makes the log as long as is asked, flushes it and
// closes the store; then it appends the tail, which nothing flushes, says a line
// and waits to be killed.
func peerFill(args []string) error {
	if len(args) != 5 {
		return errors.New("a store and four numbers are needed")
	}
	var n [4]int64
	for i, a := range args[1:] {
		var err error
		if n[i], err = strconv.ParseInt(a, 10, 64); err != nil {
			return err
		}
	}
	o := benchOptions{dir: args[0], bytes: byteSize(n[0]), size: byteSize(n[2])}
	options, err := o.nodeOptions("")
	if err != nil {
		return err
	}
	options.SegmentBytes = n[1]
	master, err := engine.Open(options)
	if err != nil {
		return err
	}
	ctx := context.Background()
	p := benchPair{options: o, master: master}
	_, err = p.fill(ctx)
	end := master.Status().MaxOffset
	if err := errors.Join(err, master.Close(ctx)); err != nil {
		return err
	}
	if tail := n[3]; tail > 0 {
		options.FlushInterval, options.FlushThorough = time.Hour, time.Hour
		if p.master, err = engine.Open(options); err != nil {
			return err
		}
		if _, err := p.append(ctx, end+tail); err != nil {
			return err
		}
	}
	fmt.Println("filled")
	select {} // whoever started this process kills it
}

func printStarts(w io.Writer, results []startResult) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "log\tfound\tstart\trecovered\tmemory\t")
	for _, r := range results {
		rate := ""
		if r.Rate != nil {
			rate = fmt.Sprintf("%s, %s a second", shortBytes(r.Unsynced), shortBytes(int64(*r.Rate)))
		}
		fmt.Fprintf(tw, "%s\t%s\t%.3g ms%s\t%s\t%s\t\n", shortBytes(r.LogBytes), r.State, r.Start, r.Spread.text("start_ms", threeDigits), rate, r.Memory)
	}
	tw.Flush()
}
