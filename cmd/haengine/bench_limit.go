package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// limitBench is one of the machine's limits, measured in rounds.
type limitBench struct {
	name  string
	run   func(ctx context.Context, d time.Duration) (round, error)
	waits bool // its latencies say something
	close func()
}

// benchLimits measures the limits alone, in the words of the other benchmarks.
// They take turns, each once a round.
func benchLimits(ctx context.Context, o benchOptions) ([]benchResult, error) {
	all, err := o.limits(ctx)
	defer func() {
		for _, l := range all {
			if l.close != nil {
				l.close()
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	rounds := make([][]round, len(all))
	each := o.duration / time.Duration(o.rounds*len(all))
	for range o.rounds {
		for i, l := range all {
			r, err := l.run(ctx, each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			rounds[i] = append(rounds[i], r)
		}
	}
	results := make([]benchResult, len(all))
	for i, l := range all {
		results[i] = o.result(l.name, rounds[i])
		r := &results[i]
		r.Allocs = nil
		if !l.waits {
			r.P50, r.P99, r.P999, r.Max = nil, nil, nil, nil
		}
		r.judge(shortest(rounds[i]))
	}
	return results, nil
}

// limits are all of them; they are to be closed even with an error.
func (o benchOptions) limits(ctx context.Context) ([]limitBench, error) {
	all := []limitBench{{name: "copy into a populated map", waits: true, run: func(_ context.Context, d time.Duration) (round, error) {
		return copyIntoMap(int(o.size), d)
	}}}
	one := o
	one.producers, one.outstanding, one.spin = 1, 1, 0
	spinning := one
	spinning.spin = time.Microsecond
	many := o
	many.producers, many.outstanding = 1, max(o.producers*o.outstanding, 64)
	type wire struct {
		o     benchOptions
		place placement
	}
	wires := []wire{{one, o.placement}, {spinning, o.placement}, {many, o.placement}}
	if o.placement == placeAny { // nothing is pinned: the two placements are limits of their own
		wires = []wire{{one, placeAny}, {one, placeOneCore}, {one, placeTwoCores}, {spinning, placeTwoCores}, {many, placeAny}}
	}
	for _, w := range wires {
		if _, err := w.place.cores(); w.place == placeTwoCores && err != nil {
			continue // there is but one core
		}
		l, err := o.placedWire(ctx, w.o, w.place)
		if err != nil {
			return all, err
		}
		all = append(all, l)
	}
	source := filepath.Join(o.dir, "source")
	if err := writeSource(source, int64(o.bytes)); err != nil {
		return all, err
	}
	for _, method := range receiveMethods {
		all = append(all, limitBench{name: "sendfile, " + method.String(), run: func(ctx context.Context, _ time.Duration) (round, error) {
			return rawCopy(ctx, o, method, []string{source}, []int64{int64(o.bytes)})
		}})
	}
	return all, nil
}

// placedWire is a wireLimit for which this process moves to where it is asked to
// be, and back after each round.
func (o benchOptions) placedWire(ctx context.Context, of benchOptions, place placement) (limitBench, error) {
	pin := func() (pins, func(), error) {
		if o.placement != placeAny {
			return o.pins, func() {}, nil // the whole benchmark is pinned
		}
		return place.pin()
	}
	at, undo, err := pin()
	if err != nil {
		return limitBench{}, err
	}
	defer undo()
	of.placement, of.pins = place, at
	l, err := of.wireLimit(ctx)
	if err != nil {
		return limitBench{}, err
	}
	return limitBench{name: l.name, waits: true, close: l.close, run: func(ctx context.Context, d time.Duration) (round, error) {
		_, undo, err := pin()
		if err != nil {
			return round{}, err
		}
		defer undo()
		return l.run(ctx, d)
	}}, nil
}

// writeSource makes the file that is sent, in the page cache and on the disk.
func writeSource(path string, bytes int64) error {
	f, err := allocate(path, bytes)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(piece)) {
		if _, err := f.WriteAt(piece[:min(int64(len(piece)), bytes-at)], at); err != nil {
			return err
		}
	}
	return os.NewSyscallError("fsync", f.Sync())
}
