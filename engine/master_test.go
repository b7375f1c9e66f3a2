package engine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSynchronousPutIsHeldByTheReplicaWhenItReturns(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	for i := range 300 {
		r := mustPut(t, m, message("orders", int32(i%4), strings.Repeat("x", i*37)))
		if end := s.log.EndOffset(); end < r.EndOffset {
			t.Fatalf("put %d ended at %d with PUT_OK, the only replica holds %d", i, r.EndOffset, end)
		}
	}
	if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
		t.Fatal(err)
	}
	sameLog(t, m, s)
	eventually(t, "the slave queued all", func() bool { return s.log.DispatchedOffset() == s.log.EndOffset() })
	rec, err := s.GetByQueue("orders", 3, 10)
	if err != nil || rec.QueueOffset != 10 || len(rec.Body) != (10*4+3)*37 {
		t.Fatalf("read by queue on the slave: %v, offset %d, %d body bytes", err, rec.QueueOffset, len(rec.Body))
	}
}

func TestSilentReplicaTimesThePutOutAtItsDeadline(t *testing.T) {
	const limit = 300 * time.Millisecond
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: limit})
	p := dialRaw(t, m)
	p.report(0)
	waitReplicas(t, m, 1)
	start := time.Now()
	r, err := m.Put(context20(t), message("t", 0, "body"))
	took := time.Since(start)
	if r.Status != PutFlushSlaveTimeout || !errors.Is(err, ErrNotReplicated) {
		t.Fatalf("status %v, error %v", r.Status, err)
	}
	if took < limit || took > limit+250*time.Millisecond {
		t.Fatalf("ended after %v, its deadline was %v", took, limit)
	}
}

func TestTwoConnectionsOfOneAddressCountOnce(t *testing.T) {
	for _, c := range []struct {
		identity PlainIdentity
		want     PutStatus
	}{{IdentityIP, PutFlushSlaveTimeout}, {IdentityConnection, PutOK}} {
		t.Run(c.identity.String(), func(t *testing.T) {
			m := openMaster(t, Options{Role: SyncMaster, InSyncReplicas: 3, PlainIdentity: c.identity, SlaveTimeout: 500 * time.Millisecond})
			a, b := dialRaw(t, m), dialRaw(t, m)
			a.report(0)
			b.report(0)
			waitReplicas(t, m, 2)
			f, err := m.PutAsync(message("t", 0, "body"))
			if err != nil {
				t.Fatal(err)
			}
			end := m.log.EndOffset()
			for _, p := range []*rawPeer{a, b} {
				p.readUntil(0, end)
				p.report(end)
			}
			if r, _ := f.Wait(context20(t)); r.Status != c.want {
				t.Fatalf("status %v, want %v", r.Status, c.want)
			}
		})
	}
}

func TestPlainReplicaCannotGiveFlushedAcknowledgements(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, Ack: AckFlushed, SlaveTimeout: time.Hour})
	dialRaw(t, m).report(0)
	waitReplicas(t, m, 1)
	if r, _ := m.Put(context20(t), message("t", 0, "x")); r.Status != PutSlaveNotAvailable {
		t.Fatalf("status %v: a wait that nobody can end must end at once", r.Status)
	}
}

func TestBadPeersAreClosedAndAcknowledgeNothing(t *testing.T) {
	m := openMaster(t, Options{Wire: WirePlain, Role: SyncMaster, Housekeeping: 600 * time.Millisecond, Heartbeat: 200 * time.Millisecond})
	for range 10 {
		if r, _ := m.Put(context20(t), message("t", 0, strings.Repeat("x", 1000))); !r.Appended() {
			t.Fatal("put was not stored")
		}
	}
	end, confirmed := m.log.EndOffset(), m.ConfirmedOffset()
	report := func(offsets ...int64) []byte {
		var b []byte
		for _, o := range offsets {
			for shift := 56; shift >= 0; shift -= 8 {
				b = append(b, byte(o>>shift))
			}
		}
		return b
	}
	cases := []struct {
		name string
		send []byte
	}{
		{"nothing", nil},
		{"half a report", report(0)[:4]},
		{"garbage", []byte("\xde\xad\xbe\xef\x00\x11\x22\x33\x44\x55\x66\x77\x88")},
		{"an offset beyond the log", report(end + 1)},
		{"a negative offset", report(-7)},
		{"the smallest offset", report(math.MinInt64)},
		{"minus one and silence", report(-1)},
		{"the largest offset", report(math.MaxInt64)},
		{"an HTTP request", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{"a TLS hello", append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 500)...)},
		{"a controller handshake", []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := dialRaw(t, m)
			p.send(c.send)
			if got := p.closedByPeer(); len(got) > 0 {
				t.Fatalf("%d bytes of log were sent to it", len(got))
			}
			if n := len(m.Status().Replicas); n != 0 {
				t.Fatalf("status shows %d replicas", n)
			}
		})
	}
	t.Run("a backward report", func(t *testing.T) {
		p := dialRaw(t, m)
		p.report(end)
		waitReplicas(t, m, 1)
		p.report(end - 1)
		p.closedByPeer()
		eventually(t, "the replica is gone", func() bool { return len(m.Status().Replicas) == 0 })
	})
	if got := m.ConfirmedOffset(); got > end || got < confirmed {
		t.Fatalf("confirmed offset went from %d to %d by bad peers alone", confirmed, got)
	}
}

