package interop

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/interop/rocketmq"
)

func TestBothSidesBearKillsCutsAndBadLinks(t *testing.T) {
	const group = "5. Kills, cuts, idle and slow links"
	runChecks(t, group, []check{
		{name: "our slave is killed and comes back", direction: realToOurs, full: true, run: ourSlaveKilled},
		{name: "RocketMQ's slave is killed and comes back", direction: oursToReal, newest: true, run: realSlaveKilled},
		{name: "RocketMQ's master is killed and comes back", direction: realToOurs, full: true, run: realMasterKilled},
		{name: "our master is killed and comes back", direction: oursToReal, full: true, run: ourMasterKilled},
		{name: "connections cut and streams in pieces, our slave", direction: realToOurs, newest: true, run: ourSlaveCut},
		{name: "connections cut and streams in pieces, RocketMQ's slave", direction: oursToReal, full: true, run: realSlaveCut},
		{name: "a slow link to our slave", direction: realToOurs, full: true, run: ourSlaveSlow},
		{name: "a slow link to RocketMQ's slave", direction: oursToReal, newest: true, run: realSlaveSlow},
		{name: "RocketMQ's slave at our pace", direction: oursToReal, full: true, run: realSlavePaced},
		{name: "90 s of heartbeats in all four pairings", direction: bothWays, newest: true, run: idlePairs},
	})
}

func ourSlaveKilled(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	m.mixed(c.version, 1, 1<<20)
	store := filepath.Join(c.TempDir(), "ours")
	const kills = 5
	for range kills {
		s := serve(c, store, "--role", "SLAVE", "--master", m.address)
		_, before := ends(c, store)
		m.Order("phase size=1000,threads=1,seconds=1")
		eventually(c, "the slave goes on", func() bool { _, high := ends(c, store); return high > before })
		s.kill()
		m.Await("phase")
	}
	end := m.Ask("status", "status").Number("max_offset")
	s := openSlave(c, m.address, engine.Options{Store: store})
	s.has(end)
	s.close()
	m.Quit()
	c.figure("%d messages equal after %d kills", c.version.mustMatch(c, m.store, store), kills)
}

func realSlaveKilled(c *trial) {
	m := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	x := newMixer(c, c.version)
	store := filepath.Join(c.TempDir(), "real")
	const kills = 3
	for range kills {
		s := c.version.slave(c, store, m.address())
		m.acked(1)
		x.fill(m, 1<<20)
		// Killed while it makes its first file, RocketMQ does not load it again.
		eventually(c, "it has something", func() bool {
			r := m.Status().Replicas
			return len(r) == 1 && r[0].AckedOffset > 0
		})
		s.Kill()
		eventually(c, "it is gone", func() bool { return len(m.Status().Replicas) == 0 })
		x.fill(m, 1<<19)
	}
	s := c.version.slave(c, store, m.address())
	m.acked(1)
	s.Quit()
	m.close()
	c.figure("%d messages equal after %d kills", c.version.mustMatch(c, store, m.store), kills)
}

func realMasterKilled(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	s := openSlave(c, m.address, engine.Options{})
	const kills = 3
	for i := range kills {
		s.has(m.mixed(c.version, uint64(i), 1<<20).Number("max_offset"))
		m.Order("phase size=1000,threads=1,seconds=60")
		before := s.Status().MaxOffset
		eventually(c, "the slave follows", func() bool { return s.Status().MaxOffset > before+(1<<19) })
		m.Kill()
		m = c.version.masterAt(c, m.store, m.port)
	}
	end := m.mixed(c.version, 9, 1<<20).Number("max_offset")
	s.has(end)
	s.close()
	m.Quit()
	c.figure("%d messages equal after %d kills", c.version.mustMatch(c, m.store, s.store), kills)
}

func ourMasterKilled(c *trial) {
	store, port := filepath.Join(c.TempDir(), "ours"), fmt.Sprint("127.0.0.1:", rocketmq.FreePort(c))
	args := []string{"--ha-listen", port, "--plain-history", "first", "--load", "2000,1000,0"}
	d := serve(c, store, args...)
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), port)
	const kills = 3
	for range kills {
		before := s.Ask("status", "status").Number("max_offset")
		eventually(c, "the slave follows", func() bool { return s.Ask("status", "status").Number("max_offset") > before+(1<<19) })
		d.kill()
		d = serve(c, store, args...)
	}
	d.kill()
	m := openMaster(c, engine.Options{Store: store, HAListen: port})
	m.acked(1)
	s.Quit()
	m.close()
	c.figure("%d messages equal after %d kills", c.version.mustMatch(c, s.store, store), kills)
}

// pieces is short enough for every header and report to be cut somewhere.
const pieces = 40

