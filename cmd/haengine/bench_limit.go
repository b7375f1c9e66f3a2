package main

import (
	"context"
	"time"
)

// benchLimits measures the limits alone, in the words of the other benchmarks.
func benchLimits(ctx context.Context, o benchOptions) ([]benchResult, error) {
	each := o.duration / 4
	var results []benchResult
	add := func(name string, r round) {
		results = append(results, o.result(name, []round{r}))
		last := &results[len(results)-1]
		last.Allocs = nil
		last.judge(r.took)
	}
	r, err := copyIntoMap(int(o.size), each)
	if err != nil {
		return nil, err
	}
	add("copy into a populated map", r)

	peer, err := startRawPeer(ctx, o.congestion, "stream")
	if err != nil {
		return nil, err
	}
	defer peer.close()
	for _, underWay := range []int{1, max(o.producers*o.outstanding, 64)} {
		name := "epoll ping-pong"
		if underWay > 1 {
			name = "epoll stream"
		}
		r := round{latency: new(latencies)}
		before := cpuTime(peer.child)
		if r.messages, r.took, err = peer.stream(ctx, int(o.size), underWay, each, r.latency); err != nil {
			return nil, err
		}
		r.cpu, r.bytes = cpuTime(peer.child)-before, r.messages*int64(o.size)
		add(name, r)
	}

	took, cpu, bytes, err := copyLimit(ctx, o)
	if err != nil {
		return nil, err
	}
	add("sendfile into the populated map of a fresh file", round{bytes: bytes, took: took, cpu: cpu, latency: new(latencies)})
	last := &results[len(results)-1]
	last.P50, last.P99, last.P999, last.Max = nil, nil, nil, nil
	return results, nil
}

// copyLimit sends one file in the page cache.
func copyLimit(ctx context.Context, o benchOptions) (took, cpu time.Duration, bytes int64, err error) {
	bytes = int64(o.bytes)
	path := o.dir + "/source"
	f, err := allocate(path, bytes)
	if err != nil {
		return 0, 0, 0, err
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(piece)) {
		if _, err := f.WriteAt(piece[:min(int64(len(piece)), bytes-at)], at); err != nil {
			return 0, 0, 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, 0, 0, err
	}
	took, cpu, err = rawCopy(ctx, o, []string{path}, []int64{bytes})
	return took, cpu, bytes, err
}
