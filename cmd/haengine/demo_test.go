package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func demoRun(t *testing.T, args ...string) (demoReport, outcome) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, append([]string{"demo", "--json", "--duration", "600ms", "--messages", "600"}, args...)...)
	var r demoReport
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Equal || !r.Confirmed || r.Messages != 600 || r.Statuses["PUT_OK"] != 600 || r.KilledAfter < 200 || r.RestartedAfter < 400 || r.Recovery <= 0 || r.P50 <= 0 {
		t.Errorf("report %+v\n%s", r, o.stderr)
	}
	return r, o
}

func TestTheDemoSurvivesAKilledSlaveAndLeavesNothing(t *testing.T) {
	r, o := demoRun(t)
	if len(r.Logs) != 2 {
		t.Errorf("%d logs compared, want 2", len(r.Logs))
	}
	mustContain(t, o.stderr, "killed with SIGKILL", "restarted and caught up")
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheDemoCopiesAGivenStoreAndKeepsItsOwn(t *testing.T) {
	store := fixture(t, "mixed")
	before := treeDigest(t, store)
	r, _ := demoRun(t, "--from-store", store, "--keep")
	if treeDigest(t, store) != before {
		t.Error("the given store was changed")
	}
	diff(t, exitDone, store, filepath.Join(r.Directory, "slave2"))
	mustContain(t, expect(t, exitDone, "log", "info", "--store", filepath.Join(r.Directory, "slave1"), "--json").stdout, `"messages":936`)
}

func TestTheDemosReportReadsWell(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, "demo", "--duration", "300ms", "--messages", "300", "--slaves", "1")
	mustContain(t, o.stdout, "What was shown", "returned PUT_OK", "SLAVE_NOT_AVAILABLE: stored on the master", "equal to the byte", "Try next")
}