func ourSlaveCut(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	x := newMixer(c, c.version)
	r := newRelay(c, m.address, link{pieces: pieces, seed: x.draw.Uint64()})
	s := openSlave(c, r.addr, engine.Options{})
	const cuts = 20
	for range cuts {
		before, n, some := s.Status().MaxOffset, r.accepted.Load(), int64(x.draw.IntN(5000))
		m.Order("phase size=300,threads=1,count=100")
		eventually(c, "the slave goes on", func() bool { return s.Status().MaxOffset > before+some })
		r.cut()
		eventually(c, "the slave is back", func() bool { return r.accepted.Load() > n })
		m.Await("phase")
	}
	s.has(m.Ask("status", "status").Number("max_offset"))
	m.inSync()
	s.close()
	m.Quit()
	c.figure("%d messages equal after %d cuts, in pieces of 1 to %d bytes", c.version.mustMatch(c, m.store, s.store), cuts, pieces)
}

func realSlaveCut(c *trial) {
	m := openMaster(c, engine.Options{Role: engine.SyncMaster, PlainHistory: engine.HistoryFirst})
	x := newMixer(c, c.version)
	r := newRelay(c, m.address(), link{pieces: pieces, seed: x.draw.Uint64()})
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), r.addr)
	const cuts = 4 // it comes back 5 s after each
	for range cuts {
		m.acked(1)
		x.fill(m, 1<<18) // each put must return PUT_OK
		n := r.accepted.Load()
		r.cut()
		eventually(c, "the slave is back", func() bool { return r.accepted.Load() > n && len(m.Status().Replicas) == 1 })
	}
	m.acked(1)
	s.Quit()
	m.close()
	c.figure("%d messages equal after %d cuts, in pieces of 1 to %d bytes", c.version.mustMatch(c, s.store, m.store), cuts, pieces)
}

const slow = 1 << 20 // bytes a second

func ourSlaveSlow(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	end := m.mixed(c.version, 1, 4<<20).Number("max_offset")
	r := newRelay(c, m.address, link{bytesPerSec: slow})
	begun := time.Now()
	s := openSlave(c, r.addr, engine.Options{})
	s.has(end)
	took := time.Since(begun)
	if n := r.accepted.Load(); n != 1 {
		c.Errorf("%d connections, want one", n)
	}
	s.close()
	m.Quit()
	c.figure("%d messages equal, %.1f MiB in %.1f s at 1 MiB/s", c.version.mustMatch(c, m.store, s.store), float64(end)/(1<<20), took.Seconds())
}

func realSlaveSlow(c *trial) {
	m := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	x := newMixer(c, c.version)
	x.fill(m, 4<<20)
	r := newRelay(c, m.address(), link{bytesPerSec: slow})
	begun := time.Now()
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), r.addr)
	m.acked(1)
	took := time.Since(begun)
	if n := r.accepted.Load(); n != 1 {
		c.Errorf("%d connections, want one", n)
	}
	s.Quit()
	c.version.mustMatch(c, s.store, m.store)
	c.figure("%.1f MiB in %.1f s at 1 MiB/s", float64(m.Status().MaxOffset)/(1<<20), took.Seconds())
	m.close()
}

func realSlavePaced(c *trial) {
	m := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	x := newMixer(c, c.version)
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	eventually(c, "the slave has reported", func() bool { return len(m.Status().Replicas) == 1 })
	fill := func() time.Duration {
		begun := time.Now()
		x.fill(m, 3<<20)
		m.acked(1)
		return time.Since(begun)
	}
	free := fill()
	m.SetTransferRate(slow)
	paced := fill()
	if paced < 2400*time.Millisecond || paced < 2*free {
		c.Errorf("3 MiB took %v without a pace, and %v at 1 MiB/s", free, paced)
	}
	s.Quit()
	m.close()
	c.figure("%d messages equal; 3 MiB in %.1f s, at 1 MiB/s in %.1f s", c.version.mustMatch(c, s.store, m.store), free.Seconds(), paced.Seconds())
}

// idlePairs leaves each of our and RocketMQ's masters alone with each of our
// and RocketMQ's slaves: nothing but heartbeats, and no connection is lost.
func idlePairs(c *trial) {
	const idle = 90 * time.Second
	theirs := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	ours := openMaster(c, engine.Options{PlainHistory: engine.HistoryFirst})
	newMixer(c, c.version).fill(ours, 1<<18)
	theirs.mixed(c.version, 1, 1<<18)
	var relays []*relay
	for i, master := range []string{theirs.address, ours.address()} {
		for j := range 2 {
			r := newRelay(c, master, link{})
			if j == 0 {
				openSlave(c, r.addr, engine.Options{})
			} else {
				c.version.slave(c, filepath.Join(c.TempDir(), fmt.Sprint("slave", i)), r.addr)
			}
			relays = append(relays, r)
		}
	}
	ours.acked(2)
	theirs.followedBy(2)
	time.Sleep(idle) // the time is the point
	for i, r := range relays {
		if n := r.accepted.Load(); n != 1 {
			c.Errorf("pairing %d made %d connections in %v of silence", i, n, idle)
		}
	}
	c.figure("one connection each in %v", idle)
}
