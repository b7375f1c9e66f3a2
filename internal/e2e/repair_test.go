package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// flipByte changes one byte of a stopped store's log, whose segments are 1 MiB.
func flipByte(t *testing.T, store string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", offset-offset%(1<<20))), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset%(1<<20)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b[:], offset%(1<<20)); err != nil {
		t.Fatal(err)
	}
}

// tell runs a command with --json and reads its answer, whatever the exit code.
func tell(t *testing.T, into any, args ...string) ran {
	t.Helper()
	r := run(t, append(args, "--json")...)
	if r.stdout != "" {
		if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
			t.Fatalf("haengine %v prints %q: %v", args, r.stdout, err)
		}
	}
	return r
}

// nodeDiff is the answer of log diff --with HOST:PORT.
type nodeDiff struct {
	With struct {
		Max int64 `json:"max_offset"`
	} `json:"with"`
	To      int64  `json:"common_to"`
	Equal   bool   `json:"equal"`
	Differs *int64 `json:"first_difference"`
	Item    *struct {
		Kind   string `json:"kind"`
		Offset int64  `json:"offset"`
		Topic  string `json:"topic"`
		Record *struct {
			QueueOffset int64 `json:"queue_offset"`
			Stored      int64 `json:"store_timestamp_ms"`
		} `json:"record"`
	} `json:"store_item"`
	Notes []string `json:"notes"`
}

// repaired is the answer of repair.
type repaired struct {
	Cut     *int64   `json:"cut_at"`
	Differs *int64   `json:"first_difference"`
	Bytes   int64    `json:"cut_bytes"`
	Records int64    `json:"cut_records"`
	Done    bool     `json:"done"`
	Kept    string   `json:"kept_in"`
	Notes   []string `json:"notes"`
}

// filledPair is a master with a load that has ended and a stopped slave's store
// with the same log.
func filledPair(t *testing.T, puts int, args ...string) (m *node, store string) {
	t.Helper()
	m = serveMaster(t, "", append([]string{"--load", fmt.Sprintf("0,500,%d", puts)}, args...)...)
	s := serveSlave(t, "", m.serving.HAListen, args...)
	eventually(t, "the slave has all", func() bool { return m.ended() == puts && s.status(t).Queued == m.status(t).Max })
	s.stop(t)
	return m, s.store
}

// mustFollowAndEqual starts a store as a slave and wants both logs to be equal.
func mustFollowAndEqual(t *testing.T, m *node, store string) {
	t.Helper()
	s := serveSlave(t, store, m.serving.HAListen)
	eventually(t, "the slave has caught up", func() bool { return s.status(t).Queued == m.status(t).Max })
	s.stop(t)
	var d nodeDiff
	if r := tell(t, &d, "log", "diff", "--store", store, "--with", m.serving.HAListen); r.code != 0 || !d.Equal || d.To != d.With.Max {
		t.Errorf("after it: exit code %d, %+v\n%s", r.code, d, r.stderr)
	}
	m.stop(t)
	mustVerify(t, store)
	mustEqual(t, m.store, store)
}

// A byte of a stopped slave changes where no restart would notice it. It is
// found by comparing with the master, cut, kept, and fetched again.
func TestAChangedByteIsFoundAndRepairedFromTheMaster(t *testing.T) {
	t.Parallel()
	m, store := filledPair(t, 6000) // more than 3 segments
	var d nodeDiff
	if r := tell(t, &d, "log", "diff", "--store", store, "--with", m.serving.HAListen); r.code != 0 || !d.Equal {
		t.Fatalf("equal logs: exit code %d, %+v\n%s", r.code, d, r.stderr)
	}
	const at = 1_500_000
	flipByte(t, store, at)
	flipByte(t, store, at+700_000)
	d = nodeDiff{}
	r := tell(t, &d, "log", "diff", "--store", store, "--with", m.serving.HAListen)
	if r.code != 1 || d.Equal || d.Differs == nil || *d.Differs != at || d.Item == nil || d.Item.Offset > at || at-d.Item.Offset > 1000 ||
		d.Item.Topic != "load" || d.Item.Record == nil || d.Item.Record.Stored == 0 {
		t.Fatalf("exit code %d, %+v\n%s", r.code, d, r.stderr)
	}
	text := run(t, "log", "diff", "--store", store, "--with", m.serving.HAListen)
	if !strings.Contains(text.stdout, "they differ first at offset 1500000") || !strings.Contains(text.stdout, fmt.Sprintf("from %d", d.Item.Offset)) {
		t.Errorf("log diff prints\n%s%s", text.stdout, text.stderr)
	}

	before := info(t, store)
	var plan, done repaired
	if r := tell(t, &plan, "repair", "--store", store, "--from", m.serving.HAListen); r.code != 0 || plan.Done || plan.Cut == nil || *plan.Cut != d.Item.Offset || plan.Bytes != before.Max-*plan.Cut || plan.Records < 1000 {
		t.Fatalf("dry: exit code %d, %+v\n%s", r.code, plan, r.stderr)
	}
	if after := info(t, store); after != before {
		t.Fatalf("a dry run changes the store from %+v to %+v", before, after)
	}
	if r := tell(t, &done, "repair", "--store", store, "--from", m.serving.HAListen, "--yes"); r.code != 0 || !done.Done || *done.Cut != *plan.Cut {
		t.Fatalf("exit code %d, %+v\n%s", r.code, done, r.stderr)
	}
	if kept, err := os.Stat(done.Kept); err != nil || kept.Size() != plan.Bytes {
		t.Errorf("kept in %s: %v, want %d bytes", done.Kept, err, plan.Bytes)
	}
	if end := info(t, store).Max; end != *plan.Cut {
		t.Errorf("the log ends at %d, was cut at %d", end, *plan.Cut)
	}
	var nothing repaired
	if r := tell(t, &nothing, "repair", "--store", store, "--from", m.serving.HAListen, "--yes"); r.code == 0 && nothing.Cut != nil {
		t.Errorf("once more: exit code %d, %+v", r.code, nothing)
	}
	mustFollowAndEqual(t, m, store)
}

