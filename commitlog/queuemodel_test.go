package commitlog

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The queue against a slice of entries: puts, puts again, cuts, trims,
// reopening and power cuts, with files of five units.
func TestQueueBehavesAsASliceOfEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueMachine{disk: NewTwin(rapid.Uint64().Draw(t, "seed")), offset: 1000}
		m.start = rapid.Int64Range(0, 12).Draw(t, "start")
		m.first = m.start
		m.open(t)
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// queueMachine is a queue, and beside it what it must hold.
type queueMachine struct {
	disk *Twin
	set  *queues
	qu   *queue

	model  []QueueEntry // from index start on
	start  int64
	first  int64 // the lowest index that was not trimmed
	synced int   // so many of the model were flushed
	offset int64 // of the next record
	begun  bool  // the queue has a file
}

func (m *queueMachine) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *queueMachine) open(t *rapid.T) {
	var err error
	if m.set, err = openQueues(m.disk, "/q", 100, false, discard); err == nil {
		m.qu, err = m.set.queue([]byte("t"), 1)
	}
	m.must(t, err)
	m.must(t, m.set.trimBefore(m.low()))
}

// low is the log's first offset.
func (m *queueMachine) low() int64 {
	if i := int(m.first - m.start); i < len(m.model) {
		return m.model[i].Offset
	}
	return m.offset
}

// put puts the model from entry i on, as the dispatcher does.
func (m *queueMachine) put(t *rapid.T, i int) {
	for ; i < len(m.model); i++ {
		err := m.qu.put(m.start+int64(i), m.model[i])
		var gap *queueGapError
		if errors.As(err, &gap) { // only of blanks that a power cut has taken
			m.must(t, m.qu.fillTo(m.start+int64(i)))
			err = m.qu.put(m.start+int64(i), m.model[i])
		}
		m.must(t, err)
	}
	m.must(t, m.set.commit())
	m.begun = m.begun || len(m.model) > 0
}

func (m *queueMachine) Put(t *rapid.T) {
	i := len(m.model)
	for range rapid.IntRange(1, 12).Draw(t, "n") {
		m.model = append(m.model, entryAt(m.offset))
		m.offset += 100
	}
	m.put(t, i)
}

// PutAgain offers other units for indexes that have one: what came first stays.
func (m *queueMachine) PutAgain(t *rapid.T) {
	i := rapid.IntRange(int(m.first-m.start), len(m.model)).Draw(t, "from")
	for ; i < len(m.model); i++ {
		m.must(t, m.qu.put(m.start+int64(i), entryAt(7)))
	}
	m.must(t, m.set.commit())
}

func (m *queueMachine) Gap(t *rapid.T) {
	if !m.begun {
		return
	}
	var gap *queueGapError
	if err := m.qu.put(m.start+int64(len(m.model))+1, entryAt(m.offset)); !errors.As(err, &gap) {
		t.Fatalf("a gap was accepted: %v", err)
	}
}

func (m *queueMachine) Truncate(t *rapid.T) {
	i := rapid.IntRange(int(m.first-m.start), len(m.model)).Draw(t, "at")
	if i < len(m.model) {
		m.offset = m.model[i].Offset
	}
	m.must(t, m.set.truncate(m.offset-rapid.Int64Range(0, 99).Draw(t, "inside the record before")))
	m.must(t, m.set.flush())
	m.model, m.synced = m.model[:i], i
	m.begun = m.begun && m.start+int64(i) > 0 // an empty queue may begin anywhere
}

func (m *queueMachine) Trim(t *rapid.T) {
	// Retention takes nothing whose place in the queue is not durable.
	m.first = m.start + int64(rapid.IntRange(int(m.first-m.start), max(int(m.first-m.start), m.synced)).Draw(t, "at"))
	m.must(t, m.set.trimBefore(m.low()))
}

func (m *queueMachine) Flush(t *rapid.T) {
	m.must(t, m.set.flush())
	m.synced = len(m.model)
}

func (m *queueMachine) Reopen(t *rapid.T) {
	m.must(t, errors.Join(m.set.flush(), m.set.close()))
	m.synced = len(m.model)
	m.open(t)
}

// PowerCut is followed by what recovery does: the units since the last flush
// are cut, and their records put again.
func (m *queueMachine) PowerCut(t *rapid.T) {
	m.disk.Crash()
	m.open(t)
	from := max(m.synced, int(m.first-m.start))
	durable := m.offset
	if from < len(m.model) {
		durable = m.model[from].Offset
	}
	m.must(t, m.set.repair(durable, false))
	m.must(t, m.set.trimBefore(m.low()))
	if m.set.incomplete {
		from = int(m.first - m.start)
	}
	m.put(t, from)
	m.must(t, m.set.trimBefore(m.low()))
}

func (m *queueMachine) Check(t *rapid.T) {
	if !m.begun {
		return
	}
	end := m.start + int64(len(m.model))
	if low, high := m.qu.bounds(); high != end || low != m.first || m.qu.nextOffset() != end {
		t.Fatalf("bounds [%d, %d), next %d; want [%d, %d)", low, high, m.qu.nextOffset(), m.first, end)
	}
	got := make([]QueueEntry, len(m.model)+3)
	n, err := m.qu.read(m.first, got)
	m.must(t, err)
	if want := m.model[m.first-m.start:]; !slices.Equal(got[:n], want) {
		t.Fatalf("read %v, want %v", got[:n], want)
	}
	if _, err := m.qu.read(m.first-1, got); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("read below the first: %v", err)
	}
}
