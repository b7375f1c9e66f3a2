package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// call is one system call of a trace: it began at one line and ended at
// another, other threads' lines between them.
type call struct {
	name, args, result string
	begin, end         int
}

var (
	whole      = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (.*)$`)
	unfinished = regexp.MustCompile(`^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)\) += (.*)$`)
)

// readTrace reads what strace -f wrote.
func readTrace(t *testing.T, path string) (calls []*call) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]*call{} // by thread
	for i, line := range strings.Split(string(b), "\n") {
		if m := whole.FindStringSubmatch(line); m != nil {
			calls = append(calls, &call{m[2], m[3], m[4], i, i})
		} else if m := unfinished.FindStringSubmatch(line); m != nil {
			open[m[1]] = &call{name: m[2], args: m[3], begin: i, end: 1 << 30}
			calls = append(calls, open[m[1]])
		} else if m := resumed.FindStringSubmatch(line); m != nil {
			if c := open[m[1]]; c != nil {
				c.args, c.result, c.end = c.args+m[2], m[3], i
				delete(open, m[1])
			}
		}
	}
	return calls
}

// synced tells whether a sync of a file or directory succeeded between two
// lines of the trace.
func synced(calls []*call, name, path string, after, before int) bool {
	for _, c := range calls {
		if c.name == name && strings.HasSuffix(c.args, "<"+path+">") && c.result == "0" && c.begin > after && c.end < before {
			return true
		}
	}
	return false
}

// confirmation is the line of a put in a trace.
type confirmation struct {
	put
	begin, end int
}

var printedPut = regexp.MustCompile(`^1<[^>]*>, "(\{.*\})\\n"`)

func confirmations(t *testing.T, calls []*call) (all []confirmation) {
	t.Helper()
	for _, c := range calls {
		m := printedPut.FindStringSubmatch(c.args)
		if c.name != "write" || m == nil {
			continue
		}
		text, err := strconv.Unquote(`"` + m[1] + `"`)
		if err != nil {
			t.Fatal(err)
		}
		p := confirmation{begin: c.begin, end: c.end}
		if err := json.Unmarshal([]byte(text), &p.put); err != nil {
			t.Fatal(err)
		}
		if p.Status == putOK {
			all = append(all, p)
		}
	}
	return all
}

// What a PUT_OK means is only as good as the order of the system calls before
// it: the segment before is synced to its end, the name of a new segment is
// synced with its directory, and a small file is renamed when it is synced and
// its directory synced after that.
func TestWhatAPutReliesOnIsSyncedBeforeItIsConfirmed(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a daemon under strace")
	}
	needTool(t, "strace")
	t.Parallel()
	trace := filepath.Join(t.TempDir(), "trace")
	const puts, segmentBytes = 300, 64 << 10
	m := daemon{
		wrap: []string{
			"strace", "-D", "-f", "-y", "-qq", "-s", "300", "-o", trace,
			"-e", "trace=openat,rename,renameat,renameat2,fsync,fdatasync,write", "-e", "signal=none",
		},
		args: masterArgs("--flush", "SYNC_FLUSH", "--segment-bytes", "64KiB", "--load", fmt.Sprintf("0,1000,%d", puts)),
	}.serve(t)
	eventually(t, "the puts are confirmed", func() bool { return m.count(putOK) == puts })
	m.stop(t)
	calls := readTrace(t, trace)
	ok := confirmations(t, calls)
	if len(ok) != puts {
		t.Fatalf("the trace has %d of %d confirmations", len(ok), puts)
	}
	segments := filepath.Join(m.store, "commitlog")
	name := func(offset int64) string {
		return filepath.Join(segments, fmt.Sprintf("%020d", offset-offset%segmentBytes))
	}

	rolls := 0
	for i := 1; i < len(ok); i++ {
		last, first := ok[i-1], ok[i]
		if name(last.Offset) == name(first.Offset) {
			continue
		}
		// One put at a time: the filler was written after the one was told
		// and before the other was appended.
		rolls++
		for _, path := range []string{name(last.Offset), name(first.Offset)} {
			if !synced(calls, "fdatasync", path, last.end, first.begin) {
				t.Errorf("put %+v was confirmed, and %s was not synced after the segment was full", first.put, path)
			}
		}
	}
	if rolls < 3 {
		t.Fatalf("%d segment borders were passed", rolls)
	}

	created, renamed := 0, 0
	for _, c := range calls {
		switch {
		case c.name == "openat" && strings.Contains(c.args, "O_EXCL") && strings.Contains(c.result, "<"+segments+"/"):
			created++
			path := c.result[strings.Index(c.result, "<")+1 : len(c.result)-1]
			for _, p := range ok {
				if name(p.Offset) != path {
					continue
				}
				if !synced(calls, "fdatasync", path, c.end, p.begin) || !synced(calls, "fsync", segments, c.end, p.begin) {
					t.Errorf("put %+v was confirmed, and the name of its segment was not synced", p.put)
				}
				break // the first in it
			}
		case strings.HasPrefix(c.name, "rename") && c.result == "0":
			renamed++
			quoted := strings.Split(c.args, `"`)
			from, to := quoted[1], quoted[3]
			if !synced(calls, "fdatasync", from, 0, c.begin) {
				t.Errorf("%s got its name before it was synced", to)
			}
			if !synced(calls, "fsync", filepath.Dir(to), c.end, 1<<30) {
				t.Errorf("%s: its directory was not synced after the rename", to)
			}
		}
	}
	if created < rolls || renamed < 3 {
		t.Errorf("the trace has %d new segments and %d renames", created, renamed)
	}
}
