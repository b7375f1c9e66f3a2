package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// coordinator is what elects: it grants one lease at a time, each with a higher
// epoch, and the next one only when the last has ended.
type coordinator struct {
	mu    sync.Mutex
	epoch int32
	ends  time.Time
}

const leaseTTL = 2 * time.Second

// elect waits for the present lease's end and grants the next.
func (c *coordinator) elect() int32 {
	for {
		c.mu.Lock()
		if left := time.Until(c.ends); left > 0 {
			c.mu.Unlock()
			time.Sleep(left)
			continue
		}
		c.epoch++
		c.ends = time.Now().Add(leaseTTL)
		epoch := c.epoch
		c.mu.Unlock()
		return epoch
	}
}

func (c *coordinator) keep(epoch int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch || time.Now().After(c.ends) {
		return false
	}
	c.ends = time.Now().Add(leaseTTL)
	return true
}

// member is a node with its client of the coordinator.
type member struct {
	*Engine
	apart    atomic.Bool // it does not reach the coordinator
	deadline atomic.Int64
}

// lead makes a node the master that was elected, and keeps its lease alive for
// as long as both can and the test lasts.
func (n *member) lead(t *testing.T, c *coordinator) {
	t.Helper()
	epoch := c.elect()
	if _, err := n.Promote(context20(t), PromoteOptions{Role: SyncMaster, Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
	var keeper sync.WaitGroup
	first, over := make(chan struct{}), make(chan struct{})
	keeper.Go(func() {
		tick := time.NewTicker(leaseTTL / 20)
		defer tick.Stop()
		for given := false; ; {
			asked := time.Now()
			if !n.apart.Load() && c.keep(epoch) {
				until := asked.Add(leaseTTL - leaseTTL/10)
				if n.Renew(epoch, until) != nil {
					return
				}
				n.deadline.Store(int64(until.Sub(testStart)))
				if !given {
					given = true
					close(first)
				}
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() { close(over); keeper.Wait() })
	select {
	case <-first:
	case <-time.After(testTimeout):
		t.Fatal("no lease")
	}
}

var testStart = time.Now()

// valve carries connections to a target until it is shut.
func valve(t *testing.T, target string) (addr string, shut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	closed := false
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			if closed {
				near.Close()
				far.Close()
			}
			mu.Unlock()
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				near.Close()
				far.Close()
			}
			all.Go(func() { pass(near, far) })
			all.Go(func() { pass(far, near) })
		}
	})
	shut = sync.OnceFunc(func() {
		l.Close()
		mu.Lock()
		closed = true
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	t.Cleanup(shut)
	return l.Addr().String(), shut
}

// producer puts one message after the other until it is stopped, and keeps what
// was confirmed and when.
type producer struct {
	all  sync.WaitGroup
	stop context.CancelFunc
	mu   sync.Mutex
	ok   []PutResult
	last time.Duration // since testStart: when the last PUT_OK came
}

func produce(t *testing.T, on *Engine) *producer {
	p := &producer{}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = func() { cancel(); p.all.Wait() }
	t.Cleanup(p.stop)
	for range 4 {
		p.all.Go(func() {
			for ctx.Err() == nil {
				r, err := on.Put(ctx, message("t", 0, strings.Repeat("x", 500)))
				at := time.Since(testStart)
				if err == nil {
					p.mu.Lock()
					p.ok, p.last = append(p.ok, r), max(p.last, at)
					p.mu.Unlock()
				}
				time.Sleep(time.Millisecond) // the pace of a load, not a wait for something
			}
		})
	}
	return p
}

func (p *producer) confirmed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ok)
}

// A master that is cut off together with one replica goes on until its lease
// ends, and no further: what it had confirmed is in the one history that there
// is after the healing, and what it had not is cut.
func TestAMinorityStopsAtItsLease(t *testing.T) {
	t.Parallel()
	c := &coordinator{}
	o := Options{Leased: true, InSyncReplicas: 3, SlaveTimeout: time.Hour, HAListen: "127.0.0.1:0"}
	first := o
	first.Role = SyncMaster
	nodeA := &member{Engine: open(t, first)}
	a := nodeA.Engine
	nodeA.lead(t, c)
	b := openSlave(t, a, o)
	throughValve, separate := valve(t, a.HAAddr().String())
	o.Role, o.Master = Slave, throughValve
	nodeC := &member{Engine: open(t, o)}
	waitReplicas(t, a, 2)
	load := produce(t, a)
	eventually(t, "puts are confirmed by all three", func() bool { return load.confirmed() > 50 })

	// {a, b} from {c, coordinator}: nobody tells a.
	nodeA.apart.Store(true)
	separate()
	nodeC.lead(t, c)
	if s := a.Status(); s.State != StateFenced || s.Waiters > 0 || len(s.Replicas) > 0 {
		t.Errorf("another was elected, and the old master is %v with %d waiters and %d replicas", s.State, s.Waiters, len(s.Replicas))
	}
	load.stop()
	// Delivered to this goroutine a little after the engine handed it out; the
	// next lease begins a tenth of its length after this one's end.
	if deadline := time.Duration(nodeA.deadline.Load()); load.last > deadline+leaseTTL/10 {
		t.Errorf("a PUT_OK came %v after the lease's end", load.last-deadline)
	}
	confirmed, end := a.ConfirmedOffset(), a.log.EndOffset()
	if end == confirmed {
		t.Fatal("the minority appended nothing that it could not confirm")
	}
	if b.ConfirmedOffset() > confirmed {
		t.Errorf("its replica takes %d for confirmed, it does not do so itself above %d", b.ConfirmedOffset(), confirmed)
	}
	puts(t, nodeCAlone(t, nodeC.Engine), 3)

	for _, n := range []*Engine{a, b} {
		if _, err := n.Follow(context20(t), nodeC.HAAddr().String()); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*Engine{a, b} {
		follow(t, nodeC.Engine, n)
		for _, r := range load.ok {
			if _, err := n.Get(r.Offset); err != nil {
				t.Fatalf("what was confirmed at %d is gone: %v", r.Offset, err)
			}
		}
	}
	if err := nodeC.SetInSyncReplicas(3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "puts are confirmed by all three again", func() bool {
		_, err := nodeC.Put(context20(t), message("t", 0, "x"))
		return err == nil
	})
}

// nodeCAlone lets a new master confirm by itself, as an operator may.
func nodeCAlone(t *testing.T, n *Engine) *Engine {
	t.Helper()
	if err := n.SetInSyncReplicas(1); err != nil {
		t.Fatal(err)
	}
	return n
}

// Nobody in the majority may be elected: all stand still, and the old master
// goes on in a new epoch when it is back.
func TestAMinorityIsElectedAgainInANewEpoch(t *testing.T) {
	t.Parallel()
	c := &coordinator{}
	o := Options{Leased: true, HAListen: "127.0.0.1:0"}
	first := o
	first.Role = SyncMaster
	n := &member{Engine: open(t, first)}
	n.lead(t, c)
	s := openSlave(t, n.Engine, o)
	waitReplicas(t, n.Engine, 1)
	puts(t, n.Engine, 5)
	n.apart.Store(true)
	eventually(t, "it is fenced", func() bool { return n.Status().State == StateFenced })
	if _, err := n.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNoLease) {
		t.Errorf("put: %v", err)
	}
	eventually(t, "its slave waits for it", func() bool {
		status := s.Status().Master
		if status.State == "refused" {
			t.Fatalf("the slave takes that for good: %s", status.LastError)
		}
		return strings.Contains(status.LastError, "closed the connection")
	})
	epoch := n.Status().Epoch
	n.apart.Store(false)
	n.lead(t, c)
	if now := n.Status().Epoch; now <= epoch {
		t.Errorf("epoch %d after %d", now, epoch)
	}
	waitReplicas(t, n.Engine, 1)
	puts(t, n.Engine, 5)
	follow(t, n.Engine, s)
}
