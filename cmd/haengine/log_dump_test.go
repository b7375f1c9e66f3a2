package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func expectedDump(t *testing.T, name string) []string {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("..", "..", "testdata", name+".expected.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(want), "\n"), "\n")
}

func dumpLines(t *testing.T, code int, args ...string) []string {
	t.Helper()
	o := expect(t, code, append([]string{"log", "dump", "--json"}, args...)...)
	return strings.SplitAfter(strings.TrimSuffix(o.stdout, "\n"), "\n")
}

func TestDumpsEqualRocketMQsLineForLine(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		store := fixture(t, name)
		before := treeDigest(t, store)
		got, want := dumpLines(t, exitDone, "--store", store, "--marks"), expectedDump(t, name)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%s line %d of %d, want %d lines\ngot  %s\nwant %s", name, i+1, len(got), len(want), at(got, i), at(want, i))
			}
		}
		if treeDigest(t, store) != before {
			t.Errorf("%s: log dump changed the store", name)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

func TestDumpKeepsToRangeTopicKeyAndLimit(t *testing.T) {
	store := fixture(t, "mixed")
	all := expectedDump(t, "mixed")
	var records []string
	for _, line := range all {
		if strings.HasPrefix(line, `{"physicOffset"`) {
			records = append(records, line)
		}
	}
	var third struct {
		PhysicOffset int64
		Size         int64
		Topic        string
		Properties   map[string]string
	}
	if err := json.Unmarshal([]byte(records[2]), &third); err != nil {
		t.Fatal(err)
	}
	from, to := fmt.Sprint(third.PhysicOffset), fmt.Sprint(third.PhysicOffset+third.Size)
	only := []string{strings.TrimSuffix(records[2], "\n")}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--from", from, "--to", to}, only},
		{[]string{"--from", fmt.Sprint(third.PhysicOffset - 1), "--to", to}, only},
		{[]string{"--from", from, "--limit", "1"}, only},
		{[]string{"--key", third.Properties["KEYS"], "--limit", "0"}, nil},
		{[]string{"--key", strings.Fields(third.Properties["KEYS"])[0]}, only},
		{[]string{"--topic", third.Topic, "--limit", "1"}, only},
		{[]string{"--topic", "no such topic"}, nil},
	} {
		got := dumpLines(t, exitDone, append([]string{"--store", store}, c.args...)...)
		if strings.Join(got, "") != strings.Join(c.want, "") {
			t.Errorf("%v: got %q, want %q", c.args, got, c.want)
		}
	}
	o := expect(t, exitFailed, "log", "dump", "--store", store, "--from", "99999999")
	mustContain(t, o.stderr, "beyond the log, which ends at 4207575")
}

func TestDumpPrintsBodies(t *testing.T) {
	store := fixture(t, "killed")
	type record struct {
		Body       *string
		BodyLength int
		BodySha256 string
	}
	for _, as := range []string{"base64", "text", "none"} {
		for _, line := range dumpLines(t, exitDone, "--store", store, "--limit", "20", "--body", as) {
			var r record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("--body %s: %v: %s", as, err, line)
			}
			switch {
			case as == "none" && r.Body != nil:
				t.Fatalf("a body was printed: %s", line)
			case as == "base64":
				body, err := base64.StdEncoding.DecodeString(*r.Body)
				if err != nil || sha256Hex(body) != r.BodySha256 {
					t.Fatalf("body does not have its digest, %v: %s", err, line)
				}
			}
		}
	}
}

func sha256Hex(b []byte) string {
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:])
}

func TestDumpAsTextHasALineForEachRecord(t *testing.T) {
	store := fixture(t, "mixed")
	o := expect(t, exitDone, "log", "dump", "--store", store, "--marks")
	if got := strings.Count(o.stdout, "\n"); got != 336+4+1 {
		t.Errorf("%d lines, want 341", got)
	}
	mustContain(t, o.stdout, "filler to the end of segment 00000000000000000000", "4207575  end after 336 records", "prepared", "tags=TagA")
	for _, r := range o.stdout {
		if r < ' ' && r != '\n' {
			t.Fatalf("a control character %q reached the terminal", r)
		}
	}
}

func TestDumpGoesOnAfterDamage(t *testing.T) {
	store := fixture(t, "mixed")
	const broken = 1170 + 4 // the second record's magic
	flipByte(t, store, broken)
	got := dumpLines(t, exitFailed, "--store", store, "--marks")
	want := expectedDump(t, "mixed")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range got[:len(got)-1] {
		if i != 1 && got[i] != want[i] {
			t.Fatalf("line %d\ngot  %s\nwant %s", i+1, got[i], want[i])
		}
	}
	var damage struct {
		Damage, Offset, Size int64
		Kind, Segment        string
	}
	if err := json.Unmarshal([]byte(got[1]), &damage); err != nil {
		t.Fatal(err)
	}
	if damage.Damage != 1170 || damage.Offset != 1170 || damage.Size != 176 || damage.Kind == "" || damage.Segment != "00000000000000000000" {
		t.Errorf("damage line is %s", got[1])
	}
	mustContain(t, got[len(got)-1], `"messages":335`)
	mustContain(t, expect(t, exitFailed, "log", "dump", "--store", store).stderr, "damaged in 1 place")
}
