package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func diff(t *testing.T, code int, store, with string) logDiff {
	t.Helper()
	var d logDiff
	if err := json.Unmarshal([]byte(expect(t, code, "log", "diff", "--store", store, "--with", with, "--json").stdout), &d); err != nil {
		t.Fatal(err)
	}
	if d.Equal != (code == exitDone) {
		t.Errorf("equal is %v with exit code %d", d.Equal, code)
	}
	return d
}

func TestEqualLogsHaveNoDifference(t *testing.T) {
	a, b := fixture(t, "mixed"), fixture(t, "mixed")
	d := diff(t, exitDone, a, b)
	if d.From != 0 || d.To != 4207575 || d.Differs != nil {
		t.Errorf("%+v", d)
	}
	mustContain(t, expect(t, exitDone, "log", "diff", "--store", a, "--with", b).stdout, "result", "equal")
}

func TestAShorterLogIsNoDifference(t *testing.T) {
	a, b := fixture(t, "mixed"), fixture(t, "mixed")
	// The last segment is gone: the log ends at the filler before it.
	if err := os.Remove(filepath.Join(b, "commitlog", "00000000000004194304")); err != nil {
		t.Fatal(err)
	}
	if d := diff(t, exitDone, a, b); d.To != d.With.MaxOffset || d.To >= d.Store.MaxOffset {
		t.Errorf("%+v", d)
	}
	mustContain(t, expect(t, exitDone, "log", "diff", "--store", a, "--with", b).stdout, "result", "equal; "+a+" goes on for 18.8 KiB")
}

func TestTheFirstDifferenceIsNamedWithBothSides(t *testing.T) {
	a, b := fixture(t, "mixed"), fixture(t, "mixed")
	const at = 1346 + 200
	flipByte(t, b, at)
	flipByte(t, b, at+5000)
	d := diff(t, exitFailed, a, b)
	if d.Differs == nil || *d.Differs != at {
		t.Fatalf("%+v", d)
	}
	if d.StoreItem.Kind != "record" || d.StoreItem.Offset != 1346 || d.StoreItem.Size != 1451 || d.WithItem.Kind != "damage" || d.WithItem.Offset != 1346 {
		t.Errorf("here %+v, there %+v", d.StoreItem, d.WithItem)
	}
	o := expect(t, exitFailed, "log", "diff", "--store", a, "--with", b)
	mustContain(t, o.stdout, "they differ first at offset 1546", "record of topic")
	mustContain(t, o.stderr, "the logs differ at offset 1546")
}

func TestLogsWithoutACommonRangeAreReported(t *testing.T) {
	a, b := fixture(t, "mixed"), fixture(t, "mixed")
	for _, segment := range []string{"00000000000000000000", "00000000000001048576"} {
		if err := os.Remove(filepath.Join(b, "commitlog", segment)); err != nil {
			t.Fatal(err)
		}
	}
	for _, segment := range []string{"00000000000002097152", "00000000000003145728", "00000000000004194304"} {
		if err := os.Remove(filepath.Join(a, "commitlog", segment)); err != nil {
			t.Fatal(err)
		}
	}
	d := diff(t, exitFailed, a, b)
	if d.Differs != nil || d.From != d.To {
		t.Errorf("%+v", d)
	}
	mustContain(t, expect(t, exitFailed, "log", "diff", "--store", a, "--with", b).stderr, "no common range")
}
