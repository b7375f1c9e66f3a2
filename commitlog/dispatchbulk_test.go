package commitlog

import (
	"testing"
	"time"
)

// What a dispatcher leaves for later.
func TestReplicaPutsOffWhatComesInBulk(t *testing.T) {
	const at = 1000
	for _, c := range []struct {
		name        string
		needed, end int64
		master      bool
		failed      bool
		awaited     bool
		want        bool
	}{
		{name: "replica", end: at + 1, want: true},
		{name: "master", end: at + 1, master: true},
		{name: "somebody waits", needed: at + 1, end: at + 1},
		{name: "somebody waited, for what is dispatched", needed: at, end: at + 1, want: true},
		{name: "as many as may wait", end: at + dispatchBehindBytes - 1, want: true},
		{name: "too many", end: at + dispatchBehindBytes},
		{name: "the queues could not be written", end: at + 1, failed: true},
		{name: "it has replicas", end: at + 1, awaited: true},
	} {
		l := &Log{opts: Options{Awaited: func() bool { return c.awaited }}}
		l.end.Store(c.end)
		l.replica.Store(!c.master)
		d := newDispatcher(l, at)
		d.needed.Store(c.needed)
		if c.failed {
			d.failure.Store(new(error))
		}
		if got := d.mayWait(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Turns of a replica's dispatcher while records come in bulk: it pauses, and does not
// sleep, until somebody waits, the stream pauses, or too many wait.
func TestTurnsOfAReplicasDispatcherInBulk(t *testing.T) {
	source := twinOptions(NewTwin(1))
	source.SegmentBytes = 8 << 20
	from := mustOpen(t, source)
	var ends []int64
	for from.EndOffset() < 4<<20 {
		ends = append(ends, mustPut(t, from, "topic", 0, 4000).EndOffset)
	}
	o := twinOptions(NewTwin(1))
	o.SegmentBytes, o.Manual = source.SegmentBytes, true
	l := mustOpen(t, o)
	d := l.dispatcher
	comes := func(part int) (end int64) { // a fourth of the records
		end = ends[part*len(ends)/4-1]
		replicate(t, from, l, end, 1<<20)
		return end
	}
	check := func(what string, wait, wantWait time.Duration, least, most int64) {
		t.Helper()
		if at := d.Offset(); wait != wantWait || at < least || at > most {
			t.Fatalf("%s: pauses for %v, dispatched to %d of %d; want %v, %d to %d", what, wait, at, l.EndOffset(), wantWait, least, most)
		}
	}
	first := comes(1)
	check("in bulk", d.turn(true), dispatchPause, 0, 0)
	l.RequestFlush(first)
	second := comes(2)
	check("in bulk, and somebody waits for some of it", d.turn(true), dispatchPause, first, second-1)
	some := d.Offset()
	check("in bulk, and what is waited for is dispatched", d.turn(true), dispatchPause, some, some)
	third := comes(3)
	l.dispatcher.hurry()
	check("in bulk, and somebody waits for all", d.turn(true), dispatchPause, third, third)
	check("in bulk, and all is dispatched", d.turn(true), dispatchPause, third, third)
	fourth := comes(4)
	check("in bulk again", d.turn(true), dispatchPause, third, third)
	check("the stream pauses", d.turn(false), dispatchPause, fourth, fourth)
	check("nothing has come", d.turn(false), 0, fourth, fourth)
	checkQueues(t, l)
}

// A dispatcher that is stopped while much waits ends soon, and goes on where it was.
func TestStoppedDispatcherGoesOn(t *testing.T) {
	o := twinOptions(NewTwin(1))
	o.SegmentBytes = 16 << 20
	var l *Log
	stop := make(chan struct{})
	o.OnDispatched = func(offset int64) {
		if offset > 0 && stop != nil {
			close(stop) // as stop does, in the middle of a turn
			stop = nil
		}
	}
	l = mustOpen(t, o)
	l.dispatcher.stop()
	for l.EndOffset() < 4*dispatchCommitBytes {
		mustPut(t, l, "topic", 0, 4000)
	}
	l.dispatcher.stopped = stop
	l.dispatcher.turn(false)
	if at := l.DispatchedOffset(); at == 0 || at > 2*dispatchCommitBytes {
		t.Errorf("stopped after the first MiB, it dispatched to %d of %d", at, l.EndOffset())
	}
	l.dispatcher.start()
	awaitOffset(t, l, l.EndOffset())
	checkQueues(t, l)
}
