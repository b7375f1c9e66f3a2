package remoting

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// pullTraffic counts what pulls were answered. Any goroutine.
type pullTraffic struct {
	found, missed atomic.Int64 // pulls that got messages, and that got none
	messages      atomic.Int64
}

func (c *pullTraffic) answered(found *engine.Pulled) {
	if found.Status != engine.PullFound {
		c.missed.Add(1)
		return
	}
	c.found.Add(1)
	c.messages.Add(int64(found.Messages))
}

// counts are a broker's totals since it was opened.
type counts struct {
	put, failed           int64 // messages that clients' sends stored; sends that were refused
	found, missed, gotten int64
}

// The seconds over which rates are told (StoreStatsService).
var rateSpans = [...]int{10, 60, 600}

const samplesMax = 600 + 1

// traffic keeps a sample of the counts of each second, from which rates are told.
// RocketMQ: StoreStatsService, BrokerStats. Any goroutine.
type traffic struct {
	now func() counts

	mu      sync.Mutex
	samples []sample // a ring, once it is full
	next    int
	// The counts at the last two midnights, or when the broker was opened.
	yesterday, today counts
	day              int // of the year
}

type sample struct {
	at time.Time
	counts
}

// take takes a sample. Once a second.
func (t *traffic) take(at time.Time) {
	s := sample{at, t.now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if day := at.YearDay(); day != t.day {
		if t.day != 0 {
			t.yesterday, t.today = t.today, s.counts
		}
		t.day = day
	}
	if len(t.samples) < samplesMax {
		t.samples = append(t.samples, s)
		return
	}
	t.samples[t.next] = s
	t.next = (t.next + 1) % samplesMax
}

// rates gives a count's rates over the last 10, 60 and 600 seconds, or as long as
// the broker has been open, as RocketMQ writes them: numbers with spaces between.
func (t *traffic) rates(of func(c *counts) int64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := ""
	for i, span := range rateSpans {
		if i > 0 {
			text += " "
		}
		text += strconv.FormatFloat(t.rateLocked(span, of), 'f', -1, 64)
	}
	return text
}

func (t *traffic) rateLocked(span int, of func(c *counts) int64) float64 {
	n := len(t.samples)
	if n < 2 {
		return 0
	}
	back := min(span, n-1)
	last, first := &t.samples[(t.next+n-1)%n], &t.samples[(t.next+n-1-back)%n]
	return float64(of(&last.counts)-of(&first.counts)) / last.at.Sub(first.at).Seconds()
}

// mornings are the counts at the last two midnights.
func (t *traffic) mornings() (yesterday, today counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.yesterday, t.today
}
