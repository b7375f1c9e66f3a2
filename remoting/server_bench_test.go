package remoting

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkEcho is requests a second of a handler that answers at once, a send's
// header and 1 KiB of body each way, by connections and requests that each has
// on the way.
func BenchmarkEcho(b *testing.B) {
	for _, bench := range []struct {
		name           string
		connections, n int
	}{
		{"1x1", 1, 1}, {"1x64", 1, 64}, {"64x1", 64, 1}, {"64x16", 64, 16},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := listen(b, echo, ServerOptions{})
			var c Command
			if err := ParseFrame(rawFrame(0, sendV2, string(make([]byte, 1024))), &c); err != nil {
				b.Fatal(err)
			}
			request := AppendFrame(nil, &c)
			b.ReportAllocs()
			b.SetBytes(int64(len(request)))
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for range bench.connections {
				all.Go(func() {
					if err := echoOn(s.Addr().String(), request, bench.n, &left); err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// echoOn sends requests, n at once, and reads their answers without looking.
func echoOn(addr string, request []byte, n int, left *atomic.Int64) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReaderSize(c, 128<<10)
	var batch []byte
	for range n {
		batch = append(batch, request...)
	}
	for {
		k := min(int64(n), left.Add(-int64(n))+int64(n))
		if k <= 0 {
			return nil
		}
		if _, err := c.Write(batch[:int(k)*len(request)]); err != nil {
			return err
		}
		for range k {
			head, err := in.Peek(4)
			if err != nil {
				return err
			}
			size := int64(head[0])<<24 | int64(head[1])<<16 | int64(head[2])<<8 | int64(head[3])
			if _, err := io.CopyN(io.Discard, in, size+4); err != nil {
				return err
			}
		}
	}
}
