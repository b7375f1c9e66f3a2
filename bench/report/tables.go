package main

import (
	"fmt"
	"strings"
)

// section is what stands between two markers of the page. write gives "" if the
// results have nothing of it.
type section struct {
	name    string
	write   func(suite) string
	drawing drawing // above it
}

func sections() []section {
	return []section{
		{name: "machine", write: machine},
		{name: "goals", write: goalTable},
		{name: "limits", write: limits},
		{name: "puts", write: puts},
		{name: "catchup", write: catchUp},
		{name: "load", write: sweepTable("load", "puts a second", short), drawing: loadChart},
		{name: "size", write: sweepTable("size", "body", binary), drawing: sizeChart},
		{name: "size-one", write: sweepTable("size-one", "body", binary)},
		{name: "size-async", write: sweepTable("size-async", "body", binary)},
		{name: "producers", write: sweepTable("producers", "producers", short)},
		{name: "outstanding", write: sweepTable("outstanding", "under way", short), drawing: outstandingChart},
		{name: "replicas", write: sweepTable("replicas", "replicas", short)},
		{name: "replicas-rate", write: replicasAtRate, drawing: replicasChart},
		{name: "lag", write: sweepTable("lag", "puts a second", rateOrAll)},
		{name: "busy", write: beside("busy")},
		{name: "stuck", write: beside("stuck")},
		{name: "flush", write: beside("flush")},
		{name: "start", write: starts},
		{name: "outage", write: outages},
		{name: "idle", write: idle},
		{name: "waiters", write: waiters},
	}
}

