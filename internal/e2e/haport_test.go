package e2e

import (
	"bytes"
	"math"
	"testing"
	"time"
)

// Whatever comes to the HA port that is no slave: it gets not one byte of the
// log, acknowledges nothing, is no replica, and is closed with a reason; the
// daemon does not spin over it.
func TestWhoIsNoSlaveIsClosedWithAReasonAndAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	const outside = "the log holds"
	for _, c := range []struct {
		name   string
		send   func(end int64) []byte
		reason string
	}{
		{"nothing", func(int64) []byte { return nil }, "no first report"},
		{"half a report", func(int64) []byte { return reports(0)[:4] }, "no first report"},
		{"minus one and silence", func(int64) []byte { return reports(-1) }, "no first report"},
		{"garbage", func(int64) []byte { return []byte("\xde\xad\xbe\xef\x00\x11\x22\x33\x44\x55\x66\x77\x88") }, outside},
		{"beyond the log", func(end int64) []byte { return reports(end + 1<<40) }, outside},
		{"negative", func(int64) []byte { return reports(-7) }, outside},
		{"the largest offset", func(int64) []byte { return reports(math.MaxInt64) }, outside},
		{"the smallest offset", func(int64) []byte { return reports(math.MinInt64) }, outside},
		{"HTTP", func(int64) []byte { return []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") }, outside},
		{"TLS", func(int64) []byte { return append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 506)...) }, outside},
		{"controller mode", func(int64) []byte { return []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2} }, "controller"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := serveMaster(t, "", "--role", "SYNC_MASTER", "--housekeeping", "1500ms", "--heartbeat", "500ms", "--load", "20,100,0")
			eventually(t, "there is a log", func() bool { return m.status(t).Max > 1000 })
			peer := dial(t, m.serving.HAListen)
			send(t, peer, c.send(m.status(t).Max))
			got := closedByPeer(t, peer)
			if c.name == "minus one and silence" && bytes.HasPrefix(got, reports(-1)) {
				got = nil // the hello that was asked for: no frame begins so
			}
			if len(got) > 0 {
				t.Errorf("%d bytes were sent to it", len(got))
			}
			eventually(t, "the reason is in the log", func() bool {
				return len(m.logLines(`"level":"WARN"`, peer.LocalAddr().String(), c.reason)) == 1
			})
			for range 20 { // the same again, to be seen if each costs
				send(t, dial(t, m.serving.HAListen), c.send(m.status(t).Max))
			}
			m.mustIdle(t, time.Second)
			st := m.status(t)
			if len(st.Replicas) != 0 || st.Confirmed > 0 {
				t.Errorf("replicas %+v, confirmed offset %d", st.Replicas, st.Confirmed)
			}
			if n := m.count("SLAVE_NOT_AVAILABLE"); n != m.ended() {
				t.Errorf("%d of %d puts found no slave; %d were confirmed", n, m.ended(), m.count(putOK))
			}
			if warnings := m.logLines(`"level":"WARN"`); len(warnings) > 2 {
				t.Errorf("%d warnings of one kind within a minute: %q", len(warnings), warnings)
			}
			m.stop(t)
		})
	}
}

// A slave that takes back what it said is closed; what it had said stays.
func TestASlaveThatReportsBackwardsIsClosed(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, filledStore(t, 20), "--role", "SYNC_MASTER")
	end := m.status(t).Max
	peer := dial(t, m.serving.HAListen)
	send(t, peer, reports(end))
	eventually(t, "it is a replica", func() bool { return len(m.status(t).Replicas) == 1 })
	confirmed := m.status(t).Confirmed
	send(t, peer, reports(end-1))
	closedByPeer(t, peer)
	eventually(t, "it is none any more", func() bool { return len(m.status(t).Replicas) == 0 })
	eventually(t, "the reason is in the log", func() bool { return len(m.logLines("replica left", "reported offset")) == 1 })
	if st := m.status(t); st.Confirmed != confirmed || confirmed != end {
		t.Errorf("the confirmed offset was %d and is %d, want %d", confirmed, st.Confirmed, end)
	}
	m.mustIdle(t, time.Second)
	m.stop(t)
}

// Many peers that are none do not keep a real slave out.
func TestASlaveIsServedBesideBadPeers(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--role", "SYNC_MASTER", "--plain-identity", "connection", "--load", "200,200,1000", "--load-replicas", "1")
	for range 50 {
		send(t, dial(t, m.serving.HAListen), []byte("GET /")) // less than a report
	}
	s := serveSlave(t, "", m.serving.HAListen)
	for range 50 {
		send(t, dial(t, m.serving.HAListen), []byte("GET / HTTP/1.1\r\n\r\n"))
	}
	eventually(t, "the puts are confirmed", func() bool { return m.count(putOK) == 1000 })
	if st := m.status(t); len(st.Replicas) != 1 {
		t.Errorf("replicas: %+v", st.Replicas)
	}
	eventually(t, "the slave has them queued", func() bool { return s.status(t).Queued == m.status(t).Max })
	s.stop(t)
	m.stop(t)
	mustEqual(t, m.store, s.store)
}
