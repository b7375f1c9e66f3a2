package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pulledRecord is a record of a queue as the model has it.
type pulledRecord struct {
	raw    []byte
	offset int64
	tag    string
}

func (r *pulledRecord) end() int64 { return r.offset + int64(len(r.raw)) }

// fillForPulls puts messages of two queues in turn or in runs, with and without
// tags, over several segments, and returns what the queues must hold.
func fillForPulls(t *rapid.T, l *Log) map[QueueID][]pulledRecord {
	model := map[QueueID][]pulledRecord{}
	for range rapid.IntRange(0, 60).Draw(t, "messages") {
		id := QueueID{Topic: "t", ID: rapid.Int32Range(0, 1).Draw(t, "queue")}
		r := pulledRecord{tag: rapid.SampledFrom([]string{"", "A", "B", "ü💚"}).Draw(t, "tag")}
		m := &Message{Topic: id.Topic, QueueID: id.ID, Body: make([]byte, rapid.IntRange(0, 900).Draw(t, "body"))}
		if r.tag != "" {
			m.Properties = "TAGS\x01" + r.tag + "\x02"
		}
		e, err := l.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Append(e, nil)
		e.Release()
		if err != nil {
			t.Fatal(err)
		}
		r.offset = a.Offset
		r.raw = make([]byte, a.EndOffset-a.Offset)
		if _, err := l.ReadAt(r.raw, a.Offset); err != nil {
			t.Fatal(err)
		}
		model[id] = append(model[id], r)
	}
	if !l.awaitDispatched(20 * time.Second) {
		t.Fatal("the queues do not follow")
	}
	return model
}

// modelPull is Pull on a slice of records.
func modelPull(queue []pulledRecord, p *Pull) (body []byte, r Pulled) {
	end := int64(len(queue))
	r.Max = end
	for r.Max > 0 && queue[r.Max-1].end() > p.Visible {
		r.Max--
	}
	r.Next = p.From
	switch {
	case end == 0:
		r.Status, r.Next = PullEmptyQueue, 0
		return nil, r
	case p.From < 0:
		r.Status, r.Next = PullTooSmall, 0
		return nil, r
	case p.From > end:
		r.Status, r.Next = PullOverflowFar, r.Max
		return nil, r
	case p.From >= r.Max:
		r.Status = PullOverflowOne
		return nil, r
	}
	r.Status = PullNoMatch
	for ; r.Next < r.Max; r.Next++ {
		m := &queue[r.Next]
		code := int32(0)
		if m.tag != "" {
			code = javaHash(m.tag)
		}
		if p.Tags != nil && !slices.Contains(p.Tags, code) {
			continue
		}
		cold := m.offset < p.Cold
		if r.Messages == 0 && cold && p.HotOnly {
			r.Status, r.Last = PullCold, m.offset
			return nil, r
		}
		most, size := p.Messages, p.Bytes
		if cold {
			most, size = min(most, p.ColdMessages), min(size, p.ColdBytes)
		}
		if r.Messages > 0 && (r.Messages >= most || len(body)+len(m.raw) > size) {
			break
		}
		body = append(body, m.raw...)
		r.Messages++
		r.Status, r.Last = PullFound, m.offset
	}
	return body, r
}

