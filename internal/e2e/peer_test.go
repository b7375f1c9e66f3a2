package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dial connects to a node's HA port as a raw peer.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// reports encodes what a slave says it holds.
func reports(offsets ...int64) (b []byte) {
	for _, o := range offsets {
		b = binary.BigEndian.AppendUint64(b, uint64(o))
	}
	return b
}

// frame encodes the header of what a master sends.
func frame(offset int64, bytes int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(offset)), uint32(bytes))
}

// send writes to a peer that may hang up meanwhile.
func send(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(b)
}

// closedByPeer reads until the peer closes, and returns what it had sent.
func closedByPeer(t testing.TB, c net.Conn) []byte {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Fatalf("the connection is still open after %v", patience)
	}
	return b // a reset is a close, too
}

// fakeMaster is a master that does what a test tells it.
type fakeMaster struct {
	addr     string
	accepted atomic.Int64
}

// listenAsMaster calls serve for each connection, with its slave's first
// report, on a goroutine of its own; the connection is closed when it returns.
// Like RocketMQ's master it is silent on -1 and waits for the next report.
func listenAsMaster(t testing.TB, serve func(c net.Conn, first int64)) *fakeMaster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &fakeMaster{addr: l.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex
	open, over := map[net.Conn]bool{}, false
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.accepted.Add(1)
			mu.Lock()
			if over {
				c.Close()
			} else {
				open[c] = true
			}
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				var first [8]byte
				offset := int64(-1)
				for offset == -1 {
					if _, err := io.ReadFull(c, first[:]); err != nil {
						break
					}
					offset = int64(binary.BigEndian.Uint64(first[:]))
				}
				if offset != -1 {
					serve(c, offset)
				}
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		over = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return m
}
