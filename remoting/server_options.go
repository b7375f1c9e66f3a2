package remoting

import (
	"cmp"
	"log/slog"
	"runtime"
	"syscall"
	"time"
)

// DefaultLoops is how many event loops a server has unless it is told: as many as
// there are cores, at most 4.
func DefaultLoops() int { return min(runtime.NumCPU(), 4) }

// ServerOptions are a server's settings. The zero value of a field means its
// default. RocketMQ's names stand in parentheses.
type ServerOptions struct {
	Loops     int           // event loops; 0: DefaultLoops (serverSelectorThreads)
	Idle      time.Duration // silence of both sides that ends a connection; 0: 120 s (serverChannelMaxIdleTimeSeconds)
	FrameTime time.Duration // how long a frame may take from its first byte to its last; 0: 30 s

	FrameBytes                  int   // longest frame, length word included; 0: FrameBytesMax
	PartialBytes                int64 // of frames that are not whole yet, over all connections; 0: 256 MiB
	PendingIn                   int   // memory of requests of one connection that wait for their answers, 1 KiB and more each; 0: 32 MiB
	PendingOut                  int   // bytes of answers of one connection that its peer has not read; 0: 32 MiB
	PendingInAll, PendingOutAll int64 // the same over all connections, above which those that have more than their share are refused; 0: 1 GiB and 512 MiB
	Connections                 int   // at most; 0: 65536, and no more than three quarters of the descriptors that the process may have

	Logger *slog.Logger // nil: slog.Default()

	panics int64 // of handlers that a test expects; others fail it
}

func (o *ServerOptions) setDefaults() {
	o.Loops = cmp.Or(o.Loops, DefaultLoops())
	o.Idle = cmp.Or(o.Idle, 120*time.Second)
	o.FrameTime = cmp.Or(o.FrameTime, 30*time.Second)
	o.FrameBytes = cmp.Or(o.FrameBytes, FrameBytesMax)
	o.PartialBytes = cmp.Or(o.PartialBytes, 256<<20)
	o.PendingIn = cmp.Or(o.PendingIn, 32<<20)
	o.PendingOut = cmp.Or(o.PendingOut, 32<<20)
	o.PendingInAll = cmp.Or(o.PendingInAll, 1<<30)
	o.PendingOutAll = cmp.Or(o.PendingOutAll, 512<<20)
	o.Connections = cmp.Or(o.Connections, connectionsMax())
	o.Logger = cmp.Or(o.Logger, slog.Default())
}

// connectionsMax leaves descriptors for the log's files and for replicas: clients,
// however many, must not keep the log from making its next segment.
func connectionsMax() int {
	const most = 65536
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(limit.Cur/4*3, most))
}

// tick is how often a loop looks for connections whose time is over, and how
// wrong its clock may be.
func (o *ServerOptions) tick() time.Duration {
	return min(max(min(o.Idle, o.FrameTime)/8, 5*time.Millisecond), time.Second)
}
