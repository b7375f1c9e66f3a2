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
	// All are limits, which none can be known to be the best of beforehand: what
	// a page of a fresh file costs differs with the kernel and the file system.
	ours, raw := []round(nil), make([][]round, len(receiveMethods))
	for i := range o.rounds {
		for m, method := range receiveMethods {
			if !o.limit {
				break
			}
			l, err := rawCopy(ctx, o, method, files, sizes)
			if err != nil {
				return nil, fmt.Errorf("limit: %w", err)
			}
			raw[m] = append(raw[m], l)
		}
		r, err := p.catchUp(ctx, fmt.Sprintf("slave%d", i), s.MaxOffset)
		if err != nil {
			return nil, err
		}
		r.messages = messages
		ours = append(ours, r)
	}
	result := o.copyResult("catchup", ours)
	result.Messages = messages
	result.Settings["log_bytes"] = s.MaxOffset
	if o.limit {
		result.besideCopies(ours, raw)
	} else {
		result.judge(shortest(ours))
	}
	return []benchResult{result}, nil
}

// copyFigures are what only a copy has, as medians.
type copyFigures struct {
	FirstAck float64 `json:"first_ack_ms"`     // from the first report to the first acknowledgement of bytes
	Queued   float64 `json:"queued_to_copied"` // the time until all is verified and in its queues, too, over the copy's
}

// copyResult is that of a copy: nothing waits, and it counts bytes of the log.
func (o *benchOptions) copyResult(name string, rounds []round) benchResult {
	r := o.result(name, rounds)
	r.P50, r.P99, r.P999, r.Max, r.Allocs = nil, nil, nil, nil, nil
	firstAck := func(r round) float64 { return r.firstAck.Seconds() * 1e3 }
	queued := func(r round) float64 { return r.queued.Seconds() / r.took.Seconds() }
	r.Copy = &copyFigures{FirstAck: medianOf(rounds, firstAck), Queued: medianOf(rounds, queued)}
	r.Spread.of("first_ack_ms", rounds, firstAck)
	r.Spread.of("queued_to_copied", rounds, queued)
	return r
}

// besideCopies compares with each way to receive; the fastest is the limit.
func (r *benchResult) besideCopies(ours []round, raw [][]round) {
	best := 0
	for i, method := range receiveMethods {
		r.beside("sendfile, "+method.String(), false, ours, raw[i])
		r.Limits = append(r.Limits, *r.Limit)
		if *r.Limits[i].BytesPerSecond > *r.Limits[best].BytesPerSecond {
			best = i
		}
	}
	r.besideLimit(r.Limits[best].Name, false, ours, raw[best])
}

// fill puts the log that is to be copied, and waits until it is on the disk: a
// flush beside the measurement would be measured too.
func (p *benchPair) fill(ctx context.Context) (messages int64, err error) {
	if messages, err = p.append(ctx, int64(p.options.bytes)); err != nil {
		return 0, fmt.Errorf("fill the log: %w", err)
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

// append puts batches until the log is so long.
func (p *benchPair) append(ctx context.Context, end int64) (messages int64, err error) {
	batch := make([]*engine.Message, 64)
	body := make([]byte, p.options.size)
	for i := range batch {
		batch[i] = &engine.Message{Topic: "bench", Body: body}
	}
	room := max(min(len(batch), (4<<20)/int(p.options.size)), 1)
	for at := p.master.Status().MaxOffset; at < end; {
		r, err := p.master.PutBatch(ctx, batch[:room])
		if err != nil {
			return messages, err
		}
		messages, at = messages+int64(r.Messages), r.EndOffset
	}
	return messages, nil
}

// catchUp starts an empty slave and measures from its first report until it
// acknowledged the log's last byte.
func (p *benchPair) catchUp(ctx context.Context, store string, end int64) (round, error) {
	joined, unsubscribe := p.master.Subscribe(64)
	defer unsubscribe()
	p.admin = "127.0.0.1:0"
	if err := p.startSlave(store); err != nil {
		return round{}, err
	}
	defer os.RemoveAll(filepath.Join(p.options.dir, store))
	defer p.stopSlave()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	address := ""
	for address == "" {
		select {
		case e := <-joined:
			if e.Kind == engine.ReplicaJoined {
				address = e.Replica
			}
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
		acked, there := ackedBy(p.master.Status().Replicas, address)
		if acked > 0 && r.firstAck == 0 {
			r.firstAck = time.Since(start)
		}
		if acked >= end {
			r.took = time.Since(start)
			r.cpu, r.masterCPU = cpuTime(p.child)-cpu, cpuTime(nil)-own
			err := p.untilQueued(ctx, end)
			r.queued = time.Since(start)
			r.memory = memoryWith(p.child)
			return r, err
		}
		if !there {
			return r, errors.New("the slave left in the middle")
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-tick.C:
		}
	}
}

// untilQueued waits until the slave has verified its log up to end and put it
// into its queues.
func (p *benchPair) untilQueued(ctx context.Context, end int64) error {
	queued := func() (int64, error) { return p.slave.Status().QueuedOffset, nil }
	if p.child != nil {
		s, err := p.child.waitServing(ctx)
		if err != nil {
			return err
		}
		queued = func() (int64, error) {
			status, _, err := fetchStatus(ctx, s.AdminListen)
			return status.Queued, err
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		offset, err := queued()
		if err != nil || offset >= end {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ackedBy is how much of the log one of the replicas has; false: it is not
// among them.
func ackedBy(replicas []engine.ReplicaStatus, address string) (offset int64, there bool) {
	for _, r := range replicas {
		if r.Address == address {
			return r.AckedOffset, true
		}
	}
	return 0, false
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
