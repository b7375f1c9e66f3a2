package engine

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// identityOn opens the identity of a store on a disk, as an engine does.
func identityOn(t *testing.T, disk commitlog.Disk, store string, o Options) (identity, string, error) {
	t.Helper()
	o.Disk, o.Store = disk, store
	logger, text := newTestLog(t, store)
	o.Logger = logger
	id, err := (&Engine{opts: o}).openIdentity(false)
	return id, text.String(), err
}

// fresh stands for a replica id that was not there before.
const fresh = "(fresh)"

func TestIdentityComesFromTheFileUnlessTheStoreIsACopy(t *testing.T) {
	full := &commitlog.TwinFault{Err: syscall.ENOSPC}
	for name, c := range map[string]struct {
		file             string // MARK: that of the directory it was made in; empty: none
		copied           bool   // the store is a copy of that directory
		clusterID        string
		replicaID        string
		noMark           bool
		full             bool
		cluster, replica string   // wanted
		err              error    // wanted
		warns            []string // wanted; nil: no warning
		after            []string // in the file afterwards; nil: it is as it was
	}{
		"first open":                   {replica: fresh, after: []string{`"mark":{"inode":`}},
		"first open with ids":          {clusterID: "c", replicaID: "r", cluster: "c", replica: "r", after: []string{`"cluster_id":"c"`, `"mark":{`}},
		"first open without a mark":    {noMark: true, replica: fresh, after: []string{`{"cluster_id":"","replica_id":"`}},
		"opened again":                 {file: `{"cluster_id":"c","mark":MARK,"replica_id":"r"}`, cluster: "c", replica: "r"},
		"copy":                         {file: `{"cluster_id":"c","mark":MARK,"replica_id":"r"}`, copied: true, cluster: "c", replica: fresh, warns: []string{"looks like a copy", "copy_of=r", "--replica-id"}, after: []string{`"cluster_id":"c"`}},
		"copy with a chosen id":        {file: `{"mark":MARK,"replica_id":"r"}`, copied: true, replicaID: "x", replica: "x", after: []string{`"replica_id":"x"`, `"mark":{`}},
		"copy that keeps its id":       {file: `{"mark":MARK,"replica_id":"r"}`, copied: true, replicaID: "r", replica: "r", after: []string{`"replica_id":"r"`, `"mark":{`}},
		"copy that joins a cluster":    {file: `{"mark":MARK,"replica_id":"r"}`, copied: true, clusterID: "c", cluster: "c", replica: fresh, warns: []string{"copy_of=r"}, after: []string{`"cluster_id":"c"`}},
		"copy where marks fail":        {file: `{"mark":MARK,"replica_id":"r"}`, copied: true, noMark: true, replica: "r"},
		"copy on a full disk":          {file: `{"mark":MARK,"replica_id":"r"}`, copied: true, full: true, err: syscall.ENOSPC},
		"copy of another cluster":      {file: `{"cluster_id":"c","mark":MARK,"replica_id":"r"}`, copied: true, clusterID: "d", err: ErrOtherCluster},
		"other cluster":                {file: `{"cluster_id":"c","replica_id":"r"}`, clusterID: "d", err: ErrOtherCluster},
		"no mark":                      {file: `{"cluster_id":"c","replica_id":"r"}`, cluster: "c", replica: "r", after: []string{`"replica_id":"r"`, `"mark":{"inode":`}},
		"no mark, full disk":           {file: `{"replica_id":"r"}`, full: true, replica: "r", warns: []string{"mark is not kept", "no space"}},
		"copy of a file without mark":  {file: `{"replica_id":"r"}`, copied: true, replica: "r", after: []string{`"mark":{"inode":`}},
		"mark that is a number":        {file: `{"mark":7,"replica_id":"r"}`, copied: true, replica: "r", after: []string{`"mark":{"inode":`}},
		"mark with half of it wrong":   {file: `{"mark":{"inode":1,"born":2},"replica_id":"r"}`, copied: true, replica: "r", after: []string{`"mark":{"inode":`}},
		"mark that is null":            {file: `{"mark":null,"replica_id":"r"}`, replica: "r", after: []string{`"mark":{"inode":`}},
		"broken mark where marks fail": {file: `{"mark":7,"replica_id":"r"}`, noMark: true, replicaID: "x", replica: "x", after: []string{`"mark":7`}},
		"mark that knows another part": {file: `{"mark":{"born":"2026-01-02T03:04:05Z"},"replica_id":"r"}`, replica: "r", after: []string{`"mark":{"inode":`}},
		"fields of another version":    {file: `{"zone":{"a":[1,"b"]},"mark":MARK,"replica_id":"r"}`, copied: true, replica: fresh, warns: []string{"copy_of=r"}, after: []string{`"zone":{"a":[1,"b"]}`}},
		"ids at their limit":           {file: `{"cluster_id":"` + strings.Repeat("ö", 127) + `","replica_id":"` + strings.Repeat("r", 255) + `"}`, cluster: strings.Repeat("ö", 127), replica: strings.Repeat("r", 255), after: []string{`"mark":`}},

		"empty file":                {file: ` `, err: ErrIdentity},
		"no JSON":                   {file: `{"replica_id":"r"`, err: ErrIdentity},
		"no object":                 {file: `["r"]`, err: ErrIdentity},
		"null":                      {file: `null`, err: ErrIdentity},
		"no replica id":             {file: `{"cluster_id":"c"}`, err: ErrIdentity},
		"a number for a replica id": {file: `{"replica_id":7}`, err: ErrIdentity},
		"replica id too long":       {file: `{"replica_id":"` + strings.Repeat("r", 256) + `"}`, err: ErrIdentity},
		"replica id with a newline": {file: `{"replica_id":"a\nb"}`, err: ErrIdentity},
		"cluster id too long":       {file: `{"cluster_id":"` + strings.Repeat("ö", 128) + `","replica_id":"r"}`, err: ErrIdentity},
		"cluster id with a C1 code": {file: "{\"cluster_id\":\"a\u0085\",\"replica_id\":\"r\"}", err: ErrIdentity},
		"bytes that are not UTF-8":  {file: "{\"replica_id\":\"r\xff\"}", err: ErrIdentity},
		"damage beats a chosen id":  {file: `{"replica_id":""}`, replicaID: "x", err: ErrIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			disk := commitlog.NewTwin(1)
			must(t, disk.MkdirAll("/a"))
			mark, err := disk.Mark("/a")
			must(t, err)
			text, err := json.Marshal(mark)
			must(t, err)
			before := strings.ReplaceAll(c.file, "MARK", string(text))
			if before != "" {
				must(t, disk.WriteFileAtomic("/a/"+identityFile, []byte(before)))
			}
			store := "/a"
			if c.copied {
				store = "/b"
				must(t, disk.CopyTree("/a", store))
			}
			if c.noMark {
				disk.Fail("mark", &commitlog.TwinFault{Err: errors.ErrUnsupported})
			}
			if c.full {
				disk.Fail("create", full)
			}
			id, log, err := identityOn(t, disk, store, Options{ClusterID: c.clusterID, ReplicaID: c.replicaID})
			disk.Fail("create", nil)
			disk.Crash()
			after, _ := disk.ReadFile(filepath.Join(store, identityFile))
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if c.after == nil && string(after) != before {
				t.Errorf("the file was changed to %s", after)
			}
			if err != nil {
				if !strings.Contains(err.Error(), filepath.Join(store, identityFile)) {
					t.Errorf("the error does not name the file: %v", err)
				}
				return
			}
			if id.ClusterID != c.cluster || id.ReplicaID != c.replica && (c.replica != fresh || id.ReplicaID == "r" || len(id.ReplicaID) < 20) {
				t.Errorf("identity %+v, want cluster %q, replica %q", id, c.cluster, c.replica)
			}
			if got := strings.Count(log, "level=WARN"); got != min(len(c.warns), 1) {
				t.Errorf("%d warnings: %s", got, log)
			}
			for _, part := range append(c.after, c.warns...) {
				if !strings.Contains(string(after)+log, part) {
					t.Errorf("%s is neither in the file %s nor in the log %s", part, after, log)
				}
			}
			if again, log, err := identityOn(t, disk, store, Options{}); err != nil || again != id || strings.Contains(log, "copy_of") {
				t.Errorf("opened again it is %+v, %v, was %+v: %s", again, err, id, log)
			}
		})
	}
}

