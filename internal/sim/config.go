package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/haengine/haengine/transfer"
)

// Config is a run. The zero value of a size or a time is a default.
type Config struct {
	Seed         uint64
	Replicas     int  // of the master
	Cascade      bool // one more replica follows the first one
	HistoryFirst bool // an empty replica that reports 0 gets the whole log
	Extended     bool // all nodes speak the extended protocol if the peer does
	PlainMaster  bool // but for the first one

	// What may happen, beside what the network does.
	Fork       bool // the master's power is cut, and it may lose what was not durable
	Failover   bool // now and then another node becomes the master
	DiskFaults bool // disks fill up, and syncs fail
	BitFlips   bool // a byte of a replica that is down changes on its disk
	Pauses     bool // processes do nothing for seconds
	Jumps      bool // wall clocks jump

	Segment      int64         // bytes
	Preallocate  bool          // of segments
	SyncFlush    bool          // puts wait for the master's disk
	Copies       int           // puts wait for so many, the master included; 1: for none
	Ack          transfer.Kind // what they wait for on replicas, and what a plain report says
	RingSize     int           // puts that may wait for one thing
	OverlapBytes int64         // what a replica compares again
	FrameBytes   int           // largest body
	Rate         int64         // bytes a second to a live replica on a session; 0: no limit
	CatchUpRate  int64         // the same to one that is catching up
	CatchUpBytes int64         // behind by more it is; 0: the protocol's own
	PutEvery     time.Duration // at most, from one put to the next
	PutTimeout   time.Duration
	DownMax      time.Duration // how long a node is down at most

	Storm  time.Duration // how long faults come
	Settle time.Duration // how long it may take until all is well after that
	Trace  func(at time.Duration, text string)
}

func (c Config) filled() Config {
	or(&c.Segment, 8192)
	or(&c.Copies, 1)
	or(&c.RingSize, 64)
	or(&c.OverlapBytes, 256)
	or(&c.FrameBytes, 1000)
	or(&c.PutEvery, 200*time.Millisecond)
	or(&c.PutTimeout, 3*time.Second)
	or(&c.DownMax, 3*time.Second)
	or(&c.Storm, 60*time.Second)
	or(&c.Settle, 5*time.Minute)
	return c
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Chance gives what draws a seed's options.
func Chance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Draw draws all options of a run.
func Draw(r *rand.Rand) Config {
	yes := func() bool { return r.IntN(2) == 0 }
	c := Config{
		Replicas: r.IntN(6), HistoryFirst: yes(), Extended: r.IntN(4) > 0,
		Fork: yes(), Failover: yes(), DiskFaults: yes(), BitFlips: r.IntN(4) == 0, Pauses: yes(), Jumps: yes(),
	}
	c.Cascade = c.Replicas > 0 && yes()
	c.PlainMaster = c.Extended && r.IntN(6) == 0
	c.Failover = c.Failover && c.Replicas > 0 && !c.PlainMaster
	c.DrawSizes(r)
	return c
}

// DrawSizes draws what is a number or a mode.
func (c *Config) DrawSizes(r *rand.Rand) {
	c.Segment = 4096 << r.IntN(5)
	c.Preallocate = r.IntN(4) > 0
	c.SyncFlush = r.IntN(2) == 0
	c.Copies = 1 + r.IntN(min(c.Replicas, 3)+1)
	c.Ack = transfer.Kind(r.IntN(2))
	c.RingSize = 1 << r.IntN(8)
	if c.OverlapBytes = 1 + r.Int64N(1000); c.Fork || c.Failover {
		c.OverlapBytes = transfer.DefaultOverlapBytes // with few bytes two histories may look the same
	}
	c.FrameBytes = 50 + r.IntN(5000)
	c.PutEvery = time.Duration(20+r.IntN(300)) * time.Millisecond
	c.PutTimeout = time.Duration(100+r.IntN(5000)) * time.Millisecond
}

// String names what is not as always.
func (c Config) String() string {
	c.Trace = nil
	text := ""
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() && v.Type().Field(i).Name != "Seed" {
			text += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, f.Interface())
		}
	}
	return strings.TrimSpace(text)
}
