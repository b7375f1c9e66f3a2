package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/haengine/haengine/engine"
)

// benchSync measures puts that wait for a slave.
func benchSync(ctx context.Context, o benchOptions) ([]benchResult, error) {
	var limit wireLimit
	if o.limit {
		var err error
		if limit, err = o.wireLimit(ctx); err != nil {
			return nil, err
		}
	}
	defer limit.close()
	r, err := benchPuts(ctx, "sync", engine.SyncMaster, o, limit.name, limit.run)
	return []benchResult{r}, err
}

// benchAsync measures puts that wait for nobody while a slave follows.
func benchAsync(ctx context.Context, o benchOptions) ([]benchResult, error) {
	r, err := benchPuts(ctx, "async", engine.AsyncMaster, o, "copy into a populated map", func(_ context.Context, d time.Duration) (round, error) {
		return copyIntoMap(int(o.size), d)
	})
	return []benchResult{r}, err
}

// round is what one turn of a benchmark or of its limit did.
type round struct {
	messages, bytes int64
	took            time.Duration
	cpu             time.Duration // of all processes
	masterCPU       time.Duration // of this one
	allocs          uint64
	memory          benchMemory   // at its end
	firstAck        time.Duration // of a copy
	queued          time.Duration // of a copy: until it is verified and queued, too
	latency         *latencies
}

func (r round) bytesPerSecond() float64 { return float64(r.bytes) / r.took.Seconds() }

func shortest(rounds []round) time.Duration {
	return slices.MinFunc(rounds, func(a, b round) int { return cmp.Compare(a.took, b.took) }).took
}

// benchPuts takes turns between puts and their limit. With one put under way
// the ratio is that of the median latencies; with more, of the rates.
func benchPuts(ctx context.Context, name string, role engine.Role, o benchOptions, limitName string, limit func(context.Context, time.Duration) (round, error)) (benchResult, error) {
	p, err := startPair(ctx, role, o)
	if err != nil {
		return benchResult{}, err
	}
	defer p.close()
	each := o.duration / time.Duration(o.rounds)
	if _, err := p.puts(ctx, each/4, int64(o.bytes)/8); err != nil { // pages, pools and buffers are warm after this
		return benchResult{}, err
	}
	var ours, raw []round
	for range o.rounds {
		if ctx.Err() != nil {
			return benchResult{}, ctx.Err()
		}
		if o.limit {
			l, err := limit(ctx, each)
			if err != nil {
				return benchResult{}, fmt.Errorf("limit: %w", err)
			}
			raw = append(raw, l)
		}
		r, err := p.puts(ctx, each, int64(o.bytes)/int64(o.rounds))
		if err != nil {
			return benchResult{}, err
		}
		ours = append(ours, r)
	}
	result := o.result(name, ours)
	if o.limit {
		result.besideLimit(limitName, o.producers*o.outstanding == 1, ours, raw)
	} else {
		result.judge(shortest(ours))
	}
	return result, nil
}

// result puts the rounds of a benchmark together: rates are medians, latencies
// are of all rounds.
func (o *benchOptions) result(name string, rounds []round) benchResult {
	all, sum := new(latencies), round{}
	for _, r := range rounds {
		all.merge(r.latency)
		sum.masterCPU += r.masterCPU
		sum.memory.atLeast(r.memory)
		sum.messages, sum.bytes, sum.cpu, sum.allocs = sum.messages+r.messages, sum.bytes+r.bytes, sum.cpu+r.cpu, sum.allocs+r.allocs
	}
	quantile := func(q float64) *float64 { v := µs(all.quantile(q)); return &v }
	result := benchResult{
		Name: name, Messages: sum.messages, BytesPerSecond: medianOf(rounds, round.bytesPerSecond),
		MessagesPerSecond: medianOf(rounds, func(r round) float64 { return float64(r.messages) / r.took.Seconds() }),
		P50:               quantile(0.5), P99: quantile(0.99), P999: quantile(0.999), Max: quantile(1),
		Allocs:          ratio(float64(sum.allocs), float64(sum.messages)),
		CPUSecondsPerGB: ratio(sum.cpu.Seconds(), float64(sum.bytes)/1e9), Settings: o.settings(),
		Memory: &sum.memory, Spread: spreadOf(rounds),
	}
	if sum.masterCPU > 0 {
		result.MasterCPU = ratio(µs(sum.masterCPU), float64(sum.messages))
	}
	return result
}

