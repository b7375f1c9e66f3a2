package reactor

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spinner keeps a loop from blocking for a while after an event. netpoll has
// no hook for it: an eventfd that is always readable sits in the epoll set as
// long as the loop shall spin, and makes epoll_wait return at once.
// Loop-confined.
type spinner struct {
	watch
	loop  *Loop
	fd    int           // 0: never spins
	spin  time.Duration // how long after the last event
	until time.Duration
}

func (s *spinner) open(l *Loop, spin time.Duration) error {
	if spin <= 0 {
		return nil
	}
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return &OpError{Op: "eventfd", Err: err}
	}
	s.loop, s.fd, s.spin = l, fd, spin
	l.poller.attach(&s.watch, fd, s)
	return nil
}

// active notes that something happened: spinning starts or goes on.
func (l *Loop) active() {
	s := &l.spinner
	if s.spin == 0 {
		return
	}
	s.until = l.now + s.spin
	if s.mode == watchNone && l.poller.watch(&s.watch, watchRead) == nil {
		l.signal.spinning.Store(true)
	}
}

// ready is called in each turn while spinning.
func (s *spinner) ready(uint32) {
	l := s.loop
	if l.runPosted() {
		l.active()
	}
	if l.now < s.until {
		// The goroutines that this loop made runnable run here, on a warm
		// core, instead of waiting for another thread to wake up.
		runtime.Gosched()
		return
	}
	if l.poller.watch(&s.watch, watchNone) != nil {
		return // still in the set: the next turn tries again
	}
	l.signal.spinning.Store(false)
	// Whoever saw the flag set did not write; what they added is there now.
	if l.runPosted() {
		l.active()
	}
}

func (s *spinner) abandon(error) {}
