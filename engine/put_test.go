package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
)

func TestPutWithoutReplicaIsStoredAndSaysSoAtOnce(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: time.Hour})
	r, err := m.Put(context20(t), message("t", 0, "body"))
	var pe *PutError
	if !errors.As(err, &pe) || pe.Status != PutSlaveNotAvailable || !errors.Is(err, ErrNoReplica) {
		t.Fatalf("error %v", err)
	}
	if rec, err := m.Get(r.Offset); err != nil || string(rec.Body) != "body" {
		t.Fatalf("the record is in the log whatever the status: %v", err)
	}
}

func TestPendingPutsEndAtTheirOwnDeadlinesNotTheirSum(t *testing.T) {
	const limit, puts = 700 * time.Millisecond, 100
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: limit, SegmentBytes: 64 << 20})
	dialRaw(t, m).report(0)
	waitReplicas(t, m, 1)
	ended := make(chan error, puts)
	for i := range puts {
		go func() {
			start := time.Now()
			r, _ := m.Put(context.Background(), message("t", 0, strings.Repeat("x", 1<<(i%23))))               // 1 byte to 4 MiB
			if took := time.Since(start); r.Status != PutFlushSlaveTimeout || took < limit || took > 4*limit { // the sum is 100 of them
				ended <- fmt.Errorf("put %d: %v after %v", i, r.Status, took)
				return
			}
			ended <- nil
		}()
		time.Sleep(time.Millisecond) // spread over time: each has a deadline of its own
	}
	for range puts {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestPutDoesNotWaitWhenTheMessageSaysSo(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: time.Hour})
	msg := message("t", 0, "body")
	msg.Properties = "WAIT\x01false\x02"
	if r := mustPut(t, m, msg); r.Status != PutOK {
		t.Fatalf("status %v", r.Status)
	}
}

func TestTooFewInSyncReplicasRefuseThePutBeforeTheAppend(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, MinInSyncReplicas: 2})
	end := m.log.EndOffset()
	r, err := m.Put(context20(t), message("t", 0, "body"))
	if r.Status != PutInSyncReplicasNotEnough || !errors.Is(err, ErrNotEnoughInSync) || r.Appended() {
		t.Fatalf("status %v, offset %d, error %v", r.Status, r.Offset, err)
	}
	if m.log.EndOffset() != end {
		t.Fatal("a refused put moved the log's end")
	}
}

func TestPutsOnASlaveAreRefused(t *testing.T) {
	m := openMaster(t, Options{})
	s := openSlave(t, m, Options{})
	r, err := s.Put(context20(t), message("t", 0, "x"))
	if r.Status != PutServiceNotAvailable || !errors.Is(err, ErrNotMaster) || r.Appended() {
		t.Fatalf("status %v, error %v", r.Status, err)
	}
}

func TestMessagesOverTheLimitsAreRefusedBeforeTheAppend(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 16 << 20})
	props := func(n int) string { return "k\x01" + strings.Repeat("v", n-3) + "\x02" }
	cases := []struct {
		name string
		msg  *Message
		want PutStatus
	}{
		{"body over 4 MiB", &Message{Topic: "t", Body: make([]byte, 4<<20+1)}, PutMessageIllegal},
		{"properties of 32768 bytes", &Message{Topic: "t", Properties: props(32768)}, PutPropertiesSizeExceeded},
		{"properties of 65535 bytes", &Message{Topic: "t", Properties: props(65535)}, PutPropertiesSizeExceeded},
		{"properties of 65536 bytes", &Message{Topic: "t", Properties: props(65536)}, PutPropertiesSizeExceeded},
		{"topic of 128 bytes", &Message{Topic: strings.Repeat("t", 128)}, PutMessageIllegal},
		{"no topic", &Message{}, PutMessageIllegal},
	}
	first := mustPut(t, m, &Message{Topic: "t", Properties: props(32767)})
	end := m.log.EndOffset()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := m.Put(context20(t), c.msg)
			if r.Status != c.want || err == nil || r.Appended() || m.log.EndOffset() != end {
				t.Fatalf("status %v, error %v, end %d", r.Status, err, m.log.EndOffset())
			}
			if r, err := m.PutBatch(context20(t), []*Message{{Topic: "t", Body: []byte("good")}, c.msg}); r.Status != c.want || err == nil || r.Appended() || m.log.EndOffset() != end {
				t.Fatalf("in a batch: status %v, error %v, end %d", r.Status, err, m.log.EndOffset())
			}
			if c.want == PutMessageIllegal && !errors.Is(err, commitlog.ErrMessageIllegal) {
				t.Fatalf("error %v", err)
			}
		})
	}
	if second := mustPut(t, m, message("t", 0, "after")); second.QueueOffset != first.QueueOffset+1 {
		t.Fatalf("refused puts consumed queue offsets: %d then %d", first.QueueOffset, second.QueueOffset)
	}
}

func TestCloseGivesEveryPutAStatus(t *testing.T) {
	for _, flush := range []FlushMode{AsyncFlush, SyncFlush} {
		t.Run(flush.String(), func(t *testing.T) {
			dir := t.TempDir()
			m := openMaster(t, Options{Store: dir, Role: SyncMaster, Flush: flush, SlaveTimeout: time.Hour})
			silent := dialRaw(t, m)
			silent.report(0)
			waitReplicas(t, m, 1)
			const puts = 64
			results := make(chan PutResult, puts)
			for range puts {
				go func() {
					r, _ := m.Put(context.Background(), message("t", 0, "body"))
					results <- r
				}()
			}
			eventually(t, "puts wait", func() bool { return m.Status().Waiters >= puts })
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			closed := make(chan error, 2)
			for range 2 {
				go func() { closed <- m.Close(ctx) }()
			}
			for range 2 {
				if err := <-closed; err != nil {
					t.Fatal(err)
				}
			}
			stored := 0
			for range puts {
				if r := <-results; r.Appended() {
					stored++
					if r.Status != PutFlushSlaveTimeout {
						t.Errorf("status %v of a put that no replica had", r.Status)
					}
				}
			}
			l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			found := 0
			for _, err := range l.Records(0) {
				if err != nil {
					t.Fatal(err)
				}
				found++
			}
			if found != stored {
				t.Fatalf("%d puts said they were stored, the log has %d", stored, found)
			}
		})
	}
}

