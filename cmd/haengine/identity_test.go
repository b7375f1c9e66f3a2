package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// A store that was copied and started twice is two replicas, as the status has
// them.
func TestTwoNodesOfOneCopiedStoreAreTwoReplicas(t *testing.T) {
	dir := t.TempDir()
	if _, err := commitlog.OSDisk().Mark(dir); err != nil {
		t.Skipf("no copy is noticed on this file system: %v", err)
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	who := func(n *node) (s struct {
		ClusterID string `json:"cluster_id"`
		ReplicaID string `json:"replica_id"`
	}) {
		_, raw, err := fetchStatus(t.Context(), n.AdminListen)
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := startNode(t, "--store", a, "--cluster-id", "north", "--ha-listen", "127.0.0.1:0", "--load", "0,100,50")
	waitUntil(t, func() bool { return len(first.puts()) == 50 })
	was := who(first)
	first.stopCleanly(t)
	if out, err := exec.Command("cp", "-a", a, b).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	m := startNode(t, "--store", a, "--ha-listen", "127.0.0.1:0")
	s := startNode(t, "--store", b, "--role", "SLAVE", "--master", m.HAListen)
	if got := who(m); got != was {
		t.Errorf("the store is %+v, was %+v", got, was)
	}
	if got := who(s); got.ReplicaID == was.ReplicaID || got.ReplicaID == "" || got.ClusterID != "north" {
		t.Errorf("the copy is %+v, the store %+v", got, was)
	}
	waitUntil(t, func() bool { st := m.status(t); return len(st.Replicas) == 1 && st.Replicas[0].AckedOffset == st.Max })
}

func TestIdsThatCannotBeAreRefused(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	o := expect(t, exitUsage, "serve", "--store", store, "--replica-id", "a\nb", "--cluster-id", strings.Repeat("c", 256))
	mustContain(t, o.stderr, `--replica-id "a\nb" has a control character`, "--cluster-id is 256 bytes long, want at most 255", "Try: haengine help serve\n")
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("the store was touched: %v", err)
	}
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(store, "haengine.identity")
	if err := os.WriteFile(file, []byte(`{"replica_id":"a\tb"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o = expect(t, exitFailed, "serve", "--store", store, "--segment-bytes", "1MiB", "--admin-listen", "", "--ha-listen", "")
	mustContain(t, o.stderr, file, `replica_id "a\tb" has a control character`, "remove it")
}
