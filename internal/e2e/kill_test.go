package e2e

import (
	"testing"
	"time"
)

// A master that waits for its disk is killed 50 times while it writes, and
// sometimes while it recovers from that. What it reported is there each time.
func TestPutsThatReturnedOKSurviveKillsOfAWritingMaster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	draw := newDraw(t)
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(draw.Int64N(int64(to-from))) }
	d := daemon{store: t.TempDir(), args: masterArgs("--flush", "SYNC_FLUSH", "--segment-bytes", "64KiB",
		"--load", "0,200,0", "--load-outstanding", "16")}
	idle := daemon{store: d.store, args: masterArgs("--segment-bytes", "64KiB")}

	var ok []put
	var reported int64
	for i := range 50 {
		if draw.IntN(4) == 0 {
			recovering := idle.start(t)
			recovering.runFor(t, between(0, 40*time.Millisecond))
			recovering.kill()
		}
		n := d.serve(t)
		if n.serving.MaxOffset < reported {
			t.Fatalf("start %d finds the log to end at %d, a put that ends at %d had returned PUT_OK", i, n.serving.MaxOffset, reported)
		}
		eventually(t, "puts are confirmed", func() bool { return n.count(putOK) > 0 })
		n.runFor(t, between(0, 200*time.Millisecond))
		n.kill()
		round := confirmed(n.puts())
		ok = append(ok, round...)
		for _, p := range round {
			reported = max(reported, p.End)
		}
		mustVerify(t, d.store)
		mustHold(t, round, readLog(t, d.store))
	}
	n := idle.serve(t)
	n.stop(t)
	v := mustVerify(t, d.store)
	log := readLog(t, d.store)
	mustHold(t, ok, log)
	log.mustCountQueues(t)
	t.Logf("%d puts returned PUT_OK, %d records are in the log", len(ok), v.Messages)
}
