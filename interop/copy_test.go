package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestOurSlaveIsACopyOfRocketMQsMaster(t *testing.T) {
	runChecks(t, "1. RocketMQ's master, our slave", []check{
		{name: "everything to an empty slave, and mixed traffic across segments", direction: realToOurs, run: everythingFromRocketMQ},
		{name: "the last segment to an empty slave of a log whose first is gone", direction: realToOurs, run: lastSegmentFromRocketMQ},
		{name: "a store that RocketMQ's slave wrote is continued", direction: realToOurs, run: slaveStoreContinued},
		{name: "an empty slave of an empty master", direction: realToOurs, run: emptySlaveOfRocketMQ},
		{name: "synchronous puts complete on our acknowledgements", direction: realToOurs, run: putsOnOurReports},
	})
}

// Alone, before the cases that run side by side.
func TestRocketMQsPutsWaitNoLongerForOurSlaveThanForItsOwn(t *testing.T) {
	runAlone(t, "1. RocketMQ's master, our slave", []check{
		{name: "latency of synchronous puts", direction: realToOurs, full: true, run: latencyOfRocketMQsPuts},
	})
}

func everythingFromRocketMQ(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	m.mixed(c.version, 1, 3<<20)
	begun := time.Now()
	s := openSlave(c, m.address, engine.Options{})
	eventually(c, "the slave has something", func() bool { return s.Status().MaxOffset > 0 })
	end := m.mixed(c.version, 2, 3<<20).Number("max_offset")
	s.has(end)
	took := time.Since(begun)
	if low := s.Status().MinOffset; low != 0 {
		c.Errorf("the copy begins at %d", low)
	}
	m.inSync()
	s.close()
	m.Quit()
	n := c.version.mustMatch(c, m.store, s.store)
	c.figure("%d messages, %d bytes in %d segments equal; %.1f s from the slave's start", n, end, (end+segmentBytes-1)/segmentBytes, took.Seconds())
}

// lastSegmentFromRocketMQ removes what our slave would ask for first: as
// RocketMQ's own slave, it then gets the last segment, and says so.
func lastSegmentFromRocketMQ(c *trial) {
	store := filledByRocketMQ(c, 1, 5<<19)
	if err := os.Remove(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", 0))); err != nil {
		c.Fatal(err)
	}
	m := c.version.master(c, store)
	s := openSlave(c, m.address, engine.Options{})
	eventually(c, "the slave has the end", func() bool { return s.Status().MaxOffset == m.end })
	end := m.mixed(c.version, 2, 1<<20).Number("max_offset")
	s.has(end)
	low := s.Status().MinOffset
	if low != 2*segmentBytes || len(s.log.lines("level=WARN", fmt.Sprint("min_offset=", low))) != 1 {
		c.Errorf("the copy begins at %d, the master's last segment did at %d; its log: %q", low, 2*segmentBytes, s.log.lines(""))
	}
	s.close()
	m.Quit()
	c.figure("%d messages from offset %d to %d equal", c.version.mustMatchFrom(c, low, m.store, s.store), low, end)
}

func emptySlaveOfRocketMQ(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	s := openSlave(c, m.address, engine.Options{})
	eventually(c, "the slave is connected", func() bool { return m.Ask("status", "status").Number("connections") == 1 })
	end := m.mixed(c.version, 3, 2<<20).Number("max_offset")
	s.has(end)
	s.close()
	m.Quit()
	c.figure("%d messages equal", c.version.mustMatch(c, m.store, s.store))
}

func slaveStoreContinued(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	m.mixed(c.version, 4, 2<<20)
	theirs := c.version.slave(c, filepath.Join(c.TempDir(), "copy"), m.address)
	m.inSync()
	theirs.Quit()
	low, before := ends(c, theirs.store)
	end := m.mixed(c.version, 5, 3<<20).Number("max_offset")
	s := openSlave(c, m.address, engine.Options{Store: theirs.store})
	s.has(end)
	s.close()
	m.Quit()
	n := c.version.mustMatchFrom(c, low, m.store, s.store)
	c.figure("RocketMQ copied %d to %d, we %d to %d; %d messages equal", low, before, before, end, n)
}

func putsOnOurReports(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"), "--role", "SYNC_MASTER")
	s := openSlave(c, m.address, engine.Options{})
	m.inSync()
	e := m.mixed(c.version, 6, 3<<20)
	if status := e["status"].(map[string]any); len(status) != 1 || status["PUT_OK"] == nil {
		c.Errorf("puts ended with %v", status)
	}
	s.has(e.Number("max_offset"))
	s.close()
	m.Quit()
	c.figure("%d puts, all PUT_OK; %d messages equal", e.Number("puts"), c.version.mustMatch(c, m.store, s.store))
}

