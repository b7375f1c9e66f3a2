package engine

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// drainTimeout is how long a peer may take to read why it is refused.
const drainTimeout = time.Second

// hello is what this node says of itself to another of its kind, but for what
// depends on the moment.
func (e *Engine) hello() transfer.Hello {
	id := e.identityNow()
	return transfer.Hello{
		VersionMin: transfer.VersionMin, VersionMax: transfer.VersionMax,
		ClusterID: id.ClusterID, ReplicaID: id.ReplicaID,
		SegmentBytes: e.log.SegmentBytes(), FrameBytes: e.opts.extendedFrameBytes(),
	}
}

// addEpoch begins a term in the log, durably.
func (e *Engine) addEpoch(n commitlog.Epoch) error {
	defer e.loadTerms()
	return e.log.AppendEpoch(n)
}

// loadTerms takes over the log's epochs after they have changed.
func (e *Engine) loadTerms() {
	own := e.log.Epochs()
	list := make([]transfer.Epoch, len(own))
	for i, o := range own {
		list[i] = transfer.Epoch(o)
	}
	e.terms.Store(&list)
}

// source is what frames tell of this node now.
func (e *Engine) source() transfer.Source {
	s := transfer.Source{End: e.served().End, Time: time.Now().UnixMilli(), FlushWanted: e.rings.flushedAwaited()}
	s.Confirmed = min(e.ConfirmedOffset(), s.End)
	if slave := e.slave.Load(); slave != nil {
		s.OnReplicas = slave.onReplicas.Load()
	} else {
		s.OnReplicas = e.Role() == SyncMaster && e.inSyncReplicas.Load() > 1
	}
	return s
}

// identify says of whom the connection is one: a haengine replica says so
// itself, and its newer connection takes the place of an older one.
func (r *replica) identify(acked int64) {
	r.claimed = acked
	hello, ok := r.session.Replica()
	if !ok {
		r.identity = r.e.identityOf(r.address)
		return
	}
	r.identity, r.extended = hello.ReplicaID, true
	if hello.Log.Empty() {
		r.claimed = 0
	} else {
		r.proved = true // its tail has our checksum
	}
	for _, other := range r.host.m.list() {
		if other.extended && other.identity == r.identity {
			other.host.loop.Post(func() {
				other.end(&transfer.RefusalError{Code: transfer.RefusedReplaced, Text: "a newer connection of replica " + r.identity + " from " + r.address.String() + " took over"})
			})
		}
	}
}

func (r *replica) mode() string {
	if r.extended {
		return modeExtended
	}
	return modePlain
}

// Values of mode in status.
const (
	modePlain    = "plain"
	modeExtended = "extended"
)

// prove computes the checksum that the replica's hello asks for, off the loop:
// it may have to be read from the disk.
func (r *replica) prove(from, to int64) {
	if r.proving {
		return
	}
	r.proving = true
	r.e.background.Add(1)
	go func() {
		defer r.e.background.Done()
		sum, err := r.e.log.Checksum(from, to)
		r.host.loop.Post(func() {
			r.proving = false
			if r.over {
				return
			}
			now := r.host.loop.Now()
			if err == nil {
				err = r.session.Prove(sum, now)
			}
			if err != nil {
				r.end(err)
				return
			}
			if r.reported(now) {
				r.send(now)
			}
		})
	}()
}

// end closes the connection with a reason, which a haengine replica is told
// first, if that can be.
func (r *replica) end(why error) {
	words := r.session.LastWords(why)
	if words == nil || r.out.active {
		r.conn.Close(why)
	} else {
		sayAndClose(r.conn, words, why)
	}
	r.leave(why) // from here on it counts for nothing
}

// sayAndClose sends a last message and closes. What the socket does not take at
// once is not waited for.
func sayAndClose(c *reactor.Conn, words []byte, why error) {
	if n, err := c.Writev([][]byte{words}); err != nil || n < len(words) {
		c.Close(why)
		return
	}
	c.CloseDrained(why, drainTimeout)
}

// noteDamage tells of damage that the replica found in its copy.
func (r *replica) noteDamage(offset int64) {
	if r.damaged.Swap(offset) == offset || offset < 0 {
		return
	}
	r.e.steady.warn("damage "+r.identity, "a replica found damage in its copy", "replica", r.address.String(), "replica_id", r.identity, "offset", offset)
}

func newTermID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}
