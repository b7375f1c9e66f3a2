package reactor

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Group. The zero value is a loop per processor, not pinned,
// not spinning, silent.
type Options struct {
	// Loops is the number of loops; 0: GOMAXPROCS.
	Loops int
	// PinCPUs locks loop i to a thread of its own on CPU PinCPUs[i modulo its
	// length]. Empty: loops are ordinary goroutines.
	PinCPUs []int
	// Spin is how long a loop goes on polling before it sleeps, after an event
	// of a connection, a posted function or a waker; 0: for up to 50 µs where
	// events have followed each other that closely, else not at all. Spinning
	// takes a core while it lasts, and makes everything slower where there are
	// fewer cores than spinners.
	Spin time.Duration
	// Logger gets what no caller can be told; nil: nothing.
	Logger *slog.Logger
}

// Group is a set of loops. Its methods may be called from any goroutine.
type Group struct {
	logger *slog.Logger
	loops  []*Loop
	next   atomic.Uint64
	ids    atomic.Uint64 // last connection ID given
	once   sync.Once     // Close
	err    error         // of Close
	// congestionOnce keeps a refused congestion control to one log line.
	congestionOnce sync.Once
}

// Open starts the loops.
func Open(o Options) (*Group, error) {
	if o.Loops < 0 || o.Spin < 0 {
		return nil, fmt.Errorf("reactor: loops %d and spin %v must not be negative", o.Loops, o.Spin)
	}
	for _, cpu := range o.PinCPUs {
		if cpu < 0 {
			return nil, fmt.Errorf("reactor: CPU %d to pin to must not be negative", cpu)
		}
	}
	if o.Loops == 0 {
		o.Loops = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Group{logger: o.Logger}
	for i := range o.Loops {
		cpu := -1
		if len(o.PinCPUs) > 0 {
			cpu = o.PinCPUs[i%len(o.PinCPUs)]
		}
		l, err := startLoop(g, i, cpu, o.Spin)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start loop %d: %w", i, err), g.Close())
		}
		g.loops = append(g.loops, l)
	}
	return g, nil
}

// Len returns the number of loops.
func (g *Group) Len() int { return len(g.loops) }

// Loop returns loop i, 0 <= i < Len.
func (g *Group) Loop(i int) *Loop { return g.loops[i] }

// Next returns the loops in turn.
func (g *Group) Next() *Loop {
	return g.loops[(g.next.Add(1)-1)%uint64(len(g.loops))]
}

// Close stops the loops and waits for them: listeners are closed, dials fail
// and connections close with ErrClosed, and nothing is called afterwards.
// Functions posted before still run. It returns what made a loop end early,
// if anything did. Not from a loop's goroutine: it would wait for itself.
func (g *Group) Close() error {
	g.once.Do(func() {
		for _, l := range g.loops {
			l.Post(l.stop)
		}
		var errs []error
		for _, l := range g.loops {
			<-l.done
			errs = append(errs, l.err)
		}
		g.err = errors.Join(errs...)
	})
	return g.err
}
