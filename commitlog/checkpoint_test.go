package commitlog

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/internal/fixture"
)

func TestCheckpointOfRocketMQIsReadAndWrittenBackTheSame(t *testing.T) {
	dir := fixture.Unpack(t, "mixed")
	path := filepath.Join(dir, checkpointName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written := time.UnixMilli(1795963641036)
	c, err := readCheckpoint(OSDisk(), dir, written)
	want := Checkpoint{PhysicTimestamp: 1795963641036, LogicsTimestamp: 1795963641036, LogicsOffset: 0x402b57}
	if err != nil || c != want {
		t.Fatalf("%+v, %v; want %+v", c, err, want)
	}
	if got := c.minTimestamp(); got != 1795963641036-3000 {
		t.Errorf("least time %d", got)
	}
	if err := writeCheckpoint(OSDisk(), dir, c); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("written back as %s (%v), was %s", hex.EncodeToString(after[:64]), err, hex.EncodeToString(before[:64]))
	}
}

func TestCheckpointThatCannotBeBelievedIsSaidToBeDamaged(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for name, c := range map[string]struct {
		data []byte
		ok   bool
	}{
		"zeros":           {make([]byte, 4096), true},
		"empty":           {nil, false},
		"short":           {make([]byte, 47), false},
		"garbage":         {[]byte(strings.Repeat("garbage!", 512)), false},
		"negative":        {Checkpoint{ConfirmOffset: -1}.encode(), false},
		"from the future": {Checkpoint{LogicsTimestamp: now.UnixMilli() + 3_600_000}.encode(), false},
		"just now":        {Checkpoint{PhysicTimestamp: now.UnixMilli(), LogicsTimestamp: now.UnixMilli()}.encode(), true},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, checkpointName), c.data, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := readCheckpoint(OSDisk(), dir, now)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrCorrupt)) {
			t.Errorf("%s: %v, want it believed: %v", name, err, c.ok)
		}
		if err != nil && got != (Checkpoint{}) {
			t.Errorf("%s: %+v with an error", name, got)
		}
	}
	if c, err := readCheckpoint(OSDisk(), t.TempDir(), now); err != nil || c != (Checkpoint{}) {
		t.Errorf("missing: %+v, %v; want zeros", c, err)
	}
}

func TestAbortFileComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	abort := func(wantPID int, want bool) {
		t.Helper()
		if pid, exists, err := readAbort(OSDisk(), dir); pid != wantPID || exists != want || err != nil {
			t.Errorf("abort: %d %v %v, want %d %v", pid, exists, err, wantPID, want)
		}
	}
	abort(0, false)
	if err := writeAbort(OSDisk(), dir); err != nil {
		t.Fatal(err)
	}
	abort(os.Getpid(), true)
	for range 2 { // removing what is not there is done already
		if err := removeAbort(OSDisk(), dir); err != nil {
			t.Fatal(err)
		}
		abort(0, false)
	}
	// RocketMQ 4.x leaves it empty.
	if err := os.WriteFile(filepath.Join(dir, abortName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	abort(0, true)
}

func TestSecondLockOfAStoreIsRefusedNamingTheHolder(t *testing.T) {
	dir := t.TempDir()
	held, err := lockStore(OSDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeAbort(OSDisk(), dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, lockName)); err != nil || string(text) != "lock" {
		t.Errorf("lock file holds %q, %v", text, err)
	}
	second, err := lockStore(OSDisk(), dir)
	if !errors.Is(err, ErrLocked) || second != nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("second lock: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := lockStore(OSDisk(), dir)
	if err != nil {
		t.Fatalf("after the holder let go: %v", err)
	}
	third.Close()
}
