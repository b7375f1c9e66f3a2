package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// freeAddr is an address that nobody listened on a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// mustRun wants exit code 0 and gives what was printed.
func mustRun(t testing.TB, args ...string) string {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("haengine %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// The walk of the README: two nodes, put, tail, the master dies, tail reads on from
// the slave, and from the master when it is back.
func TestATailReadsOnFromTheSlaveWhenTheMasterIsKilled(t *testing.T) {
	t.Parallel()
	namesM, namesS := freeAddr(t), freeAddr(t)
	both := namesM + ";" + namesS
	clientM, ha := freeAddr(t), freeAddr(t)
	master := daemon{args: []string{"--role", "SYNC_MASTER", "--ha-listen", ha, "--client-listen", clientM, "--namesrv-listen", namesM}}
	m := master.serve(t)
	master.store = m.store
	s := serveSlave(t, "", ha, "--client-listen", "127.0.0.1:0", "--namesrv", namesM, "--namesrv-listen", namesS, "--slave-reads")
	eventually(t, "the slave is registered and in sync", func() bool {
		r := run(t, "topic", "list", "--namesrv", namesS)
		return r.code == 0 && len(m.status(t).Replicas) == 1
	})
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprint(i))
	}
	put := func(count string) (stored int) {
		var summary struct {
			Stored int `json:"stored"`
		}
		if err := json.Unmarshal([]byte(mustRun(t, "put", "--topic", "orders", "--size", "20", "--count", count, "--namesrv", both, "--json")), &summary); err != nil {
			t.Fatal(err)
		}
		return summary.Stored
	}
	if n := put("100"); n != 100 {
		t.Fatalf("%d are stored", n)
	}
	tail := func(args ...string) []string {
		var all []string
		for line := range strings.Lines(mustRun(t, append([]string{"tail", "--topic", "orders", "--namesrv", both}, args...)...)) {
			all = append(all, strings.TrimSpace(line))
		}
		slices.Sort(all)
		return all
	}
	slices.Sort(lines)
	if got := tail(); !slices.Equal(got, lines) {
		t.Fatalf("from the master: %v", got)
	}
	if got := tail("--group", "shop", "--limit", "40"); len(got) != 40 {
		t.Fatalf("the group reads %d", len(got))
	}
	eventually(t, "the slave knows the topic and the group", func() bool {
		return strings.Contains(run(t, "group", "list", "--namesrv", namesS).stdout, "shop") && strings.Contains(run(t, "topic", "list", "--namesrv", namesS).stdout, "orders")
	})

	m.kill()
	if got := tail(); !slices.Equal(got, lines) {
		t.Fatalf("from the slave: %v", got)
	}
	r := run(t, "put", "--topic", "orders", "--count", "1", "--size", "20", "--namesrv", both, "--patience", "200ms")
	if r.code != 1 || !strings.Contains(r.stderr, "no master is registered for broker broker-a (slave 1 ") || !strings.Contains(r.stderr, "haengine promote") {
		t.Errorf("a put without a master: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	m = master.serve(t)
	eventually(t, "the slave follows again", func() bool { r := m.status(t).Replicas; return len(r) == 1 && r[0].InSync })
	eventually(t, "puts are stored again", func() bool {
		return run(t, "put", "--topic", "orders", "--count", "1", "--size", "20", "--namesrv", both).code == 0
	})
	if got := tail(); len(got) != 101 {
		t.Errorf("with the master back: %d messages, want 101", len(got))
	}
	s.stop(t)
	m.stop(t)
	mustEqual(t, m.store, s.store)
}
