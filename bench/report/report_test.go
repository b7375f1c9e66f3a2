package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const machineLine = `{"part":"machine","command":"","result":{"date":"2026-01-02","commit":"abc1234","cpuModel":"A","kernel":"6.1","filesystem":"ext4","go":"go1.26","congestion":"cubic","cores":2,"memoryBytes":8589934592}}` + "\n"

func loadLines(p99s ...string) string {
	var b strings.Builder
	for i, p99 := range p99s {
		rate := []string{"1000", "10000", "100000"}[i]
		b.WriteString(`{"part":"load","command":"haengine bench sweep load --json","result":{"name":"sync","messages_per_second":` + rate + `,"bytes_per_second":1024000,` +
			`"p50_us":30,"p99_us":` + p99 + `,"p999_us":900,"master_cpu_us_per_message":20,"memory":{"master":{"anonymous_bytes":5242880,"mapped_bytes":62914560},"slave":null},` +
			`"spread":{"p50_us":[25,40]},"limit":{"name":"epoll ping-pong","p50_us":12},"ratio_to_limit":2.5,"sweep":{"axis":"load","value":` + rate + `}}}` + "\n")
	}
	return b.String()
}

// run writes a report into a page that has all markers, and gives the page and
// the directory of the charts.
func run(t *testing.T, results string) (page, img string) {
	t.Helper()
	dir := t.TempDir()
	img = filepath.Join(dir, "img")
	var text strings.Builder
	text.WriteString("before\n")
	for _, s := range sections() {
		text.WriteString("<!-- suite:" + s.name + " -->\nolder\n<!-- /suite:" + s.name + " -->\n")
	}
	text.WriteString("after\n")
	doc, from := filepath.Join(dir, "doc.md"), filepath.Join(dir, "results.jsonl")
	if err := errors.Join(os.Mkdir(img, 0o755), os.WriteFile(doc, []byte(text.String()), 0o644), os.WriteFile(from, []byte(results), 0o644)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds what the first wrote
		if err := report(from, doc, img); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		if page != "" && page != string(now) {
			t.Errorf("the second report of the same results differs:\n%s", now)
		}
		page = string(now)
	}
	return page, img
}

func part(page, name string) string {
	_, rest, _ := strings.Cut(page, "<!-- suite:"+name+" -->\n")
	body, _, _ := strings.Cut(rest, "<!-- /suite:"+name+" -->")
	return body
}

func TestOnlyWhatWasMeasuredIsWritten(t *testing.T) {
	page, _ := run(t, machineLine+loadLines("100", "200", "400"))
	if !strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "after\n") {
		t.Errorf("what stands around the markers changed:\n%s", page)
	}
	if got := part(page, "size"); got != "older\n" {
		t.Errorf("size was not measured, and is now %q", got)
	}
	load := part(page, "load")
	for _, want := range []string{
		"![Latency of synchronous puts against their rate](img/latency-load.svg)", "| 10 k | 10 k |", "30 µs (25 µs to 40 µs)", "epoll ping-pong: 12 µs",
		"5 MiB + 60 MiB", "    haengine bench sweep load --json\n", "2026-01-02, commit abc1234.",
	} {
		if !strings.Contains(load, want) {
			t.Errorf("%q is missing in:\n%s", want, load)
		}
	}
	if !strings.Contains(part(page, "machine"), "2 cores (A), 8 GiB of memory") {
		t.Errorf("machine: %s", part(page, "machine"))
	}
}

func TestAGoalIsMetByAllOfItsFiguresOrNot(t *testing.T) {
	outage := func(killed, cut string) string {
		return machineLine + `{"part":"outage","command":"c","result":{"name":"outage","kind":"killed","recovered_ms":900,"recovered_from_serving_ms":` + killed + `}}` + "\n" +
			`{"part":"outage","command":"c","result":{"name":"outage","kind":"cut","recovered_ms":` + cut + `}}` + "\n"
	}
	for _, c := range []struct{ killed, cut, want string }{
		{"2", "11", "| ≤ 0.3 s | 2 ms; 11 ms | met |"}, {"2", "301", "| ≤ 0.3 s | 2 ms; 301 ms | not met |"}, {"500", "3", "| ≤ 0.3 s | 500 ms; 3 ms | not met |"},
	} {
		page, _ := run(t, outage(c.killed, c.cut))
		if got := part(page, "goals"); !strings.Contains(got, c.want) {
			t.Errorf("want %q in:\n%s", c.want, got)
		}
	}
}

