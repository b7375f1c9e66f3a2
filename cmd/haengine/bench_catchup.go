package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/haengine/haengine/engine"
)

// benchCatchup measures a new slave that copies a log which is there already.
func benchCatchup(ctx context.Context, o benchOptions) ([]benchResult, error) {
	p, err := openMaster(engine.AsyncMaster, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	messages, err := p.fill(ctx)
	if err != nil {
		return nil, err
	}
	s := p.master.Status()
	files, sizes, err := logFiles(filepath.Join(o.dir, "master", "commitlog"), s.MaxOffset, s.SegmentBytes)
	if err != nil {
		return nil, err
	}
	var ours, raw []round
	for i := range o.rounds {
		if err := settleMemory(ctx); err != nil {
			return nil, err
		}
		l, err := rawCopy(ctx, o, receiveBest, files, sizes)
		if err != nil {
			return nil, fmt.Errorf("limit: %w", err)
		}
		raw = append(raw, l)
		if err := settleMemory(ctx); err != nil {
			return nil, err
		}
		r, err := p.catchUp(ctx, fmt.Sprintf("slave%d", i), s.MaxOffset)
		if err != nil {
			return nil, err
		}
		r.messages = messages
		ours = append(ours, r)
	}
	result := o.result("catchup", ours)
	result.P50, result.P99, result.P999, result.Max = nil, nil, nil, nil // nothing waits
	result.Allocs = nil
	result.Messages = messages
	result.Settings["log_bytes"] = s.MaxOffset
	result.besideLimit("sendfile, "+receiveBest.String(), false, ours, raw)
	return []benchResult{result}, nil
}

// fill puts the log that is to be copied, and waits until it is on the disk: a
// flush beside the measurement would be measured too.
func (p *benchPair) fill(ctx context.Context) (messages int64, err error) {
	batch := make([]*engine.Message, 64)
	body := make([]byte, p.options.size)
	for i := range batch {
		batch[i] = &engine.Message{Topic: "bench", Body: body}
	}
	room := max(min(len(batch), (4<<20)/int(p.options.size)), 1)
	for end := int64(0); end < int64(p.options.bytes); {
		r, err := p.master.PutBatch(ctx, batch[:room])
		if err != nil {
			return 0, fmt.Errorf("fill the log: %w", err)
		}
		messages, end = messages+int64(r.Messages), r.EndOffset
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s := p.master.Status()
		if s.FlushedOffset == s.MaxOffset && s.QueuedOffset == s.MaxOffset {
			return messages, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// catchUp starts an empty slave and measures from its first report until it
// acknowledged the log's last byte.
func (p *benchPair) catchUp(ctx context.Context, store string, end int64) (round, error) {
	joined, unsubscribe := p.master.Subscribe(64)
	defer unsubscribe()
	if err := p.startSlave(store); err != nil {
		return round{}, err
	}
	defer os.RemoveAll(filepath.Join(p.options.dir, store))
	defer p.stopSlave()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for begun := false; !begun; {
		select {
		case e := <-joined:
			begun = e.Kind == engine.ReplicaJoined
		case <-ctx.Done():
			return round{}, ctx.Err()
		case <-late.C:
			return round{}, errors.New("the slave does not connect")
		}
	}
	r := round{bytes: end, latency: new(latencies)}
	start, cpu, own := time.Now(), cpuTime(p.child), cpuTime(nil)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		s := p.master.Status()
		if len(s.Replicas) == 1 && s.Replicas[0].AckedOffset == end {
			r.took = time.Since(start)
			r.cpu, r.masterCPU = cpuTime(p.child)-cpu, cpuTime(nil)-own
			r.memory = memoryWith(p.child)
			return r, nil
		}
		if len(s.Replicas) == 0 {
			return r, errors.New("the slave left in the middle")
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-tick.C:
		}
	}
}

// logFiles lists the segments up to end, and how much of each is log.
func logFiles(dir string, end, segmentBytes int64) (files []string, sizes []int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for i, e := range entries {
		if from := int64(i) * segmentBytes; from < end {
			files = append(files, filepath.Join(dir, e.Name()))
			sizes = append(sizes, min(segmentBytes, end-from))
		}
	}
	return files, sizes, nil
}
