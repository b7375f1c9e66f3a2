// Package haengine_test measures the engine as its users embed it: a master and
// its replicas in one process, over loopback.
//
// Each benchmark reports its ratio to the bare work done beside it in the same
// run. Two processes, percentiles and interleaved runs are what `haengine
// bench` is for; see docs/benchmarks.md.
package haengine_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
)

const segmentBytes = 256 << 20

var quiet = slog.New(slog.DiscardHandler)

func openEngine(b testing.TB, o engine.Options) *engine.Engine {
	b.Helper()
	o.Store, o.Logger, o.Reactors = b.TempDir(), quiet, 1
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytes
	}
	e, err := engine.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	return e
}

// openPair starts a synchronous master with one replica that has joined.
func openPair(b testing.TB) (master, slave *engine.Engine) {
	b.Helper()
	master = openEngine(b, engine.Options{Role: engine.SyncMaster, HAListen: "127.0.0.1:0"})
	events, cancel := master.Subscribe(16)
	defer cancel()
	slave = openEngine(b, engine.Options{Role: engine.Slave, Master: master.HAAddr().String()})
	timeout := time.After(10 * time.Second)
	for {
		select {
		case e := <-events:
			if e.Kind == engine.ReplicaInSync {
				return master, slave
			}
		case <-timeout:
			b.Fatal("the replica did not join")
		}
	}
}

func newMessage(body int) *engine.Message {
	return &engine.Message{Topic: "bench", Body: make([]byte, body)}
}

// BenchmarkAppend is one record into the log; of-memcpy is how often the bytes
// alone could have been copied meanwhile.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{128, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := commitlog.Open(commitlog.Options{Dir: b.TempDir(), SegmentBytes: segmentBytes, PopulateBytes: 4 << 20, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			m := newMessage(size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				rec, err := l.Encode(m)
				if err != nil {
					b.Fatal(err)
				}
				_, err = l.Append(rec, nil)
				rec.Release()
				if err != nil {
					b.Fatal(err)
				}
			}
			perRecord := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(perRecord)/float64(memcpyTime(size)), "of-memcpy")
		})
	}
}

// memcpyTime is how long one copy of size bytes takes into memory that moves
// on as a log does.
func memcpyTime(size int) time.Duration {
	const window = 64 << 20
	dst, src := make([]byte, window), make([]byte, size)
	clear(dst) // present
	rounds := window / size
	start := time.Now()
	for i := range rounds {
		copy(dst[i*size:], src)
	}
	return max(time.Since(start)/time.Duration(rounds), 1)
}

// BenchmarkPutAsync is a put on an ASYNC_MASTER: append and publish.
func BenchmarkPutAsync(b *testing.B) {
	e := openEngine(b, engine.Options{})
	m, ctx := newMessage(1<<10), context.Background()
	b.SetBytes(1 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Put(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPutSync is a put that waits for one replica in the same process, by
// 1 and by 64 producers; of-pingpong is its time in loopback round trips of a
// blocking pair of goroutines with the same sizes.
func BenchmarkPutSync(b *testing.B) {
	for _, producers := range []int{1, 64} {
		b.Run(fmt.Sprint("producers=", producers), func(b *testing.B) {
			master, _ := openPair(b)
			roundTrip := pingPong(b, 1<<10)
			b.SetBytes(1 << 10)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for p := range producers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					m, ctx := newMessage(1<<10), context.Background()
					for i := p; i < b.N; i += producers {
						if _, err := master.Put(ctx, m); err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(roundTrip), "of-pingpong")
		})
	}
}

// pingPong measures the median round trip of size bytes there and 8 back.
func pingPong(b testing.TB, size int) time.Duration {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const rounds = 2000
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, size), make([]byte, 8)
		for {
			for n := 0; n < size; {
				k, err := c.Read(in[n:])
				if err != nil {
					return
				}
				n += k
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	out, in := make([]byte, size), make([]byte, 8)
	start := time.Now()
	for range rounds {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(in); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / rounds
}

// BenchmarkCatchUp copies a log to an empty replica, to its last acknowledged
// byte.
func BenchmarkCatchUp(b *testing.B) {
	const size = 128 << 20
	master := openEngine(b, engine.Options{HAListen: "127.0.0.1:0", PlainHistory: engine.HistoryFirst})
	m, ctx := newMessage(16<<10), context.Background()
	var end int64
	for end < size {
		r, err := master.Put(ctx, m)
		if err != nil {
			b.Fatal(err)
		}
		end = r.EndOffset
	}
	b.SetBytes(end)
	b.ReportAllocs()
	for b.Loop() {
		slave := openEngine(b, engine.Options{Role: engine.Slave, Master: master.HAAddr().String()})
		if err := slave.WaitFor(ctx, end); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := slave.Close(ctx); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
