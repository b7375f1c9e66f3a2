package interop

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestBothKindsOfSlavesInOneGroup(t *testing.T) {
	runChecks(t, "4. A mixed group", []check{
		{name: "our master counts its slaves by host", direction: oursToReal, newest: true, run: ourMasterOfBoth},
		{name: "RocketMQ's master with both kinds", direction: realToOurs, newest: true, run: realMasterOfBoth},
	})
}

// ourMasterOfBoth wants both kinds of slaves to count, and two slaves of one
// host to count as one.
func ourMasterOfBoth(c *trial) {
	m := openMaster(c, engine.Options{Role: engine.SyncMaster, InSyncReplicas: 3, SlaveTimeout: 2 * time.Second, PlainHistory: engine.HistoryFirst})
	second, third := newRelay(c, m.address(), link{from: "127.0.0.2"}), newRelay(c, m.address(), link{from: "127.0.0.3"})
	theirs := c.version.slave(c, filepath.Join(c.TempDir(), "real"), second.addr)
	// In RocketMQ's protocol, which carries no name, the host is the replica.
	plain := engine.Options{Wire: engine.WirePlain}
	ours, neighbour := openSlave(c, third.addr, plain), openSlave(c, third.addr, plain)
	replicas := func(n int) func() bool { return func() bool { return len(m.Status().Replicas) == n } }
	eventually(c, "three slaves on two hosts", replicas(3))
	x := newMixer(c, c.version)
	x.fill(m, 1<<20) // each put must return PUT_OK

	second.setDown(true)
	eventually(c, "RocketMQ's slave is gone", replicas(2))
	r, err := m.Put(context.Background(), &engine.Message{Topic: "t", Body: []byte("one host only")})
	if r.Status != engine.PutFlushSlaveTimeout || !errors.Is(err, engine.ErrNotReplicated) {
		c.Errorf("a put that two slaves of one host have: %v, %v; want FLUSH_SLAVE_TIMEOUT", r.Status, err)
	}
	second.setDown(false)
	eventually(c, "RocketMQ's slave is back", replicas(3))
	m.acked(3)
	x.fill(m, 1<<19)
	m.acked(3)
	theirs.Quit()
	ours.close()
	neighbour.close()
	m.close()
	n := c.version.mustMatch(c, theirs.store, m.store)
	c.version.mustMatch(c, theirs.store, ours.store)
	c.version.mustMatch(c, theirs.store, neighbour.store)
	c.figure("%d messages equal on all four", n)
}

func realMasterOfBoth(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"), "--role", "SYNC_MASTER", "--in-sync-replicas", "3")
	ours := openSlave(c, m.address, engine.Options{})
	theirs := c.version.slave(c, filepath.Join(c.TempDir(), "copy"), m.address)
	m.followedBy(2)
	e := m.Ask("phase size=1024,threads=4,seconds=3", "phase")
	if status := e["status"].(map[string]any); len(status) != 1 || status["PUT_OK"] == nil {
		c.Errorf("puts ended with %v", status)
	}
	end := m.mixed(c.version, 7, 1<<20).Number("max_offset")
	ours.has(end)
	m.followedBy(2)
	ours.close()
	theirs.Quit()
	m.Quit()
	n := c.version.mustMatch(c, m.store, ours.store)
	c.version.mustMatch(c, m.store, theirs.store)
	c.figure("%d messages equal on all three; %d puts returned PUT_OK", n, e.Number("messages"))
}
