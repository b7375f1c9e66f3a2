package main

import (
	"fmt"
	"strings"
)

// drawing is a chart's file, what it says, and how it comes from the results.
type drawing struct {
	file, says string
	draw       func(suite) string
}

var (
	loadChart        = drawing{"latency-load.svg", "Latency of synchronous puts against their rate", latencyAgainstLoad}
	sizeChart        = drawing{"throughput-size.svg", "Throughput against the size of a record", throughputAgainstSize}
	outstandingChart = drawing{"latency-outstanding.svg", "Latency against the puts under way", latencyAgainstOutstanding}
	replicasChart    = drawing{"cost-replicas.svg", "The master's CPU against the number of replicas", costAgainstReplicas}
)

func latencyAgainstLoad(s suite) string {
	all := s["load"]
	c := chart{
		title: "Latency against load: synchronous puts of 1 KiB, open loop", x: "puts a second", y: "from when a put was due",
		xText: short, yText: microseconds, series: percentiles(all),
	}
	c.xTicks = values(all)
	c.series = append(c.series, limitLine("epoll ping-pong", all, func(l limit) *float64 { return l.P50 }))
	return c.svg()
}

func throughputAgainstSize(s suite) string {
	c := chart{
		title: "Throughput against record size", x: "bytes of a body", y: "bytes of bodies a second", xText: binary, yText: func(v float64) string { return short(v) + "B" },
		xTicks: values(s["size"]),
	}
	rate := func(r result) float64 { return r.BytesPerSecond }
	c.series = []series{
		line("synchronous, 64 producers", s["size"], "bytes_per_second", rate),
		line("asynchronous, 1 producer", s["size-async"], "bytes_per_second", rate),
		limitLine("limit: stream with acks", s["size"], func(l limit) *float64 { return l.BytesPerSecond }),
	}
	return c.svg()
}

func latencyAgainstOutstanding(s suite) string {
	all := s["outstanding"]
	c := chart{
		title: "Latency against puts under way: one producer, 1 KiB", x: "puts under way", y: "from the call to the end", xText: short, yText: microseconds,
		xTicks: values(all), series: percentiles(all),
	}
	return c.svg()
}

func costAgainstReplicas(s suite) string {
	all := s["replicas-rate"]
	c := chart{
		title: "The master's CPU a put and replica, against replicas", x: "replicas", y: "CPU", xText: short, yText: microseconds, xTicks: values(all),
		series: []series{line("a put and replica", all, "", perReplica), line("a put", all, "master_cpu_us_per_message", func(r result) float64 { return *r.MasterCPU })},
	}
	return c.svg()
}

// perReplica is the master's CPU for one put and one replica, in microseconds.
func perReplica(r result) float64 { return *r.MasterCPU / float64(r.Sweep.Value) }

func percentiles(all []result) []series {
	return []series{
		line("p50", all, "p50_us", func(r result) float64 { return *r.P50 }),
		line("p99", all, "p99_us", func(r result) float64 { return *r.P99 }),
		line("p99.9", all, "p999_us", func(r result) float64 { return *r.P999 }),
	}
}

// line is a figure of a sweep, with its spread if it has a name.
func line(name string, all []result, spread string, value func(result) float64) series {
	s := series{name: name}
	for _, r := range all {
		v := value(r)
		p := point{float64(r.Sweep.Value), v, v, v}
		if between, ok := r.Spread[spread]; ok {
			p.low, p.high = between[0], between[1]
		}
		s.points = append(s.points, p)
	}
	return s
}

// limitLine is the limit where the figure is what it is about.
func limitLine(name string, all []result, value func(limit) *float64) series {
	s := series{name: name, dashed: true}
	for _, r := range all {
		if r.Limit == nil || value(*r.Limit) == nil {
			continue
		}
		v := *value(*r.Limit)
		s.points = append(s.points, point{float64(r.Sweep.Value), v, v, v})
	}
	return s
}

func values(all []result) []float64 {
	var v []float64
	for _, r := range all {
		v = append(v, float64(r.Sweep.Value))
	}
	return v
}

// short writes 20000 as 20 k.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.size {
			return digits(v/unit.size) + unit.name
		}
	}
	return digits(v)
}

// binary writes 4096 as 4 KiB.
func binary(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}} {
		if v >= unit.size {
			return digits(v/unit.size) + unit.name
		}
	}
	return digits(v) + " B"
}

// microseconds writes v of them in the unit that fits.
func microseconds(v float64) string {
	switch {
	case v >= 1e6:
		return digits(v/1e6) + " s"
	case v >= 1e3:
		return digits(v/1e3) + " ms"
	case v < 1:
		return digits(v*1e3) + " ns"
	}
	return digits(v) + " µs"
}

// digits writes three of them.
func digits(v float64) string {
	s := fmt.Sprintf("%.3g", v)
	if strings.Contains(s, "e") {
		return fmt.Sprintf("%.0f", v)
	}
	return s
}
