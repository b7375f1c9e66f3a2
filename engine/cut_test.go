package engine

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
)

// cuttingProxy carries connections to a target and cuts each behind a random
// number of bytes, for so many times.
func cuttingProxy(t *testing.T, target string, draw *rand.Rand, cuts, mostBytes int) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for n := 0; ; n++ {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				return
			}
			var from io.Reader = far
			if n < cuts {
				from = io.LimitReader(far, 1+draw.Int64N(int64(mostBytes)))
			}
			mu.Lock()
			open[near], open[far] = true, true
			mu.Unlock()
			pass := func(to io.Writer, from io.Reader) {
				_, _ = io.Copy(to, from)
				near.Close()
				far.Close()
			}
			all.Go(func() { pass(near, from) })
			all.Go(func() { pass(far, near) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// The middle of a chain is cut off from its master in mid-record, again and
// again, while another replica follows it and a reader reads it: whoever looks
// at the middle sees whole records only, and in the end all three are equal.
func TestAChainCutInMidRecordPassesOnWholeRecordsOnly(t *testing.T) {
	t.Parallel()
	cuts, mostBytes := 500, 20_000 // together less than the log
	if testing.Short() {
		cuts, mostBytes = 50, 200_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	a := openMaster(t, Options{FrameBytes: 4 << 10}) // less than a connection carries: a frame counts when it is whole
	for range 6000 {
		mustPut(t, a, message("t", int32(draw.IntN(4)), strings.Repeat("x", draw.IntN(2000))))
	}
	b := open(t, Options{Role: Slave, HAListen: "127.0.0.1:0", Master: cuttingProxy(t, a.HAAddr().String(), draw, cuts, mostBytes)})
	c := openSlave(t, b, Options{})
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for at := int64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			whole := b.log.DispatchedOffset()
			for r, err := range b.Records(at) {
				if at >= whole {
					break // a part of a record may stand there
				}
				if err != nil {
					t.Errorf("the middle's log at %d: %v", at, err)
					return
				}
				at = r.PhysicalOffset + int64(r.Size)
			}
		}
	})
	end := a.log.EndOffset()
	// A connection lost before its first frame delays the next one.
	for at := int64(0); b.log.EndOffset() < end; {
		at = b.log.EndOffset()
		eventually(t, "the middle goes on", func() bool { return b.log.EndOffset() > at })
	}
	for _, e := range []*Engine{b, c} {
		eventually(t, "all have the log", func() bool { return e.log.DispatchedOffset() == end })
		if s := e.Status(); s.State != StateServing {
			t.Errorf("%v: %s", s.State, s.Reason)
		}
	}
	close(stop)
	reader.Wait()
	sameLog(t, a, b)
	sameLog(t, a, c)
}
