package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/haengine/haengine/engine"
)

// loadPlan is what the built-in producer does (--load RATE,SIZE,COUNT).
type loadPlan struct {
	on          bool
	rate        float64 // puts a second; 0: no limit
	size        int     // body bytes
	count       int64   // puts; 0: endless
	outstanding int     // puts that may wait at once
	replicas    int     // it begins when so many are in sync
}

// loadTopic is the topic of all load; queues 0 to 3 take turns.
const (
	loadTopic  = "load"
	loadQueues = 4
)

func parseLoadPlan(s string) (loadPlan, error) {
	const want = "want RATE,SIZE,COUNT as in 1000,1KiB,0"
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return loadPlan{}, fmt.Errorf("%q has %d parts, %s", s, len(parts), want)
	}
	rate, err1 := strconv.ParseFloat(strings.TrimSpace(parts[0]), 64)
	size, err2 := parseByteSize(parts[1])
	count, err3 := strconv.ParseInt(strings.TrimSpace(parts[2]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return loadPlan{}, fmt.Errorf("%q: not three numbers, %s", s, want)
	}
	if !(rate >= 0 && rate <= 1e9) || size > 1<<30 || count < 0 {
		return loadPlan{}, fmt.Errorf("%q: rate must be 0 to 1e9, size at most 1GiB, count 0 or more", s)
	}
	return loadPlan{on: true, rate: rate, size: int(size), count: count}, nil
}

// loadLine is what the producer prints of each put, as the put ends.
type loadLine struct {
	Sequence  int64   `json:"sequence"`
	Offset    int64   `json:"offset"`     // -1: refused before the append
	EndOffset int64   `json:"end_offset"` // -1: refused before the append
	Status    string  `json:"status"`
	LatencyUs float64 `json:"latency_us"`
}

// refusedPause keeps a producer whose puts are refused at once from spinning.
const refusedPause = 10 * time.Millisecond

// loader is the built-in producer: as many goroutines as may be outstanding,
// each with one put at a time.
type loader struct {
	plan  loadPlan
	node  *engine.Engine
	start time.Time

	mu struct { // the sequence, and one line at a time on out
		sync.Mutex
		next   int64
		puts   int64 // that were printed
		out    io.Writer
		line   []byte
		failed error // the first failed write: nobody reads, so no more puts
	}
}

// run puts until the plan is done or ctx ends, and returns when every put that
// was begun has been printed; puts is how many were. The error is one of writing to out.
func (p loadPlan) run(ctx context.Context, node *engine.Engine, out io.Writer) (puts int64, err error) {
	if !waitForReplicas(ctx, node, p.replicas) {
		return 0, nil
	}
	l := &loader{plan: p, node: node, start: time.Now()}
	l.mu.out = out
	var all sync.WaitGroup
	for range max(p.outstanding, 1) {
		all.Go(func() { l.work(ctx) })
	}
	all.Wait()
	return l.mu.puts, l.mu.failed
}

// work takes sequence numbers and puts them, one after the other.
func (l *loader) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	m := &engine.Message{Topic: loadTopic, Body: make([]byte, l.plan.size)}
	for {
		sequence, ok := l.take()
		if !ok || !l.wait(ctx, timer, sequence) {
			return
		}
		m.QueueID = int32(sequence % loadQueues)
		m.Body = appendLoadBody(m.Body[:0], sequence, l.plan.size)
		begun := time.Now()
		// Not ctx: a stop lets a put end as its own timeouts say.
		result, err := l.node.Put(context.Background(), m)
		l.print(loadLine{
			Sequence: sequence, Offset: result.Offset, EndOffset: result.EndOffset,
			Status: result.Status.String(), LatencyUs: µs(time.Since(begun)),
		})
		if errors.Is(err, engine.ErrClosed) || !result.Appended() && !sleep(ctx, timer, refusedPause) {
			return
		}
	}
}

func (l *loader) take() (sequence int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed != nil || l.plan.count > 0 && l.mu.next == l.plan.count {
		return 0, false
	}
	l.mu.next++
	return l.mu.next - 1, true
}

// wait keeps the plan's rate; false means that ctx ended. A producer that fell
// behind catches up.
func (l *loader) wait(ctx context.Context, timer *time.Timer, sequence int64) bool {
	if l.plan.rate == 0 {
		return ctx.Err() == nil
	}
	due := l.start.Add(time.Duration(float64(sequence) / l.plan.rate * float64(time.Second)))
	return sleep(ctx, timer, time.Until(due))
}

func (l *loader) print(line loadLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(l.mu.line[:0], `{"sequence":`...)
	b = strconv.AppendInt(b, line.Sequence, 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, line.Offset, 10)
	b = append(b, `,"end_offset":`...)
	b = strconv.AppendInt(b, line.EndOffset, 10)
	b = append(b, `,"status":"`...)
	b = append(b, line.Status...)
	b = append(b, `","latency_us":`...)
	b = strconv.AppendFloat(b, line.LatencyUs, 'f', 3, 64)
	b = append(b, "}\n"...)
	l.mu.line = b
	l.mu.puts++
	if _, err := l.mu.out.Write(b); err != nil && l.mu.failed == nil {
		l.mu.failed = fmt.Errorf("print the puts: %w", err)
	}
}

// appendLoadBody writes a sequence number as decimal text padded with spaces
// to size bytes; a size below the number's length cuts it.
func appendLoadBody(dst []byte, sequence int64, size int) []byte {
	from := len(dst)
	dst = strconv.AppendInt(dst, sequence, 10)
	for len(dst)-from < size {
		dst = append(dst, ' ')
	}
	return dst[:from+size]
}

// sleep waits for d; false means that ctx ended.
func sleep(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitForReplicas waits until the node is a master with so many replicas in
// sync; false means that ctx ended.
func waitForReplicas(ctx context.Context, node *engine.Engine, replicas int) bool {
	happened, unsubscribe := node.Subscribe(64)
	defer unsubscribe()
	tick := time.NewTicker(100 * time.Millisecond) // roles change without an event of their own
	defer tick.Stop()
	for {
		s, inSync := node.Status(), 0
		for _, r := range s.Replicas {
			if r.InSync {
				inSync++
			}
		}
		if s.Role != engine.Slave && inSync >= replicas {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case _, open := <-happened:
			if !open {
				return false
			}
		case <-tick.C:
		}
	}
}

// waitForMaster waits until the node is a master; false means that ctx ended.
func waitForMaster(ctx context.Context, node *engine.Engine) bool {
	events, unsubscribe := node.Subscribe(16)
	defer unsubscribe()
	for node.Role() == engine.Slave {
		select {
		case <-ctx.Done():
			return false
		case _, ok := <-events:
			if !ok {
				return false
			}
		}
	}
	return true
}
