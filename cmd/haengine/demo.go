package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

type demoOptions struct {
	messages  int64
	size      byteSize
	replicas  int // slaves
	keep      bool
	json      bool
	fromStore string
	putsFor   time.Duration // about how long the puts take, whatever their number
}

func newDemo() *cobra.Command {
	o := demoOptions{size: 1 << 10}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job: replication, a killed slave, equal logs",
		Long: "Starts a synchronous master and slaves as processes of their own on free ports of\n" +
			"this machine, puts messages, kills one slave with SIGKILL and starts it again, and at\n" +
			"the end compares all logs byte by byte. Needs no set-up and leaves nothing behind.",
		Example: "  haengine demo\n" +
			"  haengine demo --messages 100000 --size 4KiB --slaves 3 --keep\n" +
			"  haengine demo --from-store /var/lib/rocketmq/store",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.fromStore != "" && !cmd.Flags().Changed("messages") {
				o.messages = 2000
			}
			if o.messages < 1 || o.size < 1 || o.size > 4<<20 || o.replicas < 1 || o.replicas > 16 || o.putsFor <= 0 {
				return usagef(cmd, "--messages %d, --size %s, --slaves %d, --duration %v: want 1 message or more, 1 to 4MiB, 1 to 16 slaves, more than 0", o.messages, o.size, o.replicas, o.putsFor)
			}
			return runDemo(cmd, o)
		},
	}
	cmd.Flags().Int64Var(&o.messages, "messages", 20000, "messages to put (2000 with --from-store)")
	cmd.Flags().Var(&o.size, "size", "body of each message")
	cmd.Flags().IntVar(&o.replicas, "slaves", 2, "slaves")
	cmd.Flags().DurationVar(&o.putsFor, "duration", 6*time.Second, "how long the puts take together, so that there is something to watch")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the stores and say where they are")
	cmd.Flags().StringVar(&o.fromStore, "from-store", "", "begin with a copy of this store; itself is only read")
	addJSONFlag(cmd, &o.json)
	return cmd
}

func runDemo(cmd *cobra.Command, o demoOptions) (err error) {
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	dir, err := os.MkdirTemp("", "haengine-demo-")
	if err != nil {
		return err
	}
	if !o.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	d := &demo{demoOptions: o, dir: dir, begun: time.Now(), view: newDemoView(cmd.ErrOrStderr(), o)}
	defer d.killAll()
	defer d.view.end()
	if err := d.run(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	d.view.end()
	r, err := d.compare(cmd)
	if err != nil {
		return err
	}
	if err := answer(cmd, o.json, r, r.print); err != nil {
		return err
	}
	return r.verdict()
}

// demo is one run. It belongs to one goroutine; what the children print comes
// in through tally, which has a lock of its own.
type demo struct {
	demoOptions
	dir    string
	begun  time.Time
	view   *demoView
	tally  putTally
	master *child
	slaves []*child
	ha     string // where the master listens
	admin  string // the master's admin address

	segmentBytes   int64
	killedAfter    int64 // puts that had ended when the slave was killed
	restartedAfter int64
	recovery       time.Duration // from the restart of the slave until it held everything again
}

func (d *demo) store(name string) string { return filepath.Join(d.dir, name) }

// run takes the steps of the demo up to the clean end of all nodes.
func (d *demo) run(ctx context.Context) error {
	d.segmentBytes = 16 << 20
	if d.fromStore != "" {
		if err := d.copyStore(ctx); err != nil {
			return err
		}
	}
	if err := d.startMaster(ctx); err != nil {
		return err
	}
	for i := range d.slaves {
		if err := d.startSlave(ctx, i); err != nil {
			return err
		}
	}
	if err := d.watch(ctx, "the puts begin", func(s nodeStatus) bool { return d.tally.ended() > 0 }); err != nil {
		return err
	}
	d.view.event("%s connected; puts begin, each waits for a slave", plural(int64(d.replicas), "slave"))
	if err := d.killAndRestart(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx, "all puts end", func(nodeStatus) bool { return d.tally.ended() >= d.messages }); err != nil {
		return err
	}
	if err := d.watch(ctx, "all slaves hold everything", d.allEqual); err != nil {
		return err
	}
	d.view.event("all %s ended, all slaves hold the whole log; stopping the nodes", plural(d.messages, "put"))
	return d.stopAll()
}

// killAndRestart crashes a slave at a third of the puts and starts it again at
// two thirds.
func (d *demo) killAndRestart(ctx context.Context) error {
	if err := d.watch(ctx, "a third of the puts", func(nodeStatus) bool { return d.tally.ended() >= d.messages/3 }); err != nil {
		return err
	}
	d.slaves[0].kill()
	d.killedAfter = d.tally.ended()
	d.view.slaveKilled(0)
	d.view.event("slave 1 killed with SIGKILL after %s", plural(d.killedAfter, "put"))
	if err := d.watch(ctx, "two thirds of the puts", func(nodeStatus) bool { return d.tally.ended() >= d.messages*2/3 }); err != nil {
		return err
	}
	d.restartedAfter = d.tally.ended()
	restarted := time.Now()
	if err := d.startSlave(ctx, 0); err != nil {
		return err
	}
	if err := d.watch(ctx, "the restarted slave catches up", d.caughtUp); err != nil {
		return err
	}
	d.recovery = time.Since(restarted)
	d.view.event("slave 1 restarted and caught up after %s", shortDuration(d.recovery))
	return nil
}

// caughtUp tells whether all slaves are connected and nothing but what is in
// flight is missing.
func (d *demo) caughtUp(s nodeStatus) bool {
	if len(s.Replicas) < d.replicas {
		return false
	}
	for _, r := range s.Replicas {
		if r.LagBytes > 256<<10 {
			return false
		}
	}
	return true
}

func (d *demo) allEqual(s nodeStatus) bool {
	if len(s.Replicas) < d.replicas {
		return false
	}
	for _, r := range s.Replicas {
		if r.AckedOffset != s.Max {
			return false
		}
	}
	return true
}

// watch looks at the master's status until done, showing it meanwhile.
func (d *demo) watch(ctx context.Context, what string, done func(nodeStatus) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("waited two minutes until %s", what))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, _, err := fetchStatus(ctx, d.admin)
		if err == nil {
			d.view.show(s, &d.tally)
			if done(s) {
				return nil
			}
		}
		if d.master.gone() {
			return d.master.failure(errors.New("ended in the middle"))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
