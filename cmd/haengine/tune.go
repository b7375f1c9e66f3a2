package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/internal/tune"
	"github.com/spf13/cobra"
)

// tuneOptions are the flags of tune.
type tuneOptions struct {
	store, role, listen, peer string
	measure, json, yaml       bool
}

// tuneAnswer is what tune prints as JSON.
type tuneAnswer struct {
	Machine  tune.Machine   `json:"machine"`
	Measured *tune.Measured `json:"measured"` // null without --measure
	Advice   []tune.Advice  `json:"advice"`

	options tuneOptions
}

func newTune() *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Say which settings suit this machine, and why",
		Long: "Looks at the machine on which a node is to run, and prints the settings of haengine serve\n" +
			"that should differ from their defaults there, what depends on the load and is worth a\n" +
			"trial, what the defaults are right for, and what to change outside haengine. Each with its\n" +
			"reason, and where that was shown. It changes nothing, and needs no privilege: what it\n" +
			"cannot see, it says.\n\n" +
			"With --measure it also takes up to ten seconds for what no file tells: the time of a\n" +
			"sync and the first touch of pages in the store's filesystem (in files without a name), the\n" +
			"round trip on loopback and to the peer (by connects that say nothing), and sendfile with\n" +
			"each congestion control. Only on a quiet machine do such figures mean something.",
		Example: "  haengine tune\n" +
			"  haengine tune --store /tmp --role SYNC_MASTER --measure\n" +
			"  haengine tune --yaml > haengine.yaml\n" +
			"  haengine tune --role SLAVE --peer 127.0.0.1:10912 --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json && o.yaml {
				return usagef(cmd, "--json and --yaml: want one of them")
			}
			return runTune(cmd, o, tune.Root, tune.Here{})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.store, "store", "./haengine-store", "the node's store directory; need not be there")
	f.StringVar(&o.role, "role", engine.AsyncMaster.String(), "ASYNC_MASTER, SYNC_MASTER or SLAVE")
	f.StringVar(&o.listen, "ha-listen", "", "where replicas are to connect (default: "+defaultHAListen+" on a master, nowhere on a slave)")
	f.StringVar(&o.peer, "peer", "", "HOST:PORT of another node, to look at the way there")
	f.BoolVar(&o.measure, "measure", false, "measure, too, for up to ten seconds")
	f.BoolVar(&o.yaml, "yaml", false, "print the settings to change as a configuration file for serve --config")
	addJSONFlag(cmd, &o.json)
	return cmd
}

// runTune looks at the machine below root.
func runTune(cmd *cobra.Command, o tuneOptions, root string, system tune.System) error {
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	plan, err := o.plan(ctx)
	if err != nil {
		return usage(cmd, err)
	}
	a := tuneAnswer{Machine: tune.Look(root, system, plan.Place), options: o}
	if o.measure {
		if a.Measured = tune.Measure(ctx, &a.Machine, plan.Peer); ctx.Err() != nil {
			return fmt.Errorf("interrupted")
		}
	}
	a.Advice = tune.Advise(a.Machine, a.Measured, plan)
	if o.yaml {
		a.printYAML(cmd.OutOrStdout())
		return nil
	}
	return answer(cmd, o.json, a, a.print)
}

// plan reads the flags as serve would.
func (o *tuneOptions) plan(ctx context.Context) (p tune.Plan, err error) {
	role, err := engine.ParseRole(o.role)
	if err != nil {
		return p, fmt.Errorf("--role: %w", err)
	}
	p.Role = map[engine.Role]tune.Role{engine.AsyncMaster: tune.AsyncMaster, engine.SyncMaster: tune.SyncMaster, engine.Slave: tune.Slave}[role]
	if p.Store, err = filepath.Abs(o.store); err != nil {
		return p, fmt.Errorf("--store: %w", err)
	}
	if role != engine.Slave {
		o.listen = cmp.Or(o.listen, defaultHAListen)
	}
	if p.Listen, err = resolveAddress(ctx, o.listen); err != nil {
		return p, fmt.Errorf("--ha-listen: %w", err)
	}
	if p.Peer, err = resolveAddress(ctx, o.peer); err != nil {
		return p, fmt.Errorf("--peer: %w", err)
	}
	return p, nil
}

// resolveAddress looks a HOST:PORT up; empty is none. A host that is left out is
// every address.
func resolveAddress(ctx context.Context, s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, nil
	}
	if err := checkListen(s); err != nil {
		return netip.AddrPort{}, err
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the address of %s: %w", host, err)
	}
	ap, err := netip.ParseAddrPort(net.JoinHostPort(found[0].Unmap().String(), port))
	return ap, err
}
