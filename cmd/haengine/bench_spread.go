package main

import (
	"fmt"
	"slices"
	"strings"
)

// benchSpread has the least and the most of each figure over the rounds, by the
// figure's name in JSON.
type benchSpread map[string][2]float64

// spread looks at one figure of all rounds. Figures that are 0 in all of them
// were not measured.
func (s benchSpread) of(name string, rounds []round, value func(round) float64) {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = value(r)
	}
	s.values(name, values)
}

func (s benchSpread) values(name string, values []float64) {
	if len(values) > 0 && slices.Max(values) > 0 {
		s[name] = [2]float64{slices.Min(values), slices.Max(values)}
	}
}

// spreadOf is that of all that a round has.
func spreadOf(rounds []round) benchSpread {
	s := benchSpread{}
	s.of("messages_per_second", rounds, func(r round) float64 { return per(float64(r.messages), r.took.Seconds()) })
	s.of("bytes_per_second", rounds, round.bytesPerSecond)
	for name, q := range map[string]float64{"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999} {
		s.of(name, rounds, func(r round) float64 { return µs(r.latency.quantile(q)) })
	}
	s.of("cpu_seconds_per_gb", rounds, func(r round) float64 { return per(r.cpu.Seconds(), float64(r.bytes)/1e9) })
	s.of("master_cpu_us_per_message", rounds, func(r round) float64 { return per(µs(r.masterCPU), float64(r.messages)) })
	return s
}

// per is a for each b, and 0, which is nothing, without any.
func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// text is "a to b" of a figure, after its median; empty without one.
func (s benchSpread) text(name string, format func(float64) string) string {
	v, ok := s[name]
	if !ok {
		return ""
	}
	return fmt.Sprintf(" (%s to %s)", format(v[0]), format(v[1]))
}

// threeDigits writes a figure as people compare it.
func threeDigits(v float64) string {
	if v >= 1000 {
		return count(int64(v))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3g", v), ".0")
}

// besideLimit compares a benchmark with its limit, which nothing can be faster
// than.
func (r *benchResult) besideLimit(name string, byLatency bool, ours, limit []round) {
	r.beside(name, byLatency, ours, limit)
	r.judge(min(shortest(ours), shortest(limit)))
}

// beside compares the rounds of a benchmark with others, of which the i-th was
// measured just before the i-th of the benchmark. By latency the ratio is that of
// the median times, otherwise of the rates.
func (r *benchResult) beside(name string, byLatency bool, ours, limit []round) {
	l := &benchLimit{Name: name}
	p50 := func(r round) float64 { return µs(r.latency.quantile(0.5)) }
	figure, of := round.bytesPerSecond, r.BytesPerSecond
	if byLatency {
		figure, of = p50, *r.P50
	}
	values, ratios := make([]float64, len(limit)), make([]float64, len(limit))
	for i := range limit {
		values[i] = figure(limit[i])
		ratios[i] = per(figure(ours[i]), values[i])
	}
	l.Spread = &[2]float64{slices.Min(values), slices.Max(values)}
	m := median(values)
	if byLatency {
		l.P50 = &m
	} else {
		l.BytesPerSecond = &m
	}
	r.Limit, r.Ratio = l, ratio(of, m)
	r.Spread.values("ratio_to_limit", ratios)
}
