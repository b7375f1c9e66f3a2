package engine

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// follow waits until a slave holds its master's log, and compares the bytes.
func follow(t *testing.T, m, s *Engine) {
	t.Helper()
	eventually(t, "the slave has the master's log", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
	sameLog(t, m, s)
}

// puts puts so many messages of a master's.
func puts(t *testing.T, m *Engine, n int) {
	t.Helper()
	for range n {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 1000)))
	}
}

// A put that waits for durable copies ends when there is one, at once: the
// master's frames say that somebody waits.
func TestFlushedAcknowledgementsAreDurableAndPrompt(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, Ack: AckFlushed, SlaveTimeout: 2 * time.Second})
	s := openSlave(t, m, Options{FlushInterval: time.Hour, FlushThorough: time.Hour})
	waitReplicas(t, m, 1)
	for i := range 50 {
		r := mustPut(t, m, message("t", 0, strings.Repeat("x", i*100)))
		if f := s.log.FlushedOffset(); f < r.EndOffset {
			t.Fatalf("put up to %d is confirmed, %d is durable on the replica", r.EndOffset, f)
		}
	}
	status := m.Status().Replicas[0]
	if status.Mode != "extended" || status.ReplicaID != s.Status().ReplicaID || status.FlushedOffset == nil || *status.FlushedOffset != m.log.EndOffset() {
		t.Errorf("the master shows %+v", status)
	}
	master := s.Status().Master
	if master.Mode != "extended" || master.MaxOffset == nil || *master.MaxOffset != m.log.EndOffset() || *master.LagBytes != 0 || *master.LagSeconds != 0 {
		t.Errorf("the slave shows %+v", master)
	}
}

// An empty slave takes the master's segment size and everything from its first
// byte on.
func TestAnEmptySlaveGetsTheWholeHistory(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 64 << 10, ClusterID: "blue"})
	puts(t, m, 300)
	logger, _ := newTestLog(t, "slave")
	s, err := Open(Options{Store: t.TempDir(), Role: Slave, Master: m.HAAddr().String(), Reactors: 1, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, s)
	follow(t, m, s)
	if got := s.Status(); got.MinOffset != 0 || got.SegmentBytes != 64<<10 || got.ClusterID != "blue" || got.Epoch != 1 {
		t.Errorf("the slave's status: %+v", got)
	}
}

