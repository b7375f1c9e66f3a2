package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
	"golang.org/x/sys/unix"
)

// openLoopRoom is how many puts may be under way in an open loop. When so many
// are, arrivals wait, and their latency counts from when they were due.
const openLoopRoom = 32 << 10

// openLoop puts at a rate, whether or not earlier puts have ended: a closed loop
// slows down with what it measures, and so hides what a wait costs those that
// would have come meanwhile.
//
// A latency counts from the moment that the put was due, with one exception: if
// the producer had nothing to do and the timer was late, from when it woke up.
func (p *benchPair) openLoop(ctx context.Context, d time.Duration, bytes int64) (round, error) {
	o := p.options
	total := min(int64(o.rate*d.Seconds()), max(bytes/int64(o.size), 1))
	if total == 0 {
		return round{}, fmt.Errorf("no put is due in a round of %v at %g a second; give a longer --duration", d, o.rate)
	}
	l := &openLoop{queue: p.master.NewCompletions(openLoopRoom), total: total, latency: new(latencies)}
	l.message = engine.Message{Topic: "bench", QueueID: p.next.Add(1) % 4, Body: make([]byte, o.size)}
	l.begun.Store(-1)
	alarm, err := newAlarm()
	if err != nil {
		return round{}, err
	}
	defer alarm.file.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, own := cpuTime(p.child), cpuTime(nil)
	l.start = time.Now()
	// Not ctx: what was begun ends as it does, however the round is ended.
	pulling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pulled := make(chan error, 1)
	go func() { pulled <- l.pull(pulling) }()
	begun, err := l.put(ctx, o.rate, alarm)
	l.begun.Store(begun)
	if l.ended.Load() == begun {
		cancel() // nothing is under way that would wake the one who pulls
	}
	err = errors.Join(err, <-pulled)
	r := round{messages: begun, took: time.Since(l.start), latency: l.latency}
	r.cpu, r.masterCPU = cpuTime(p.child)-cpu, cpuTime(nil)-own
	runtime.ReadMemStats(&after)
	r.bytes, r.allocs = r.messages*int64(o.size), after.Mallocs-before.Mallocs
	r.memory = memoryWith(p.child)
	return r, err
}

// openLoop is one round of it: put on one goroutine, pull on another.
type openLoop struct {
	queue   *engine.Completions
	message engine.Message // the one who puts has it
	start   time.Time
	total   int64
	begun   atomic.Int64 // -1 until all are; then how many
	ended   atomic.Int64
	latency *latencies
}

// put begins the puts as they are due, each with the time that its latency
// counts from for a tag.
func (l *openLoop) put(ctx context.Context, rate float64, alarm *alarm) (begun int64, err error) {
	gap := float64(time.Second) / rate
	woke := time.Duration(0)
	for ; begun < l.total && ctx.Err() == nil; begun++ {
		due := time.Duration(float64(begun) * gap)
		if now := time.Since(l.start); now < due {
			if err := alarm.sleep(due - now); err != nil {
				return begun, err
			}
			woke = time.Since(l.start)
		}
		if err := l.queue.Put(ctx, &l.message, uint64(max(due, woke))); err != nil {
			return begun, err
		}
	}
	if errors.Is(context.Cause(ctx), errRoundOver) {
		return begun, nil
	}
	return begun, ctx.Err()
}

// pull takes the latencies, until all that was begun has ended.
func (l *openLoop) pull(ctx context.Context) error {
	var failed error
	done := make([]engine.Completion, 1024)
	for l.ended.Load() != l.begun.Load() {
		n, err := l.queue.Pull(ctx, done)
		if err != nil {
			if l.ended.Load() == l.begun.Load() {
				break
			}
			return err
		}
		now := time.Since(l.start)
		for _, c := range done[:n] {
			l.latency.add(now - time.Duration(c.Tag))
			if c.Err != nil && failed == nil {
				failed = c.Err
			}
		}
		l.ended.Add(int64(n))
	}
	return failed
}

// alarm is a timer that is on time: the kernel's, waited for through Go's
// poller. Go's own come up to a millisecond late when nothing else wakes the
// process, which would be bursts in place of a rate.
type alarm struct {
	file *os.File
	fd   int
	buf  [8]byte
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

// sleep waits for d, which is above 0.
func (a *alarm) sleep(d time.Duration) error {
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	_, err := a.file.Read(a.buf[:])
	return err
}
