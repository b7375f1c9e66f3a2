package reactor

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestClosingTheGroupClosesEachConnectionOnce(t *testing.T) {
	for range 20 {
		g, err := Open(Options{Loops: 2})
		if err != nil {
			t.Fatal(err)
		}
		const conns = 8
		h := &hooks{}
		reasons := make(chan error, 2*conns)
		h.closed = func(c *Conn, err error) {
			c.Close(errReason)
			reasons <- err
		}
		accepted := make(chan *Conn, conns)
		ln := listen(t, g, SocketOptions{}, func(c *Conn) Handler {
			accepted <- c
			return h
		})
		for range conns {
			raw := dialRaw(t, ln.Addr(), 0)
			defer shut(t, raw)
		}
		for i := range conns {
			c := await(t, accepted, "connection")
			if i == 0 { // one is draining, and keeps its own reason
				on(t, c.Loop(), func() { c.CloseDrained(errReason, patience) })
			}
		}
		waker := g.Loop(0).NewWaker(func() {})
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 2 { // the end must not meet a closed descriptor
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						waker.Wake()
						g.Loop(1).Post(func() {})
						runtime.Gosched()
					}
				}
			})
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		close(stop)
		wg.Wait()
		if err := g.Close(); err != nil {
			t.Error("second Close:", err)
		}
		if n := h.closes.Load(); n != conns {
			t.Fatalf("Closed was called %d times for %d connections", n, conns)
		}
		own := 0
		for range conns {
			switch err := <-reasons; {
			case errors.Is(err, errReason):
				own++
			case !errors.Is(err, ErrClosed):
				t.Errorf("closed with %v, want ErrClosed", err)
			}
		}
		if own != 1 {
			t.Errorf("%d connections closed with a reason of their own, want 1", own)
		}
		if g.Loop(0).Post(func() { t.Error("ran after Close") }) {
			t.Error("Post on a closed loop says that it will run")
		}
		waker.Wake()
		if _, err := g.Listen("127.0.0.1:0", SocketOptions{}, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Listen on a closed group: %v, want ErrClosed", err)
		}
	}
}

// errReason is some reason.
var errReason = errors.New("a reason")

func TestWhatWasPostedBeforeCloseRuns(t *testing.T) {
	g, err := Open(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	ran, taken := 0, 0
	for range 100 {
		if g.Loop(0).Post(func() { ran++ }) {
			taken++
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if ran != taken || ran != 100 {
		t.Errorf("%d of 100 taken, %d ran", taken, ran)
	}
}

func TestPostedFunctionsRunInOrder(t *testing.T) {
	g := open(t, Options{})
	var order []int
	release := hold(t, g.Loop(0), nil)
	for i := range 1000 {
		g.Loop(0).Post(func() { order = append(order, i) })
	}
	release()
	on(t, g.Loop(0), func() {})
	for i, v := range order {
		if i != v {
			t.Fatalf("function %d ran at place %d", v, i)
		}
	}
	if len(order) != 1000 {
		t.Errorf("%d functions ran, want 1000", len(order))
	}
}

func TestWakesThatComeTogetherRunOnce(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	runs := 0
	waker := l.NewWaker(func() { runs++ })
	var before, after uint64
	release := hold(t, l, func() { before = l.events })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				waker.Wake()
			}
		})
	}
	wg.Wait()
	release()
	on(t, l, func() { after = l.events })
	if runs != 1 {
		t.Errorf("1,000 wakes ran the function %d times, want 1", runs)
	}
	if n := after - before; n > 3 {
		t.Errorf("1,000 wakes made %d events", n)
	}
}

func TestNoWakeIsLost(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 1000
	}
	for name, o := range map[string]Options{"blocking": {}, "spinning": {Spin: 20_000}, "about to block": {Spin: 1}} {
		t.Run(name, func(t *testing.T) {
			g := open(t, o)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					// The function tells what it saw; the producer goes on
					// only when that is its latest.
					var value atomic.Int64
					seen := make(chan int64, 1)
					waker := g.Loop(0).NewWaker(func() {
						v := value.Load()
						select {
						case seen <- v:
						default:
							select {
							case <-seen:
							default:
							}
							seen <- v
						}
					})
					for i := range int64(rounds) {
						value.Store(i + 1)
						waker.Wake()
						for await(t, seen, "run of the woken function") != i+1 {
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestTheSignalIsNotClosedUnderALateWriter(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, fd)
	// One write was handled. Another sender has raised the flag and is about
	// to write.
	s := &signal{watch: watch{fd: fd}, poller: &poller{}, handled: 1}
	writeRaw(t, fd, signalOne)
	s.raised.Store(true)
	retired := make(chan struct{})
	go func() {
		s.retire()
		close(retired)
	}()
	for range 1000 {
		runtime.Gosched()
		select {
		case <-retired:
			t.Fatal("retired before the write")
		default:
		}
	}
	writeRaw(t, fd, signalOne)
	await(t, retired, "end of the signal")
	s.send() // finds the flag raised for good
	if n, err := unix.Read(fd, make([]byte, 8)); err == nil {
		t.Errorf("%d bytes were written after the end", n)
	}
}

func TestAWakerThatWakesItselfLetsOthersRun(t *testing.T) {
	g := open(t, Options{})
	l := g.Loop(0)
	var waker *Waker
	runs := 0
	waker = l.NewWaker(func() {
		runs++
		waker.Wake()
	})
	waker.Wake()
	on(t, l, func() {})
	on(t, l, func() {})
	on(t, l, func() {
		if runs == 0 {
			t.Error("the waker did not run")
		}
	})
	// Sockets are looked at, too, although there is always something queued.
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	c := dialGo(t, ln.Addr())
	defer c.Close()
	for range 10 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// aCPU is one that this process may use.
func aCPU(t *testing.T) int {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return cpu
}

func TestPinnedLoopsRunOnTheirCPU(t *testing.T) {
	cpu := aCPU(t)
	g := open(t, Options{Loops: 2, PinCPUs: []int{cpu}})
	for i := range g.Len() {
		on(t, g.Loop(i), func() {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			if set.Count() != 1 || !set.IsSet(cpu) {
				t.Errorf("loop %d may run on %d CPUs", i, set.Count())
			}
		})
	}
	for _, bad := range []int{-1, 1023, 5000} {
		if _, err := Open(Options{Loops: 1, PinCPUs: []int{bad}}); err == nil {
			t.Errorf("pinned to CPU %d", bad)
		} else if !strings.Contains(err.Error(), "CPU") {
			t.Errorf("%v does not say what is wrong", err)
		}
	}
}
