package interop

import (
	"path/filepath"
	"testing"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
)

func TestAStoreChangesHandsAndBack(t *testing.T) {
	runChecks(t, "3. One store, taken over in turns", []check{
		{name: "our store read by queue", direction: oursToReal, run: func(c *trial) {
			m := openMaster(c, engine.Options{})
			x := newMixer(c, c.version)
			x.fill(m, 4<<20)
			m.close()
			want := serveByQueue(c, m.store)
			if got := c.version.mustServe(c, m.store); got != want {
				c.Errorf("RocketMQ serves %d messages, want %d", got, want)
			}
			c.figure("%d messages served by queue", want)
		}},
		{name: "clean, three times", direction: bothWays, newest: true, run: func(c *trial) { takeTurns(c, false) }},
		{name: "killed while writing, three times", direction: bothWays, newest: true, run: func(c *trial) { takeTurns(c, true) }},
	})
}

// takeTurns has our node and RocketMQ write to one store in turns. Whoever
// comes keeps every byte that was there, and both decode the same messages.
func takeTurns(c *trial, killed bool) {
	store := filepath.Join(c.TempDir(), "store")
	x := newMixer(c, c.version)
	var end int64
	var sum string
	for turn := range 3 {
		writeOurs(c, x, store, killed)
		end, sum = mustKeep(c, store, end, sum, true, killed)
		writeTheirs(c, store, end, uint64(turn), killed)
		end, sum = mustKeep(c, store, end, sum, true, killed)
	}
	served := c.version.mustServe(c, store)
	mustKeep(c, store, end, sum, false, killed)
	if queued := serveByQueue(c, store); queued != served {
		c.Errorf("we serve %d messages by queue, RocketMQ %d", queued, served)
	}
	c.figure("%d bytes kept over 6 changes; both serve %d messages by queue", end, served)
}

func writeOurs(c *trial, x *mixer, store string, killed bool) {
	if !killed {
		m := openMaster(c, engine.Options{Store: store})
		x.fill(m, 1<<20)
		m.close()
		return
	}
	m := openMaster(c, engine.Options{Store: store})
	x.fill(m, 1<<19)
	m.close()
	d := serve(c, store, "--ha-listen", "127.0.0.1:0", "--load", "0,1000,0")
	eventually(c, "our node writes", func() bool { return d.count("PUT_OK") > 500 })
	d.kill()
}

func writeTheirs(c *trial, store string, end int64, seed uint64, killed bool) {
	m := c.version.master(c, store)
	if m.end != end {
		c.Errorf("RocketMQ's recovery ends at %d, ours at %d", m.end, end)
	}
	m.mixed(c.version, seed, 1<<20)
	if !killed {
		m.Quit()
		return
	}
	before := m.Ask("status", "status").Number("max_offset")
	m.Order("phase size=1000,threads=2,seconds=60")
	eventually(c, "RocketMQ writes", func() bool {
		_, high := ends(c, store)
		return high > before+(1<<19)
	})
	m.Kill()
}

// mustKeep wants a store to hold what it held, and RocketMQ and our decoder to
// find the same messages in it, and more bytes than before if it was written. It
// returns its end and checksum.
func mustKeep(c *trial, store string, end int64, sum string, written, killed bool) (int64, string) {
	c.Helper()
	if end > 0 {
		if now := checksum(c, store, 0, end); now != sum {
			c.Fatalf("the first %d bytes changed", end)
		}
	}
	_, high := ends(c, store)
	if grown := high > end; grown != written {
		c.Fatalf("the log ended at %d and ends at %d", end, high)
	}
	theirs, ours := messages(c, c.version.output(c, "dump", "--store", store), 0), messages(c, haengine(c, "log", "dump", "--store", store, "--json"), 0)
	// A record that a kill has torn: RocketMQ's decoder takes one whose rest is
	// zeros for a message without a body. Its recovery does not, nor do we: the
	// next turn compares the two.
	if n := len(theirs); n == len(ours)+1 && killed {
		theirs = theirs[:n-1]
	}
	if c.version == v5 {
		mustAgree(c, theirs, ours)
	} else if len(theirs) != len(ours) {
		c.Fatalf("RocketMQ decodes %d messages, we %d:\n%.600s\n%.600s", len(theirs), len(ours), theirs[len(theirs)-1], ours[len(ours)-1])
	}
	return high, checksum(c, store, 0, high)
}

// serveByQueue opens a store with our recovery and reads every message of every
// queue. It returns how many.
func serveByQueue(c *trial, store string) (count int64) {
	c.Helper()
	open(c, engine.Options{Store: store}).close()
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: store})
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	for _, q := range l.Queues() {
		from, end, _ := l.QueueBounds(q)
		count += end - from
		for entries := make([]commitlog.QueueEntry, 100); from < end; {
			n, err := l.ReadQueue(q, from, entries)
			if err != nil || n == 0 {
				c.Fatalf("queue %v at %d: %d entries, %v", q, from, n, err)
			}
			for _, e := range entries[:n] {
				r, err := l.Read(e.Offset)
				if err != nil || r.QueueOffset != from || r.Size != e.Size {
					c.Fatalf("entry %d of queue %v points at %d: %v", from, q, e.Offset, err)
				}
				from++
			}
		}
	}
	return count
}