// Damage before the flushed offset makes a node read-only. Cut there, it serves
// again and fetches what was cut.
func TestADamagedEndIsCutByHand(t *testing.T) {
	t.Parallel()
	m, store := filledPair(t, 500)
	end := info(t, store).Max
	flipByte(t, store, end-100)
	s := serveSlave(t, store, m.serving.HAListen)
	if s.status(t).State != "read-only" {
		t.Fatalf("state %s with a changed byte before the end", s.status(t).State)
	}
	if r := run(t, "repair", "--store", store, "--truncate-at", fmt.Sprint(end-100)); r.code != 1 || !strings.Contains(r.stderr, "in use by") {
		t.Errorf("repair beside the node: exit code %d\n%s", r.code, r.stderr)
	}
	mustStopByItself(t, s)
	if r := run(t, "repair", "--store", store, "--truncate-at", fmt.Sprint(end+1)); r.code != 1 || !strings.Contains(r.stderr, fmt.Sprintf("0 to %d", end)) {
		t.Errorf("beyond the end: exit code %d\n%s", r.code, r.stderr)
	}
	var done repaired
	if r := tell(t, &done, "repair", "--store", store, "--truncate-at", fmt.Sprint(end-100), "--yes"); r.code != 0 || !done.Done || *done.Cut >= end-100 || *done.Cut < end-2000 {
		t.Fatalf("exit code %d, %+v\n%s", r.code, done, r.stderr)
	}
	mustFollowAndEqual(t, m, store)
}

// Two masters have written in one epoch: no start of either repairs that, and
// both ways of making one the other's slave do.
func TestADivergedStoreIsRepairedOrSeededAnew(t *testing.T) {
	for _, how := range []string{"repair", "reseed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m, store := filledPair(t, 1000)
			common := m.status(t).Max
			m.kill() // a new epoch follows
			m = serveMaster(t, m.store, "--load", "0,500,400")
			eventually(t, "the master goes on", func() bool { return m.ended() == 400 })
			other := serveMaster(t, store, "--load", "0,500,100")
			eventually(t, "and so does its slave, alone", func() bool { return other.ended() == 100 })
			other.stop(t)
			s := serveSlave(t, store, m.serving.HAListen)
			eventually(t, "they are found to differ", func() bool { return s.status(t).Master.State == "diverged" })
			s.stop(t)
			was := info(t, store)

			args := []string{how, "--store", store, "--from", m.serving.HAListen}
			if r := run(t, args...); r.code != 0 || !strings.Contains(r.stdout, "nothing was changed") || info(t, store) != was {
				t.Fatalf("dry: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			var done struct {
				repaired
				ReplicaID string `json:"replica_id"`
			}
			if r := tell(t, &done, append(args, "--yes")...); r.code != 0 || !done.Done {
				t.Fatalf("exit code %d, %+v\n%s", r.code, done, r.stderr)
			}
			if how == "repair" {
				if done.Cut == nil || *done.Cut != common {
					t.Errorf("cut at %+v, both histories part at %d", done, common)
				}
			} else {
				kept := info(t, done.Kept)
				kept.Clean = was.Clean
				if kept != was || done.ReplicaID == "" {
					t.Errorf("set aside: %+v, was %+v", kept, was)
				}
				identity, err := os.ReadFile(filepath.Join(store, "haengine.identity"))
				if err != nil || !strings.Contains(string(identity), done.ReplicaID) {
					t.Errorf("the identity is %s: %v", identity, err)
				}
			}
			mustFollowAndEqual(t, m, store)
		})
	}
}

// Nothing is cut for a node that is not to be followed, or cannot be asked.
func TestNoStoreIsCutForAWrongNode(t *testing.T) {
	t.Parallel()
	m, store := filledPair(t, 50, "--cluster-id", "blue")
	m.stop(t)
	was := info(t, store)
	other := serveMaster(t, "", "--cluster-id", "green", "--load", "0,500,50")
	eventually(t, "the other cluster has a log", func() bool { return other.ended() == 50 })
	empty := serveMaster(t, "", "--cluster-id", "blue")
	plain := serveMaster(t, "", "--wire", "plain")
	for _, c := range []struct{ address, says string }{
		{other.serving.HAListen, `cluster "green"`},
		{empty.serving.HAListen, "its log is empty"},
		{plain.serving.HAListen, "RocketMQ broker, or a node with --wire plain"},
		{"127.0.0.1:1", "nobody answers at 127.0.0.1:1"},
	} {
		for _, how := range []string{"repair", "reseed"} {
			if r := run(t, how, "--store", store, "--from", c.address, "--yes"); r.code != 1 || !strings.Contains(r.stderr, c.says) {
				t.Errorf("%s from %s: exit code %d, want %q\n%s", how, c.address, r.code, c.says, r.stderr)
			}
		}
	}
	if after := info(t, store); after != was {
		t.Errorf("the store was %+v, is %+v", was, after)
	}
	// To look at it is another thing.
	var d nodeDiff
	if r := tell(t, &d, "log", "diff", "--store", store, "--with", other.serving.HAListen); r.code != 1 || d.Differs == nil || len(d.Notes) != 1 || !strings.Contains(d.Notes[0], `cluster "green"`) {
		t.Errorf("log diff: exit code %d, %+v\n%s", r.code, d, r.stderr)
	}
}