func TestWaitersAreMediansOfTheirRounds(t *testing.T) {
	line := func(outcome, outstanding, ns string) string {
		return `{"part":"waiters","command":"go test","result":{"outcome":"` + outcome + `","outstanding":` + outstanding + `,"ns_per_wait":` + ns + `}}` + "\n"
	}
	page, _ := run(t, machineLine+line("done", "1", "30")+line("done", "1", "90")+line("done", "1", "40")+line("done", "1000000", "60"))
	if got := part(page, "waiters"); !strings.Contains(got, "| done | 1 | 40 ns (30 to 90) |") {
		t.Errorf("waiters:\n%s", got)
	}
	if got := part(page, "goals"); !strings.Contains(got, "| ≤ 1.2 | 1.5 | not met |") || !strings.Contains(got, "| ≤ 100 ns | 40 ns; 60 ns | met |") {
		t.Errorf("goals:\n%s", got)
	}
}

func TestAMissingMarkerIsAnError(t *testing.T) {
	if _, err := between("text", "load", "body"); err == nil || !strings.Contains(err.Error(), "suite:load") {
		t.Errorf("%v", err)
	}
	if _, err := between("<!-- suite:load -->\ntext", "load", "body"); err == nil || !strings.Contains(err.Error(), "/suite:load") {
		t.Errorf("%v", err)
	}
	if _, err := readSuite(strings.NewReader(loadLines("100"))); err == nil {
		t.Error("results of no machine were read")
	}
}

// elements counts the elements of a drawing by name; it fails if it is no XML.
func elements(t *testing.T, drawn string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, drawn)
		}
		if e, ok := token.(xml.StartElement); ok {
			n[e.Name.Local]++
		}
	}
}

func TestAChartHasAllPoints(t *testing.T) {
	_, img := run(t, machineLine+loadLines("100", "200", "400"))
	drawn, err := os.ReadFile(filepath.Join(img, "latency-load.svg"))
	if err != nil {
		t.Fatal(err)
	}
	n := elements(t, string(drawn))
	// Three percentiles of three rates; the limit is a line without points.
	if n["circle"] != 9 || n["g"] != 4 {
		t.Errorf("%d points in %d lines, want 9 in 4:\n%s", n["circle"], n["g"], drawn)
	}
	if files, err := os.ReadDir(img); err != nil || len(files) != 1 {
		t.Errorf("charts %v, %v: of what was not measured there should be none", files, err)
	}
}

func TestAnAxisIsLogarithmic(t *testing.T) {
	a := newAxis(nil)
	for _, v := range []float64{3, 0, 700} { // 0 has no place
		a.cover(v)
	}
	a.from, a.to = 0, 300
	if got := a.ticks(); len(got) != 4 || got[0] != 1 || got[3] != 1000 {
		t.Errorf("ticks %v, want 1 to 1000", got)
	}
	for _, c := range []struct{ v, at float64 }{{1, 0}, {10, 100}, {1000, 300}, {1e6, 300}} {
		if got := a.at(c.v); got < c.at-0.01 || got > c.at+0.01 {
			t.Errorf("%g is drawn at %g, want %g", c.v, got, c.at)
		}
	}
	if (chart{series: []series{{}}}).svg() != "" {
		t.Error("a chart without a point was drawn")
	}
	text := chart{title: "a < b & c", xText: short, yText: short, series: []series{{name: "x", points: []point{{1, 2, 2, 3}}}}}.svg()
	if elements(t, text)["circle"] != 1 || !strings.Contains(text, "a &lt; b &amp; c") {
		t.Errorf("%s", text)
	}
}

func TestNumbersAreShort(t *testing.T) {
	for got, want := range map[string]string{
		short(20000): "20 k", short(1234567): "1.23 M", short(999): "999", binary(4096): "4 KiB", binary(128): "128 B",
		microseconds(0.35): "350 ns", microseconds(12.34): "12.3 µs", microseconds(2500): "2.5 ms", microseconds(3e6): "3 s", digits(1234): "1234",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