func TestAsynchronousPutsArePulledInBatches(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	const puts = 5000
	c := m.NewCompletions(256)
	go func() {
		for i := range puts {
			if err := c.Put(context.Background(), message("t", 0, "body"), uint64(i)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	seen := make([]bool, puts)
	batch := make([]Completion, 64)
	for n := 0; n < puts; {
		k, err := c.Pull(context20(t), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, done := range batch[:k] {
			if done.Err != nil || seen[done.Tag] {
				t.Fatalf("put %d: %v, seen %v", done.Tag, done.Err, seen[done.Tag])
			}
			seen[done.Tag] = true
		}
		n += k
	}
}

func TestFullRingRefusesAsynchronousPuts(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, RingSize: 4, SlaveTimeout: time.Hour})
	p := dialRaw(t, m)
	p.report(0)
	waitReplicas(t, m, 1)
	var waiting []*Future
	for {
		f, err := m.PutAsync(message("t", 0, "x"))
		if err != nil {
			if !errors.Is(err, ErrRingFull) {
				t.Fatal(err)
			}
			break
		}
		if waiting = append(waiting, f); len(waiting) > 4 {
			t.Fatal("more puts wait than the ring holds")
		}
	}
	end := m.log.EndOffset()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if r, err := m.Put(ctx, message("t", 0, "x")); r.Appended() || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a put that waits for room ends with its context, unwritten: %v %v", r, err)
	}
	p.readUntil(0, end)
	p.report(end)
	for _, f := range waiting {
		if _, err := f.Wait(context20(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A put that waited for room is stored when it is appended, not when it was encoded.
func TestPutThatWaitedForRoomHasTheTimeOfItsAppend(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, RingSize: 2, SlaveTimeout: time.Hour})
	p := dialRaw(t, m)
	p.report(0)
	waitReplicas(t, m, 1)
	for err := error(nil); err == nil; {
		_, err = m.PutAsync(message("t", 0, "x"))
	}
	end := m.log.EndOffset()
	stored := make(chan int64)
	go func() {
		r, err := m.Put(context20(t), message("t", 0, "x"))
		if err != nil {
			t.Error(err)
		}
		stored <- r.StoreTimestamp
	}()
	eventually(t, "the put waits", func() bool { return m.inflight.Load() > 0 })
	began := time.Now()
	eventually(t, "time passes", func() bool { return time.Since(began) > 30*time.Millisecond })
	free := time.Now()
	p.readUntil(0, end)
	p.report(end)
	_, body := p.frame()
	p.report(end + int64(len(body)))
	if at := <-stored; at < free.UnixMilli() {
		t.Errorf("stored %d ms before there was room", free.UnixMilli()-at)
	}
}

func TestContextEndsAWaitAndTheSlotIsNotLeaked(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, RingSize: 8, SlaveTimeout: time.Hour})
	p := dialRaw(t, m)
	p.report(0)
	waitReplicas(t, m, 1)
	for range 50 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		r, err := m.Put(ctx, message("t", 0, "x"))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || r.Status != PutFlushSlaveTimeout || !r.Appended() {
			t.Fatalf("status %v, error %v", r.Status, err)
		}
	}
}

func TestBatchOfNothingIsRefused(t *testing.T) {
	m := openMaster(t, Options{})
	for _, batch := range [][]*Message{nil, {}, {nil}} {
		if r, err := m.PutBatch(context20(t), batch); r.Status != PutMessageIllegal || err == nil {
			t.Fatalf("batch %v: status %v, error %v", batch, r.Status, err)
		}
	}
}

func TestLoweredSettingWakesWhoWaitsForIt(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	r, _ := m.Put(context20(t), message("t", 0, "x"))
	done := make(chan error, 1)
	go func() { done <- m.WaitFor(context20(t), r.EndOffset) }()
	eventually(t, "it waits", func() bool { return m.progress.waiting.Load() > 0 })
	if err := m.SetInSyncReplicas(1); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAfterCloseEverythingSaysSo(t *testing.T) {
	m := openMaster(t, Options{})
	r := mustPut(t, m, message("t", 0, "x"))
	eventually(t, "queued", func() bool { return m.log.DispatchedOffset() == r.EndOffset })
	c := m.NewCompletions(4)
	shut(t, m)
	if _, err := m.Get(r.Offset); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if _, err := m.GetByQueue("t", 0, 0); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("get by queue: %v", err)
	}
	if _, err := m.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrClosed) {
		t.Errorf("put: %v", err)
	}
	if _, err := c.Pull(context20(t), make([]Completion, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("pull: %v", err)
	}
	events, cancel := m.Subscribe(1)
	defer cancel()
	if _, open := <-events; open {
		t.Error("a subscription after the close has an event")
	}
	if err := m.WaitFor(context20(t), r.EndOffset+1); !errors.Is(err, ErrClosed) {
		t.Errorf("wait: %v", err)
	}
}
