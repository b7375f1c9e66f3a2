package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/haengine/haengine/remoting/client"
)

// putSummary is put's answer.
type putSummary struct {
	Topic    string           `json:"topic"`
	Messages int64            `json:"messages"`
	Stored   int64            `json:"stored"`
	Empty    int64            `json:"empty_lines"`
	Statuses map[string]int64 `json:"statuses"`
	Seconds  float64          `json:"seconds"`
	Rate     float64          `json:"messages_per_second"`
	P50      float64          `json:"p50_us"`
	P99      float64          `json:"p99_us"`
	Max      float64          `json:"max_us"`
	Early    bool             `json:"ended_early"`
	Last     int64            `json:"last_line"`
	Failures []putFailure     `json:"failures"`
	First    string           `json:"first_failure,omitempty"`
}

// putFailure is a message that is not stored, or not known to be.
type putFailure struct {
	Line   int64         `json:"line"` // the first is 1
	Status client.Status `json:"status"`
}

// failuresMax is how many of them are named. When nobody takes messages there are as
// many as are on the way; more are those that brokers refuse one by one.
const failuresMax = 1000

// putEnd is why feeding ended.
type putEnd int

const (
	endEarly   putEnd = iota // with more to send: a signal, or nobody takes it
	endOfInput               // there are no more lines
	endOfCount               // as many as --count says
	endAsked                 // by the signal that ends what would not end by itself
)

// putter counts what becomes of messages.
type putter struct {
	o       putOptions
	latency latencies
	stop    context.CancelCauseFunc // when nobody takes messages
	empty   int64                   // lines; the feeding goroutine's, as last and end
	last    int64                   // line that was given to the producer; 0: none
	end     putEnd
	mu      struct {
		sync.Mutex
		statuses     map[string]int64
		began, ended time.Time // of the first message and of the last outcome
		answered     time.Time // when a broker last said what it has done
		first        error     // of the first line of those that failed
		firstLine    int64
		failures     []putFailure
	}
}

func newPutter(o putOptions, stop context.CancelCauseFunc) *putter {
	w := &putter{o: o, stop: stop}
	w.mu.statuses, w.mu.failures = map[string]int64{}, []putFailure{}
	return w
}

// begin notes that there is a message to send.
func (w *putter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.began.IsZero() {
		w.mu.began = time.Now()
		w.mu.answered = w.mu.began
	}
}

// done counts a message's outcome. One without an answer is left behind as long as
// others are answered, because the next may find a new master.
func (w *putter) done(line int64, bytes int, s client.Sent, err error) {
	if s.Status.Stored() {
		w.latency.add(s.Latency)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.statuses[string(s.Status)]++
	w.mu.ended = time.Now()
	alone := s.Status.Stored() || s.Status == "MESSAGE_ILLEGAL" // which is of this message only
	if alone {
		w.mu.answered = w.mu.ended
	}
	if err == nil || s.Status.Stored() {
		return
	}
	err = fmt.Errorf("%s %d (%s): %w", w.noun(), line, plural(int64(bytes), "byte"), err)
	if w.mu.first == nil || line < w.mu.firstLine {
		w.mu.first, w.mu.firstLine = err, line
	}
	if len(w.mu.failures) < failuresMax {
		w.mu.failures = append(w.mu.failures, putFailure{line, s.Status})
	}
	if !alone && (s.Status != client.NoAnswer || w.mu.ended.Sub(w.mu.answered) >= w.o.patience) {
		w.stop(err)
	}
}

// noun is what messages are counted as.
func (w *putter) noun() string {
	if w.o.madeUp {
		return "message"
	}
	return "line"
}

// interrupted notes a signal.
func (w *putter) interrupted() {
	if w.end == endEarly && w.o.madeUp && w.o.count == 0 {
		w.end = endAsked
	}
}

func (w *putter) summary() putSummary {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.mu.failures, func(a, b putFailure) int { return int(a.Line - b.Line) })
	took := w.mu.ended.Sub(w.mu.began)
	s := putSummary{
		Topic: w.o.topic, Empty: w.empty, Statuses: w.mu.statuses, Seconds: took.Seconds(), Early: w.end == endEarly, Last: w.last,
		Failures: w.mu.failures,
	}
	for status, n := range w.mu.statuses {
		s.Messages += n
		if client.Status(status).Stored() {
			s.Stored += n
		}
	}
	if took > 0 {
		s.Rate = float64(s.Stored) / took.Seconds()
	}
	s.P50, s.P99 = µs(w.latency.quantile(0.5)), µs(w.latency.quantile(0.99))
	s.Max = µs(time.Duration(w.latency.max.Load()))
	if w.mu.first != nil {
		s.First = w.mu.first.Error()
	}
	return s
}

func (s putSummary) print(w io.Writer) {
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		fmt.Fprintf(w, "%-20s %s\n", status, count(s.Statuses[status]))
	}
	if s.Stored > 0 {
		us := func(v float64) string { return shortDuration(time.Duration(v * float64(time.Microsecond))) }
		fmt.Fprintf(w, "%s stored in topic %s in %s, %s a second; p50 %s, p99 %s, max %s\n", plural(s.Stored, "message"), s.Topic,
			shortDuration(time.Duration(s.Seconds*float64(time.Second))), count(int64(s.Rate)), us(s.P50), us(s.P99), us(s.Max))
	} else if s.Messages == 0 {
		fmt.Fprintln(w, "nothing was sent")
	}
	if s.Empty > 0 {
		fmt.Fprintf(w, "%s left out: brokers take no empty messages\n", plural(s.Empty, "empty line"))
	}
}

// verdict is put's error: nil only if all that was to be sent is SEND_OK.
func (w *putter) verdict(s putSummary, feeding error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []error
	ok := s.Statuses[string(client.SendOK)]
	switch {
	case s.Stored < s.Messages:
		lost := s.Messages - s.Stored
		wrong = append(wrong, fmt.Errorf("%s not stored, or not known to be (%s: %s); the first: %w", plural(lost, "message"), w.noun(), failedLines(s.Failures, lost), w.mu.first))
	case ok < s.Messages:
		wrong = append(wrong, fmt.Errorf("%s stored, but not known to be on enough disks or slaves; sent again, they are there twice", plural(s.Messages-ok, "message")))
	}
	switch {
	case feeding != nil:
		wrong = append(wrong, feeding)
	case w.end == endEarly && s.Last == 0:
		wrong = append(wrong, errors.New("ended early: nothing was sent"))
	case w.end == endEarly:
		wrong = append(wrong, fmt.Errorf("ended early, after %s %d: nothing behind it was sent", w.noun(), s.Last))
	case w.end == endOfInput && w.o.count > 0:
		wrong = append(wrong, fmt.Errorf("the input has %s, not the %s of --count (--size makes messages up)", plural(s.Messages, "message"), count(w.o.count)))
	}
	return errors.Join(wrong...)
}

// failedLines names some of the messages.
func failedLines(failures []putFailure, all int64) string {
	const most = 8
	var names []string
	for _, f := range failures[:min(len(failures), most)] {
		names = append(names, fmt.Sprint(f.Line))
	}
	text := strings.Join(names, ", ")
	if more := all - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %s more; --json names more of them", count(more))
	}
	return text
}
