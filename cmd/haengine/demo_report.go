package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// demoReport is what the demo has shown.
type demoReport struct {
	Messages       int64            `json:"messages"`
	SizeBytes      int64            `json:"size_bytes"`
	Slaves         int              `json:"slaves"`
	Statuses       map[string]int64 `json:"statuses"` // puts by how they ended
	P50            float64          `json:"p50_us"`
	P99            float64          `json:"p99_us"`
	Max            float64          `json:"max_us"`
	KilledAfter    int64            `json:"killed_after_puts"`
	RestartedAfter int64            `json:"restarted_after_puts"`
	Recovery       float64          `json:"recovery_seconds"` // restart of the killed slave until it had caught up
	Logs           []logDiff        `json:"logs"`             // each slave's against the master's
	Equal          bool             `json:"equal"`            // all of them, and the ends too
	Confirmed      bool             `json:"confirmed"`        // every slave holds every put that returned PUT_OK
	Seconds        float64          `json:"seconds"`
	Directory      string           `json:"directory,omitempty"` // with --keep
}

// compare reads the stores as log diff does, with the nodes gone.
func (d *demo) compare(cmd *cobra.Command) (demoReport, error) {
	d.tally.mu.Lock()
	defer d.tally.mu.Unlock()
	if d.tally.mu.bad != nil {
		return demoReport{}, d.tally.mu.bad
	}
	r := demoReport{
		Messages: d.messages, SizeBytes: int64(d.size), Slaves: d.replicas, Statuses: d.tally.mu.statuses,
		P50: µs(d.tally.latency.quantile(0.5)), P99: µs(d.tally.latency.quantile(0.99)), Max: µs(d.tally.latency.quantile(1)),
		KilledAfter: d.killedAfter, RestartedAfter: d.restartedAfter, Recovery: d.recovery.Seconds(), Equal: true, Confirmed: true,
	}
	for i := range d.slaves {
		diff, err := diffStores(cmd, d.store("master"), d.store(slaveName(i)))
		if err != nil {
			return r, err
		}
		r.Logs = append(r.Logs, diff)
		r.Equal = r.Equal && diff.Equal && diff.Store.MinOffset == diff.With.MinOffset && diff.Store.MaxOffset == diff.With.MaxOffset
		r.Confirmed = r.Confirmed && d.tally.mu.okEnd <= diff.With.MaxOffset
	}
	if d.keep {
		r.Directory = d.dir
	}
	r.Seconds = time.Since(d.begun).Seconds()
	return r, nil
}

func (r demoReport) verdict() error {
	switch {
	case !r.Equal:
		return errors.New("the logs are not equal")
	case !r.Confirmed:
		return errors.New("a put that returned PUT_OK is not in every slave's log")
	case r.Slaves > 1 && r.Statuses["PUT_OK"] != r.Messages:
		return fmt.Errorf("%s of %s did not return PUT_OK", count(r.Messages-r.Statuses["PUT_OK"]), plural(r.Messages, "put"))
	}
	return nil
}

func (r demoReport) print(w io.Writer) {
	us := func(v float64) string { return shortDuration(time.Duration(v * float64(time.Microsecond))) }
	fmt.Fprintln(w, "What was shown")
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		note := ""
		switch status {
		case "PUT_OK":
			note = ": on the master and on at least one slave"
		case "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT":
			note = ": stored on the master, and the producer was told that no slave confirmed"
		}
		fmt.Fprintf(w, "  %s returned %s%s\n", plural(r.Statuses[status], "put"), status, note)
	}
	fmt.Fprintf(w, "  a put took %s (p50), %s (p99), %s (max), %s a body\n", us(r.P50), us(r.P99), us(r.Max), shortBytes(r.SizeBytes))
	fmt.Fprintf(w, "  slave 1 was killed with SIGKILL after %s, started again %s later,\n", plural(r.KilledAfter, "put"), plural(r.RestartedAfter-r.KilledAfter, "put"))
	fmt.Fprintf(w, "  and had caught up %s after its start\n", shortDuration(time.Duration(r.Recovery*float64(time.Second))))
	if r.Equal {
		d := r.Logs[0]
		fmt.Fprintf(w, "  %d logs are equal to the byte, %s to %s (%s)\n", len(r.Logs)+1, count(d.From), count(d.To), shortBytes(d.To-d.From))
	} else {
		for _, d := range r.Logs {
			d.print(w)
		}
	}
	fmt.Fprintln(w, "\nTry next")
	if r.Directory != "" {
		fmt.Fprintf(w, "  haengine log dump --store %s/master --limit 5 --body text\n", r.Directory)
		fmt.Fprintf(w, "  haengine log diff --store %s/master --with %s/slave1\n", r.Directory, r.Directory)
		return
	}
	fmt.Fprintln(w, "  haengine serve --store ./a --role SYNC_MASTER --load 100,1KiB,0 > puts.jsonl")
	fmt.Fprintln(w, "  haengine serve --store ./b --role SLAVE --master 127.0.0.1:10912 --admin-listen 127.0.0.1:10920 --client-listen 127.0.0.1:11911 --namesrv 127.0.0.1:9876")
	fmt.Fprintln(w, "  haengine status --watch")
	fmt.Fprintln(w, "  haengine demo --keep && haengine log --help")
}
