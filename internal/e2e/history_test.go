package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Which protocol a pair speaks is found out in band, whichever of both speaks
// only RocketMQ's.
func TestAPairSpeaksWhatBothKnow(t *testing.T) {
	t.Parallel()
	for _, master := range []string{"auto", "plain"} {
		m := serveMaster(t, "", "--wire", master, "--load", "0,500,100")
		eventually(t, "the master has its load", func() bool { return m.ended() == 100 })
		for _, slave := range []string{"auto", "plain"} {
			want := "plain"
			if master == "auto" && slave == "auto" {
				want = "extended"
			}
			s := serveSlave(t, "", m.serving.HAListen, "--wire", slave)
			eventually(t, fmt.Sprintf("a %s slave has all of a %s master", slave, master), func() bool { return s.status(t).Max == m.status(t).Max })
			if mode := s.status(t).Master.Mode; mode != want {
				t.Errorf("master %s, slave %s: mode %q, want %q", master, slave, mode, want)
			}
			s.stop(t)
		}
	}
}

// A master that leaves -1 without an answer is asked once: on the same
// connection the real offset follows after a second, and the next connection
// begins with it, at no cost in time. With --wire plain it is never asked.
func TestASilentMasterIsAskedOnce(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string][][]int64{
		"auto":  {{-1, 1}, {1}, {1}},
		"plain": {{1}, {1}, {1}},
	} {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			serveSlave(t, "", l.Addr().String(), "--wire", wire)
			var got [][]int64
			for range want {
				got = append(got, firstReports(t, l))
			}
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("reports on each connection: %v, want %v", got, want)
			}
		})
	}
}

// firstReports takes a connection of a slave's, reads reports up to the first
// that is an offset, sends a heartbeat, as RocketMQ's master does, and hangs up.
func firstReports(t *testing.T, l net.Listener) (all []int64) {
	t.Helper()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for len(all) == 0 || all[len(all)-1] < 0 {
		var b [8]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatalf("after the reports %v: %v", all, err)
		}
		all = append(all, int64(binary.BigEndian.Uint64(b[:])))
	}
	send(t, c, frame(all[len(all)-1], 0))
	return all
}

// An empty slave has its master's whole history, with the master's segment
// size, or begins where it was told to.
func TestAnEmptySlaveHasTheHistoryThatItWasToldToHave(t *testing.T) {
	t.Parallel()
	const segment = 64 << 10
	m := serveMaster(t, "", "--segment-bytes", "64KiB", "--load", "0,500,1000")
	eventually(t, "the master has its load", func() bool { return m.ended() == 1000 })
	end := m.status(t).Max
	for from, want := range map[string]int64{
		"first": 0, "last-segment": end - end%segment, fmt.Sprint(3*segment + 17): 3 * segment,
	} {
		s := serveSlave(t, "", m.serving.HAListen, "--segment-bytes", "64KiB", "--from", from)
		eventually(t, "the slave has the master's end", func() bool { return s.status(t).Max == end })
		if got := s.status(t).Min; got != want {
			t.Errorf("--from %s: the log begins at %d, want %d", from, got, want)
		}
		s.stop(t)
		mustVerify(t, s.store)
		if r := run(t, "log", "diff", "--store", s.store, "--with", m.store); r.code != 0 {
			t.Errorf("--from %s: exit code %d\n%s", from, r.code, r.stdout)
		}
	}
	for _, wrong := range []string{"last", "-1", "64KiB", ""} {
		if r := run(t, "serve", "--store", t.TempDir(), "--role", "SLAVE", "--master", m.serving.HAListen, "--from="+wrong); r.code != 2 || !strings.Contains(r.stderr, "--from") {
			t.Errorf("--from %q: exit code %d, %q", wrong, r.code, r.stderr)
		}
	}
}

// A slave that is seeded from a copy of its master's store proves its end, gets
// an identity of its own and goes on; a copy that is not the master's is refused
// with the command that helps.
func TestASlaveIsSeededFromACopy(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--load", "0,500,500")
	eventually(t, "the master has its load", func() bool { return m.ended() == 500 })
	m.stop(t)
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	for _, to := range []string{good, bad} {
		if err := os.CopyFS(to, os.DirFS(m.store)); err != nil {
			t.Fatal(err)
		}
	}
	spoilBirth(t, bad)
	m = serveMaster(t, m.store, "--load", "0,500,100")
	s := serveSlave(t, good, m.serving.HAListen)
	eventually(t, "the copy goes on", func() bool { return m.ended() == 100 && s.status(t).Max == m.status(t).Max })
	if s.status(t).ReplicaID == m.status(t).ReplicaID || len(s.logLines("looks like a copy")) != 1 {
		t.Errorf("replica id %s, the master's is %s", s.status(t).ReplicaID, m.status(t).ReplicaID)
	}
	other := serveSlave(t, bad, m.serving.HAListen)
	eventually(t, "the other one is refused", func() bool { return other.status(t).Master.State == "diverged" })
	if trouble := other.status(t).Trouble; trouble == nil || trouble.Cause != "diverged" ||
		!strings.Contains(trouble.Remedy, "haengine repair --store "+bad+" --from "+m.serving.HAListen) {
		t.Errorf("trouble %+v", trouble)
	}
	if code, _ := other.ask("/readyz"); code != 503 {
		t.Errorf("readiness is %d", code)
	}
	s.stop(t)
	m.stop(t)
	mustEqual(t, s.store, m.store)
}

// spoilBirth changes the time of birth in the first record of a closed store,
// which no checksum in the log covers: structure and length stay.
func spoilBirth(t *testing.T, store string) {
	t.Helper()
	const bornAt = 47 // the last byte of the field
	file, err := os.OpenFile(filepath.Join(store, "commitlog", "00000000000000000000"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], bornAt); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := file.WriteAt(b[:], bornAt); err != nil {
		t.Fatal(err)
	}
}
