package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// clientsOptions are the flags of bench clients.
type clientsOptions struct {
	addr, namesrv string // of what is measured; both empty: a pair of nodes of our own
	against       string // of what it is compared with
	pids          []int
	againstPIDs   []int

	topic       string
	size        byteSize
	connections int
	outstanding int
	rate        float64
	idle        int
	duration    time.Duration
	warmup      time.Duration
	rounds      int
	role        string
	dir         string
	json        bool
}

func newBenchClients() *cobra.Command {
	o := clientsOptions{size: 1 << 10}
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Sends of RocketMQ's client protocol, to this broker or any other",
		Long: "Measures sends of RocketMQ's client protocol: --connections producers, each with up to\n" +
			"--outstanding messages that are not answered, as fast as answers come, or at a --rate, and\n" +
			"then latency counts from when a message was due. Without an address the broker is a\n" +
			"synchronous master with a slave, started for this in processes of their own. --against\n" +
			"names a second broker, which takes turns with the first in the same run. The load is one\n" +
			"thread that shares the machine with the brokers: its part of the CPU time is printed.",
		Example: "  haengine bench clients\n" +
			"  haengine bench clients --connections 1 --outstanding 1 --json\n" +
			"  haengine bench clients --idle 10000\n" +
			"  haengine bench clients --namesrv 10.0.0.5:9876 --rate 1000",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usage(cmd, err)
			}
			return runBenchClients(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.addr, "addr", "", "the broker's HOST:PORT (default: a pair of nodes, started here)")
	f.StringVar(&o.namesrv, "namesrv", "", "HOST:PORT of a name server that knows the broker")
	f.StringVar(&o.against, "against", "", "HOST:PORT of a second broker, to compare with")
	f.IntSliceVar(&o.pids, "pid", nil, "processes of the broker at --addr, for its CPU time and memory")
	f.IntSliceVar(&o.againstPIDs, "against-pid", nil, "processes of the broker at --against")
	f.StringVar(&o.topic, "topic", "haengine-bench", "topic, which is made if it is not there")
	f.Var(&o.size, "size", "body of a message")
	f.IntVar(&o.connections, "connections", 64, "producers, each with a connection")
	f.IntVar(&o.outstanding, "outstanding", 16, "messages under way on each connection")
	f.Float64Var(&o.rate, "rate", 0, "messages a second of all connections together; 0: as fast as answers come")
	f.IntVar(&o.idle, "idle", 0, "connections that do nothing, opened half way: what they cost")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "measured time of each broker, all rounds together")
	f.DurationVar(&o.warmup, "warmup", time.Second, "load before it is measured")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, in which brokers take turns")
	f.StringVar(&o.role, "role", "SYNC_MASTER", "of the master that is started here")
	f.StringVar(&o.dir, "dir", "", "where stores are made (default: the temporary directory)")
	addJSONFlag(cmd, &o.json)
	return cmd
}

func (o *clientsOptions) check() error {
	var wrong []error
	between := func(name string, v, low, high int64) {
		if v < low || v > high {
			wrong = append(wrong, fmt.Errorf("--%s %d is out of range, want %d to %d", name, v, low, high))
		}
	}
	between("size", int64(o.size), 1, 4<<20)
	between("connections", int64(o.connections), 1, 20000)
	between("outstanding", int64(o.outstanding), 1, 1<<16)
	between("rounds", int64(o.rounds), 1, 1000)
	between("idle", int64(o.idle), 0, 60000)
	if !(o.rate >= 0 && o.rate <= 1e9) || o.duration <= 0 || o.warmup < 0 {
		wrong = append(wrong, fmt.Errorf("--rate %g, --duration %v, --warmup %v: want 0 to 1e9, more than 0, and 0 or more", o.rate, o.duration, o.warmup))
	}
	if o.addr != "" && o.namesrv != "" {
		wrong = append(wrong, errors.New("--addr and --namesrv exclude each other"))
	}
	if o.idle > 0 && o.against != "" {
		wrong = append(wrong, errors.New("--idle and --against exclude each other: measure one broker at a time"))
	}
	if !isOwn(o) && len(o.pids) == 0 && o.idle > 0 {
		wrong = append(wrong, errors.New("--idle needs --pid, to see the broker's memory"))
	}
	if o.topic == "" || strings.ContainsAny(o.topic, "\"\\\x01\x02") {
		wrong = append(wrong, fmt.Errorf("--topic %q is no name of a topic", o.topic))
	}
	return errors.Join(wrong...)
}

// isOwn tells whether the broker is started here.
func isOwn(o *clientsOptions) bool { return o.addr == "" && o.namesrv == "" }

func runBenchClients(cmd *cobra.Command, o clientsOptions) error {
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	r, err := benchClients(ctx, &o)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return fmt.Errorf("bench clients: %w", err)
	}
	return answer(cmd, o.json, r, r.print)
}

// benchClients measures in rounds, in which the brokers take turns.
func benchClients(ctx context.Context, o *clientsOptions) (*clientsResult, error) {
	addr, pids := o.addr, o.pids
	switch {
	case o.namesrv != "":
		var err error
		if addr, err = masterOf(ctx, o.namesrv); err != nil {
			return nil, err
		}
	case addr == "":
		dir, err := os.MkdirTemp(o.dir, "haengine-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		p, err := startBrokers(ctx, o.role, dir)
		if err != nil {
			return nil, err
		}
		defer p.kill()
		addr, pids = p.addr, p.pids()
	}
	ours, err := newClientsSide(ctx, o, "haengine", addr, pids)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	sides := []*clientsSide{ours}
	if o.against != "" {
		other, err := newClientsSide(ctx, o, "against", o.against, o.againstPIDs)
		if err != nil {
			return nil, err
		}
		defer other.close()
		sides = append(sides, other)
	}
	for _, s := range sides {
		if o.warmup > 0 {
			if _, err := s.load.run(ctx, o.warmup); err != nil {
				return nil, s.failed(err)
			}
		}
	}
	if err := turns(ctx, o, sides); err != nil {
		return nil, err
	}
	r := sides[0].result(o)
	if len(sides) > 1 {
		r.compare(sides[1].result(o))
	}
	if o.idle > 0 {
		if r.Idle, err = measureIdle(ctx, o, sides[0], r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func turns(ctx context.Context, o *clientsOptions, sides []*clientsSide) error {
	for i := range o.rounds {
		for j := range sides {
			s := sides[(i+j)%len(sides)] // who begins has no advantage
			if err := s.turn(ctx, o.duration/time.Duration(o.rounds)); err != nil {
				return err
			}
		}
	}
	return nil
}
