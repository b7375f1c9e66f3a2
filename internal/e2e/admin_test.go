package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// status is what /status answers, as far as tests look at it.
type status struct {
	Role      string `json:"role"`
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Min       int64  `json:"min_offset"`
	Max       int64  `json:"max_offset"`
	Flushed   int64  `json:"flushed_offset"`
	Confirmed int64  `json:"confirmed_offset"`
	Queued    int64  `json:"queued_offset"`
	Waiters   int    `json:"waiters"`
	Replicas  []struct {
		Address string `json:"address"`
		Acked   int64  `json:"acked_offset"`
		InSync  bool   `json:"in_sync"`
	} `json:"replicas"`
	Master *struct {
		State     string `json:"state"`
		Mode      string `json:"mode"`
		LastError string `json:"last_error"`
	} `json:"master"`
	ReplicaID string `json:"replica_id"`
	Trouble   *struct {
		Cause  string `json:"cause"`
		Reason string `json:"reason"`
		Remedy string `json:"remedy"`
	} `json:"trouble"`
}

// caller makes a connection for each question, so that none is left behind.
var caller = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ask gets a page of the admin address; code 0 means that it does not answer.
func (n *node) ask(path string) (code int, body string) {
	r, err := caller.Get("http://" + n.serving.AdminListen + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

func (n *node) status(t testing.TB) (s status) {
	t.Helper()
	code, body := n.ask("/status")
	if code != http.StatusOK {
		t.Fatalf("/status of %s: %d %s", n.store, code, body)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("/status has %s: %v", body, err)
	}
	return s
}

func (n *node) ready() bool {
	code, _ := n.ask("/readyz")
	return code == http.StatusOK
}

// cpuTime is what the process has used of the processors.
func (n *node) cpuTime(t testing.TB) time.Duration {
	t.Helper()
	const ticksPerSecond = 100 // USER_HZ, the same on all Linux that Go runs on
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n.pid()) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	// The name, in parentheses, may hold anything; the third field follows it.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += v
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// mustIdle lets the node run for a while in which it must not use more than a
// tenth of a processor.
func (n *node) mustIdle(t testing.TB, d time.Duration) {
	t.Helper()
	before, began := n.cpuTime(t), time.Now()
	n.runFor(t, d)
	if used, passed := n.cpuTime(t)-before, time.Since(began); used > passed/10 {
		t.Errorf("used %v of a processor in %v with nothing to do", used, passed)
	}
}
