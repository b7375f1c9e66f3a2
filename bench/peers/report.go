package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Report is what a run found. Its JSON is the answer of --json.
type Report struct {
	Started     time.Time    `json:"started"`
	TookSeconds float64      `json:"took_seconds"`
	Machine     Machine      `json:"machine"`
	Settings    Settings     `json:"settings"`
	Turns       int          `json:"turns"` // that were done whole
	Peers       []PeerReport `json:"peers"`
	Samples     []Sample     `json:"samples"`
	Summary     []Figure     `json:"summary"`
	Failures    []Failure    `json:"failures"`

	loads []Work
}

// Settings are those of a run.
type Settings struct {
	Turns           int      `json:"turns"`
	DurationSeconds float64  `json:"duration_seconds"`
	WarmUpSeconds   float64  `json:"warm_up_seconds"`
	CatchUpBytes    int64    `json:"catch_up_bytes"`
	Works           []string `json:"works"`
}

// PeerReport is a peer, or why there is none.
type PeerReport struct {
	Name   string `json:"name"`
	About  About  `json:"about"`
	Absent string `json:"absent,omitempty"`
}

// Sample is what a peer did in one turn of a work.
type Sample struct {
	Turn    int                `json:"turn"` // from 1
	Peer    string             `json:"peer"`
	Work    string             `json:"work"`
	Metrics map[string]float64 `json:"metrics"`
}

// Failure is a turn of a peer that came to nothing, or ended early.
type Failure struct {
	Turn  int    `json:"turn"`
	Peer  string `json:"peer"`
	Work  string `json:"work,omitempty"` // empty: the loads
	Error string `json:"error"`
}

// Figure is a metric of a peer over the turns.
type Figure struct {
	Work   string   `json:"work"`
	Metric string   `json:"metric"`
	Peer   string   `json:"peer"`
	Median float64  `json:"median"`
	Min    float64  `json:"min"`
	Max    float64  `json:"max"`
	Ours   *float64 `json:"haengine_to_peer"` // ratio of the medians; null: there is nothing to divide
}

// memoryWork is no work: what the processes hold before and after the loads.
const memoryWork = "memory"

func newReport(p *plan) *Report {
	r := &Report{Started: time.Now(), Machine: thisMachine(p.dir), loads: p.loads, Peers: []PeerReport{}, Samples: []Sample{}, Failures: []Failure{}}
	r.Settings = Settings{Turns: p.turns, DurationSeconds: p.duration.Seconds(), WarmUpSeconds: p.warm.Seconds(), CatchUpBytes: p.bytes, Works: []string{}}
	for _, w := range p.loads {
		r.Settings.Works = append(r.Settings.Works, w.Name)
	}
	if p.copies {
		r.Settings.Works = append(r.Settings.Works, catchUp)
	}
	return r
}

func (r *Report) add(turn int, peer Peer, work string, metrics map[string]float64) {
	r.Samples = append(r.Samples, Sample{Turn: turn + 1, Peer: peer.Name(), Work: work, Metrics: metrics})
}

// keep notes a failure, if there was one.
func (r *Report) keep(turn int, peer Peer, work string, err error) {
	if err != nil {
		r.Failures = append(r.Failures, Failure{Turn: turn + 1, Peer: peer.Name(), Work: work, Error: err.Error()})
	}
}

// incomplete says what is missing from the report.
func (r *Report) incomplete() error {
	var all []error
	for _, p := range r.Peers {
		if p.Absent != "" {
			all = append(all, fmt.Errorf("%s was left out: %s", p.Name, p.Absent))
		}
	}
	for _, f := range r.Failures {
		all = append(all, fmt.Errorf("turn %d, %s: %s", f.Turn, f.Peer, f.Error))
	}
	if r.Turns == 0 && len(all) == 0 {
		all = append(all, errors.New("no turn was done whole"))
	}
	return errors.Join(all...)
}

func (r Result) metrics() map[string]float64 {
	millions := float64(r.Messages) / 1e6
	return map[string]float64{
		"messages_per_second": r.Rate, "p50_us": r.P50, "p99_us": r.P99, "p999_us": r.P999, "max_us": r.Max, "failed": float64(r.Failed),
		"cpu_seconds_per_million": r.Usage.CPUSeconds / millions, "load_cpu_seconds_per_million": r.Usage.LoadCPUSeconds / millions,
	}
}

func (c Copy) metrics(bytes int64) map[string]float64 {
	return map[string]float64{
		"bytes_per_second": float64(bytes) / c.FromFirst.Seconds(), "bytes_per_second_from_start": float64(bytes) / c.FromStart.Seconds(),
		"seconds_to_first_byte": (c.FromStart - c.FromFirst).Seconds(), "cpu_seconds_per_gb": c.Usage.CPUSeconds / (float64(bytes) / 1e9),
	}
}

func memoryMetrics(idle, loaded Usage, written int64) map[string]float64 {
	return map[string]float64{
		"idle_anonymous_bytes": float64(idle.AnonymousBytes), "idle_resident_bytes": float64(idle.ResidentBytes),
		"anonymous_bytes": float64(loaded.AnonymousBytes), "resident_bytes": float64(loaded.ResidentBytes), "written_bytes": float64(written),
	}
}

// summarize fills Summary from Samples. Its order is that of the works, the
// peers and the metrics' names.
func (r *Report) summarize() {
	r.Summary = []Figure{}
	for _, work := range append(slices.Clone(r.Settings.Works), memoryWork) {
		ours := map[string]float64{}
		for i, p := range r.Peers {
			values := r.values(p.Name, work)
			for _, metric := range sortedKeys(values) {
				f := Figure{Work: work, Metric: metric, Peer: p.Name, Median: median(values[metric]), Min: slices.Min(values[metric]), Max: slices.Max(values[metric])}
				if i == 0 {
					ours[metric] = f.Median
				}
				if mine, ok := ours[metric]; ok && f.Median != 0 {
					ratio := mine / f.Median
					f.Ours = &ratio
				}
				r.Summary = append(r.Summary, f)
			}
		}
	}
}

// values are the samples of a peer's work, by metric.
func (r *Report) values(peer, work string) map[string][]float64 {
	values := map[string][]float64{}
	for _, s := range r.Samples {
		if s.Peer == peer && s.Work == work {
			for metric, v := range s.Metrics {
				values[metric] = append(values[metric], v)
			}
		}
	}
	return values
}

// figure finds one in Summary; nil if it was not measured.
func (r *Report) figure(work, metric, peer string) *Figure {
	i := slices.IndexFunc(r.Summary, func(f Figure) bool { return f.Work == work && f.Metric == metric && f.Peer == peer })
	if i < 0 {
		return nil
	}
	return &r.Summary[i]
}

func (r *Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// median of an even number of values is the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
