package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// outageResult is how long synchronous puts fail when the only replica goes.
type outageResult struct {
	Name     string         `json:"name"` // outage
	Kind     string         `json:"kind"` // killed, cut
	After    float64        `json:"recovered_ms"`
	Serving  *float64       `json:"recovered_from_serving_ms"`
	Memory   *benchMemory   `json:"memory"`
	Spread   benchSpread    `json:"spread"`
	Settings map[string]any `json:"settings"`
}

func newBenchOutage() *cobra.Command {
	o := benchOptions{size: 1 << 10, bytes: 1 << 28, placement: placeAny, producers: 1, outstanding: 1, duration: time.Second}
	cmd := &cobra.Command{
		Use: "outage", Short: "How soon puts succeed again after the replica was killed, or its connection cut", Args: noArgs,
		Long: "A slave is killed and started again at once: the time counts from the start of its process, and from when it\n" +
			"says that it serves. Or its connection is closed between both: the time counts from then.",
		Example: "  haengine bench outage\n  haengine bench outage --rounds 10 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd, "outage", o, benchOutage, printOutages)
		},
	}
	f := cmd.Flags()
	f.Var(&o.size, "size", "body of a message")
	f.Var(&o.bytes, "bytes", "log bytes that are there before")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, each with a kill and a cut")
	f.StringVar(&o.dir, "dir", "", "where the stores are made (default: the temporary directory)")
	addJSONFlag(cmd, &o.json)
	return cmd
}

// benchOutage takes turns between kills and cuts.
func benchOutage(ctx context.Context, o benchOptions) ([]outageResult, error) {
	p, err := openMaster(engine.SyncMaster, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	wire, err := listenCable(p.master.HAAddr().String())
	if err != nil {
		return nil, err
	}
	defer wire.close()
	p.through = wire.address()
	if err := p.startSlave("slave"); err != nil {
		return nil, err
	}
	if err := p.waitInSync(ctx); err != nil {
		return nil, err
	}
	if _, err := p.fill(ctx); err != nil {
		return nil, err
	}
	var killed, serving, cut []float64
	for range o.rounds {
		if _, err := p.succeedsAgain(ctx); err != nil { // all is well
			return nil, err
		}
		p.stopSlave()
		begun := time.Now()
		if err := p.startSlave("slave"); err != nil {
			return nil, err
		}
		serves := make(chan time.Time, 1)
		go func() {
			if _, err := p.child.waitServing(ctx); err == nil {
				serves <- time.Now()
			}
		}()
		ok, err := p.succeedsAgain(ctx)
		if err != nil {
			return nil, p.child.failure(err)
		}
		killed, serving = append(killed, ok.Sub(begun).Seconds()*1e3), append(serving, max(ok.Sub(<-serves).Seconds(), 0)*1e3)

		begun = time.Now()
		wire.cut()
		if ok, err = p.succeedsAgain(ctx); err != nil {
			return nil, p.child.failure(err)
		}
		cut = append(cut, ok.Sub(begun).Seconds()*1e3)
	}
	memory := memoryWith(p.child)
	settings := map[string]any{"size_bytes": int64(o.size), "rounds": o.rounds, "log_bytes": p.master.Status().MaxOffset}
	fromServing := median(serving)
	results := []outageResult{
		{Name: "outage", Kind: "killed", After: median(killed), Serving: &fromServing, Memory: &memory, Spread: benchSpread{}, Settings: settings},
		{Name: "outage", Kind: "cut", After: median(cut), Memory: &memory, Spread: benchSpread{}, Settings: settings},
	}
	results[0].Spread.values("recovered_ms", killed)
	results[0].Spread.values("recovered_from_serving_ms", serving)
	results[1].Spread.values("recovered_ms", cut)
	return results, nil
}

// succeedsAgain puts until one that it began has its two copies, and gives the
// time of that.
func (p *benchPair) succeedsAgain(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m := engine.Message{Topic: "bench", Body: make([]byte, p.options.size)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, err := p.master.PutWaiting(ctx, &m, engine.Waits{Copies: 2, Timeout: 100 * time.Millisecond})
		if err == nil {
			return time.Now(), nil
		}
		if !sleep(ctx, timer, time.Millisecond) { // one without a replica fails at once
			return time.Time{}, fmt.Errorf("puts do not succeed again: %w", err)
		}
	}
}

// cable passes on what goes between a slave and its master, until it is cut;
// the next connection is another one.
type cable struct {
	listener net.Listener
	to       string
	working  sync.WaitGroup
	mu       struct {
		sync.Mutex
		open   map[net.Conn]struct{}
		closed bool
	}
}

func listenCable(to string) (*cable, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cable{listener: listener, to: to}
	c.mu.open = map[net.Conn]struct{}{}
	c.working.Go(c.accept)
	return c, nil
}

func (c *cable) address() string { return c.listener.Addr().String() }

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial("tcp4", c.to)
		if err != nil || !c.keep(near, far) {
			near.Close() // the slave tries again
			continue
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			c.working.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // however it ends, both ends are closed
				c.drop(near, far)
			})
		}
	}
}

func (c *cable) keep(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		if c.mu.closed {
			end.Close()
			continue
		}
		c.mu.open[end] = struct{}{}
	}
	return !c.mu.closed
}

func (c *cable) drop(ends ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		end.Close()
		delete(c.mu.open, end)
	}
}

// cut closes all connections.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.mu.open {
		end.Close()
	}
}

func (c *cable) close() {
	c.listener.Close()
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cut()
	c.working.Wait()
}

func printOutages(w io.Writer, results []outageResult) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "replica\tputs succeed after\tof that from serving\tmemory\t")
	for _, r := range results {
		serving := ""
		if r.Serving != nil {
			serving = fmt.Sprintf("%.3g ms%s", *r.Serving, r.Spread.text("recovered_from_serving_ms", threeDigits))
		}
		fmt.Fprintf(tw, "%s\t%.3g ms%s\t%s\t%s\t\n", r.Kind, r.After, r.Spread.text("recovered_ms", threeDigits), serving, r.Memory)
	}
	tw.Flush()
}
