package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"

	"github.com/haengine/haengine/remoting"
	"golang.org/x/sys/unix"
)

// clientsIdle is what connections that do nothing cost a broker, and whoever
// does something beside them.
type clientsIdle struct {
	Connections    int     `json:"connections"`
	Growth         int64   `json:"broker_anonymous_growth_bytes"` // of its processes: what is not a file's
	GrowthResident int64   `json:"broker_rss_growth_bytes"`
	P50Before      float64 `json:"p50_us_before"`
	P50            float64 `json:"p50_us"` // with them
	P99Before      float64 `json:"p99_us_before"`
	P99            float64 `json:"p99_us"`
	RateBefore     float64 `json:"messages_per_second_before"`
	Rate           float64 `json:"messages_per_second"`
}

// measureIdle opens connections that do nothing, and measures once more. Each asks
// once, so that it has been a client's.
func measureIdle(ctx context.Context, o *clientsOptions, s *clientsSide, before *clientsResult) (*clientsIdle, error) {
	if err := mayOpen(o.idle + o.connections + 100); err != nil {
		return nil, err
	}
	anonymous, resident, err := brokerMemory(s.pids)
	if err != nil {
		return nil, err
	}
	conns := make([]net.Conn, 0, o.idle)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	question := remoting.AppendFrame(nil, &remoting.Command{
		Code: remoting.CodeGetMaxOffset, Language: "JAVA", Version: remoting.Version,
		Ext: remoting.Ext{{Name: "topic", Value: o.topic}, {Name: "queueId", Value: "0"}},
	})
	answer := make([]byte, 4<<10)
	for range o.idle {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err != nil {
			return nil, s.failed(fmt.Errorf("connection %d: %w", len(conns)+1, err))
		}
		conns = append(conns, c)
		if _, err := c.Write(question); err != nil {
			return nil, s.failed(err)
		}
		if _, err := c.Read(answer); err != nil {
			return nil, s.failed(fmt.Errorf("connection %d: %w", len(conns), err))
		}
	}
	debug.FreeOSMemory() // ours, which shares the machine
	s.rounds = nil
	if err := turns(ctx, o, []*clientsSide{s}); err != nil {
		return nil, err
	}
	r := s.result(o)
	anonymousAfter, residentAfter, err := brokerMemory(s.pids)
	return &clientsIdle{
		Connections: o.idle, Growth: anonymousAfter - anonymous, GrowthResident: residentAfter - resident,
		P50Before: before.P50, P50: r.P50, P99Before: before.P99, P99: r.P99, RateBefore: before.MessagesPerSecond, Rate: r.MessagesPerSecond,
	}, err
}

// mayOpen tells whether this process may have n files open. Go has raised the
// soft limit to the hard one.
func mayOpen(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < uint64(n) {
		return fmt.Errorf("%d open files are needed and %d are allowed: raise the hard limit (ulimit -Hn)", n, limit.Cur)
	}
	return nil
}

// brokerMemory is what processes have in memory: what belongs to no file, and all.
func brokerMemory(pids []int) (anonymous, resident int64, err error) {
	for _, pid := range pids {
		m := memoryOf(pid)
		if m == nil {
			return 0, 0, fmt.Errorf("memory of process %d: it is gone, or /proc/%d/smaps_rollup is not for us to read", pid, pid)
		}
		anonymous += m.Anonymous
		resident += m.Anonymous + m.Mapped
	}
	return anonymous, resident, nil
}

func (i *clientsIdle) print(w io.Writer) {
	fields(w,
		"idle connections", fmt.Sprintf("%s, for which the broker has %s more, %s each", count(int64(i.Connections)), shortBytes(i.Growth), shortBytes(i.Growth/int64(max(i.Connections, 1)))),
		"beside them", fmt.Sprintf("%s messages a second, before %s; p99 %.4g µs, before %.4g µs", count(int64(i.Rate)), count(int64(i.RateBefore)), i.P99, i.P99Before),
	)
}