func TestLastReportAndHangUpInOneEventStillAcknowledge(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	for range 100 {
		p := dialRaw(t, m)
		p.report(m.log.EndOffset())
		waitReplicas(t, m, 1)
		from := m.log.EndOffset()
		f, err := m.PutAsync(message("t", 0, "body"))
		if err != nil {
			t.Fatal(err)
		}
		p.readUntil(from, m.log.EndOffset())
		p.report(m.log.EndOffset())
		p.Close()
		if r, err := f.Wait(context20(t)); err != nil {
			t.Fatalf("status %v, error %v", r.Status, err)
		}
		eventually(t, "the replica is gone", func() bool { return len(m.Status().Replicas) == 0 })
	}
}

func TestReplicaOfAnEmptyMasterIsAnchoredByTheFirstByte(t *testing.T) {
	m := openMaster(t, Options{Heartbeat: 50 * time.Millisecond, Housekeeping: time.Second})
	p := dialRaw(t, m)
	p.report(0)
	waitReplicas(t, m, 1)
	r := mustPut(t, m, message("t", 0, "body"))
	if offset, body := p.frame(); offset != 0 || int64(len(body)) != r.EndOffset {
		t.Fatalf("first frame [%d, +%d), want all of the log: no heartbeat comes before its first byte", offset, len(body))
	}
}

func TestEmptyPlainReplicaGetsTheLastSegmentOrAll(t *testing.T) {
	for _, c := range []struct {
		history PlainHistory
		want    int64
	}{{HistoryLast, 128 << 10}, {HistoryFirst, 0}} {
		t.Run(c.history.String(), func(t *testing.T) {
			m := openMaster(t, Options{SegmentBytes: 64 << 10, PlainHistory: c.history})
			for m.log.EndOffset() < 150<<10 {
				mustPut(t, m, message("t", 0, strings.Repeat("x", 3000)))
			}
			p := dialRaw(t, m)
			p.report(0)
			if offset, _ := p.frame(); offset != c.want {
				t.Fatalf("first frame at %d, want %d", offset, c.want)
			}
		})
	}
}

func TestFirstReportAloneEndsNoWaitThatBeganBefore(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: 400 * time.Millisecond, PlainIdentity: IdentityConnection})
	silent := dialRaw(t, m)
	silent.report(0)
	waitReplicas(t, m, 1)
	early, err := m.PutAsync(message("t", 0, "of this history"))
	if err != nil {
		t.Fatal(err)
	}
	other := dialRaw(t, m)
	other.report(m.log.EndOffset()) // as a slave of another history would
	waitReplicas(t, m, 2)
	if r, _ := early.Wait(context20(t)); r.Status != PutFlushSlaveTimeout {
		t.Fatalf("status %v: nothing shows that any replica holds the record", r.Status)
	}
}

func TestReplicaStartedAtTheLastSegmentIsNoCopyOfWhatLiesBefore(t *testing.T) {
	const limit = 300 * time.Millisecond
	m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 10, SlaveTimeout: limit})
	silent := dialRaw(t, m)
	silent.report(0)
	waitReplicas(t, m, 1)
	early, err := m.PutAsync(message("t", 0, strings.Repeat("x", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	silent.Close()
	eventually(t, "the silent replica is gone", func() bool { return len(m.Status().Replicas) == 0 })
	for m.log.EndOffset() < 100<<10 {
		if r, _ := m.Put(context20(t), message("t", 0, strings.Repeat("x", 3000))); !r.Appended() {
			t.Fatal("put was not stored")
		}
	}
	late := dialRaw(t, m)
	late.report(0)
	late.readUntil(64<<10, m.log.EndOffset())
	late.report(m.log.EndOffset())
	if r, _ := early.Wait(context20(t)); r.Status != PutFlushSlaveTimeout {
		t.Fatalf("status %v of a record that no replica holds", r.Status)
	}
	eventually(t, "the late replica counts", func() bool {
		late.report(m.log.EndOffset())
		return m.ConfirmedOffset() == m.log.EndOffset()
	})
}

func TestStatusSaysHowSegmentsGetTheirSpace(t *testing.T) {
	reserved := open(t, Options{})
	sparse := open(t, Options{NoPreallocate: true})
	mustPut(t, reserved, message("t", 0, "x"))
	mustPut(t, sparse, message("t", 0, "x"))
	if a, b := reserved.Status().Allocation, sparse.Status().Allocation; a != "fallocate" && a != "written zeros" || b != "sparse" {
		t.Fatalf("allocation %q and %q", a, b)
	}
}

func TestSlowReplicaDoesNotDelayAHealthyOne(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 8 << 20})
	for m.log.EndOffset() < 6<<20 {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 100<<10)))
	}
	slow := dialRaw(t, m)
	slow.report(1) // and reads nothing
	s := openSlave(t, m, Options{SegmentBytes: 8 << 20})
	if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
		t.Fatal(err)
	}
	sameLog(t, m, s)
	slow.readUntil(1, m.log.EndOffset())
}

