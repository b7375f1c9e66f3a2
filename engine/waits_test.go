package engine

import (
	"errors"
	"testing"
	"time"
)

// A put may wait for other things than the node's settings say, on a master of
// either role, beside others that wait for less.
func TestAPutChoosesWhatItWaitsFor(t *testing.T) {
	for _, role := range []Role{AsyncMaster, SyncMaster} {
		m := openMaster(t, Options{Role: role, InSyncReplicas: 3, SlaveTimeout: 200 * time.Millisecond, PlainIdentity: IdentityConnection})
		s := openSlave(t, m, Options{FlushInterval: time.Hour, FlushThorough: time.Hour})
		waitReplicas(t, m, 1)
		put := func(w Waits, want PutStatus) PutResult {
			t.Helper()
			r, err := m.PutWaiting(context20(t), message("t", 0, "x"), w)
			if r.Status != want || (err == nil) != (want == PutOK) {
				t.Errorf("%v: %+v: %v, %v; want %v", role, w, r.Status, err, want)
			}
			return r
		}
		put(Waits{Copies: 1}, PutOK)
		if r := put(Waits{Copies: 2}, PutOK); s.log.EndOffset() < r.EndOffset {
			t.Error("the slave does not have it")
		}
		if r := put(Waits{Copies: 2, Ack: AckFlushed, Timeout: testTimeout}, PutOK); s.log.FlushedOffset() < r.EndOffset {
			t.Error("it is not on the slave's disk")
		}
		if r := put(Waits{Copies: 1, Flush: true}, PutOK); m.log.FlushedOffset() < r.EndOffset {
			t.Error("it is not on this disk")
		}
		put(Waits{Copies: 3}, PutFlushSlaveTimeout)
		began := time.Now()
		put(Waits{Copies: 3, Timeout: time.Millisecond}, PutFlushSlaveTimeout)
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Logf("its own timeout of 1 ms took %v", took)
		}
		end := m.log.EndOffset()
		for _, w := range []Waits{{}, {Copies: 65}, {Copies: 2, Ack: 7}, {Copies: 2, Timeout: -1}} {
			r, err := m.PutWaiting(context20(t), message("t", 0, "x"), w)
			if !errors.Is(err, ErrOptions) || r.Appended() {
				t.Errorf("%+v: %+v, %v", w, r, err)
			}
		}
		if m.log.EndOffset() != end {
			t.Error("a refused put is in the log")
		}
	}
	// A plain replica cannot tell of its disk.
	m := openMaster(t, Options{})
	mustPut(t, m, message("t", 0, "x"))
	dialRaw(t, m).report(m.log.EndOffset())
	waitReplicas(t, m, 1)
	if r, err := m.PutWaiting(context20(t), message("t", 0, "x"), Waits{Copies: 2, Ack: AckFlushed}); r.Status != PutSlaveNotAvailable || !errors.Is(err, ErrNoReplica) {
		t.Errorf("%+v, %v", r, err)
	}
}
