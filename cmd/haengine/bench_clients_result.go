package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// clientsResult is what bench clients prints. What was not measured is null.
type clientsResult struct {
	Name              string           `json:"name"`
	Address           string           `json:"address"`
	Messages          int64            `json:"messages"` // that were answered with SUCCESS
	Other             map[int32]int64  `json:"other_answers,omitempty"`
	MessagesPerSecond float64          `json:"messages_per_second"`
	BytesPerSecond    float64          `json:"bytes_per_second"`
	P50               float64          `json:"p50_us"`
	P99               float64          `json:"p99_us"`
	P999              float64          `json:"p999_us"`
	Max               float64          `json:"max_us"`
	GeneratorCPU      float64          `json:"generator_cpu_seconds"`
	BrokerCPU         *float64         `json:"broker_cpu_seconds"`
	GeneratorShare    *float64         `json:"generator_cpu_share"` // of both
	CPUPerMillion     *float64         `json:"broker_cpu_seconds_per_million"`
	Rounds            []clientsRound   `json:"rounds"`
	Against           *clientsResult   `json:"against,omitempty"`
	Ratio             *clientsRatio    `json:"ratio_to_against,omitempty"`
	Idle              *clientsIdle     `json:"idle,omitempty"`
	Settings          *clientsSettings `json:"settings,omitempty"`
}

type clientsRound struct {
	Seconds           float64 `json:"seconds"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	P50               float64 `json:"p50_us"`
	P99               float64 `json:"p99_us"`
	P999              float64 `json:"p999_us"`
}

// clientsRatio compares medians of rounds.
type clientsRatio struct {
	MessagesPerSecond float64  `json:"messages_per_second"`
	P50               float64  `json:"p50"`
	P99               float64  `json:"p99"`
	P999              float64  `json:"p999"`
	CPUPerMessage     *float64 `json:"broker_cpu_per_message"`
}

type clientsSettings struct {
	Size        int64   `json:"size_bytes"`
	Connections int     `json:"connections"`
	Outstanding int     `json:"outstanding"`
	Rate        float64 `json:"rate"`
	Duration    float64 `json:"duration_seconds"`
	Rounds      int     `json:"rounds"`
	Role        string  `json:"role,omitempty"`
}

// result puts a side's rounds together: rates and percentiles are the medians of
// the rounds, so that one that something else disturbed does not count; the
// longest is of all.
func (s *clientsSide) result(o *clientsOptions) *clientsResult {
	r := &clientsResult{Name: "clients", Address: s.addr, Settings: &clientsSettings{
		Size: int64(o.size), Connections: o.connections, Outstanding: o.outstanding, Rate: o.rate, Duration: o.duration.Seconds(), Rounds: o.rounds,
	}}
	if isOwn(o) {
		r.Settings.Role = o.role
	}
	var broker time.Duration
	for _, l := range s.rounds {
		r.Messages += l.messages
		r.GeneratorCPU += l.cpu.Seconds()
		broker += l.broker
		r.Max = max(r.Max, µs(l.latency.quantile(1)))
		for code, n := range l.codes {
			if r.Other == nil {
				r.Other = map[int32]int64{}
			}
			r.Other[code] += n
		}
		r.Rounds = append(r.Rounds, clientsRound{
			Seconds: l.took.Seconds(), MessagesPerSecond: float64(l.messages) / l.took.Seconds(),
			P50: µs(l.latency.quantile(0.5)), P99: µs(l.latency.quantile(0.99)), P999: µs(l.latency.quantile(0.999)),
		})
	}
	r.MessagesPerSecond = medianOf(r.Rounds, func(l clientsRound) float64 { return l.MessagesPerSecond })
	r.BytesPerSecond = r.MessagesPerSecond * float64(o.size)
	r.P50 = medianOf(r.Rounds, func(l clientsRound) float64 { return l.P50 })
	r.P99 = medianOf(r.Rounds, func(l clientsRound) float64 { return l.P99 })
	r.P999 = medianOf(r.Rounds, func(l clientsRound) float64 { return l.P999 })
	if len(s.pids) > 0 {
		seconds := broker.Seconds()
		r.BrokerCPU = &seconds
		r.CPUPerMillion = ratio(seconds*1e6, float64(r.Messages))
		r.GeneratorShare = ratio(r.GeneratorCPU, r.GeneratorCPU+seconds)
	}
	return r
}

func (r *clientsResult) compare(other *clientsResult) {
	other.Settings = nil // they are the same
	r.Against = other
	r.Ratio = &clientsRatio{
		MessagesPerSecond: r.MessagesPerSecond / other.MessagesPerSecond,
		P50:               r.P50 / other.P50, P99: r.P99 / other.P99, P999: r.P999 / other.P999,
	}
	if r.CPUPerMillion != nil && other.CPUPerMillion != nil {
		r.Ratio.CPUPerMessage = ratio(*r.CPUPerMillion, *other.CPUPerMillion)
	}
}

func (r *clientsResult) print(w io.Writer) {
	r.printSide(w)
	if r.Against != nil {
		fmt.Fprintln(w)
		r.Against.printSide(w)
		fmt.Fprintln(w)
		pairs := []any{
			"first ÷ second", fmt.Sprintf("rate %.3g, p50 %.3g, p99 %.3g, p99.9 %.3g", r.Ratio.MessagesPerSecond, r.Ratio.P50, r.Ratio.P99, r.Ratio.P999),
		}
		if r.Ratio.CPUPerMessage != nil {
			pairs = append(pairs, "", fmt.Sprintf("broker's CPU time a message %.3g", *r.Ratio.CPUPerMessage))
		}
		fields(w, pairs...)
	}
	if r.Idle != nil {
		fmt.Fprintln(w)
		r.Idle.print(w)
	}
}

func (r *clientsResult) printSide(w io.Writer) {
	pairs := []any{
		"broker", r.Address,
		"messages", fmt.Sprintf("%s, %s a second, %s of bodies", count(r.Messages), count(int64(r.MessagesPerSecond)), shortBytes(int64(r.BytesPerSecond))),
		"latency", fmt.Sprintf("p50 %.4g µs  p99 %.4g µs  p99.9 %.4g µs  max %.4g µs", r.P50, r.P99, r.P999, r.Max),
	}
	if len(r.Other) > 0 {
		var text []string
		for _, code := range slices.Sorted(maps.Keys(r.Other)) {
			text = append(text, fmt.Sprintf("%s with code %d", count(r.Other[code]), code))
		}
		pairs = append(pairs, "other answers", strings.Join(text, ", "))
	}
	cpu := fmt.Sprintf("load %.3g s", r.GeneratorCPU)
	if r.BrokerCPU != nil {
		cpu += fmt.Sprintf(", broker %.3g s; the load's share is %.0f %%", *r.BrokerCPU, 100**r.GeneratorShare)
	}
	fields(w, append(pairs, "cpu", cpu)...)
}
