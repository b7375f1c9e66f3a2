package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A store that RocketMQ wrote is cut at a record's border, and only when asked
// to.
func TestAStoreOfRocketMQIsCutAtABorder(t *testing.T) {
	store := fixture(t, "mixed")
	before := treeDigest(t, filepath.Join(store, "commitlog"))
	o := expect(t, exitDone, "repair", "--store", store, "--truncate-at", "1500")
	mustContain(t, o.stdout, "cut at", "offset 1346, the record border below 1500", "nothing was changed; --yes does it")
	if treeDigest(t, filepath.Join(store, "commitlog")) != before {
		t.Fatal("a dry run changes the log")
	}
	var r repair
	if err := json.Unmarshal([]byte(expect(t, exitDone, "repair", "--store", store, "--truncate-at", "1500", "--yes", "--json").stdout), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Done || r.Cut == nil || *r.Cut != 1346 || r.Bytes != r.MaxOffset-1346 || r.Records < 100 || len(r.Removed) == 0 || r.Replaced == "" {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(r.Kept); err != nil || info.Size() != r.Bytes {
		t.Errorf("kept in %q: %v", r.Kept, err)
	}
	mustContain(t, expect(t, exitDone, "log", "info", "--store", store).stdout, "0 to 1,346")
	expect(t, exitDone, "log", "verify", "--store", store)
	mustContain(t, expect(t, exitDone, "repair", "--store", store, "--truncate-at", "1346", "--yes").stdout, "nothing to do")
	mustContain(t, expect(t, exitFailed, "repair", "--store", store, "--truncate-at", "1347").stderr, "the log holds 0 to 1346")
}

// A directory that is no store is named, and nothing is made in it.
func TestOnlyStoresAreRepaired(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"repair", "--truncate-at", "0"}, {"reseed", "--from", "127.0.0.1:1"}} {
		mustContain(t, expect(t, exitFailed, append(args, "--store", dir, "--yes")...).stderr, "has no log")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in it: %v, %v", left, err)
	}
}

// An existing directory is one, whatever its name looks like.
func TestADirectoryComesBeforeANode(t *testing.T) {
	store := fixture(t, "mixed")
	t.Chdir(t.TempDir())
	if err := os.Mkdir("there:10912", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"there:10912": false, "./there:10912": false, "127.0.0.1:10912": true, "[::1]:10912": true, "host:1": true,
		"host": false, "host:port": false, "/no/such/dir": false, "host:99999": false,
	} {
		if isNode(name) != want {
			t.Errorf("%s is taken for a node: %v", name, !want)
		}
	}
	mustContain(t, expect(t, exitFailed, "log", "diff", "--store", store, "--with", "127.0.0.1:1").stderr, "nobody answers at 127.0.0.1:1")
}