// latencyOfRocketMQsPuts lets RocketMQ's producer wait for our slave and for
// RocketMQ's own, in turns, and compares.
func latencyOfRocketMQsPuts(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"), "--role", "SYNC_MASTER", "--segment-bytes", fmt.Sprint(64<<20))
	alone := func() bool { return m.Ask("status", "status").Number("connections") == 1 }
	measure := func(seconds int) (p50, p99 float64) {
		eventually(c, "one slave is connected", alone)
		m.inSync()
		e := m.Ask(fmt.Sprintf("phase size=1024,threads=1,seconds=%d", seconds), "phase")
		if status := e["status"].(map[string]any); len(status) != 1 || status["PUT_OK"] == nil {
			c.Fatalf("puts ended with %v", status)
		}
		return e.Float("p50_us"), e.Float("p99_us")
	}
	var p50, p99 [2][]float64 // ours, RocketMQ's
	stores := [2]string{filepath.Join(c.TempDir(), "ours"), filepath.Join(c.TempDir(), "copy")}
	for turn := range 10 {
		side := (turn + turn/2) % 2 // neither is always the first
		var stop func()
		if side == 0 {
			stop = openSlave(c, m.address, engine.Options{Store: stores[0], SegmentBytes: 64 << 20}).close
		} else {
			s := c.version.slave(c, stores[1], m.address, "--segment-bytes", fmt.Sprint(64<<20))
			stop = func() { s.Quit() }
		}
		// A virtual machine that has just begun compiles beside the puts, which
		// keeps processors awake that would sleep, and be slow to wake, between
		// two puts: half the latency, for the seconds that it lasts.
		measure(6)
		a, b := measure(2)
		p50[side], p99[side] = append(p50[side], a), append(p99[side], b)
		stop()
	}
	m.Quit()
	c.figure("p50 %.0f (%.0f to %.0f) µs with our slave, %.0f (%.0f to %.0f) µs with RocketMQ's; p99 %.0f and %.0f µs; medians of 5",
		median(p50[0]), slices.Min(p50[0]), slices.Max(p50[0]), median(p50[1]), slices.Min(p50[1]), slices.Max(p50[1]), median(p99[0]), median(p99[1]))
	// On a machine whose processors sleep in between, turns differ twofold.
	if slices.Min(p50[0]) > slices.Max(p50[1]) {
		c.Errorf("RocketMQ's puts take %.0f µs with our slave and %.0f µs with its own", p50[0], p50[1])
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func TestRocketMQsSlaveIsACopyOfOurMaster(t *testing.T) {
	runChecks(t, "2. Our master, RocketMQ's slave", []check{
		{name: "everything to an empty slave with plain history first", direction: oursToReal, run: everythingToRocketMQ},
		{name: "the last segment to an empty slave", direction: oursToReal, run: lastSegmentToRocketMQ},
		{name: "synchronous puts complete on its reports", direction: oursToReal, run: putsOnRocketMQsReports},
		{name: "records at the limits are read by RocketMQ", direction: oursToReal, run: recordsAtTheLimits},
		{name: "records that 4.9 cannot read are warned of once", direction: oursToReal, versions: []version{v4}, run: warnedOfV2},
	})
}

func everythingToRocketMQ(c *trial) {
	x := newMixer(c, c.version)
	m := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	x.fill(m, 3<<20)
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	m.acked(1)
	x.fill(m, 3<<20)
	m.acked(1)
	end := m.Status().MaxOffset
	s.Quit()
	m.close()
	n := c.version.mustMatch(c, s.store, m.store)
	served := c.version.mustServe(c, s.store)
	if want := serveByQueue(c, m.store); served != want {
		c.Errorf("RocketMQ serves %d messages by queue, we %d", served, want)
	}
	c.version.mustMatch(c, s.store, m.store) // after its own recovery
	c.figure("%d messages, %d bytes equal, also after its recovery; %d served by queue", n, end, served)
}

func lastSegmentToRocketMQ(c *trial) {
	x := newMixer(c, c.version)
	m := openMaster(c, engine.Options{})
	x.fill(m, 5<<19)
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	m.acked(1)
	x.fill(m, 1<<20)
	m.acked(1)
	s.Quit()
	m.close()
	low, high := ends(c, s.store)
	if low != 2*segmentBytes {
		c.Errorf("its copy begins at %d, the last segment did at %d", low, 2*segmentBytes)
	}
	c.figure("%d messages from offset %d to %d equal", c.version.mustMatchFrom(c, low, s.store, m.store), low, high)
}

func putsOnRocketMQsReports(c *trial) {
	x := newMixer(c, c.version)
	m := openMaster(c, engine.Options{Role: engine.SyncMaster})
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	eventually(c, "the slave has reported", func() bool { return len(m.Status().Replicas) == 1 })
	x.fill(m, 4<<20) // each put must return PUT_OK
	var took []float64
	for range 2000 {
		begun := time.Now()
		if _, err := m.Put(context.Background(), &engine.Message{Topic: "latency", Body: make([]byte, 1024)}); err != nil {
			c.Fatal(err)
		}
		took = append(took, float64(time.Since(begun).Microseconds()))
	}
	acked := m.Status()
	if r := acked.Replicas; len(r) != 1 || r[0].AckedOffset != acked.MaxOffset {
		c.Errorf("after the last put's PUT_OK at %d: %+v", acked.MaxOffset, r)
	}
	s.Quit()
	m.close()
	slices.Sort(took)
	c.figure("%d messages equal; p50 %.0f µs, p99 %.0f µs", c.version.mustMatch(c, s.store, m.store), took[len(took)/2], took[len(took)*99/100])
}

// recordsAtTheLimits puts what is just allowed and what is just too much.
func recordsAtTheLimits(c *trial) {
	m := openMaster(c, engine.Options{SegmentBytes: 16 << 20, PlainHistory: engine.HistoryFirst})
	properties := func(n int) string { return property("K", strings.Repeat("v", n-3)) }
	topic := func(n int) string { return strings.Repeat("t", n) }
	kept := 0
	for _, l := range []struct {
		what string
		m    engine.Message
		ok   bool
	}{
		{"properties of 32766 bytes", engine.Message{Topic: "t", Properties: properties(32766)}, true},
		{"properties of 32767 bytes", engine.Message{Topic: "t", Properties: properties(32767)}, true},
		{"properties of 32768 bytes", engine.Message{Topic: "t", Properties: properties(32768)}, false},
		{"properties of 65535 bytes", engine.Message{Topic: "t", Properties: properties(65535)}, false},
		{"properties of 65536 bytes", engine.Message{Topic: "t", Properties: properties(65536)}, false},
		{"a topic of 127 bytes", engine.Message{Topic: topic(127)}, true},
		{"a topic of 128 bytes", engine.Message{Topic: topic(128)}, false},
		{"a body of 4 MiB", engine.Message{Topic: "t", Body: make([]byte, 4<<20)}, true},
		{"a body of 4 MiB and a byte", engine.Message{Topic: "t", Body: make([]byte, 4<<20+1)}, false},
	} {
		for _, batch := range []bool{false, true} {
			end := m.Status().MaxOffset
			var err error
			if batch {
				_, err = m.PutBatch(context.Background(), []*engine.Message{&l.m})
			} else {
				_, err = m.Put(context.Background(), &l.m)
			}
			if grown := m.Status().MaxOffset > end; grown != l.ok || (err == nil) != l.ok {
				c.Errorf("%s, batch %v: %v, appended %v", l.what, batch, err, grown)
			}
			if l.ok {
				kept++
			}
		}
	}
	m.close()
	theirs := messages(c, c.version.output(c, "dump", "--store", m.store), 0)
	if len(theirs) != kept {
		c.Fatalf("RocketMQ reads %d of %d messages", len(theirs), kept)
	}
	mustAgree(c, theirs, messages(c, haengine(c, "log", "dump", "--store", m.store, "--json"), 0))
	c.figure("%d messages read as we do", kept)
}

func warnedOfV2(c *trial) {
	x := newMixer(c, v5) // with V2
	m := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	eventually(c, "the slave has reported", func() bool { return len(m.Status().Replicas) == 1 })
	x.fill(m, 4<<20)
	eventually(c, "the master warns", func() bool { return len(m.log.lines("level=WARN", "V2")) > 0 })
	x.fill(m, 1<<20)
	m.acked(1) // its slave copies what it cannot read
	m.close()
	if lines := m.log.lines("level=WARN", "V2"); len(lines) != 1 {
		c.Errorf("%d warnings: %q", len(lines), lines)
	}
}

// mustServe opens a store with RocketMQ's own recovery and has it read every
// message of every queue. It returns how many.
func (v version) mustServe(t testing.TB, store string) (count int64) {
	t.Helper()
	j := v.start(t, "recover", "--store", store, "--segment-bytes", fmt.Sprint(segmentBytes), "--read")
	r := j.Await("recovered")
	if r["ok"] != true {
		t.Fatalf("RocketMQ's recovery of %s: %v", store, r)
	}
	for {
		select {
		case e, ok := <-j.Events:
			switch {
			case !ok:
				t.Fatalf("%s ended with %v", j.Name(), j.State())
			case e["event"] == "failed":
				t.Fatalf("RocketMQ cannot serve %s: %v", store, e)
			case e["event"] == "queue":
				count += e.Number("messages")
			case e["event"] == "closed":
				<-j.Exited()
				if code := j.State().ExitCode(); code != 0 {
					t.Fatalf("exit code %d", code)
				}
				return count
			}
		case <-time.After(2 * patience):
			t.Fatalf("%s does not end", j.Name())
		}
	}
}
