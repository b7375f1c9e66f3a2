package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows on a terminal how far long work is, at most five times a
// second, on one line that is wiped at the end. On anything but a terminal it
// does nothing. It is used by one goroutine.
type progress struct {
	w     io.Writer // nil: nobody watches
	verb  string
	total int64 // bytes
	start time.Time
	shown time.Time
	calls uint
	wide  int // columns of the line that stands there
}

func newProgress(stderr io.Writer, verb string, total int64) *progress {
	p := &progress{verb: verb, total: total, start: time.Now()}
	p.shown = p.start // nothing is shown of work that ends within the first interval
	if isTerminal(stderr) {
		p.w = stderr
	}
	return p
}

const progressEvery = 200 * time.Millisecond

// at says that done bytes are through. It is cheap enough for every record:
// the clock is read once in 64 calls.
func (p *progress) at(done int64) {
	if p.calls++; p.w == nil || p.calls%64 != 0 {
		return
	}
	p.show(done)
}

// chunk is at for callers that come seldom, after a piece of work each.
func (p *progress) chunk(done int64) {
	if p.w != nil {
		p.show(done)
	}
}

func (p *progress) show(done int64) {
	now := time.Now()
	if now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	elapsed := now.Sub(p.start)
	rate := float64(done) / elapsed.Seconds()
	left := ""
	if rate > 0 && p.total > done {
		left = ", " + shortDuration(time.Duration(float64(p.total-done)/rate*float64(time.Second))) + " left"
	}
	line := fmt.Sprintf("%s %s %s of %s, %s/s%s", p.verb, bar(done, p.total, 24), shortBytes(done), shortBytes(p.total), shortBytes(int64(rate)), left)
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(p.wide-len(line), 0)))
	p.wide = len(line)
}

// done wipes the line.
func (p *progress) done() {
	if p.w != nil && p.wide > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}
