package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reopenAfter ends a log's life, by a power cut or by killing its process, and
// opens the store again; at first with the power cut after a few operations of
// the opening itself, unless opening is 0.
func reopenAfter(t testing.TB, l *Log, o Options, powerCut bool, opening int) *Log {
	t.Helper()
	disk := o.Disk.(*Twin)
	_ = l.Close()
	if powerCut {
		disk.Crash()
	} else {
		disk.Kill()
	}
	if opening > 0 {
		disk.PowerOffAfter(opening)
		if l, err := Open(o); err == nil {
			_ = l.Close()
		}
		disk.Crash()
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Fault 19: power is cut, or the process killed, at each operation of an append,
// and at some of the opening that follows. The list is the old one or the new
// one, and the new one once it was acknowledged.
func TestEpochCutOffAtEachOperationIsThereOrNot(t *testing.T) {
	base := NewTwin(1)
	o := twinOptions(base)
	l := mustOpen(t, o)
	at := putRecords(t, l, 4)
	a, b, c := Epoch{1, 11, 0}, Epoch{2, 22, at[1].Offset}, Epoch{3, 33, at[3].EndOffset}
	must(t, l.Close())
	for _, k := range []struct {
		before []Epoch
		add    Epoch
		after  []Epoch
	}{
		{nil, a, []Epoch{a}},
		{[]Epoch{a}, b, []Epoch{a, b}},
		{[]Epoch{a, b, c}, Epoch{4, 44, c.Start}, []Epoch{a, b, {4, 44, c.Start}}},
	} {
		o.Disk = base.clone()
		l := mustOpen(t, o)
		for _, e := range k.before {
			must(t, l.AppendEpoch(e))
		}
		must(t, l.Close())
		started := o.Disk.(*Twin)
		for n, finished := 0, false; !finished; n++ {
			for _, powerCut := range []bool{true, false} {
				disk := started.clone()
				o.Disk = disk
				l := mustOpen(t, o)
				disk.PowerOffAfter(n)
				err := l.AppendEpoch(k.add)
				finished = err == nil && !disk.Off()
				l = reopenAfter(t, l, o, powerCut, n%5*3)
				want := k.before
				if err == nil || len(l.Epochs()) > 0 && l.Epochs()[len(l.Epochs())-1] == k.add {
					want = k.after
				}
				checkEpochList(t, l, want...)
				must(t, l.Close())
			}
		}
	}
}

// A killed process has left our file with a name that is not durable. Before
// RocketMQ's follows, it is: a list without ids would be taken otherwise.
func TestEpochNotesOfAKilledProcessAreMadeDurable(t *testing.T) {
	list := []Epoch{{1, 11, 0}}
	for seed := range uint64(20) {
		disk := NewTwin(seed)
		must(t, disk.MkdirAll(twinStore))
		disk.Fail("syncdir", &TwinFault{Err: ErrPowerOff, Times: 1})
		if changed, err := writeEpochNotes(disk, twinStore, list); err == nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		disk.Kill()
		if changed, err := writeEpochNotes(disk, twinStore, list); err != nil || changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		disk.Crash()
		if _, _, ours := epochTexts(disk, twinStore); ours != string(encodeEpochNotes(list)) {
			t.Fatalf("seed %d: ours is %q", seed, ours)
		}
	}
}

// Faults 2 and 16: power is cut, or the process killed, at each operation of a
// truncation, and at some of the opening that follows. An epoch without a byte
// that was cut does not come back with the log that ends where it started.
func TestTruncationCutOffAtEachOperationCutsItsEpochsOrNone(t *testing.T) {
	base := NewTwin(1)
	o := twinOptions(base)
	o.SegmentBytes, o.Limits.BodyBytes = 4096, 2000
	l := mustOpen(t, o)
	at := putRecords(t, l, 9)
	end := l.EndOffset()
	must(t, l.Close())
	if end < 2*o.SegmentBytes {
		t.Fatalf("the log ends at %d", end)
	}
	four := []Epoch{{1, 11, 0}, {2, 22, at[2].Offset}, {4, 44, at[5].Offset}, {5, 55, end}}
	for _, k := range []struct {
		list []Epoch
		to   int64
		want []Epoch
	}{
		{four, end, four[:3]},
		{four, at[7].Offset, four[:3]},
		{four, at[5].Offset, four[:2]},
		{four, at[2].Offset, four[:1]},
		{four, 0, nil},
		{four[3:], end, nil},
	} {
		o.Disk = base.clone()
		l := mustOpen(t, o)
		for _, e := range k.list {
			must(t, l.AppendEpoch(e))
		}
		must(t, l.Close())
		started := o.Disk.(*Twin)
		for n, finished := 0, false; !finished; n++ {
			for _, powerCut := range []bool{true, false} {
				where := fmt.Sprintf("cut to %d, stopped after %d operations", k.to, n)
				disk := started.clone()
				o.Disk = disk
				l := mustOpen(t, o)
				disk.PowerOffAfter(n)
				_, err := l.Truncate(k.to)
				if err == nil && !slices.Equal(l.Epochs(), k.want) {
					t.Fatalf("%s: epochs %v", where, l.Epochs())
				}
				finished = err == nil && !disk.Off()
				l = reopenAfter(t, l, o, powerCut, n%5*4)
				whole := l.EndOffset() == end
				if k.to == end {
					whole = len(l.Epochs()) == len(k.list)
				}
				if err == nil && whole {
					t.Fatalf("%s: an acknowledged cut is undone", where)
				}
				want := k.want
				if whole {
					want = k.list
				}
				if !slices.Equal(l.Epochs(), want) {
					t.Fatalf("%s, the log ends at %d: epochs %v, want %v", where, l.EndOffset(), l.Epochs(), want)
				}
				checkEpochList(t, l, want...)
				// It is the last word: also when the log has grown past the cut.
				putRecords(t, l, 4)
				next := Epoch{7, 77, l.EndOffset()}
				must(t, l.AppendEpoch(next))
				l = reopenAfter(t, l, o, powerCut, 0)
				checkEpochList(t, l, slices.Concat(want, []Epoch{next})...)
				must(t, l.Close())
			}
		}
	}
}

// A log with epochs against two slices: records and epochs come and go, the log
// is cut, closed, killed and loses its power in the middle of things.
func TestEpochsBehaveAsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &epochMachine{}
		m.o = twinOptions(NewTwin(rapid.Uint64().Draw(t, "seed")))
		m.o.SegmentBytes, m.o.Limits.BodyBytes = 4096, 2000
		var err error
		m.log, err = Open(m.o)
		m.must(t, err)
		defer func() { _ = m.log.Close() }()
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// epochMachine is a log with epochs, and beside it what it must hold.
type epochMachine struct {
	o       Options
	log     *Log
	borders []int64 // where records begin
	low     int64
	end     int64
	epochs  []Epoch
	ids     uint64
}

func (m *epochMachine) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Put appends records and flushes them.
func (m *epochMachine) Put(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		a, err := put(m.log, "topic", 0, []byte(strings.Repeat("x", 900)))
		m.must(t, err)
		m.borders = append(m.borders, a.Offset)
		m.end = a.EndOffset
	}
	m.must(t, m.log.Flush())
}

// border draws the beginning of a record, or the log's end.
func (m *epochMachine) border(t *rapid.T) int64 {
	return rapid.SampledFrom(append(slices.Clone(m.borders), m.end)).Draw(t, "border")
}

// draw makes an epoch that may be refused, and the list with it; ok is false if
// it is to be refused.
func (m *epochMachine) draw(t *rapid.T) (e Epoch, list []Epoch, ok bool) {
	var last Epoch
	list = slices.Clone(m.epochs)
	if n := len(list); n > 0 {
		last = list[n-1]
	}
	m.ids++
	e = Epoch{last.Number + rapid.Int32Range(0, 3).Draw(t, "step"), m.ids, m.border(t) + rapid.SampledFrom([]int64{0, 0, 0, 10, -10}).Draw(t, "off")}
	if e.Number <= last.Number || e.Start < last.Start || e.Start > m.end {
		return e, list, false
	}
	if len(list) > 0 && last.Start == e.Start {
		list = list[:len(list)-1]
	}
	return e, m.forgotten(append(list, e)), true
}

// forgotten leaves out the epochs that end at or before the log's first byte.
func (m *epochMachine) forgotten(list []Epoch) []Epoch {
	for len(list) > 1 && list[1].Start <= m.low {
		list = list[1:]
	}
	return list
}

// before gives the epochs that start before an offset.
func before(list []Epoch, to int64) []Epoch {
	return slices.DeleteFunc(slices.Clone(list), func(e Epoch) bool { return e.Start >= to })
}

func (m *epochMachine) Append(t *rapid.T) {
	e, list, ok := m.draw(t)
	err := m.log.AppendEpoch(e)
	if ok != (err == nil) || !ok && !errors.Is(err, ErrEpoch) {
		t.Fatalf("append %v to %v: %v, want it taken: %v", e, m.epochs, err, ok)
	}
	m.epochs = list
}

func (m *epochMachine) cut(to int64) {
	i, _ := slices.BinarySearch(m.borders, to)
	m.borders, m.end, m.epochs = m.borders[:i], to, before(m.epochs, to)
}

func (m *epochMachine) Truncate(t *rapid.T) {
	to := m.border(t)
	_, err := m.log.Truncate(to)
	m.must(t, err)
	m.cut(to)
}

// Retain takes the first segment away.
func (m *epochMachine) Retain(t *rapid.T) {
	list := *m.log.list.Load()
	if len(list) < 2 || list[1].base >= m.end {
		return
	}
	m.must(t, m.log.Flush())
	if !m.log.awaitDispatched(dispatchedAtClose) {
		t.Fatal("the dispatcher does not get on")
	}
	m.log.keeper.mu.Lock()
	err := m.log.keeper.remove(list[0])
	m.log.keeper.mu.Unlock()
	m.must(t, err)
	m.low = m.log.MinOffset()
	m.borders = slices.DeleteFunc(m.borders, func(at int64) bool { return at < m.low })
}

// reopen opens the log after it ended in some way.
func (m *epochMachine) reopen(t *rapid.T) {
	var err error
	m.log, err = Open(m.o)
	m.must(t, err)
	if got := m.log.EndOffset(); got != m.end {
		t.Fatalf("the log ends at %d, want %d", got, m.end)
	}
	m.epochs = m.forgotten(m.epochs)
}

func (m *epochMachine) Reopen(t *rapid.T) {
	m.must(t, m.log.Close())
	m.reopen(t)
}

// stop ends the log, its disk being off or about to be.
func (m *epochMachine) stop(t *rapid.T) {
	disk := m.o.Disk.(*Twin)
	disk.PowerOffAfter(0)
	_ = m.log.Close()
	if rapid.Bool().Draw(t, "power cut") {
		disk.Crash()
	} else {
		disk.Kill()
	}
	if n := rapid.IntRange(-20, 20).Draw(t, "operations of the opening"); n > 0 {
		disk.PowerOffAfter(n)
		if l, err := Open(m.o); err == nil {
			_ = l.Close()
		}
		disk.Crash()
	}
}

func (m *epochMachine) Stop(t *rapid.T) {
	m.stop(t)
	m.reopen(t)
}

// StopInAppend and StopInTruncate end the log in the middle; an opening tells
// what came of it.
func (m *epochMachine) StopInAppend(t *rapid.T) {
	e, list, ok := m.draw(t)
	if !ok {
		return
	}
	m.o.Disk.(*Twin).PowerOffAfter(rapid.IntRange(0, 16).Draw(t, "operations"))
	err := m.log.AppendEpoch(e)
	m.stop(t)
	old := m.epochs
	m.reopen(t)
	if got := m.log.Epochs(); err == nil || len(got) > 0 && got[len(got)-1] == e {
		m.epochs = list
	} else if !slices.Equal(got, m.forgotten(old)) {
		t.Fatalf("append of %v: %v; epochs %v, want %v or %v", e, err, got, old, list)
	}
}

func (m *epochMachine) StopInTruncate(t *rapid.T) {
	to := m.border(t)
	m.o.Disk.(*Twin).PowerOffAfter(rapid.IntRange(0, 60).Draw(t, "operations"))
	_, err := m.log.Truncate(to)
	m.stop(t)
	l, oerr := Open(m.o)
	m.must(t, oerr)
	end, list := l.EndOffset(), slices.Clone(l.Epochs())
	if end != to && end != m.end {
		t.Fatalf("truncate to %d: %v; the log ends at %d, and was [%d, %d)", to, err, end, m.low, m.end)
	}
	m.must(t, l.Close())
	switch kept := before(m.epochs, to); {
	case err == nil, to < m.end && end == to, to == m.end && slices.Equal(list, m.forgotten(kept)):
		m.cut(to)
	}
	m.reopen(t)
}

func (m *epochMachine) Check(t *rapid.T) {
	got := m.log.Epochs()
	if !slices.Equal(got, m.epochs) {
		t.Fatalf("epochs %v, want %v; the log holds [%d, %d)", got, m.epochs, m.low, m.end)
	}
	theirs, _, ours := epochTexts(m.o.Disk, m.o.Dir)
	if len(got) == 0 && theirs+ours == "" {
		return
	}
	if theirs != string(encodeEpochFile(got)) || ours != string(encodeEpochNotes(got)) {
		t.Fatalf("epochs %v, and files %q, %q", got, theirs, ours)
	}
}