// Each copy is a replica of its own, a copy of a copy included, and the first
// one stays what it was.
func TestCopiesOfCopiesHaveDifferentIdentities(t *testing.T) {
	disk := commitlog.NewTwin(1)
	must(t, disk.MkdirAll("/0"))
	seen := map[string]bool{}
	for i, store := range []string{"/0", "/1", "/2", "/3"} {
		if i > 0 {
			must(t, disk.CopyTree([]string{"/0", "/0", "/1"}[i-1], store))
		}
		id, _, err := identityOn(t, disk, store, Options{ClusterID: "c"})
		must(t, err)
		seen[id.ReplicaID] = true
	}
	if first, _, err := identityOn(t, disk, "/0", Options{}); err != nil || !seen[first.ReplicaID] || len(seen) != 4 || first.ClusterID != "c" {
		t.Errorf("%+v, %v; replicas %v", first, err, seen)
	}
}

func TestIdsThatCannotBeAreWrongSettings(t *testing.T) {
	for name, o := range map[string]Options{
		"cluster-id is 256 bytes long": {ClusterID: strings.Repeat("c", 256)},
		"replica-id is 256 bytes long": {ReplicaID: strings.Repeat("r", 256)},
		`cluster-id "a\x00"`:           {ClusterID: "a\x00"},
		`replica-id "\x7f"`:            {ReplicaID: "\x7f"},
		`replica-id "a\xff" is not`:    {ReplicaID: "a\xff"},
	} {
		o.Store = "s"
		if err := o.Validate(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	if err := (Options{Store: "s", ClusterID: "my cluster", ReplicaID: strings.Repeat("ö", 127)}).Validate(); err != nil {
		t.Error(err)
	}
}

// markedDir is a directory on a file system that tells a copy.
func markedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := commitlog.OSDisk().Mark(dir); err != nil {
		t.Skipf("no copy is noticed on this file system: %v", err)
	}
	return dir
}

func copyStore(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

func TestNodesOfOneCopiedStoreHaveDifferentReplicaIDs(t *testing.T) {
	dir := markedDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	first := openMaster(t, Options{Store: a, ClusterID: "c"})
	mustPut(t, first, message("topic", 0, "body"))
	was := first.Status().ReplicaID
	shut(t, first)
	copyStore(t, a, b)

	m := openMaster(t, Options{Store: a})
	logger, text := newTestLog(t, "the copy")
	s := openSlave(t, m, Options{Store: b, Logger: logger})
	if m, s := m.Status(), s.Status(); m.ReplicaID != was || s.ReplicaID == was || s.ReplicaID == "" || m.ClusterID != "c" || s.ClusterID != "c" {
		t.Errorf("was %s; the store is %s of %s, its copy %s of %s", was, m.ReplicaID, m.ClusterID, s.ReplicaID, s.ClusterID)
	}
	if got := text.String(); strings.Count(got, "looks like a copy") != 1 || !strings.Contains(got, "copy_of="+was) || !strings.Contains(got, "replica_id="+s.Status().ReplicaID) {
		t.Errorf("the log says %s", got)
	}
	waitReplicas(t, m, 1)
	r := mustPut(t, m, message("topic", 0, "more"))
	eventually(t, "the copy has the put", func() bool { return s.Status().MaxOffset == r.EndOffset })
	sameLog(t, m, s)
}

func TestStoresDirectoryMayBeRenamed(t *testing.T) {
	dir := markedDir(t)
	e := open(t, Options{Store: filepath.Join(dir, "a")})
	was := e.Status().ReplicaID
	shut(t, e)
	must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	must(t, os.Symlink("b", filepath.Join(dir, "link")))
	for _, name := range []string{"b", "link"} {
		logger, text := newTestLog(t, name)
		e := open(t, Options{Store: filepath.Join(dir, name), Logger: logger})
		if got := e.Status().ReplicaID; got != was || strings.Contains(text.String(), "level=WARN") {
			t.Errorf("opened as %s it is replica %s, was %s: %s", name, got, was, text)
		}
		shut(t, e)
	}
}

// A chosen id is kept with the copy: it need not be given again.
func TestAChosenReplicaIDStaysWithTheCopy(t *testing.T) {
	dir := markedDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	shut(t, open(t, Options{Store: a, ReplicaID: "one"}))
	copyStore(t, a, b)
	for _, o := range []Options{{ReplicaID: "two"}, {}} {
		o.Store = b
		e := open(t, o)
		if got := e.Status().ReplicaID; got != "two" {
			t.Errorf("given %q it is replica %s", o.ReplicaID, got)
		}
		shut(t, e)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
