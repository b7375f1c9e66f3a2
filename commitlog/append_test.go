package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/internal/fixture"
	"github.com/haengine/haengine/internal/invariant"
)

// order is a Sequencer that notes what it is told.
type order struct {
	log  *Log
	ends []int64
	late bool // the end was published before
}

func (o *order) Sequenced(end int64) {
	o.ends = append(o.ends, end)
	o.late = o.late || o.log.EndOffset() >= end
}

func TestSequencerSeesEndsInOrderBeforeTheyArePublished(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	seen := &order{log: l}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 200 {
				e, err := l.Encode(&Message{Topic: "topic", QueueID: int32(g), Body: make([]byte, 300)})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := l.Append(e, seen); err != nil {
					t.Error(err)
				}
				e.Release()
			}
		})
	}
	wg.Wait()
	if len(seen.ends) != 800 || seen.late {
		t.Errorf("%d ends seen, published before: %v", len(seen.ends), seen.late)
	}
	for i := 1; i < len(seen.ends); i++ {
		if seen.ends[i] <= seen.ends[i-1] {
			t.Fatalf("end %d after %d", seen.ends[i], seen.ends[i-1])
		}
	}
	checkRecords(t, l, 800)
}

// The hosts that are stored are the node's own where the message has none, and always
// the store's, whatever family those of the message are of.
func TestRecordsHaveTheSizeOfTheHostsThatAreStored(t *testing.T) {
	v4 := Host{Addr: netip.MustParseAddr("192.0.2.1"), Port: 10911}
	v6 := Host{Addr: netip.MustParseAddr("2001:db8::1"), Port: 10911}
	for _, node := range []Host{v4, v6} {
		o := testOptions(t.TempDir())
		o.StoreHost = node
		l := mustOpen(t, o)
		count := 0
		for _, born := range []Host{{}, v4, v6} {
			for _, store := range []Host{{}, v4, v6} {
				for _, m := range []Message{{Topic: "t"}, {Topic: "topic", Body: make([]byte, 500), Properties: EncodeProperties(map[string]string{"KEYS": strings.Repeat("k", 300)})}} {
					m.BornHost, m.StoreHost = born, store
					e, err := l.Encode(&m)
					if err == nil && count%2 == 1 {
						e.Release()
						e, err = l.EncodeBatch([]*Message{&m, &m, &m})
					}
					if err != nil {
						t.Fatal(err)
					}
					a, err := l.Append(e, nil)
					e.Release()
					if err != nil {
						t.Fatal(err)
					}
					count++
					want := born
					if want == (Host{}) {
						want = node
					}
					r, err := l.Read(a.Offset)
					if err != nil {
						t.Fatal(err)
					}
					if r.BornHost != want || r.StoreHost != node || r.Properties != m.Properties || len(r.Body) != len(m.Body) {
						t.Errorf("node %v, born %v, store %v: %+v", node, born, store, r.Message)
					}
				}
			}
		}
		awaitDispatch(t, l)
		if err := l.Writable(); err != nil {
			t.Error(err)
		}
	}
}

// Showing 2 of what the format promises: a record that is appended again, with
// its times and hosts given, has RocketMQ's bytes.
func TestRocketMQsRecordsAreAppendedWithItsBytes(t *testing.T) {
	source := mustOpen(t, fixtureOptions(fixture.Unpack(t, "mixed")))
	o := fixtureOptions(t.TempDir())
	o.SegmentBytes = 1 << 20
	o.Limits.BodyBytes = 1 << 20
	var now time.Time
	o.Now = func() time.Time { return now }
	l := mustOpen(t, o)
	n := 0
	var got, want []byte
	for r, err := range source.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Magic == MagicV2 {
			continue // a topic that no put may have
		}
		now = time.UnixMilli(r.StoreTimestamp)
		l.timestamp.Store(0) // the threads of RocketMQ's own run were not in order
		l.opts.StoreHost = r.StoreHost
		e, err := l.Encode(&r.Message)
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Append(e, nil)
		e.Release()
		if err != nil {
			t.Fatal(err)
		}
		if got, err = l.readRecord(got, a.Offset); err != nil {
			t.Fatal(err)
		}
		if want, err = source.readRecord(want, r.PhysicalOffset); err != nil {
			t.Fatal(err)
		}
		patchRecord(want, a.QueueOffset, a.Offset, r.StoreTimestamp)
		if !bytes.Equal(got, want) {
			t.Fatalf("record at %d is not RocketMQ's", r.PhysicalOffset)
		}
		n++
	}
	if n < 100 {
		t.Errorf("only %d records", n)
	}
}

