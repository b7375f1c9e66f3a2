package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// goal is what the project wants, of that which the suite measures. Those that
// compare with other programs are measured by bench/compare.sh and bench/peers.
type goal struct {
	what, want string
	measure    func(suite) (values []float64, write func(float64) string)
	met        func(float64) bool
}

func atMost(most float64) func(float64) bool   { return func(v float64) bool { return v <= most } }
func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }

func goals() []goal {
	ratioOf := func(parts ...string) func(suite) ([]float64, func(float64) string) {
		return func(s suite) (v []float64, _ func(float64) string) {
			for _, part := range parts {
				for _, r := range s[part] {
					if r.Ratio != nil && (part != "flush" || r.Name == part) {
						v = append(v, *r.Ratio)
					}
				}
			}
			return v, digits
		}
	}
	return []goal{
		{"catch-up to the fastest way to receive", "≥ 0.90", ratioOf("catchup"), atLeast(0.9)},
		{"catch-up: until verified and queued, to its own time", "≤ 1.5", func(s suite) (v []float64, _ func(float64) string) {
			for _, r := range s["catchup"] {
				v = append(v, r.Copy.Queued)
			}
			return v, digits
		}, atMost(1.5)},
		{"catch-up: first bytes acknowledged after the first report", "≤ 50 ms", func(s suite) (v []float64, _ func(float64) string) {
			for _, r := range s["catchup"] {
				v = append(v, r.Copy.FirstAck)
			}
			return v, milliseconds
		}, atMost(50)},
		{"1 producer: p50 to ping-pong; anywhere, one core, two cores", "≤ 1.3", ratioOf("sync-any", "sync-one-core", "sync-two-cores"), atMost(1.3)},
		{"1 producer, spinning: p50 to spinning ping-pong", "≤ 1.4", ratioOf("sync-spin"), atMost(1.4)},
		{"64 producers: p99", "≤ 0.5 ms", sweepValueOf("producers", 64, microseconds, func(r result) float64 { return *r.P99 }), atMost(500)},
		{"64 producers: p99.9", "≤ 3 ms", sweepValueOf("producers", 64, microseconds, func(r result) float64 { return *r.P999 }), atMost(3000)},
		{"1,000 and 10,000 under way: rate to the stream's", "≥ 0.6", func(s suite) ([]float64, func(float64) string) {
			ratio := func(r result) float64 { return *r.Ratio }
			a, _ := sweepValueOf("outstanding", 1000, digits, ratio)(s)
			b, write := sweepValueOf("outstanding", 10000, digits, ratio)(s)
			return append(a, b...), write
		}, atLeast(0.6)},
		{"`ASYNC_MASTER`: p50 of a put", "≤ 0.35 µs", one("async", microseconds, func(r result) float64 { return *r.P50 }), atMost(0.35)},
		{"`ASYNC_MASTER`: p99.9 of a put", "≤ 20 µs", one("async", microseconds, func(r result) float64 { return *r.P999 }), atMost(20)},
		{"`ASYNC_MASTER`: lag at each load, p99.9", "< 50 ms", one("lag", microseconds, func(r result) float64 { return *r.P999 }), atMost(50000)},
		{"a wait's end, any number outstanding", "≤ 100 ns", func(s suite) (v []float64, _ func(float64) string) {
			for _, w := range waits(s) {
				v = append(v, w.median)
			}
			return v, func(v float64) string { return digits(v) + " ns" }
		}, atMost(100)},
		{"the same: with 1,000,000 to with 1; completed, expired", "≤ 1.2", waitGrowth, atMost(1.2)},
		{"16 replicas: master's CPU a replica, to that with one", "≤ 1.1", func(s suite) ([]float64, func(float64) string) {
			a, _ := sweepValueOf("replicas-rate", 16, digits, perReplica)(s)
			b, _ := sweepValueOf("replicas-rate", 1, digits, perReplica)(s)
			if len(a) == 0 || len(b) == 0 {
				return nil, digits
			}
			return []float64{a[0] / b[0]}, digits
		}, atMost(1.1)},
		{"a stuck replica: others' p99, to that without", "≤ 1.1", func(s suite) ([]float64, func(float64) string) {
			if len(s["stuck"]) != 2 {
				return nil, digits
			}
			return []float64{*s["stuck"][1].P99 / *s["stuck"][0].P99}, digits
		}, atMost(1.1)},
		{"start, clean, each log size", "≤ 30 ms", started("clean", milliseconds, func(r result) *float64 { return &r.Start }), atMost(30)},
		{"start after SIGKILL with an unflushed tail", "≥ 3 GB/s", started("killed under load", perSecond, func(r result) *float64 { return r.Rate }), atLeast(3e9)},
		{"puts after the replica serves again; after a cut", "≤ 0.3 s", one("outage", milliseconds, func(r result) float64 {
			if r.Serving != nil {
				return *r.Serving
			}
			return r.After
		}), atMost(300)},
		{"idle: anonymous memory of each node", "≤ 16 MiB", one("idle", binary, func(r result) float64 {
			var m use
			_ = decode(r.Memory, &m) // 0 if there is none
			return float64(m.Anonymous)
		}), atMost(16 << 20)},
		{"idle: CPU of the pair, % of a core", "≤ 0.1", func(s suite) ([]float64, func(float64) string) {
			sum := 0.0
			for _, r := range s["idle"] {
				sum += r.Percent
			}
			return slices.Repeat([]float64{sum}, min(len(s["idle"]), 1)), digits
		}, atMost(0.1)},
		{"64 producers: master's anonymous memory, load and rings in it", "≤ 64 MiB + rings", sweepValueOf("producers", 64, binary, func(r result) float64 {
			if m, _ := r.memory(); m != nil {
				return float64(m.Anonymous)
			}
			return 0
		}), atMost(64 << 20)},
		{"`SYNC_FLUSH`: rate to half of the producers for each fdatasync", "≥ 0.85", ratioOf("flush"), atLeast(0.85)},
	}
}

