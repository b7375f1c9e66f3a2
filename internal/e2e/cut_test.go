package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// A sealed segment is cut by somebody while a slave is on its way to it. The
// connection ends with an error that names segment and offset; the process
// lives and confirms nothing that it cannot read back.
func TestASegmentCutUnderACatchingUpSlaveIsNamedAndEndsTheWrites(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 8000) // more than 8 segments of 1 MiB
	m := serveMaster(t, store, "--plain-history", "first", "--transfer-rate", "2MiB", "--load", "100,1000,0")
	s := serveSlave(t, "", m.serving.HAListen)
	eventually(t, "the slave is on its way", func() bool { return s.status(t).Max > 100<<10 })
	const segment = "00000000000004194304"
	if err := os.Truncate(filepath.Join(store, "commitlog", segment), 4096); err != nil {
		t.Fatal(err)
	}
	after := m.status(t).Max

	eventually(t, "the master has met it", func() bool { return m.status(t).State == "read-only" })
	mustBeReadOnly(t, m, segment, fmt.Sprint(4194304+4096))
	eventually(t, "the log says so", func() bool { return len(m.logLines(`"level":"ERROR"`, segment)) > 0 })
	mustReadBack(t, store, segment, m.puts(), after)
	if st := s.status(t); st.Max > 4194304+4096 {
		t.Errorf("the slave holds %d bytes, the master's file was cut at %d", st.Max, 4194304+4096)
	}
	s.stop(t)
	mustVerify(t, s.store)
	mustStopByItself(t, m)
}

// The segment that is being written is cut: the next put that needs a page
// that is not there any more fails, and so do all later ones.
func TestTheOpenSegmentCutUnderLoadEndsTheWrites(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			m := serveMaster(t, "", "--flush", flush, "--load", "200,1000,0")
			const segment = "00000000000000000000"
			eventually(t, "the log has some pages", func() bool { return m.count(putOK) > 100 })
			if err := os.Truncate(filepath.Join(m.store, "commitlog", segment), 4096); err != nil {
				t.Fatal(err)
			}
			after := m.status(t).Max
			eventually(t, "the master has met it", func() bool { return m.status(t).State == "read-only" })
			mustBeReadOnly(t, m, segment)
			mustReadBack(t, m.store, segment, m.puts(), after)
			mustStopByItself(t, m)
		})
	}
}

// The file is cut inside the page that is being written. No access faults
// there, and yet what is written behind the cut is lost: a put that waits for
// the disk must not be told that it is there.
func TestTheOpenSegmentCutInsideItsLastPageConfirmsNothingBehindTheCut(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--flush", "SYNC_FLUSH", "--load", "20,50,0")
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 10 })
	// The process stands still while the file is cut, so that the cut is in the
	// page where it goes on.
	m.signal(t, syscall.SIGSTOP)
	end := readEnd(t, m.store)
	if end%4096 > 3000 || end%4096 < 8 {
		m.signal(t, syscall.SIGCONT)
		eventually(t, "the log's end is inside a page", func() bool { at := m.status(t).Max % 4096; return at > 300 && at < 2000 })
		m.signal(t, syscall.SIGSTOP)
		end = readEnd(t, m.store)
	}
	path := filepath.Join(m.store, "commitlog", "00000000000000000000")
	if err := os.Truncate(path, end-1); err != nil {
		t.Fatal(err)
	}
	m.signal(t, syscall.SIGCONT)
	eventually(t, "the master has met it", func() bool { return m.status(t).State == "read-only" })
	for _, p := range confirmed(m.puts()) {
		if p.Offset >= end {
			t.Errorf("put %+v returned PUT_OK, and its file ends at %d", p, end-1)
		}
	}
	mustStopByItself(t, m)
}

// readEnd finds where the log of a store ends.
func readEnd(t *testing.T, store string) int64 {
	t.Helper()
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: store})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.EndOffset()
}

// mustBeReadOnly wants a node that lives, refuses puts, and says why with the
// given parts.
func mustBeReadOnly(t *testing.T, n *node, parts ...string) {
	t.Helper()
	st := n.status(t)
	for _, part := range parts {
		if !strings.Contains(st.Reason, part) {
			t.Errorf("the reason does not name %s: %q", part, st.Reason)
		}
	}
	if n.ready() {
		t.Error("/readyz is 200 on a node that takes no puts")
	}
	if code, body := n.ask("/healthz"); code != http.StatusOK || !strings.Contains(body, "read-only") {
		t.Errorf("/healthz: %d %s", code, body)
	}
	const refused = "SERVICE_NOT_AVAILABLE"
	from := n.count(refused)
	eventually(t, "puts are refused", func() bool { return n.count(refused) > from+3 })
	puts := n.puts()
	for _, p := range puts[len(puts)-3:] {
		if p.Status != refused || p.Offset != -1 {
			t.Errorf("put %+v of a read-only node", p)
		}
	}
}

// mustReadBack wants each put that returned PUT_OK at or behind an offset to be
// in its segment's file, unless that is the one that was cut.
func mustReadBack(t *testing.T, store, cut string, puts []put, from int64) {
	t.Helper()
	for _, p := range confirmed(puts) {
		if p.Offset < from {
			continue
		}
		name := fmt.Sprintf("%020d", p.Offset-p.Offset%(1<<20))
		if name == cut {
			t.Errorf("put %+v returned PUT_OK after its segment was cut", p)
			continue
		}
		b, err := os.ReadFile(filepath.Join(store, "commitlog", name))
		if err != nil {
			t.Fatal(err)
		}
		at := p.Offset % (1 << 20)
		if r, err := commitlog.DecodeRecord(b[at : at+p.End-p.Offset]); err != nil || !strings.HasPrefix(string(r.Body), fmt.Sprint(p.Sequence)) {
			t.Errorf("put %+v returned PUT_OK; %s has there %v %v", p, name, r, err)
		}
	}
}

// mustStopByItself wants a node in trouble to end when asked to, one way or the
// other.
func mustStopByItself(t *testing.T, n *node) {
	t.Helper()
	n.signal(t, syscall.SIGTERM)
	if code := n.waitExit(t); code != 0 && code != 1 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