// Fault 17: a refused put takes no queue offset and no room.
func TestRefusedPutsLeaveNothing(t *testing.T) {
	disk := NewTwin(1)
	o := twinOptions(disk)
	l := mustOpen(t, o)
	if _, err := put(l, "topic", 0, []byte("first")); err != nil {
		t.Fatal(err)
	}
	end := l.EndOffset()
	for name, m := range map[string]*Message{
		"body":       {Topic: "topic", Body: make([]byte, 4097)},
		"segment":    {Topic: "topic", Body: make([]byte, 4000), Properties: string(make([]byte, 8000))},
		"properties": {Topic: "topic", Properties: string(make([]byte, 32768))},
		"topic":      {Topic: string(bytes.Repeat([]byte("t"), 128))},
		"no topic":   {},
	} {
		if e, err := l.Encode(m); err == nil {
			e.Release()
			t.Errorf("%s was accepted", name)
		} else if !errors.Is(err, ErrMessageIllegal) && !errors.Is(err, ErrPropertiesTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	disk.Fail("allocate", &TwinFault{Err: syscall.ENOSPC, Path: segmentsDirectory})
	disk.Fail("create", &TwinFault{Err: syscall.ENOSPC, Path: segmentsDirectory})
	refused := 0
	for range 5 {
		if _, err := put(l, "topic", 0, make([]byte, 4000)); errors.Is(err, ErrSegmentUnavailable) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no put was refused for want of a segment")
	}
	disk.Fail("allocate", nil)
	disk.Fail("create", nil)
	if _, err := put(l, "topic", 0, []byte("second")); err != nil {
		t.Fatalf("a put after space was freed: %v", err)
	}
	checkRecords(t, l, 2+5-refused)
	if end >= l.EndOffset() {
		t.Error("nothing was appended")
	}
}

func TestBatchNeverStraddlesSegmentsAndSharesItsTime(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	for i := range 100 {
		var ms []*Message
		for j := range 5 {
			ms = append(ms, &Message{Topic: "topic", QueueID: 2, Body: fmt.Appendf(nil, "%d %d %s", i, j, make([]byte, 500))})
		}
		e, err := l.EncodeBatch(ms)
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Append(e, nil)
		e.Release()
		if err != nil {
			t.Fatal(err)
		}
		if a.QueueOffset != int64(5*i) || a.Offset/(64<<10) != (a.EndOffset-1)/(64<<10) {
			t.Fatalf("batch %d: %+v", i, a)
		}
		at := a.Offset
		for j := range 5 {
			r, err := l.Read(at)
			if err != nil || r.QueueOffset != int64(5*i+j) || r.StoreTimestamp != a.StoreTimestamp {
				t.Fatalf("record %d of batch %d: %+v %v", j, i, r.Message, err)
			}
			at += int64(r.Size)
		}
	}
	checkRecords(t, l, 500)
}

func TestStoreTimesDoNotGoBack(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	now := time.UnixMilli(1_000_000)
	o.Now = func() time.Time { return now }
	l := mustOpen(t, o)
	var last int64
	for _, ms := range []int64{1_000_000, 2_000_000, 1_500_000, 1, 3_000_000} {
		now = time.UnixMilli(ms)
		a := mustPut(t, l, "topic", 0, 10)
		if a.StoreTimestamp < last || a.StoreTimestamp < ms {
			t.Errorf("stored at %d after %d, the clock says %d", a.StoreTimestamp, last, ms)
		}
		last = a.StoreTimestamp
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	now = time.UnixMilli(5)
	l = mustOpen(t, o)
	if a := mustPut(t, l, "topic", 0, 10); a.StoreTimestamp < last {
		t.Errorf("stored at %d after a restart, before at %d", a.StoreTimestamp, last)
	}
}

// Transactions that are prepared or rolled back have no place in a queue.
func TestTransactionsTakeNoQueueOffset(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	for i, flag := range []int32{0, FlagTransactionPrepared, FlagTransactionCommit, FlagTransactionRollback, 0} {
		e, err := l.Encode(&Message{Topic: "topic", SysFlag: flag, Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Append(e, nil)
		e.Release()
		if err != nil {
			t.Fatal(err)
		}
		if want := []int64{0, 0, 1, 0, 2}[i]; a.QueueOffset != want {
			t.Errorf("message %d has queue offset %d, want %d", i, a.QueueOffset, want)
		}
	}
	checkRecords(t, l, 5)
}

// An append section that hangs refuses newcomers, and takes them when it goes on.
func TestHeldAppendSectionIsBusy(t *testing.T) {
	o := testOptions(t.TempDir())
	var clock sync.Mutex
	now := time.Now()
	o.Now = func() time.Time { clock.Lock(); defer clock.Unlock(); return now }
	l := mustOpen(t, o)
	l.append.Lock()
	l.holding.Store(1)
	clock.Lock()
	now = now.Add(o.BusyTimeout + 2*time.Second)
	clock.Unlock()
	_, err := put(l, "topic", 0, []byte("x"))
	l.holding.Store(0)
	l.append.Unlock()
	if !errors.Is(err, ErrBusy) {
		t.Errorf("append: %v, want busy", err)
	}
	mustPut(t, l, "topic", 0, 1)
}

// Store timestamps are the wall clock's, though it is not read for each.
func TestStoreTimestampIsTheWallClocks(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	for range 20_000 {
		before := time.Now()
		a := mustPut(t, l, "topic", 0, 1)
		if after := time.Now(); a.StoreTimestamp < before.UnixMilli()-1 || a.StoreTimestamp > after.UnixMilli()+1 {
			t.Fatalf("stored at %d, between %d and %d", a.StoreTimestamp, before.UnixMilli(), after.UnixMilli())
		}
	}
}

// The clock is looked at again soon: it may have been set.
func TestWallClockIsFollowed(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	l.now()
	l.wall.began.Add(-int64(time.Hour)) // as if it had been set forward by one since
	eventually(t, "the wall clock is looked at", func() bool { return l.now().ms >= time.Now().Add(-time.Second).UnixMilli() })
}

func TestAppendDoesNotAllocate(t *testing.T) {
	o := testOptions(t.TempDir())
	o.SegmentBytes = 64 << 20
	o.FlushInterval = time.Hour
	l := mustOpen(t, o)
	m := &Message{Topic: "topic", QueueID: 3, Body: make([]byte, 1024), Properties: "TAGS\x01TagA\x02"}
	one := func() {
		e, err := l.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(e, nil); err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	for range 1000 {
		one()
	}
	awaitOffset(t, l, l.EndOffset())
	if n := testing.AllocsPerRun(2000, one); n != 0 && !invariant.Enabled { // sync.Pool forgets on purpose under -race
		t.Errorf("%v allocations an append, want 0", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := testOptions(b.TempDir())
			o.SegmentBytes, o.PopulateBytes, o.FlushInterval = 256<<20, 4<<20, time.Hour
			l := mustOpen(b, o)
			m := &Message{Topic: "topic", QueueID: 3, Body: make([]byte, n), Properties: "TAGS\x01TagA\x02", BornTimestamp: 1}
			b.ReportAllocs()
			for b.Loop() {
				e, err := l.Encode(m)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := l.Append(e, nil); err != nil {
					b.Fatal(err)
				}
				e.Release()
			}
		})
	}
}
