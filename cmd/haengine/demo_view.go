package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// demoView shows on stderr how the demo goes: events as lines that stay, and on
// a terminal a picture below them that is drawn anew. It belongs to the demo's
// goroutine.
type demoView struct {
	w        io.Writer
	terminal bool
	begun    time.Time
	drawn    time.Time
	lines    int // of the picture that stands on the terminal
	messages int64
	killed   []bool // by slave
	rate     rateMeter
}

func newDemoView(stderr io.Writer, o demoOptions) *demoView {
	return &demoView{w: stderr, terminal: isTerminal(stderr), begun: time.Now(), messages: o.messages, killed: make([]bool, o.replicas)}
}

// event writes a line that stays, above the picture.
func (v *demoView) event(format string, args ...any) {
	v.end()
	fmt.Fprintf(v.w, "%5.1fs  %s\n", time.Since(v.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (v *demoView) slaveKilled(i int)  { v.killed[i] = true }
func (v *demoView) slaveStarted(i int) { v.killed[i] = false }

// show draws the picture, at most ten times a second.
func (v *demoView) show(s nodeStatus, t *putTally) {
	now := time.Now()
	if !v.terminal || now.Sub(v.drawn) < 100*time.Millisecond {
		return
	}
	v.drawn = now
	puts := t.ended()
	var b strings.Builder
	fmt.Fprintf(&b, "puts     %s %s of %s  %s/s  p50 %s  p99 %s\n", bar(puts, v.messages, 30), count(puts), count(v.messages),
		count(int64(v.rate.at(now, puts))), shortDuration(t.latency.quantile(0.5)), shortDuration(t.latency.quantile(0.99)))
	fmt.Fprintf(&b, "master   %s end %s\n", bar(1, 1, 30), count(s.Max))
	for i, killed := range v.killed {
		if killed {
			fmt.Fprintf(&b, "slave %d  %s killed\n", i+1, bar(0, 1, 30))
		}
	}
	for _, r := range s.Replicas {
		fmt.Fprintf(&b, "slave    %s acked %s, %s behind, at %s\n", bar(r.AckedOffset-s.Min, s.Max-s.Min, 30), count(r.AckedOffset), shortBytes(r.LagBytes), r.Address)
	}
	v.erase()
	fmt.Fprint(v.w, b.String())
	v.lines = strings.Count(b.String(), "\n")
}

// end takes the picture away.
func (v *demoView) end() { v.erase() }

func (v *demoView) erase() {
	if v.lines > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", v.lines)
		v.lines = 0
	}
}

// rateMeter smooths a count into a rate over about a second.
type rateMeter struct {
	at0   time.Time
	n0    int64
	value float64
}

func (m *rateMeter) at(now time.Time, n int64) float64 {
	if m.at0.IsZero() {
		m.at0, m.n0 = now, n
		return 0
	}
	dt := now.Sub(m.at0).Seconds()
	if dt <= 0 {
		return m.value
	}
	m.value += min(dt*3, 1) * (float64(n-m.n0)/dt - m.value)
	m.at0, m.n0 = now, n
	return m.value
}
