package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/transfer"
)

// rawMaster accepts slaves and lets the test speak to each.
type rawMaster struct {
	net.Listener
	accepted atomic.Int64
}

// listenRaw serves each connection with serve in a goroutine of its own, which
// ends with the test.
func listenRaw(t testing.TB, serve func(n int64, c net.Conn)) *rawMaster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &rawMaster{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := m.accepted.Add(1)
			_ = c.SetDeadline(time.Now().Add(testTimeout))
			serve(n, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return m
}

func slaveOf(t testing.TB, m *rawMaster, o Options) *Engine {
	t.Helper()
	o.Wire = WirePlain // as if it were known already that the master is RocketMQ's
	o.Role, o.Master = Slave, m.Addr().String()
	return open(t, o)
}

func readReport(c net.Conn) (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(c, b[:])
	return int64(binary.BigEndian.Uint64(b[:])), err
}

func header(offset int64, size int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(offset)), uint32(size))
}

// recordsOf makes a log of n records with a master of its own.
func recordsOf(t testing.TB, n int, o Options) []byte {
	t.Helper()
	m := open(t, o)
	for i := range n {
		mustPut(t, m, message("t", int32(i%3), strings.Repeat("b", i%700)))
	}
	b := make([]byte, m.log.EndOffset())
	if _, err := m.log.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	shut(t, m)
	return b
}

func TestBadFramesCloseTheConnectionAndKeepTheLog(t *testing.T) {
	log := recordsOf(t, 5, Options{})
	whole := append(header(1, int32(len(log)-1)), log[1:]...)
	end := int64(len(log))
	cases := []struct {
		name   string
		frame  []byte
		reason string
	}{
		{"negative size", header(end, -1), "-1 bytes"},
		{"huge size", header(end, 0x7fffffff), "2147483647 bytes"},
		{"offset beyond our end", header(end+1, 4), "offset"},
		{"offset before our end", header(end-1, 4), "offset"},
		{"body past our segment", header(end, 2<<20), "segment"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := listenRaw(t, func(n int64, conn net.Conn) {
				if _, err := readReport(conn); err != nil {
					return
				}
				if n == 1 {
					_, _ = conn.Write(whole)
				} else {
					first := max(end-overlapBytes, 1)
					_, _ = conn.Write(append(header(first, int32(end-first)), log[first:]...))
				}
				_, _ = conn.Write(c.frame)
				_, _ = io.Copy(io.Discard, conn)
			})
			s := slaveOf(t, m, Options{})
			eventually(t, "refused", func() bool { return s.Status().Master.State == transfer.FollowerRefused.String() })
			if st := s.Status(); st.MaxOffset != end || !strings.Contains(st.Master.LastError, c.reason) {
				t.Fatalf("log ends at %d, want %d; last error %q", st.MaxOffset, end, st.Master.LastError)
			}
			// It tries again, later each time, and does not spin.
			before, start := cpuTime(), m.accepted.Load()
			eventually(t, "tried again", func() bool { return m.accepted.Load() > start })
			if used := cpuTime() - before; used > time.Second {
				t.Fatalf("%v of CPU between two tries", used)
			}
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestDivergedMasterOfEqualLengthIsFoundBeforeAnythingIsStored(t *testing.T) {
	log := recordsOf(t, 20, Options{})
	end := len(log)
	m := listenRaw(t, func(n int64, c net.Conn) {
		first, err := readReport(c)
		if err != nil {
			return
		}
		send := append([]byte(nil), log...)
		if n > 1 {
			send[end-5] ^= 0xff
			send = append(send, log[:100]...)
		}
		_, _ = c.Write(append(header(first, int32(len(send)-int(first))), send[first:]...))
		if n == 1 {
			for r := int64(0); r < int64(end); {
				if r, err = readReport(c); err != nil {
					return
				}
			}
			return
		}
		_, _ = io.Copy(io.Discard, c)
	})
	s := slaveOf(t, m, Options{})
	eventually(t, "diverged", func() bool { return s.Status().Master.State == transfer.FollowerDiverged.String() })
	st := s.Status()
	if st.MaxOffset != int64(end) || !strings.Contains(st.Master.LastError, fmt.Sprint(end-5)) {
		t.Fatalf("log ends at %d, want %d; last error %q should name offset %d", st.MaxOffset, end, st.Master.LastError, end-5)
	}
}

func TestMasterBehindItsSlaveStallsIt(t *testing.T) {
	m := openMaster(t, Options{})
	for range 50 {
		mustPut(t, m, message("t", 0, "body"))
	}
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir})
	if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
		t.Fatal(err)
	}
	end := s.log.EndOffset()
	shut(t, s)
	shut(t, m)

	shorter := openMaster(t, Options{Heartbeat: 50 * time.Millisecond, Housekeeping: time.Second})
	mustPut(t, shorter, message("t", 0, "another history"))
	s2 := openSlave(t, shorter, Options{Store: dir, Heartbeat: 50 * time.Millisecond, Housekeeping: time.Second})
	eventually(t, "not followed", func() bool {
		switch s2.Status().Master.State {
		case "stalled", "refused", "diverged":
			return true
		}
		return false
	})
	if s2.log.EndOffset() != end {
		t.Fatal("the slave's log changed")
	}
}

func TestCascadeServesWholeRecordsOnly(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 64 << 10})
	middle := openSlave(t, m, Options{HAListen: "127.0.0.1:0", SegmentBytes: 64 << 10})
	last := openSlave(t, middle, Options{SegmentBytes: 64 << 10})
	for i := range 400 {
		mustPut(t, m, message("t", int32(i%4), strings.Repeat("x", i*5)))
	}
	for _, s := range []*Engine{middle, last} {
		if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
			t.Fatalf("%v: %+v", err, s.Status().Master)
		}
		sameLog(t, m, s)
	}
}