// puts lets the producers put for d, or until they put so many bytes.
func (p *benchPair) puts(ctx context.Context, d time.Duration, bytes int64) (round, error) {
	if p.options.rate > 0 {
		return p.openLoop(ctx, d, bytes)
	}
	r := round{latency: new(latencies)}
	var before, after runtime.MemStats
	each := bytes / int64(p.options.producers)
	producers := make([]*producer, p.options.producers)
	for i := range producers {
		producers[i] = newProducer(p, r.latency, each)
	}
	runtime.ReadMemStats(&before)
	cpu, own := cpuTime(p.child), cpuTime(nil)
	start := clock()
	var all sync.WaitGroup
	for _, w := range producers {
		all.Go(func() { w.run(ctx, start+d) })
	}
	all.Wait()
	r.took = clock() - start
	r.cpu, r.masterCPU = cpuTime(p.child)-cpu, cpuTime(nil)-own
	runtime.ReadMemStats(&after)
	r.allocs = after.Mallocs - before.Mallocs
	r.memory = memoryWith(p.child)
	var failed error
	for _, w := range producers {
		r.messages += w.messages
		failed = errors.Join(failed, w.failed)
	}
	r.bytes = r.messages * int64(p.options.size)
	if failed == nil && r.messages == 0 {
		failed = errors.New("no put ended in a round; give a longer --duration")
	}
	return r, failed
}

// producer is one goroutine that puts. It owns all its fields.
type producer struct {
	node     *engine.Engine
	message  engine.Message
	limit    int64 // puts
	messages int64
	failed   error
	latency  *latencies // shared: its counters are atomic

	queue *engine.Completions // nil: one put at a time
	begun []time.Duration     // by tag
	free  []uint64
	done  []engine.Completion
}

func newProducer(p *benchPair, l *latencies, bytes int64) *producer {
	w := &producer{node: p.master, latency: l, limit: max(bytes/int64(p.options.size), 1)}
	w.message = engine.Message{Topic: "bench", QueueID: p.next.Add(1) % 4, Body: make([]byte, p.options.size)}
	if n := p.options.outstanding; n > 1 {
		w.queue = p.master.NewCompletions(n)
		w.begun, w.done = make([]time.Duration, n), make([]engine.Completion, n)
		for tag := range n {
			w.free = append(w.free, uint64(tag))
		}
	}
	return w
}

// run puts until then, by clock.
func (w *producer) run(ctx context.Context, until time.Duration) {
	if w.queue != nil {
		w.pipeline(ctx, until)
		return
	}
	for now := clock(); now < until && w.messages < w.limit && ctx.Err() == nil; w.messages++ {
		if _, err := w.node.Put(ctx, &w.message); err != nil {
			w.failed = err
			return
		}
		end := clock()
		w.latency.add(end - now)
		now = end
	}
}

// pipeline keeps as many puts under way as there are tags.
func (w *producer) pipeline(ctx context.Context, until time.Duration) {
	for putting, now := true, clock(); ; {
		putting = putting && now < until && w.messages < w.limit && ctx.Err() == nil && w.failed == nil
		for putting && len(w.free) > 0 {
			tag := w.free[len(w.free)-1]
			w.begun[tag] = clock()
			if err := w.queue.Put(ctx, &w.message, tag); err != nil {
				w.failed = err
				break
			}
			w.free = w.free[:len(w.free)-1]
		}
		if len(w.free) == len(w.begun) {
			return
		}
		n, err := w.queue.Pull(context.Background(), w.done)
		if err != nil {
			w.failed = err
			return
		}
		now = clock()
		for _, c := range w.done[:n] {
			if c.Err != nil {
				w.failed = c.Err
			}
			w.latency.add(now - w.begun[c.Tag])
			w.free = append(w.free, c.Tag)
		}
		w.messages += int64(n)
	}
}

// copyIntoMap is the limit of an asynchronous put.
func copyIntoMap(size int, d time.Duration) (round, error) {
	room := max(64<<20, size)
	m, err := populatedMap(int64(room))
	if err != nil {
		return round{}, err
	}
	defer unmap(m)
	r, source := round{latency: new(latencies)}, make([]byte, size)
	cpu := cpuTime(nil)
	start := clock()
	for at, now := 0, start; now < start+d; r.messages++ {
		if at+size > room {
			at = 0
		}
		copy(m[at:], source)
		at += size
		then := clock()
		r.latency.add(then - now)
		now = then
	}
	r.took, r.bytes = clock()-start, r.messages*int64(size)
	r.cpu = cpuTime(nil) - cpu
	return r, nil
}
