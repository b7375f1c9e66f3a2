package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
	"golang.org/x/sys/unix"
)

// benchPair is a master in this process and a slave in another one, or in this
// one too.
type benchPair struct {
	options benchOptions
	master  *engine.Engine
	slave   *engine.Engine // with --in-process
	child   *child         // otherwise
	through string         // where the slave connects; empty: to the master
	admin   string         // where the slave's status is; empty: nowhere
	next    atomic.Int32
}

// segment is the segment size of the stores: large ones as in real stores, and
// several even of a short log.
func (o *benchOptions) segment() int64 {
	if o.bytes >= 1<<30 {
		return 256 << 20
	}
	return 32 << 20
}

func (o *benchOptions) nodeOptions(store string) (engine.Options, error) {
	options := engine.Options{
		Store: filepath.Join(o.dir, store), SegmentBytes: o.segment(), Spin: o.spin, Congestion: o.congestion, FrameBytes: int(o.frameBytes),
		PlainHistory: engine.HistoryFirst, PlainIdentity: engine.IdentityConnection, SlaveTimeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return options, o.set.apply(&options)
}

// openMaster opens the pair's master.
func openMaster(role engine.Role, o benchOptions) (*benchPair, error) {
	options, err := o.nodeOptions("master")
	if err != nil {
		return nil, err
	}
	options.Role, options.HAListen = role, "127.0.0.1:0"
	master, err := engine.Open(options)
	if err != nil {
		return nil, err
	}
	return &benchPair{options: o, master: master}, nil
}

// startPair opens a master with a slave that is in sync.
func startPair(ctx context.Context, role engine.Role, o benchOptions) (*benchPair, error) {
	p, err := openMaster(role, o)
	if err != nil {
		return nil, err
	}
	if err := p.startSlave("slave"); err != nil {
		p.close()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !waitForReplicas(ctx, p.master, 1) {
		err := fmt.Errorf("the slave does not connect: %w", ctx.Err())
		if p.child != nil {
			err = p.child.failure(err)
		}
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *benchPair) startSlave(store string) (err error) {
	o := p.options
	address := cmp.Or(p.through, p.master.HAAddr().String())
	if o.inProcess {
		options, err := o.nodeOptions(store)
		if err != nil {
			return err
		}
		options.Role, options.Master = engine.Slave, address
		p.slave, err = engine.Open(options)
		return err
	}
	args := []string{
		"serve", "--role", "SLAVE", "--store", filepath.Join(o.dir, store), "--master", address, "--admin-listen", p.admin, "--client-listen", "",
		"--segment-bytes", strconv.FormatInt(o.segment(), 10), "--log-format", "json", "--spin", o.spin.String(),
	}
	if o.congestion != "" {
		args = append(args, "--tcp-congestion", o.congestion)
	}
	return o.pins.startOnPeerCore(func() error {
		p.child, err = startChild("slave", nil, append(args, o.set.arguments()...)...)
		return err
	})
}

// stopSlave ends the slave at once: its store is thrown away.
func (p *benchPair) stopSlave() {
	if p.child != nil {
		p.child.kill()
		p.child = nil
	}
	if p.slave != nil {
		p.slave.Close(context.Background())
		p.slave = nil
	}
}

func (p *benchPair) close() {
	p.stopSlave()
	now, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for the puts that are left
	p.master.Close(now)
}

// ticksPerSecond is the unit of /proc/PID/stat, USER_HZ, which is 100 on every
// architecture that Go runs on.
const ticksPerSecond = 100

// cpuTime is what this process and the child have used; the child's part is 0
// once it is gone.
func cpuTime(c *child) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if c == nil {
		return used
	}
	of, _ := cpuTimes([]int{c.cmd.Process.Pid})
	return used + of
}

// cpuTimes is what other processes have used.
func cpuTimes(pids []int) (used time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return used, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		// The name in parentheses may hold anything; the fields behind it are 3, 4, …
		rest := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		const utime, stime = 14 - 3, 15 - 3
		if len(rest) <= stime {
			return used, fmt.Errorf("CPU time of process %d: %d fields in its stat", pid, len(rest))
		}
		for _, i := range []int{utime, stime} {
			ticks, _ := strconv.ParseInt(string(rest[i]), 10, 64)
			used += time.Duration(ticks) * time.Second / ticksPerSecond
		}
	}
	return used, nil
}

func medianOf[T any](list []T, value func(T) float64) float64 {
	values := make([]float64, len(list))
	for i := range list {
		values[i] = value(list[i])
	}
	return median(values)
}

func median[T cmp.Ordered](values []T) (m T) {
	if len(values) == 0 {
		return m
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratio is nil when there is nothing to divide by.
func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	r := a / b
	return &r
}