// Who connects and does not say who it is, is no member of anything, and is closed
// in time.
func TestUnidentifiedConnectionsDoNotLowerTheConfirmedOffset(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, Housekeeping: time.Second, Heartbeat: 200 * time.Millisecond})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	r := mustPut(t, m, message("t", 0, "x"))
	before := m.ConfirmedOffset()
	if before != r.EndOffset {
		t.Fatalf("confirmed %d, want %d", before, r.EndOffset)
	}
	var open sync.WaitGroup
	for _, b := range [][]byte{nil, {1, 2, 3}, {255, 255, 255, 255, 255, 255, 255, 255}} {
		p := dialRaw(t, m)
		p.send(b)
		open.Go(func() { p.closedByPeer() })
	}
	closed := make(chan struct{})
	go func() { open.Wait(); close(closed) }()
	// Puts and their confirmation go on until all of them are closed.
	for over := false; !over; {
		select {
		case <-closed:
			over = true
		default:
		}
		r := mustPut(t, m, message("t", 0, "x"))
		if now := m.ConfirmedOffset(); now < before || now < r.EndOffset {
			t.Fatalf("confirmed offset %d after %d, a put up to %d was confirmed", now, before, r.EndOffset)
		} else {
			before = now
		}
		if n := len(m.Status().Replicas); n != 1 {
			t.Fatalf("%d replicas", n)
		}
	}
	shut(t, s)
	eventually(t, "the replica is gone", func() bool { return len(m.Status().Replicas) == 0 })
	if after := m.ConfirmedOffset(); after < before {
		t.Fatalf("confirmed offset fell from %d to %d", before, after)
	}
}

func TestConfirmedOffsetIsKeptWhenTheReplicaThatReachedItLeaves(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	r := mustPut(t, m, message("t", 0, "x"))
	shut(t, s)
	eventually(t, "the replica is gone", func() bool { return len(m.Status().Replicas) == 0 })
	if got := m.ConfirmedOffset(); got != r.EndOffset {
		t.Fatalf("confirmed offset %d, a put that ended at %d was complete", got, r.EndOffset)
	}
	if err := m.WaitFor(context20(t), r.EndOffset); err != nil {
		t.Fatal(err)
	}
}

// A replica that is RocketMQ 4.x cannot read V2 records, which only a long topic
// makes; the store may have had them before this start.
func TestLongTopicsAreWarnedOfOnce(t *testing.T) {
	topic := "%RETRY%" + strings.Repeat("g", 130)
	logger, text := newTestLog(t, "master")
	o := Options{Store: t.TempDir(), Logger: logger}
	m := openMaster(t, o)
	mustPut(t, m, message(topic, 0, "body"))
	shut(t, m)
	m = openMaster(t, o)
	if strings.Contains(text.String(), "records are V2") {
		t.Fatal("warned of with no replica there")
	}
	openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	eventually(t, "the master warns", func() bool { return strings.Contains(text.String(), "records are V2") })
	openSlave(t, m, Options{})
	waitReplicas(t, m, 2)
	time.Sleep(2 * reviewInterval) // a second warning would come in this time
	if n := strings.Count(text.String(), "records are V2"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// A master that has lost its first segment cannot be asked for the rest by an
// empty slave; what was not sent is said.
func TestAnEmptySlaveSaysWhatItWasNotGiven(t *testing.T) {
	store := t.TempDir()
	m := openMaster(t, Options{Store: store, SegmentBytes: 64 << 10})
	for m.log.EndOffset() < 5*64<<10 {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 1000)))
	}
	shut(t, m)
	if err := os.Remove(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", 0))); err != nil {
		t.Fatal(err)
	}
	m = openMaster(t, Options{Store: store, SegmentBytes: 64 << 10})
	logger, text := newTestLog(t, "slave")
	s := openSlave(t, m, Options{SegmentBytes: 64 << 10, Logger: logger})
	eventually(t, "the slave has the end", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
	if low := s.log.MinOffset(); low == 0 || !strings.Contains(text.String(), fmt.Sprintf("min_offset=%d", low)) {
		t.Errorf("the copy begins at %d, and its log says:\n%s", low, text)
	}
}
