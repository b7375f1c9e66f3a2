package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

func verify(t *testing.T, code int, store string) verifyAnswer {
	t.Helper()
	var v verifyAnswer
	if err := json.Unmarshal([]byte(expect(t, code, "log", "verify", "--store", store, "--json").stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.OK != (code == exitDone) {
		t.Errorf("ok is %v with exit code %d", v.OK, code)
	}
	return v
}

func TestRocketMQsStoresVerify(t *testing.T) {
	for name, messages := range map[string]int64{"mixed": 336, "killed": 123} {
		store := fixture(t, name)
		before := treeDigest(t, store)
		v := verify(t, exitDone, store)
		if r := recoveredByRocketMQ(t, name); v.Messages != messages || v.Bytes != r.Max-r.Min || len(v.Problems) > 0 {
			t.Errorf("%s: %+v", name, v)
		}
		mustContain(t, expect(t, exitDone, "log", "verify", "--store", store).stdout, "\nok\n")
		if treeDigest(t, store) != before {
			t.Errorf("%s: log verify changed the store", name)
		}
	}
}

// problemAt tells whether a problem with this offset was found.
func problemAt(v verifyAnswer, offset int64) bool {
	return slices.ContainsFunc(v.Problems, func(p problem) bool { return p.Offset == offset })
}

func TestVerifyFindsDamageInARecord(t *testing.T) {
	for what, at := range map[string]int64{"size": 1346 + 1, "magic": 1346 + 5, "position": 1346 + 30, "body": 1346 + 100} {
		store := fixture(t, "mixed")
		flipByte(t, store, at)
		if v := verify(t, exitFailed, store); !problemAt(v, 1346) {
			t.Errorf("%s: damage at 1346 is not among %+v", what, v.Problems)
		}
	}
}

// queueUnit is the first unit of topic-3, queue 4, which points at the record
// at offset 0.
func queueUnit(t *testing.T, store string) string {
	t.Helper()
	path := filepath.Join(store, "consumequeue", "topic-3", "4", "00000000000000000000")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerifyFindsQueuesThatDisagreeWithTheLog(t *testing.T) {
	change := func(store string, at int64, b []byte) {
		f, err := os.OpenFile(queueUnit(t, store), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		kind string
		at   int64
		b    []byte
	}{
		{"wrong queue unit", 0, binary.BigEndian.AppendUint64(nil, 1170)},
		{"wrong queue unit", 8, binary.BigEndian.AppendUint32(nil, 1171)},
		{"wrong tags code", 12, binary.BigEndian.AppendUint64(nil, 7)},
	} {
		store := fixture(t, "mixed")
		change(store, c.at, c.b)
		v := verify(t, exitFailed, store)
		if len(v.Problems) != 1 || v.Problems[0].Kind != c.kind || v.Problems[0].Offset != 0 {
			t.Errorf("%s: found %+v", c.kind, v.Problems)
		}
	}
}

// With enableConsumeQueueExt RocketMQ writes an address where the tags code was.
func TestVerifyTakesAddressesOfQueueExtensionsForTagsCodes(t *testing.T) {
	store := fixture(t, "mixed")
	f, err := os.OpenFile(queueUnit(t, store), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, 1<<63+80), 12); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, exitDone, store); len(v.Problems) != 0 {
		t.Errorf("found %+v", v.Problems)
	}
}

func TestVerifyFindsAMissingQueue(t *testing.T) {
	store := fixture(t, "mixed")
	if err := os.RemoveAll(filepath.Dir(queueUnit(t, store))); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, exitFailed, store); !problemAt(v, 0) || v.Problems[0].Kind != "missing in queue" {
		t.Errorf("found %+v", v.Problems)
	}
}

func TestVerifyReportsAMissingLastSegment(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--load", "0,200KiB,20", "--load-outstanding", "4")
	waitUntil(t, func() bool { return len(m.puts()) == 20 })
	m.stopCleanly(t)
	whole := verify(t, exitDone, m.store)
	path, _ := segmentPath(m.store, whole.MaxOffset-1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	v := verify(t, exitFailed, m.store)
	if len(v.Problems) != 1 || v.Problems[0].Kind != "missing segment" || v.Problems[0].Offset != v.MaxOffset {
		t.Errorf("found %+v", v.Problems)
	}
	mustContain(t, expect(t, exitDone, "log", "info", "--store", m.store).stdout, "note: a node that opens", "missing segment")
	mustContain(t, expect(t, exitDone, "log", "diff", "--store", m.store, "--with", m.store).stdout, "note: a node that opens")
}

func TestSegmentsThatRetentionRemovesMeanwhileAreForgiven(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--load", "0,1KiB,3000", "--load-outstanding", "4")
	waitUntil(t, func() bool { return len(m.puts()) == 3000 })
	m.stopCleanly(t)
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: m.store})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first, _ := segmentPath(m.store, 0)
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	v := verifyAnswer{}
	v.verify(l, io.Discard)
	if !v.OK || len(v.Notes) != 1 {
		t.Errorf("found %+v, notes %q", v.Problems, v.Notes)
	}
}