// A master that was replaced comes back: what it wrote and nobody else has is
// cut, durably, and kept aside.
func TestAReturningMasterGivesUpWhatNobodyElseHas(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	s := openSlave(t, m, Options{Store: b})
	puts(t, m, 20)
	follow(t, m, s)
	common := m.log.EndOffset()
	shut(t, s)
	puts(t, m, 7) // nobody else has these
	end := m.log.EndOffset()
	shut(t, m)

	m = openMaster(t, Options{Store: b})
	if got := m.Status().Epoch; got != 2 {
		t.Fatalf("the promoted slave is in epoch %d, want 2", got)
	}
	puts(t, m, 9)
	old := openSlave(t, m, Options{Store: a})
	follow(t, m, old)
	if got := old.log.Epochs(); len(got) != 2 || got[1] != m.log.Epochs()[1] || got[1].Start != common {
		t.Errorf("epochs %+v, the master's %+v", got, m.log.Epochs())
	}
	kept, err := filepath.Glob(filepath.Join(a, "cut", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept aside: %v, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Size() < end-common {
		t.Errorf("%s holds %d bytes, %d were cut: %v", kept[0], info.Size(), end-common, err)
	}
	// It goes on after a restart, and has nothing more to cut.
	shut(t, old)
	puts(t, m, 3)
	follow(t, m, openSlave(t, m, Options{Store: a}))
}

// Histories of which none is the newer one are refused by name and kept as they
// are.
func TestHistoriesThatDoNotFitAreRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		prepare     func(t *testing.T, m *Engine, a, b string) // m serves a, and b is a copy; both are stopped afterwards
		state, says string
		cause       string
	}{
		{"an older master", func(t *testing.T, m *Engine, a, b string) {
			shut(t, m)
			next := openMaster(t, Options{Store: b})
			puts(t, next, 2)
			shut(t, next)
		}, "refused", "older master", "behind"},
		{"two masters in one epoch", func(t *testing.T, m *Engine, a, b string) {
			shut(t, m)
			for _, store := range []string{a, b} {
				if err := os.WriteFile(filepath.Join(store, "abort"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				next := openMaster(t, Options{Store: store})
				if got := next.Status().Epoch; got != 2 {
					t.Fatalf("epoch %d, want 2", got)
				}
				puts(t, next, 2)
				shut(t, next)
			}
		}, "diverged", "two masters wrote from offset", "diverged"},
		{"an empty master", func(t *testing.T, m *Engine, a, b string) {
			shut(t, m)
			if err := os.RemoveAll(a); err != nil {
				t.Fatal(err)
			}
		}, "refused", "the master's log is empty", "behind"},
		{"another cluster", func(t *testing.T, m *Engine, a, b string) {
			shut(t, m)
			setCluster(t, a, "green")
			setCluster(t, b, "blue")
		}, "refused", `"green"`, "cluster"},
		{"other bytes of the same length", func(t *testing.T, m *Engine, a, b string) {
			shut(t, m)
			spoil(t, b)
		}, "diverged", "has other bytes than this master", "diverged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			m := openMaster(t, Options{Store: a})
			s := openSlave(t, m, Options{Store: b})
			puts(t, m, 20)
			follow(t, m, s)
			shut(t, s)
			c.prepare(t, m, a, b)

			m = openMaster(t, Options{Store: a})
			s = openSlave(t, m, Options{Store: b})
			before := s.log.EndOffset()
			eventually(t, "the slave says that it does not fit", func() bool {
				master := s.Status().Master
				return master.State == c.state && strings.Contains(master.LastError, c.says)
			})
			if s.log.EndOffset() != before || len(m.Status().Replicas) > 0 {
				t.Errorf("the slave's log ends at %d, before at %d; the master counts %d replicas", s.log.EndOffset(), before, len(m.Status().Replicas))
			}
			if trouble := s.Status().Trouble; trouble == nil || trouble.Cause != c.cause || !strings.Contains(trouble.Reason, c.says) {
				t.Errorf("trouble %+v, want %s", trouble, c.cause)
			}
			if s.Ready() == nil {
				t.Error("the slave says that it is ready")
			}
			eventually(t, "the master tells who left, and why", func() bool {
				left := m.Status().Departed
				return len(left) == 1 && strings.Contains(left[0].Reason, c.says)
			})
		})
	}
}

func setCluster(t *testing.T, store, id string) {
	t.Helper()
	shut(t, open(t, Options{Store: store, ClusterID: id}))
}

// spoil changes the time of birth in the second record of a closed store, which
// no checksum in the log covers: structure and length stay.
func spoil(t *testing.T, store string) {
	t.Helper()
	const bornAt = 47 // the last byte of the field, in a record
	path := filepath.Join(store, "commitlog", "00000000000000000000")
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var head [4]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		t.Fatal(err)
	}
	at := int64(binary.BigEndian.Uint32(head[:])) + bornAt
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := file.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// The newer connection of a replica takes the place of the older one.
func TestANewerConnectionReplacesTheOlder(t *testing.T) {
	m := openMaster(t, Options{})
	puts(t, m, 3)
	first := openSlave(t, m, Options{ReplicaID: "same"})
	follow(t, m, first)
	second := openSlave(t, m, Options{ReplicaID: "same"})
	follow(t, m, second)
	eventually(t, "the older one was told", func() bool { return strings.Contains(first.Status().Master.LastError, "took over") })
	if n := len(m.Status().Replicas); n > 1 {
		t.Errorf("%d replicas are counted", n)
	}
}

// Each side may keep to RocketMQ's protocol.
func TestPlainGoesWithExtended(t *testing.T) {
	for name, c := range map[string]struct{ master, slave WireMode }{
		"a plain slave":  {WireAuto, WirePlain},
		"a plain master": {WirePlain, WireAuto},
	} {
		t.Run(name, func(t *testing.T) {
			m := openMaster(t, Options{Wire: c.master})
			s := openSlave(t, m, Options{Wire: c.slave})
			puts(t, m, 20)
			follow(t, m, s)
			waitReplicas(t, m, 1)
			if got := m.Status().Replicas[0]; got.Mode != "plain" || got.FlushedOffset != nil {
				t.Errorf("the master shows %+v", got)
			}
			if got := s.Status().Master; got.Mode != "plain" || got.MaxOffset != nil {
				t.Errorf("the slave shows %+v", got)
			}
		})
	}
}

// A master that was not stopped cleanly may have lost what a replica holds: it
// begins a new epoch, and after a clean stop goes on in its own.
func TestEpochsOfAMaster(t *testing.T) {
	store := t.TempDir()
	open1 := func(abort bool) int32 {
		if abort {
			if err := os.WriteFile(filepath.Join(store, "abort"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := open(t, Options{Store: store})
		defer shut(t, m)
		puts(t, m, 1)
		return m.Status().Epoch
	}
	for i, c := range []struct {
		abort bool
		want  int32
	}{{false, 1}, {false, 1}, {true, 2}, {false, 2}, {true, 3}} {
		if got := open1(c.abort); got != c.want {
			t.Fatalf("start %d: epoch %d, want %d", i, got, c.want)
		}
	}
}
