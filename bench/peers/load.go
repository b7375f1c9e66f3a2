package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// producer puts into a peer, from one goroutine.
type producer interface {
	// put puts one record and returns when it is acknowledged.
	put() error
	// pipeline keeps as many puts under way as the producer was made for while
	// more says so, and calls ended for each, with the time at which it was
	// begun, one call at a time. It returns when all have ended.
	pipeline(more func() bool, ended func(begun time.Time)) error
	close()
}

// phase is a load: so many producers, for some time or some records in all.
type phase struct {
	size, threads, outstanding int
	seconds                    float64
	count                      int64 // records in all; 0: no matter
}

// parsePhase reads "size=1024,threads=1,seconds=5,outstanding=1000,count=N", any
// part of it.
func parsePhase(s string) (phase, error) {
	p := phase{size: recordBytes, threads: 1, outstanding: 1, seconds: 600}
	for pair := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(pair, "=")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || !(number >= 0 && number < 1<<52) {
			return p, fmt.Errorf("%q: want a number of 0 or more", pair)
		}
		switch name {
		case "size":
			p.size = int(number)
		case "threads":
			p.threads = int(number)
		case "outstanding":
			p.outstanding = max(int(number), 1)
		case "seconds":
			p.seconds = number
		case "count":
			p.count = int64(number)
		default:
			return p, fmt.Errorf("%q: want size, threads, outstanding, seconds or count", pair)
		}
	}
	return p, nil
}

// run puts, and returns what a phase's answer says. A put that fails ends the
// phase with its error: what is measured beside failures is something else.
func (p phase) run(d driver) (event, error) {
	producers := make([]*timed, p.threads)
	for i := range producers {
		puts, err := d.producer(p.size, p.outstanding)
		if err != nil {
			return event{}, fmt.Errorf("producer: %w", err)
		}
		defer puts.close()
		producers[i] = &timed{producer: puts, took: make([]int64, 0, 1<<18)}
	}
	var left atomic.Int64
	left.Store(math.MaxInt64)
	if p.count > 0 {
		left.Store(p.count)
	}
	start := time.Now()
	end := start.Add(time.Duration(p.seconds * float64(time.Second)))
	// Each producer's first put is not asked for the time: on a busy machine a
	// short phase may be over before it is begun.
	moreOf := func() func() bool {
		begun := false
		return func() bool {
			ok := !begun || time.Now().Before(end)
			begun = true
			return ok && left.Add(-1) >= 0
		}
	}
	var all sync.WaitGroup
	for _, t := range producers {
		all.Go(func() { t.failed = t.run(p.outstanding > 1, moreOf()) })
	}
	all.Wait()
	seconds := time.Since(start).Seconds()
	var took []int64
	var failed error
	for _, t := range producers {
		took = append(took, t.took...)
		failed = errors.Join(failed, t.failed)
	}
	if failed != nil {
		return event{}, failed
	}
	return phaseEvent(took, seconds), nil
}

// phaseEvent sorts the durations.
func phaseEvent(took []int64, seconds float64) event {
	e := event{Event: "phase", Messages: int64(len(took)), Seconds: seconds}
	if len(took) == 0 {
		return e
	}
	slices.Sort(took)
	quantile := func(q float64) *float64 {
		µs := float64(took[min(int(q*float64(len(took))), len(took)-1)]) / 1e3
		return &µs
	}
	e.P50, e.P99, e.P999, e.Max = quantile(0.5), quantile(0.99), quantile(0.999), quantile(1)
	e.Status = map[string]int64{statusOK: e.Messages}
	return e
}

// timed is a producer with its latencies, in nanoseconds.
type timed struct {
	producer
	took   []int64
	failed error
}

func (t *timed) run(pipelined bool, more func() bool) error {
	if pipelined {
		return t.pipeline(more, func(begun time.Time) { t.took = append(t.took, int64(time.Since(begun))) })
	}
	for more() {
		begun := time.Now()
		if err := t.put(); err != nil {
			return err
		}
		t.took = append(t.took, int64(time.Since(begun)))
	}
	return nil
}

// inOrder is the pipeline of a producer whose puts are futures that end, more
// or less, in the order in which they were begun: another goroutine waits for
// them in that order.
func inOrder[T any](outstanding int, more func() bool, begin func() (T, error), wait func(T) error, ended func(begun time.Time)) error {
	type underWay struct {
		begun time.Time
		put   T
	}
	// One is being waited for, and one may be blocked at the channel.
	puts := make(chan underWay, max(outstanding-2, 0))
	var failed atomic.Pointer[error]
	var waiter sync.WaitGroup
	waiter.Go(func() {
		for u := range puts {
			if err := wait(u.put); err != nil {
				failed.CompareAndSwap(nil, &err)
				continue // the rest has to be taken, too
			}
			ended(u.begun)
		}
	})
	var err error
	for err == nil && failed.Load() == nil && more() {
		u := underWay{begun: time.Now()}
		if u.put, err = begin(); err == nil {
			puts <- u
		}
	}
	close(puts)
	waiter.Wait()
	if first := failed.Load(); first != nil && err == nil {
		err = *first
	}
	return err
}

// newBody makes a body that does not compress, the same one in every run.
func newBody(size int) []byte {
	body := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{'p', 'e', 'e', 'r', 's'}).Read(body) // it cannot fail
	return body
}