func goalTable(s suite) string {
	var rows [][]string
	for _, g := range goals() {
		values, write := g.measure(s)
		if len(values) == 0 {
			continue
		}
		met, text := "met", make([]string, len(values))
		for i, v := range values {
			text[i] = write(v)
			if !g.met(v) {
				met = "not met"
			}
		}
		rows = append(rows, []string{g.what, g.want, strings.Join(text, "; "), met})
	}
	return s.table(nil, "|goal|measured|", rows)
}

// one is a figure of each of a part's results.
func one(part string, write func(float64) string, value func(result) float64) func(suite) ([]float64, func(float64) string) {
	return func(s suite) (v []float64, _ func(float64) string) {
		for _, r := range s[part] {
			v = append(v, value(r))
		}
		return v, write
	}
}

func sweepValueOf(part string, at int64, write func(float64) string, value func(result) float64) func(suite) ([]float64, func(float64) string) {
	return func(s suite) (v []float64, _ func(float64) string) {
		for _, r := range s[part] {
			if r.Sweep.Value == at {
				v = append(v, value(r))
			}
		}
		return v, write
	}
}

func started(state string, write func(float64) string, value func(result) *float64) func(suite) ([]float64, func(float64) string) {
	return func(s suite) (v []float64, _ func(float64) string) {
		for _, r := range s["start"] {
			if r.State == state && value(r) != nil {
				v = append(v, *value(r))
			}
		}
		return v, write
	}
}

// waitCost is what all rounds of a benchmark of the ring say.
type waitCost struct {
	outcome           string
	outstanding       int64
	median, low, high float64
}

func waits(s suite) (all []waitCost) {
	rounds := map[waitCost][]float64{}
	for _, r := range s["waiters"] {
		key := waitCost{outcome: r.Outcome, outstanding: r.Outstanding}
		if rounds[key] == nil {
			all = append(all, key)
		}
		rounds[key] = append(rounds[key], r.Wait)
	}
	for i := range all {
		v := slices.Sorted(slices.Values(rounds[all[i]]))
		all[i].median, all[i].low, all[i].high = v[len(v)/2], v[0], v[len(v)-1]
	}
	return all
}

func waitGrowth(s suite) (v []float64, _ func(float64) string) {
	costs := map[string]map[int64]float64{}
	for _, w := range waits(s) {
		if costs[w.outcome] == nil {
			costs[w.outcome] = map[int64]float64{}
		}
		costs[w.outcome][w.outstanding] = w.median
	}
	for _, outcome := range []string{"done", "expired"} {
		if few, many := costs[outcome][1], costs[outcome][1_000_000]; few > 0 && many > 0 {
			v = append(v, many/few)
		}
	}
	return v, digits
}

func decode(raw json.RawMessage, to any) error {
	if len(raw) == 0 {
		return fmt.Errorf("nothing was measured")
	}
	return json.Unmarshal(raw, to)
}
