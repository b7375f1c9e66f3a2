package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// table is a title and rows of cells; the first row is the head.
type table struct {
	title string
	rows  [][]string
}

// column is a metric as a table shows it.
type column struct {
	metric, title string
	unit          float64 // what one of the column's unit is
	spread        bool    // with its range over the turns
	ratio         string  // title of the column of haengine ÷ peer; empty: none
}

var loadColumns = []column{
	{"messages_per_second", "puts/s", 1, true, "÷ puts/s"},
	{"p50_us", "p50, µs", 1, true, "÷ p50"},
	{"p99_us", "p99, µs", 1, true, "÷ p99"},
	{"p999_us", "p99.9, µs", 1, true, "÷ p99.9"},
	{"cpu_seconds_per_million", "CPU s per million puts", 1, false, "÷ CPU"},
	{"load_cpu_seconds_per_million", "of these in a client", 1, false, ""},
}

var copyColumns = []column{
	{"bytes_per_second", "MB/s from the first byte", 1e6, true, "÷ MB/s, first byte"},
	{"bytes_per_second_from_start", "MB/s from the replica's start", 1e6, true, "÷ MB/s, start"},
	{"seconds_to_first_byte", "seconds to the first byte", 1, true, ""},
	{"cpu_seconds_per_gb", "CPU s per GB", 1, false, "÷ CPU"},
}

var memoryColumns = []column{
	{"idle_anonymous_bytes", "anonymous, idle, MiB", 1 << 20, false, "÷ anonymous, idle"},
	{"idle_resident_bytes", "resident, idle, MiB", 1 << 20, false, ""},
	{"written_bytes", "written by then, MiB", 1 << 20, false, ""},
	{"anonymous_bytes", "anonymous, MiB", 1 << 20, false, "÷ anonymous"},
	{"resident_bytes", "resident, MiB", 1 << 20, false, ""},
}

// tables are all that was measured.
func (r *Report) tables() (all []table) {
	for _, w := range r.loads {
		all = append(all, r.table(fmt.Sprintf("%s (%s)", w.Title, w.Name), w.Name, loadColumns))
	}
	if len(r.loads) < len(r.Settings.Works) {
		all = append(all, r.table(fmt.Sprintf("Catch-up of %d MiB in records of 1 KiB", r.Settings.CatchUpBytes>>20), catchUp, copyColumns))
	}
	if len(r.loads) > 0 {
		all = append(all, r.table("Memory of all processes but clients, before and after the loads", memoryWork, memoryColumns))
	}
	return all
}

func (r *Report) table(title, work string, columns []column) table {
	head := []string{""}
	for _, c := range columns {
		head = append(head, c.title)
	}
	for _, c := range columns {
		if c.ratio != "" {
			head = append(head, c.ratio)
		}
	}
	t := table{title: title, rows: [][]string{head}}
	for _, p := range r.Peers {
		if p.Absent != "" {
			continue
		}
		row, ratios := []string{p.Name}, []string(nil)
		for _, c := range columns {
			f := r.figure(work, c.metric, p.Name)
			row = append(row, c.cell(f))
			switch {
			case c.ratio == "":
			case f == nil || f.Ours == nil:
				ratios = append(ratios, "–")
			default:
				ratios = append(ratios, number(*f.Ours))
			}
		}
		if failed := r.figure(work, "failed", p.Name); failed != nil && failed.Max > 0 {
			row[0] += fmt.Sprintf(" (up to %.0f puts not acknowledged)", failed.Max)
		}
		t.rows = append(t.rows, append(row, ratios...))
	}
	return t
}

func (c column) cell(f *Figure) string {
	switch {
	case f == nil:
		return "–"
	case c.spread && f.Min != f.Max:
		return fmt.Sprintf("%s (%s to %s)", number(f.Median/c.unit), number(f.Min/c.unit), number(f.Max/c.unit))
	}
	return number(f.Median / c.unit)
}

// number writes to three digits, and thousands as k.
func number(v float64) string {
	switch {
	case v >= 9.995e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 9995:
		return fmt.Sprintf("%.1f k", v/1e3)
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// heading says when, where and how, in a sentence.
func (r *Report) heading() string {
	return fmt.Sprintf("%s, %s. %d of %d turns, %.0f s in all; %g s of each load after %g s of warm-up. "+
		"Medians of the turns, with their range; ÷ is haengine's median over the peer's: above 1 is better for rates, below 1 for all else.",
		r.Started.UTC().Format("2006-01-02 15:04 MST"), r.Machine, r.Turns, r.Settings.Turns, r.TookSeconds, r.Settings.DurationSeconds, r.Settings.WarmUpSeconds)
}

// lines of a peer's About, each with its name.
func (a About) lines() [][2]string {
	return [][2]string{
		{"version", a.Version}, {"nodes", a.Nodes}, {"acknowledged", a.Acknowledged}, {"load", a.Load}, {"settings", a.Settings}, {"catch-up", a.CatchUp},
	}
}

// writeText is for a terminal.
func (r *Report) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s\n", r.heading())
	for _, p := range r.Peers {
		fmt.Fprintf(w, "\n%s\n", p.Name)
		if p.Absent != "" {
			fmt.Fprintf(w, "  left out: %s\n", p.Absent)
			continue
		}
		for _, l := range p.About.lines() {
			fmt.Fprintf(w, "  %-13s %s\n", l[0], l[1])
		}
	}
	for _, t := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", t.title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			fmt.Fprintf(tw, "  %s\n", strings.Join(row, "\t"))
		}
		tw.Flush()
	}
}

// writeMarkdown is for a page.
func (r *Report) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", r.heading())
	for _, p := range r.Peers {
		fmt.Fprintf(w, "- **%s**\n", p.Name)
		for _, l := range p.About.lines() {
			fmt.Fprintf(w, "  - %s: %s\n", l[0], l[1])
		}
	}
	for _, t := range r.tables() {
		fmt.Fprintf(w, "\n**%s**\n\n", t.title)
		for i, row := range t.rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(w, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
	}
}

const (
	pageBegin = "<!-- written by make bench-peers: begin -->\n"
	pageEnd   = "<!-- written by make bench-peers: end -->\n"
)

// writePage puts the tables between the marks of a page. A report that is not
// whole is not written.
func (r *Report) writePage(page string) error {
	if err := r.incomplete(); err != nil {
		return fmt.Errorf("%s is left as it was, since something is missing", page)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(b), pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the tables: %q and %q are missing", page, pageBegin, pageEnd)
	}
	var s strings.Builder
	r.writeMarkdown(&s)
	return os.WriteFile(page, []byte(before+pageBegin+"\n"+s.String()+"\n"+pageEnd+after), 0o644)
}
