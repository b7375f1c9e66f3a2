package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newBenchFlush() *cobra.Command {
	return newBenchVerbWith(bench{
		"flush", "Puts that wait for the disk",
		"SYNC_FLUSH without a slave. One fdatasync serves all that wait when it begins, so a put waits for two at most:\n" +
			"the limit is half of the producers for each fdatasync of as many bytes, written through a map with zeros some MiB ahead,\n" +
			"as the log is.",
		benchFlush,
	}, map[string]string{"producers": "64"})
}

func benchFlush(ctx context.Context, o benchOptions) ([]benchResult, error) {
	options, err := o.nodeOptions("master")
	if err != nil {
		return nil, err
	}
	options.Flush = engine.SyncFlush
	master, err := engine.Open(options)
	if err != nil {
		return nil, err
	}
	p := &benchPair{options: o, master: master}
	defer p.close()
	each := o.duration / time.Duration(o.rounds)
	if _, err := p.puts(ctx, each/4, int64(o.bytes)/8); err != nil { // warm
		return nil, err
	}
	atOnce := max(o.producers*o.outstanding/2, 1)
	var ours, raw []round
	for range o.rounds {
		if o.limit {
			l, err := o.syncs(ctx, atOnce, each)
			if err != nil {
				return nil, fmt.Errorf("limit: %w", err)
			}
			raw = append(raw, l)
		}
		r, err := p.puts(ctx, each, int64(o.bytes)/int64(o.rounds))
		if err != nil {
			return nil, err
		}
		ours = append(ours, r)
	}
	result := o.result("flush", ours)
	if o.limit { // which may be exceeded: puts that come in time share an fdatasync with more than half of the others
		result.beside(fmt.Sprintf("fdatasync of %d bodies", atOnce), false, ours, raw)
	}
	result.judgeLength(shortest(ours))
	return []benchResult{result}, nil
}

// syncs copies so many bodies into the map of a preallocated file and makes them
// durable, again and again. Zeros are written ahead of them, half a MiB at a time, which
// one sync takes to the disk with the bodies: the others find their blocks written
// before, and take two thirds of the time.
func (o benchOptions) syncs(ctx context.Context, bodies int, d time.Duration) (round, error) {
	room := max(int(o.bytes), 64<<20)
	path := filepath.Join(o.dir, "synced")
	f, err := allocate(path, int64(room))
	if err != nil {
		return round{}, err
	}
	defer os.Remove(path)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return round{}, os.NewSyscallError("mmap", err)
	}
	defer unmap(m)
	source := make([]byte, min(bodies*int(o.size), room/4))
	r := round{latency: new(latencies)}
	start := time.Now()
	zeros := make([]byte, 64<<10)
	const ahead, refill = 4 << 20, 512 << 10
	for at, zeroed, now := 0, 0, start; at+len(source) <= room && now.Sub(start) < d && ctx.Err() == nil; r.messages += int64(bodies) {
		if zeroed < at+len(source)+ahead-refill {
			for ; zeroed < min(at+len(source)+ahead, room); zeroed += len(zeros) {
				if _, err := unix.Pwrite(int(f.Fd()), zeros[:min(len(zeros), room-zeroed)], int64(zeroed)); err != nil {
					return r, os.NewSyscallError("pwrite", err)
				}
			}
		}
		copy(m[at:], source)
		at += len(source)
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return r, os.NewSyscallError("fdatasync", err)
		}
		then := time.Now()
		r.latency.add(then.Sub(now))
		now = then
	}
	r.took = time.Since(start)
	r.bytes = r.messages * int64(o.size)
	if r.messages == 0 {
		return r, errors.Join(ctx.Err(), errors.New("no fdatasync ended"))
	}
	return r, nil
}