func TestSlaveGoesOnAfterTheMasterWasRestarted(t *testing.T) {
	dir := t.TempDir()
	m := openMaster(t, Options{Store: dir, Role: SyncMaster})
	addr := m.HAAddr().String()
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	for range 3 {
		for range 20 {
			mustPut(t, m, message("t", 0, strings.Repeat("x", 5000)))
		}
		shut(t, m)
		m = openMaster(t, Options{Store: dir, Role: SyncMaster, HAListen: addr})
		waitReplicas(t, m, 1)
	}
	r := mustPut(t, m, message("t", 0, "x"))
	if r.QueueOffset != 60 {
		t.Fatalf("queue offset %d after restarts, want 60", r.QueueOffset)
	}
	if err := s.WaitFor(context20(t), r.EndOffset); err != nil {
		t.Fatal(err)
	}
	sameLog(t, m, s)
}

func TestAcknowledgementOfFlushedBytesIsDurable(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	s := openSlave(t, m, Options{Wire: WirePlain, Ack: AckFlushed, FlushInterval: time.Hour, FlushThorough: time.Hour})
	waitReplicas(t, m, 1)
	for i := range 50 {
		r := mustPut(t, m, message("t", 0, strings.Repeat("x", i*100)))
		if f := s.log.FlushedOffset(); f < r.EndOffset {
			t.Fatalf("acknowledged %d, only %d is durable there", r.EndOffset, f)
		}
	}
}

func TestIdlePairKeepsItsConnection(t *testing.T) {
	m := openMaster(t, Options{Heartbeat: 100 * time.Millisecond, Housekeeping: time.Second})
	events, cancel := m.Subscribe(100)
	defer cancel()
	s := openSlave(t, m, Options{Heartbeat: 100 * time.Millisecond, Housekeeping: time.Second})
	mustPut(t, m, message("t", 0, "x"))
	waitReplicas(t, m, 1)
	if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
		t.Fatal(err)
	}
	quiet := time.After(3 * time.Second) // three times the limit after which silence would end it
	for {
		select {
		case e := <-events:
			if e.Kind == ReplicaLeft {
				t.Fatalf("an idle replica was dropped: %v", e.Err)
			}
		case <-quiet:
			return
		}
	}
}

func TestSilentMasterIsNoticedAndRedialled(t *testing.T) {
	log := recordsOf(t, 3, Options{})
	m := listenRaw(t, func(n int64, c net.Conn) {
		first, err := readReport(c)
		if err != nil {
			return
		}
		_, _ = c.Write(append(header(first, int32(len(log)-int(first))), log[first:]...))
		_, _ = io.Copy(io.Discard, c) // and never a byte again
	})
	s := slaveOf(t, m, Options{Heartbeat: 20 * time.Millisecond, Housekeeping: 200 * time.Millisecond})
	eventually(t, "redialled", func() bool { return m.accepted.Load() >= 3 })
	if end := s.log.EndOffset(); end != int64(len(log)) {
		t.Fatalf("log ends at %d, want %d", end, len(log))
	}
}

func TestSlaveWithLargerSegmentsStopsAndIsRefusedAtItsRestart(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 64 << 10})
	dir := t.TempDir()
	s := openSlave(t, m, Options{Wire: WirePlain, Store: dir, SegmentBytes: 256 << 10})
	for m.log.EndOffset() < 80<<10 {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 3000)))
	}
	eventually(t, "the slave stopped", func() bool { return s.Status().State == StateReadOnly })
	if st := s.Status(); !strings.Contains(st.Reason, "262144") || !strings.Contains(st.Reason, "filler") {
		t.Fatalf("reason %q should name the filler and our segment size", st.Reason)
	}
	shut(t, s)
	logger, _ := newTestLog(t, "reopened")
	e, err := Open(Options{Store: dir, Role: Slave, Master: m.HAAddr().String(), Reactors: 1, Logger: logger})
	if err == nil {
		shut(t, e)
		t.Fatal("the store was opened again and would be acknowledged and cut at each start")
	}
	if !strings.Contains(err.Error(), "262144") || !strings.Contains(err.Error(), "65536") {
		t.Fatalf("error %q should name both sizes", err)
	}
}

func TestDamageFoundAtTheOpeningEndsReplicationAndIsNamed(t *testing.T) {
	m := openMaster(t, Options{})
	for range 20 {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 500)))
	}
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir})
	if err := s.WaitFor(context20(t), m.log.EndOffset()); err != nil {
		t.Fatal(err)
	}
	path, last := s.log.SegmentPath(0), s.log.EndOffset()-20
	shut(t, s)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, last); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSlave(t, m, Options{Store: dir})
	eventually(t, "replication has ended", func() bool { return s.Status().Master.State == transfer.FollowerStalled.String() })
	st := s.Status()
	if st.State != StateReadOnly || !strings.Contains(st.Master.LastError, path) {
		t.Fatalf("state %v, last error %q: the damaged segment should be named", st.State, st.Master.LastError)
	}
	if n := len(m.Status().Replicas); n != 0 {
		t.Fatalf("a damaged store is shown as %d replicas", n)
	}
}

// A slave says whether replicas of its own follow what its dispatcher has looked at:
// it puts nothing off then.
func TestSlaveKnowsThatItIsFollowed(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster})
	s := openSlave(t, m, Options{HAListen: "127.0.0.1:0"})
	waitReplicas(t, m, 1)
	if s.passesOn() {
		t.Error("it is followed by nobody")
	}
	last := openSlave(t, s, Options{})
	eventually(t, "it is followed", s.passesOn)
	shut(t, last)
	eventually(t, "it is followed no longer", func() bool { return !s.passesOn() })
}
