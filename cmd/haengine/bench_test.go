package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestBenchmarksMeasureBesideTheirLimits(t *testing.T) {
	for _, args := range []string{
		"sync", "sync --in-process", "flush --producers 4", "sync --producers 4 --outstanding 8 --size 128", "async", "async --producers 2 --in-process", "catchup --bytes 40MiB",
	} {
		t.Setenv("TMPDIR", t.TempDir())
		all := append([]string{"bench"}, strings.Fields(args)...)
		if !strings.Contains(args, "--bytes") {
			all = append(all, "--bytes", "8MiB")
		}
		o := expect(t, exitDone, append(all, "--duration", "100ms", "--rounds", "2", "--json")...)
		var r benchResult
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatal(err)
		}
		if r.Messages == 0 || r.MessagesPerSecond <= 0 || r.BytesPerSecond <= 0 || r.Limit == nil || r.Ratio == nil || *r.Ratio <= 0 {
			t.Errorf("%s: %s", args, o.stdout)
		}
		if strings.HasPrefix(args, "catchup") != (r.P50 == nil) {
			t.Errorf("%s: p50 %v", args, r.P50)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%s left behind %v, %v", args, left, err)
		}
	}
}

func TestTheLimitsAloneAreMeasured(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, "bench", "limit", "--duration", "100ms", "--bytes", "4MiB", "--json")
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if len(lines) < 8 { // those of two cores are not measured on one
		t.Fatalf("%d results, want all limits:\n%s", len(lines), o.stdout)
	}
	for _, line := range lines {
		var r benchResult
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.BytesPerSecond <= 0 {
			t.Errorf("%v: %s", err, line)
		}
	}
	mustContain(t, expect(t, exitDone, "bench", "limit", "--duration", "50ms", "--bytes", "2MiB").stdout, "epoll ping-pong", "p99.9")
}

func TestFiguresThatCannotBeAreNoted(t *testing.T) {
	rate, p50, ratio := 1.0, 1.0, 1.2
	faster, slower := benchResult{Ratio: &ratio, Limit: &benchLimit{BytesPerSecond: &rate}}, benchResult{Ratio: &ratio, Limit: &benchLimit{P50: &p50}}
	for _, c := range []struct {
		r        benchResult
		shortest time.Duration
		want     string
	}{{faster, time.Second, "faster than the limit"}, {slower, time.Second, ""}, {slower, time.Millisecond, "too small a sample"}} {
		c.r.judge(c.shortest)
		if !strings.Contains(c.r.Note, c.want) || (c.want == "") != (c.r.Note == "") {
			t.Errorf("%+v: note %q, want %q", c.r, c.r.Note, c.want)
		}
	}
}
