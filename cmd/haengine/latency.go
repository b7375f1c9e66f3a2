package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

var clockStart = time.Now()

// clock is the time since the program began, for what is measured often: it reads one
// clock where time.Now reads two, which take as long as a fifth of an asynchronous put.
func clock() time.Duration { return time.Since(clockStart) }

// latencies counts durations in buckets of 1/64 of their size, so that a
// percentile is off by less than 2 % whatever its size, in fixed memory. add
// allocates nothing and may be called from many goroutines.
type latencies struct {
	counts [latencyBuckets]atomic.Int64
	max    atomic.Int64 // ns
}

const (
	latencyFine    = 6 // 64 buckets for each power of two
	latencyBuckets = 38 << latencyFine
)

func latencyBucket(ns int64) int {
	if ns < 1<<latencyFine {
		return int(max(ns, 0))
	}
	e := bits.Len64(uint64(ns)) - latencyFine - 1
	return min((e+1)<<latencyFine|int(ns>>e)&(1<<latencyFine-1), latencyBuckets-1)
}

// latencyOf is the largest duration in a bucket.
func latencyOf(bucket int) int64 {
	if bucket < 1<<latencyFine {
		return int64(bucket)
	}
	e := bucket>>latencyFine - 1
	return (int64(bucket&(1<<latencyFine-1)|1<<latencyFine)+1)<<e - 1
}

func (l *latencies) add(d time.Duration) {
	l.counts[latencyBucket(int64(d))].Add(1)
	for {
		m := l.max.Load()
		if int64(d) <= m || l.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

func (l *latencies) count() (n int64) {
	for i := range l.counts {
		n += l.counts[i].Load()
	}
	return n
}

// quantile is the duration that the share q of all does not exceed; 0 when
// there are none.
func (l *latencies) quantile(q float64) time.Duration {
	total := l.count()
	if total == 0 {
		return 0
	}
	rank, seen := int64(q*float64(total)+0.5), int64(0)
	rank = min(max(rank, 1), total)
	for i := range l.counts {
		if seen += l.counts[i].Load(); seen >= rank {
			return time.Duration(min(latencyOf(i), l.max.Load()))
		}
	}
	return time.Duration(l.max.Load())
}

func (l *latencies) merge(other *latencies) {
	for i := range other.counts {
		if n := other.counts[i].Load(); n > 0 {
			l.counts[i].Add(n)
		}
	}
	l.max.Store(max(l.max.Load(), other.max.Load()))
}

// µs is a duration in microseconds, as JSON fields named _us hold it.
func µs(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
