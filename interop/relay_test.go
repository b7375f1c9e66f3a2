package interop

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// link is what a relay does to the bytes that pass.
type link struct {
	from        string // the address that the target sees; empty: any
	bytesPerSec int    // towards the slave; 0: no limit
	pieces      int    // bytes pass in pieces of 1 to so many; 0: as they come
	seed        uint64
	sent        func([]byte) // sees what goes to the slave; of one connection at a time
}

// relay stands between a slave, which dials it, and a master.
type relay struct {
	addr     string
	link     link
	accepted atomic.Int64
	mu       sync.Mutex
	target   string
	down     bool
	open     map[net.Conn]bool
}

func newRelay(t testing.TB, target string, l link) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: listener.Addr().String(), link: l, target: target, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.carry(c) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		r.setDown(true)
		all.Wait()
	})
	return r
}

// cut closes all connections; new ones are carried.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.Close()
	}
}

// setTarget cuts, and carries what comes to another master.
func (r *relay) setTarget(target string) {
	r.mu.Lock()
	r.target = target
	r.mu.Unlock()
	r.cut()
}

// setDown cuts, and refuses new connections until it is up again.
func (r *relay) setDown(down bool) {
	r.mu.Lock()
	r.down = down
	r.mu.Unlock()
	if down {
		r.cut()
	}
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		c.Close()
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) carry(slave net.Conn) {
	defer r.drop(slave)
	if !r.keep(slave) {
		return
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	if r.link.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(r.link.from)}
	}
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	master, err := dialer.Dial("tcp", target)
	if err != nil {
		return
	}
	defer r.drop(master)
	if !r.keep(master) {
		return
	}
	n := r.accepted.Add(1)
	var both sync.WaitGroup
	pass := func(to, from net.Conn, rate int, watch func([]byte), seed uint64) {
		r.pass(to, from, rate, watch, rand.New(rand.NewPCG(seed, uint64(n))))
		to.Close() // the other direction ends, too
		from.Close()
	}
	both.Go(func() { pass(master, slave, 0, nil, r.link.seed) })
	both.Go(func() { pass(slave, master, r.link.bytesPerSec, r.link.sent, r.link.seed+1) })
	both.Wait()
}

func (r *relay) drop(c net.Conn) {
	c.Close()
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
}

func (r *relay) pass(to io.Writer, from io.Reader, rate int, watch func([]byte), draw *rand.Rand) {
	buf := make([]byte, 32<<10)
	if rate > 0 {
		buf = buf[:max(min(len(buf), rate/50), 1)]
	}
	begun, passed := time.Now(), 0
	for {
		n, err := from.Read(buf)
		if watch != nil {
			watch(buf[:n])
		}
		for b := buf[:n]; len(b) > 0; {
			piece := len(b)
			if r.link.pieces > 0 {
				piece = min(piece, 1+draw.IntN(r.link.pieces))
			}
			if _, err := to.Write(b[:piece]); err != nil {
				return
			}
			b = b[piece:]
		}
		if err != nil {
			return
		}
		if passed += n; rate > 0 {
			time.Sleep(time.Until(begun.Add(time.Duration(float64(passed) / float64(rate) * float64(time.Second)))))
		}
	}
}
