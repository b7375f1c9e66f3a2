package e2e

import (
	"testing"
	"time"
)

// A master puts 100,000 messages and waits for a slave each time. One slave is
// killed and started again every second, a third follows that one, and another
// comes late. In the end all logs are equal, and what returned PUT_OK is there.
func TestLogsAreEqualAfterASlaveWasKilledEverySecond(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	t.Parallel()
	const (
		puts  = 100_000
		kills = 30
	)
	// The rate spreads the puts over the kills.
	m := serveMaster(t, "", "--role", "SYNC_MASTER", "--plain-identity", "connection",
		"--load", "3000,200,100000", "--load-outstanding", "64", "--load-replicas", "1")
	killed := serveSlave(t, "", m.serving.HAListen, "--ha-listen", "127.0.0.1:0")
	// The address stays the same over the restarts: the one behind it dials it again.
	restart := daemon{store: killed.store, args: slaveArgs(m.serving.HAListen, "--ha-listen", killed.serving.HAListen)}
	behind := serveSlave(t, "", killed.serving.HAListen)
	var late *node

	for i := range kills {
		if i == kills/3 {
			late = serveSlave(t, "", m.serving.HAListen)
		}
		killed.runFor(t, time.Second)
		killed.kill()
		killed = restart.serve(t)
	}
	eventually(t, "all puts have ended", func() bool { return m.ended() >= puts })
	all := m.puts()
	ok := confirmed(all)
	t.Logf("%d of %d puts returned PUT_OK", len(ok), len(all))
	if len(all) != puts || len(ok) < puts/2 {
		t.Errorf("%d puts ended, %d with PUT_OK; want %d, most of them with PUT_OK", len(all), len(ok), puts)
	}
	for _, p := range all {
		if p.Offset < 0 {
			t.Fatalf("put %+v was refused", p)
		}
	}
	end := m.status(t).Max
	slaves := []*node{killed, late, behind}
	for _, n := range slaves {
		eventually(t, "the slave has caught up", func() bool { return n.status(t).Queued == end })
	}
	for _, n := range append(slaves, m) {
		n.stop(t)
		if v := mustVerify(t, n.store); v.Messages != puts {
			t.Errorf("%s holds %d messages, want %d", n.store, v.Messages, puts)
		}
	}
	var logs []*logOf
	for _, n := range slaves {
		mustEqual(t, m.store, n.store)
		logs = append(logs, readLog(t, n.store))
	}
	for _, l := range logs {
		mustHold(t, ok, l) // they are equal, so each has them all
	}
	logs[0].mustCountQueues(t)
	mustHold(t, all, readLog(t, m.store))
}

// What a put's PUT_OK is worth: the master is lost at any moment, and a slave
// has the record.
func TestPutsThatReturnedOKAreOnASlaveWhenTheMasterIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	t.Parallel()
	draw := newDraw(t)
	m := serveMaster(t, "", "--role", "SYNC_MASTER", "--plain-identity", "connection",
		"--load", "0,200,0", "--load-outstanding", "64", "--load-replicas", "2")
	a := serveSlave(t, "", m.serving.HAListen)
	b := serveSlave(t, "", m.serving.HAListen)
	eventually(t, "puts are confirmed", func() bool { return m.count(putOK) > 1000 })
	a.kill() // what it had acknowledged stays true
	m.runFor(t, time.Duration(draw.Int64N(int64(200*time.Millisecond))))
	m.kill()
	ok := confirmed(m.puts())
	b.stop(t)
	mustHold(t, ok, readLog(t, a.store), readLog(t, b.store))
	mustVerify(t, a.store)
	mustVerify(t, b.store)
	t.Logf("%d puts had returned PUT_OK", len(ok))
}
