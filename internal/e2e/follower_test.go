package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a broken or hostile master sends does not get into a slave's log, and
// the slave does not spin: it says what it met and tries again, later each time.
func TestASlaveKeepsItsLogAndDoesNotSpinWhateverItsMasterSends(t *testing.T) {
	t.Parallel()
	source := filledStore(t, 50)
	log, err := os.ReadFile(filepath.Join(source, "commitlog", firstSegment))
	if err != nil {
		t.Fatal(err)
	}
	end := info(t, source).Max
	log = log[:end]

	for _, c := range []struct {
		name  string
		then  func(c net.Conn) // after the whole log was sent
		state string           // of the master, as the slave sees it; empty: any
		says  string           // in last_error
	}{
		{"a negative size", func(c net.Conn) { sendAndWait(c, frame(end, -1)) }, "refused", "-1 bytes"},
		{"the smallest size", func(c net.Conn) { sendAndWait(c, frame(end, -1<<31)) }, "refused", "-2147483648 bytes"},
		{"the largest size", func(c net.Conn) { sendAndWait(c, frame(end, 0x7fffffff)) }, "refused", "2147483647 bytes"},
		{"a size beyond the segment", func(c net.Conn) { sendAndWait(c, frame(end, 2<<20)) }, "refused", "1048576"},
		{"an offset beyond its end", func(c net.Conn) { sendAndWait(c, frame(end+1, 8)) }, "refused", fmt.Sprint(end + 1)},
		{"an offset before its end", func(c net.Conn) { sendAndWait(c, frame(end-1, 8)) }, "refused", fmt.Sprint(end - 1)},
		{"a negative offset", func(c net.Conn) { sendAndWait(c, frame(-8, 8)) }, "refused", "-8"},
		{"a close in mid-body", func(c net.Conn) { _, _ = c.Write(append(frame(end, 100), 1, 2, 3)) }, "", "connection"},
		{"a reset in mid-header", func(c net.Conn) {
			_, _ = c.Write(frame(end, 100)[:7])
			_ = c.(*net.TCPConn).SetLinger(0)
		}, "", ""},
		{"silence", func(c net.Conn) { sendAndWait(c, nil) }, "", "silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := listenAsMaster(t, func(conn net.Conn, first int64) {
				if first < 0 || first > end {
					t.Errorf("first report %d, the log ends at %d", first, end)
					return
				}
				_, _ = conn.Write(append(frame(first, int32(end-first)), log[first:]...))
				c.then(conn)
			})
			s := serveSlave(t, "", m.addr, "--housekeeping", "1s", "--heartbeat", "300ms")
			var st status
			eventually(t, "the slave has met it", func() bool {
				st = s.status(t)
				return st.Max == end && m.accepted.Load() >= 2 && st.Master.LastError != "" && (c.state == "" || st.Master.State == c.state)
			})
			if !strings.Contains(st.Master.LastError, c.says) {
				t.Errorf("last error %q, want %q in it", st.Master.LastError, c.says)
			}
			tries := m.accepted.Load()
			s.mustIdle(t, 2*time.Second)
			if more := m.accepted.Load() - tries; more > 30 {
				t.Errorf("%d connections in 2 seconds", more)
			}
			if lines := s.logLines(`"level":"WARN"`); len(lines) == 0 || len(lines) > 4 {
				t.Errorf("%d warnings within seconds, want some and no flood: %q", len(lines), lines)
			}
			s.stop(t)
			mustEqual(t, source, s.store)
			mustVerify(t, s.store)
		})
	}
}

// sendAndWait sends and then waits for the slave to close.
func sendAndWait(c net.Conn, b []byte) {
	_, _ = c.Write(b)
	_, _ = io.Copy(io.Discard, c)
}
