// Command report writes what bench/suite.sh has measured into
// docs/benchmarks.md, between markers, and draws its charts. It measures
// nothing: the same results give the same bytes.
//
//	go run ./bench/report -results results.jsonl -doc docs/benchmarks.md -img docs/img
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	results := flag.String("results", "", "what bench/suite.sh wrote: a JSON object a line")
	doc := flag.String("doc", "docs/benchmarks.md", "the page with the markers")
	img := flag.String("img", "docs/img", "where the charts go")
	flag.Parse()
	if err := report(*results, *doc, *img); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

// report reads results and rewrites the page and the charts. Sections that the
// results have nothing of stay as they are.
func report(results, doc, img string) error {
	f, err := os.Open(results)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := readSuite(f)
	if err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	page, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	text := string(page)
	for _, section := range sections() {
		body := section.write(s)
		if body == "" {
			continue
		}
		if d := section.drawing; d.file != "" {
			if drawn := d.draw(s); drawn != "" {
				if err := os.WriteFile(filepath.Join(img, d.file), []byte(drawn), 0o644); err != nil {
					return err
				}
				link, err := filepath.Rel(filepath.Dir(doc), filepath.Join(img, d.file))
				if err != nil {
					return err
				}
				body = fmt.Sprintf("![%s](%s)\n\n%s", d.says, filepath.ToSlash(link), body)
			}
		}
		if text, err = between(text, section.name, body); err != nil {
			return fmt.Errorf("%s: %w", doc, err)
		}
	}
	return os.WriteFile(doc, []byte(text), 0o644)
}

// between replaces what stands between a section's markers.
func between(page, name, body string) (string, error) {
	begin, end := "<!-- suite:"+name+" -->\n", "<!-- /suite:"+name+" -->"
	at := strings.Index(page, begin)
	if at < 0 {
		return "", fmt.Errorf("the marker %q is missing", strings.TrimSpace(begin))
	}
	at += len(begin)
	to := strings.Index(page[at:], end)
	if to < 0 {
		return "", fmt.Errorf("the marker %q is missing", end)
	}
	return page[:at] + body + page[at+to:], nil
}

// suite is one run's results, by part, in the order in which they came.
type suite map[string][]result

// result is what one line says. Fields that a benchmark does not have are nil.
type result struct {
	command string

	Name              string                `json:"name"`
	MessagesPerSecond float64               `json:"messages_per_second"`
	BytesPerSecond    float64               `json:"bytes_per_second"`
	P50               *float64              `json:"p50_us"`
	P99               *float64              `json:"p99_us"`
	P999              *float64              `json:"p999_us"`
	Allocs            *float64              `json:"allocs_per_message"`
	CPU               *float64              `json:"cpu_seconds_per_gb"`
	MasterCPU         *float64              `json:"master_cpu_us_per_message"`
	Memory            json.RawMessage       `json:"memory"` // of two processes, or of one
	Spread            map[string][2]float64 `json:"spread"`
	Limit             *limit                `json:"limit"`
	Limits            []limit               `json:"limits"`
	Ratio             *float64              `json:"ratio_to_limit"`
	Note              string                `json:"note"`
	Sweep             *struct {
		Value int64 `json:"value"`
	} `json:"sweep"`
	Copy *struct {
		FirstAck float64 `json:"first_ack_ms"`
		Queued   float64 `json:"queued_to_copied"`
	} `json:"copy"`

	// start
	State    string   `json:"state"`
	LogBytes int64    `json:"log_bytes"`
	Unsynced int64    `json:"unsynced_bytes"`
	Start    float64  `json:"start_ms"`
	Rate     *float64 `json:"recovered_bytes_per_second"`
	// idle
	Process string  `json:"process"`
	Percent float64 `json:"cpu_percent_of_core"`
	// outage
	Kind    string   `json:"kind"`
	After   float64  `json:"recovered_ms"`
	Serving *float64 `json:"recovered_from_serving_ms"`
	// waiters
	Outcome     string  `json:"outcome"`
	Outstanding int64   `json:"outstanding"`
	Wait        float64 `json:"ns_per_wait"`
	// machine
	Date, Commit, CPUModel, Kernel, Filesystem, Go, Congestion string
	Cores                                                      int
	MemoryBytes                                                int64
}

type limit struct {
	Name           string      `json:"name"`
	BytesPerSecond *float64    `json:"bytes_per_second"`
	P50            *float64    `json:"p50_us"`
	Spread         *[2]float64 `json:"spread"`
}

// use is a process's memory.
type use struct {
	Anonymous int64 `json:"anonymous_bytes"`
	Mapped    int64 `json:"mapped_bytes"`
}

// memory is a benchmark's; nil where it was not measured.
func (r result) memory() (master, slave *use) {
	var m struct{ Master, Slave *use }
	if json.Unmarshal(r.Memory, &m) != nil {
		return nil, nil
	}
	return m.Master, m.Slave
}

// readSuite reads lines {"part": …, "command": …, "result": {…}}.
func readSuite(r io.Reader) (suite, error) {
	s := suite{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Part, Command string
			Result        result
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		line.Result.command = line.Command
		s[line.Part] = append(s[line.Part], line.Result)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(s["machine"]) != 1 {
		return nil, errors.New("no line, or more than one, says on which machine this was measured")
	}
	return s, nil
}