func TestPullGivesWhatASliceOfRecordsWould(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := twinOptions(NewTwin(rapid.Uint64().Draw(rt, "seed")))
		l, err := Open(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		model := fillForPulls(rt, l)
		for range 30 {
			id := QueueID{Topic: "t", ID: rapid.Int32Range(0, 1).Draw(rt, "from queue")}
			p := &Pull{
				Queue: id, From: rapid.Int64Range(-1, int64(len(model[id]))+2).Draw(rt, "from"),
				Tags:         rapid.SampledFrom([][]int32{nil, nil, {}, {javaHash("A")}, {javaHash("B"), javaHash("ü💚")}, {0}}).Draw(rt, "tags"),
				Visible:      rapid.Int64Range(0, l.EndOffset()+10).Draw(rt, "visible"),
				Messages:     rapid.IntRange(1, 40).Draw(rt, "most"),
				Bytes:        rapid.IntRange(1, 8000).Draw(rt, "bytes"),
				Cold:         rapid.Int64Range(0, l.EndOffset()).Draw(rt, "cold"),
				ColdMessages: rapid.IntRange(1, 5).Draw(rt, "cold messages"),
				ColdBytes:    rapid.IntRange(1, 4000).Draw(rt, "cold bytes"),
				HotOnly:      rapid.Bool().Draw(rt, "hot only"),
			}
			if len(model[id]) == 0 {
				continue
			}
			want, expected := modelPull(model[id], p)
			got, found, err := l.Pull([]byte("before"), p)
			if err != nil {
				rt.Fatal(err)
			}
			if found != expected {
				rt.Fatalf("%+v\n got %+v\nwant %+v", *p, found, expected)
			}
			if !bytes.Equal(got, append([]byte("before"), want...)) {
				rt.Fatalf("%+v: %d bytes of records, want %d", *p, len(got)-6, len(want))
			}
			if from := p.From; from >= 0 {
				if grown := from < expected.Max; l.UnitVisible(id, from, p.Visible) != grown {
					rt.Fatalf("%+v: grown is not %v", *p, grown)
				}
			}
			if _, end, _, err := l.VisibleBounds(id, p.Visible); err != nil || end != expected.Max {
				rt.Fatalf("%+v: the visible end is %d, %v, want %d", *p, end, err, expected.Max)
			}
		}
	})
}

func TestPullFromAQueueThatIsNotThere(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	_, found, err := l.Pull(nil, &Pull{Queue: QueueID{Topic: "t"}, From: 7, Visible: math.MaxInt64, Messages: 1, Bytes: 1})
	if err != nil || found != (Pulled{Status: PullNoQueue}) {
		t.Errorf("%+v, %v", found, err)
	}
}

// What is cut while it is read is not given, whatever stands there by then.
func TestPullDuringACutGivesNothing(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	a := mustPut(t, l, "t", 0, 100)
	mustPut(t, l, "t", 0, 100)
	l.awaitDispatched(20 * time.Second)
	p := &Pull{Queue: QueueID{Topic: "t"}, Visible: math.MaxInt64, Messages: 9, Bytes: 1 << 20}
	l.cuts.Add(1)
	if b, found, err := l.Pull(nil, p); found.Status != PullInterrupted || len(b) > 0 || err != nil {
		t.Errorf("during a cut: %+v, %v", found, err)
	}
	if _, err := l.AppendRecordAt(nil, a.Offset, math.MaxInt64); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("during a cut: %v", err)
	}
	l.cuts.Add(1)
	if _, err := l.Truncate(a.EndOffset); err != nil {
		t.Fatal(err)
	}
	if _, found, err := l.Pull(nil, p); found.Status != PullFound || found.Messages != 1 || err != nil {
		t.Errorf("after it: %+v, %v", found, err)
	}
	if n := l.cuts.Load(); n != 4 {
		t.Errorf("a cut was counted as %d steps", n-2)
	}
}

// A record that is not what the queue means, and one that retention took.
func TestPullTellsWhatItCannotGive(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	first := mustPut(t, l, "t", 0, 100)
	second := mustPut(t, l, "t", 0, 100)
	for range 20 {
		mustPut(t, l, "t", 0, 1000)
	}
	l.awaitDispatched(20 * time.Second)
	p := &Pull{Queue: QueueID{Topic: "t"}, Visible: math.MaxInt64, Messages: 9, Bytes: 1 << 20}
	s := l.list.Load().find(second.Offset)
	f, err := s.use()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write(second.Offset+27, []byte{9}); err != nil { // its queue offset
		t.Fatal(err)
	}
	b, found, err := l.Pull(nil, p)
	if err != nil || found.Messages != 1 || found.Next != 1 || int64(len(b)) != first.EndOffset {
		t.Errorf("before a bad record: %+v of %d bytes, %v", found, len(b), err)
	}
	p.From = 1
	if _, found, err = l.Pull(nil, p); !errors.Is(err, ErrCorrupt) || found.Messages != 0 {
		t.Errorf("at a bad record: %+v, %v", found, err)
	}
	l.append.Lock()
	old := *l.list.Load()
	l.list.Store(new(slices.Clone(old[1:])))
	l.append.Unlock()
	old[0].release()
	p.From = 0
	if _, found, err = l.Pull(nil, p); err != nil || found.Status != PullFound || found.Last < old[1].base {
		t.Errorf("records that are gone: %+v, %v", found, err)
	}
	p.Visible = old[1].base
	if _, found, err = l.Pull(nil, p); err != nil || found.Status != PullRemoving || found.Next != found.Max {
		t.Errorf("all that is visible is gone: %+v, %v", found, err)
	}
}

func TestSeekTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := twinOptions(NewTwin(rapid.Uint64().Draw(rt, "seed")))
		now := time.UnixMilli(1_700_000_000_000)
		o.Now = func() time.Time { return now }
		l, err := Open(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		id := QueueID{Topic: "t"}
		var times, ends []int64
		for range rapid.IntRange(0, 30).Draw(rt, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "ms")) * time.Millisecond)
			e, err := l.Encode(&Message{Topic: id.Topic, Body: make([]byte, rapid.IntRange(0, 2000).Draw(rt, "body"))})
			if err != nil {
				rt.Fatal(err)
			}
			a, err := l.Append(e, nil)
			e.Release()
			if err != nil {
				rt.Fatal(err)
			}
			times, ends = append(times, a.StoreTimestamp), append(ends, a.EndOffset)
		}
		l.awaitDispatched(20 * time.Second)
		for range 20 {
			at := now.UnixMilli() + rapid.Int64Range(-60, 3).Draw(rt, "at")
			visible := rapid.Int64Range(0, l.EndOffset()).Draw(rt, "visible")
			upper := rapid.Bool().Draw(rt, "upper")
			seen := 0
			for seen < len(ends) && ends[seen] <= visible {
				seen++
			}
			want := slices.IndexFunc(times[:seen], func(ms int64) bool { return ms > at || !upper && ms == at })
			if want < 0 {
				want = seen
			}
			if upper && want > 0 {
				want--
			}
			got, err := l.SeekTime(id, at, upper, visible)
			if err != nil || got != int64(want) {
				rt.Fatalf("at %d, upper %v, visible %d of %v: %d, %v, want %d", at, upper, visible, times, got, err, want)
			}
		}
		ms, offset, ok, err := l.FirstStoreTime(id)
		if err != nil || ok != (len(times) > 0) || ok && (ms != times[0] || offset != 0) {
			rt.Fatalf("the first record: %d at %d, %v, %v", ms, offset, ok, err)
		}
	})
}

func TestAppendRecordAt(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	a := mustPut(t, l, "t", 0, 30<<10)
	want := make([]byte, a.EndOffset-a.Offset)
	if _, err := l.ReadAt(want, a.Offset); err != nil {
		t.Fatal(err)
	}
	if b, err := l.AppendRecordAt([]byte{1}, a.Offset, a.EndOffset); err != nil || !bytes.Equal(b[1:], want) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for _, at := range []struct{ offset, visible int64 }{{a.Offset, a.EndOffset - 1}, {a.EndOffset, math.MaxInt64}, {-1, math.MaxInt64}} {
		if b, err := l.AppendRecordAt(nil, at.offset, at.visible); !errors.Is(err, ErrOutOfRange) || len(b) > 0 {
			t.Errorf("%+v: %d bytes, %v", at, len(b), err)
		}
	}
	if _, err := l.AppendRecordAt(nil, a.Offset+4, math.MaxInt64); !errors.Is(err, ErrCorrupt) {
		t.Errorf("inside a record: %v", err)
	}
}

func BenchmarkPull(b *testing.B) {
	for _, cold := range []bool{false, true} {
		b.Run(fmt.Sprintf("32 messages of 1 KiB, cold %v", cold), func(b *testing.B) {
			o := testOptions(b.TempDir())
			o.SegmentBytes = 1 << 20
			l := mustOpen(b, o)
			for range 64 {
				mustPut(b, l, "t", 0, 1024)
			}
			l.awaitDispatched(20 * time.Second)
			p := &Pull{Queue: QueueID{Topic: "t"}, From: 10, Visible: math.MaxInt64, Messages: 32, Bytes: 256 << 10, ColdMessages: 32, ColdBytes: 256 << 10}
			if cold {
				p.Cold = math.MaxInt64
			}
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, _, err = l.Pull(dst[:0], p); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}
