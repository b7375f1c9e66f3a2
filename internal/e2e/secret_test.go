package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretFile makes a file with a secret and a line's end.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unproven reads from the metrics how many were refused for a reason.
func (n *node) unproven(reason string) (count int) {
	_, metrics := n.ask("/metrics")
	_, rest, _ := strings.Cut(metrics, fmt.Sprintf("haengine_ha_unproven_total{reason=%q} ", reason))
	_, _ = fmt.Sscan(rest, &count)
	return count
}

// A pair with one secret replicates and changes places; who does not know it gets
// nothing, confirms nothing, and is counted by the reason.
func TestOnlyWhoKnowsTheSecretReplicates(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	secret := secretFile(t, "a secret of these two nodes")
	with := []string{"--ha-secret-file", secret}
	m := serveMaster(t, "", append([]string{"--role", "SYNC_MASTER", "--slave-timeout", "60s", "--load", "200,500,0", "--load-outstanding", "8"}, with...)...)
	eventually(t, "there is a log", func() bool { return m.status(t).Max > 10_000 })

	for _, peer := range [][]byte{reports(0), reports(1), reports(m.status(t).Max), reports(-1, 0), []byte("GET / HTTP/1.1\r\n\r\n")} {
		c := dial(t, m.serving.HAListen)
		send(t, c, peer)
		if got := closedByPeer(t, c); len(got) > 112 || bytes.Contains(got, []byte("load")) {
			t.Errorf("%q gets %d bytes", peer, len(got))
		}
	}
	eventually(t, "they are counted", func() bool { return m.unproven("plain") == 5 })
	wrong := serveSlave(t, "", m.serving.HAListen, "--ha-secret-file", secretFile(t, "a secret of others, as long"))
	none := serveSlave(t, "", m.serving.HAListen)
	plain := serveSlave(t, "", m.serving.HAListen, "--wire", "plain")
	for name, s := range map[string]*node{"another secret": wrong, "none": none} {
		eventually(t, name+": it is refused", func() bool { return s.status(t).Master.State == "refused" })
		if st := s.status(t); st.Trouble == nil || st.Trouble.Cause != "auth" || !strings.Contains(st.Trouble.Remedy, "--ha-secret-file") {
			t.Errorf("%s: %+v", name, st.Trouble)
		}
	}
	for _, reason := range []string{"wrong-proof", "no-proof"} {
		eventually(t, reason+" is counted", func() bool { return m.unproven(reason) > 0 })
	}
	eventually(t, "the plain slave is counted", func() bool { return m.unproven("plain") > 5 })
	for _, s := range []*node{wrong, none, plain} {
		if end := s.status(t).Max; end != 0 {
			t.Errorf("a slave without the secret has %d bytes of the log", end)
		}
		s.stop(t)
	}
	if st := m.status(t); len(st.Replicas) != 0 || st.Confirmed != 0 || m.count(putOK) != 0 {
		t.Errorf("replicas %+v, confirmed %d, %d puts", st.Replicas, st.Confirmed, m.count(putOK))
	}

	s := serveSlave(t, "", m.serving.HAListen, append([]string{"--ha-listen", "127.0.0.1:0"}, with...)...)
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 100 })
	if c := s.promote(t); c.Role != "ASYNC_MASTER" {
		t.Errorf("%+v", c)
	}
	m.follow(t, s.serving.HAListen)
	eventually(t, "the old master follows", func() bool { st := m.status(t); return st.Master.State == "transferring" && st.Max == s.status(t).Max })
	m.stop(t)
	s.stop(t)
	mustEqual(t, m.store, s.store)
}

// The commands that ask a running node take the secret, and say that it is missing.
func TestTheCommandsTakeTheSecret(t *testing.T) {
	t.Parallel()
	secret := secretFile(t, "a secret of these two nodes")
	m, store := filledPair(t, 300, "--ha-secret-file", secret)
	flipByte(t, store, 50_000)
	other := secretFile(t, "a secret of others, as long")
	for _, args := range [][]string{
		{"log", "diff", "--store", store, "--with", m.serving.HAListen},
		{"repair", "--store", store, "--from", m.serving.HAListen, "--yes"},
		{"reseed", "--store", store, "--from", m.serving.HAListen, "--yes"},
	} {
		was := info(t, store)
		for _, c := range []struct {
			more []string
			says string
			code int
		}{
			{nil, "this node was given none", 1},
			{[]string{"--ha-secret-file", other}, "another secret", 1},
			{[]string{"--ha-secret-file", other + "x"}, "no such file", 2},
		} {
			r := run(t, append(args, c.more...)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) || info(t, store) != was {
				t.Errorf("%v %v: exit code %d, want %d\n%s", args, c.more, r.code, c.code, r.stderr)
			}
		}
		r := run(t, append(args, "--ha-secret-file", secret)...)
		want := 0
		if args[1] == "diff" {
			want = 1 // they differ
		}
		if r.code != want || strings.Contains(r.stdout, "next:") && !strings.Contains(r.stdout, "--ha-secret-file "+secret) {
			t.Errorf("%v with the secret: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	s := serveSlave(t, store, m.serving.HAListen, "--ha-secret-file", secret)
	eventually(t, "the slave has caught up", func() bool { return s.status(t).Queued == m.status(t).Max })
	s.stop(t)
	m.stop(t)
	mustEqual(t, m.store, store)
}