// table writes rows below a header, and the commands that made them.
func (s suite) table(from []result, header string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	columns := strings.Split(header, "|")
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	m := s["machine"][0]
	b.WriteString("\n")
	said := ""
	for _, r := range from {
		if r.command != said {
			fmt.Fprintf(&b, "    %s\n", r.command)
			said = r.command
		}
	}
	if said != "" {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s, commit %s.%s\n", m.Date, m.Commit, notes(from))
	return b.String()
}

// notes are why figures are not to be believed, as the benchmark said it.
func notes(from []result) string {
	var b strings.Builder
	for _, r := range from {
		if r.Note != "" {
			what := r.Name
			if r.Sweep != nil {
				what = fmt.Sprint(r.Sweep.Value)
			}
			fmt.Fprintf(&b, " %s: %s.", what, r.Note)
		}
	}
	return b.String()
}

// cell is a median with its spread.
func cell(r result, name string, v *float64, write func(float64) string) string {
	if v == nil {
		return ""
	}
	s := write(*v)
	if between, ok := r.Spread[name]; ok && between[0] != between[1] {
		s += fmt.Sprintf(" (%s to %s)", write(between[0]), write(between[1]))
	}
	return s
}

func perSecond(v float64) string { return short(v) + "B/s" }

func (u *use) String() string {
	if u == nil {
		return ""
	}
	return binary(float64(u.Anonymous)) + " + " + binary(float64(u.Mapped))
}

func machine(s suite) string {
	m := s["machine"][0]
	return fmt.Sprintf("%s, commit %s: %d cores (%s), %s of memory, Linux %s, stores on %s, %s, TCP congestion control %s. Master, slave and load share\nthe machine, and their connections are the loopback's.\n",
		m.Date, m.Commit, m.Cores, m.CPUModel, binary(float64(m.MemoryBytes)), m.Kernel, m.Filesystem, m.Go, m.Congestion)
}

// measured are the cells that all tables of puts share.
const measuredHeader = "puts/s|bodies|p50|p99|p99.9|limit|ratio to limit"

func measured(r result) []string {
	bound := ""
	if l := r.Limit; l != nil {
		if l.P50 != nil {
			bound = l.Name + ": " + microseconds(*l.P50)
		} else {
			bound = l.Name + ": " + perSecond(*l.BytesPerSecond)
		}
	}
	rate, bytes := &r.MessagesPerSecond, &r.BytesPerSecond
	if *rate == 0 {
		rate = nil
	}
	return []string{
		cell(r, "messages_per_second", rate, short), cell(r, "bytes_per_second", bytes, perSecond),
		cell(r, "p50_us", r.P50, microseconds), cell(r, "p99_us", r.P99, microseconds), cell(r, "p999_us", r.P999, microseconds),
		bound, cell(r, "ratio_to_limit", r.Ratio, digits),
	}
}

func limits(s suite) string {
	var rows [][]string
	for _, r := range s["limits"] {
		rows = append(rows, []string{
			r.Name, cell(r, "bytes_per_second", &r.BytesPerSecond, perSecond), cell(r, "p50_us", r.P50, microseconds),
			cell(r, "p99_us", r.P99, microseconds), cell(r, "cpu_seconds_per_gb", r.CPU, digits),
		})
	}
	return s.table(s["limits"], "limit|bytes|p50|p99|CPU s/GB, both ends", rows)
}

// putParts are the single figures of the puts table, with what they are.
var putParts = []struct{ part, what string }{
	{"sync-any", "synchronous, 1 producer"},
	{"sync-one-core", "the same, all on one core"},
	{"sync-two-cores", "the same, master and slave on a core each"},
	{"sync-spin", "the same, loops that poll before they block"},
	{"async", "`ASYNC_MASTER`, 1 producer"},
}

func puts(s suite) string {
	var rows [][]string
	var from []result
	for _, p := range putParts {
		for _, r := range s[p.part] {
			master, slave := r.memory()
			row := append([]string{p.what}, measured(r)...)
			rows = append(rows, append(row, cell(r, "", r.Allocs, digits), cell(r, "cpu_seconds_per_gb", r.CPU, digits), master.String(), slave.String()))
			from = append(from, r)
		}
	}
	return s.table(from, "|"+measuredHeader+"|allocations a put|CPU s/GB, both|master: anonymous + mapped|slave: the same", rows)
}

func sweepTable(part, axis string, value func(float64) string) func(suite) string {
	return func(s suite) string {
		var rows [][]string
		for _, r := range s[part] {
			master, _ := r.memory()
			rows = append(rows, append(append([]string{value(float64(r.Sweep.Value))}, measured(r)...), cell(r, "master_cpu_us_per_message", r.MasterCPU, microseconds), master.String()))
		}
		return s.table(s[part], axis+"|"+measuredHeader+"|master's CPU a put|master: anonymous + mapped", rows)
	}
}

func rateOrAll(v float64) string {
	if v == 0 {
		return "as many as one producer can"
	}
	return short(v)
}

func replicasAtRate(s suite) string {
	var rows [][]string
	for _, r := range s["replicas-rate"] {
		rows = append(rows, []string{
			fmt.Sprint(r.Sweep.Value), cell(r, "messages_per_second", &r.MessagesPerSecond, short), cell(r, "p50_us", r.P50, microseconds), cell(r, "p99_us", r.P99, microseconds),
			cell(r, "master_cpu_us_per_message", r.MasterCPU, microseconds), microseconds(perReplica(r)),
		})
	}
	return s.table(s["replicas-rate"], "replicas|puts/s|p50|p99|master's CPU a put|master's CPU a put and replica", rows)
}

// beside are results with a name each, of which some have another one for a
// limit.
func beside(part string) func(suite) string {
	return func(s suite) string {
		var rows [][]string
		for _, r := range s[part] {
			rows = append(rows, append([]string{r.Name}, measured(r)...))
		}
		return s.table(s[part], "|"+strings.Replace(measuredHeader, "limit|ratio to limit", "beside|ratio", 1), rows)
	}
}

func catchUp(s suite) string {
	var rows [][]string
	for _, r := range s["catchup"] {
		master, slave := r.memory()
		rows = append(rows, []string{"haengine", cell(r, "bytes_per_second", &r.BytesPerSecond, perSecond), "", cell(r, "cpu_seconds_per_gb", r.CPU, digits), master.String(), slave.String()})
		for _, l := range r.Limits {
			rate := perSecond(*l.BytesPerSecond)
			if l.Spread != nil {
				rate += fmt.Sprintf(" (%s to %s)", perSecond(l.Spread[0]), perSecond(l.Spread[1]))
			}
			rows = append(rows, []string{l.Name, rate, digits(r.BytesPerSecond / *l.BytesPerSecond), "", "", ""})
		}
	}
	return s.table(s["catchup"], "|bytes|haengine to it|CPU s/GB, both|master: anonymous + mapped|slave: the same", rows)
}

func starts(s suite) string {
	var rows [][]string
	for _, r := range s["start"] {
		master, _ := r.memory()
		tail, rate := "", ""
		if r.Unsynced > 0 {
			tail = binary(float64(r.Unsynced))
		}
		if r.Rate != nil {
			rate = perSecond(*r.Rate)
		}
		rows = append(rows, []string{binary(float64(r.LogBytes)), r.State, tail, cell(r, "start_ms", &r.Start, milliseconds), rate, master.String()})
	}
	return s.table(s["start"], "log|found|not flushed|start|recovered|memory: anonymous + mapped", rows)
}

func milliseconds(v float64) string { return microseconds(v * 1e3) }

func outages(s suite) string {
	var rows [][]string
	for _, r := range s["outage"] {
		rows = append(rows, []string{"replica " + r.Kind, cell(r, "recovered_ms", &r.After, milliseconds), cell(r, "recovered_from_serving_ms", r.Serving, milliseconds)})
	}
	return s.table(s["outage"], "|puts succeed after|after the replica serves", rows)
}

func idle(s suite) string {
	var rows [][]string
	for _, r := range s["idle"] {
		var m use
		if err := decode(r.Memory, &m); err != nil {
			continue
		}
		rows = append(rows, []string{r.Process, cell(r, "cpu_percent_of_core", &r.Percent, digits), binary(float64(m.Anonymous)), binary(float64(m.Mapped))})
	}
	return s.table(s["idle"], "|CPU, % of a core|anonymous|mapped", rows)
}

func waiters(s suite) string {
	var rows [][]string
	for _, w := range waits(s) {
		rows = append(rows, []string{w.outcome, short(float64(w.outstanding)), fmt.Sprintf("%s ns (%s to %s)", digits(w.median), digits(w.low), digits(w.high))})
	}
	return s.table(s["waiters"], "ended as|outstanding|a wait, from its place in the ring to its outcome", rows)
}
