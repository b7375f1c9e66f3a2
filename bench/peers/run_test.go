package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func smallPlan(t *testing.T, peers ...Peer) *plan {
	t.Helper()
	loads, _, err := chooseWork("sync-8")
	if err != nil {
		t.Fatal(err)
	}
	return &plan{
		peers: peers, loads: loads, turns: 1, duration: 50 * time.Millisecond, bytes: 1 << 20, within: 5 * time.Minute,
		dir: t.TempDir(), restless: true, talk: &logged{t},
	}
}

// logged writes to a test's log.
type logged struct{ t *testing.T }

func (l *logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

func TestAnAbsentOrBrokenPeerDoesNotKeepTheOthersFromTheirTurns(t *testing.T) {
	absent := &fake{name: "absent", absent: fmt.Errorf("%w: install it", ErrAbsent)}
	broken := &fake{name: "broken", broken: errors.New("port taken")}
	good := &fake{name: "good"}
	p := smallPlan(t, good, absent, broken)
	p.turns = 2
	r := p.run(t.Context())
	r.summarize()
	if absent.started != 0 || broken.started != 2 || good.started != 2 {
		t.Errorf("started %d, %d, %d times; want 0, 2, 2", absent.started, broken.started, good.started)
	}
	if f := r.figure("sync-8", "messages_per_second", "good"); f == nil || f.Median <= 0 {
		t.Errorf("nothing was measured of the good one: %+v", f)
	}
	err := r.incomplete()
	if err == nil || exitCode(err, &bytes.Buffer{}) != 1 {
		t.Fatalf("the run counts as whole: %v", err)
	}
	for _, want := range []string{"absent was left out", "install it", "turn 1, broken: start: port taken", "turn 2, broken"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte(pageBegin+pageEnd), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.writePage(page); err == nil {
		t.Error("an incomplete run was published")
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPeersChangePlacesFromTurnToTurn(t *testing.T) {
	p := smallPlan(t, &fake{name: "a"}, &fake{name: "b"})
	p.turns = 2
	r := p.run(t.Context())
	var order []string
	for _, s := range r.Samples {
		if s.Work == "sync-8" {
			order = append(order, fmt.Sprint(s.Turn, s.Peer))
		}
	}
	if got := strings.Join(order, " "); got != "1a 1b 2b 2a" {
		t.Errorf("order %s; failures %v", got, r.Failures)
	}
}

func TestNoTurnIsBegunThatWouldNotEndInTime(t *testing.T) {
	slow := &fake{name: "slow", broken: errors.New("no"), delays: []time.Duration{1500 * time.Millisecond, 20 * time.Millisecond}}
	p := smallPlan(t, slow)
	p.turns, p.within = 1_000_000, 4*time.Second
	begun := time.Now()
	r := p.run(t.Context())
	if took := time.Since(begun); took > 3500*time.Millisecond {
		t.Errorf("it took %v of %v, and the longest turn 1.5 s", took, p.within)
	}
	if r.Turns < 2 || r.Turns != slow.started {
		t.Errorf("%d turns were done, %d begun", r.Turns, slow.started)
	}
}

func TestNothingGoesOnWhenTheTimeIsOver(t *testing.T) {
	slow := &fake{name: "slow", delays: []time.Duration{time.Hour}}
	p := smallPlan(t, slow)
	p.within = 50 * time.Millisecond
	r := p.run(t.Context())
	if err := r.incomplete(); err == nil || !strings.Contains(err.Error(), "are over") || r.Turns != 0 {
		t.Errorf("%d turns, %v", r.Turns, err)
	}
}

func TestTheReportIsTextAndJSONAndAPage(t *testing.T) {
	p := smallPlan(t, &fake{name: "a"}, &fake{name: "b"})
	p.copies = true
	r := p.run(t.Context())
	r.summarize()
	if err := r.incomplete(); err != nil {
		t.Fatal(err)
	}
	var text, encoded bytes.Buffer
	r.writeText(&text)
	if err := r.writeJSON(&encoded); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(encoded.Bytes(), &back); err != nil || len(back.Samples) != 6 || len(back.Summary) != len(r.Summary) {
		t.Errorf("%v; %d samples, %d figures", err, len(back.Samples), len(back.Summary))
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+pageBegin+"old\n"+pageEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.writePage(page); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(written); !strings.HasPrefix(s, "before\n"+pageBegin) || !strings.HasSuffix(s, pageEnd+"after\n") || strings.Contains(s, "old") {
		t.Errorf("not between the marks:\n%s", s)
	}
	for _, out := range []string{text.String(), string(written)} {
		for _, want := range []string{"8 blocking producers, 1 KiB (sync-8)", "Catch-up of 1 MiB", "Memory of all processes", "acknowledged", "÷ p99"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in:\n%s", want, out)
			}
		}
	}
}

func TestRatiosAreOfMedians(t *testing.T) {
	r := newReport(smallPlan(t, &fake{name: "ours"}, &fake{name: "theirs"}))
	r.Peers = []PeerReport{{Name: "ours"}, {Name: "theirs"}}
	for turn, rates := range [][2]float64{{100, 10}, {500, 50}, {200, 20}, {300, 40}} {
		for i, p := range r.Peers {
			r.Samples = append(r.Samples, Sample{Turn: turn + 1, Peer: p.Name, Work: "sync-8", Metrics: map[string]float64{"messages_per_second": rates[i], "failed": 0}})
		}
	}
	r.summarize()
	theirs := r.figure("sync-8", "messages_per_second", "theirs")
	if theirs.Median != 30 || theirs.Min != 10 || theirs.Max != 50 || *theirs.Ours != 250.0/30 {
		t.Errorf("%+v, ratio %v; want 30 (10 to 50), %v", theirs, *theirs.Ours, 250.0/30)
	}
	if f := r.figure("sync-8", "failed", "theirs"); f.Ours != nil {
		t.Errorf("a ratio to nothing: %v", *f.Ours)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.123: "0.12", 9.99: "9.99", 9.999: "10.0", 99.96: "100", 1234: "1234", 9996: "10.0 k", 99949: "99.9 k", 99960: "100 k", 183572: "184 k",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
