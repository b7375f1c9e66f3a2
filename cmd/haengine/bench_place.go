package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// placement says on which processors master and slave run, and the two ends of
// a limit alike. A wake-up on the same core is a task switch, one on another
// core an interrupt, in a virtual machine a halt and an exit, too; what nobody
// pins lands now here, now there.
type placement string

const (
	placeAny      placement = "any"
	placeOneCore  placement = "one-core"
	placeTwoCores placement = "two-cores"
)

// Set implements pflag.Value.
func (p *placement) Set(s string) error {
	switch v := placement(s); v {
	case placeAny, placeOneCore, placeTwoCores:
		*p = v
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s, %s", s, placeAny, placeOneCore, placeTwoCores)
}

// String and Type implement pflag.Value.
func (p *placement) String() string { return string(*p) }

// Type is the value's name in help.
func (p *placement) Type() string { return "where" }

// pins are the cores that a placement came to.
type pins struct {
	two           bool // otherwise slave is nothing of its own
	master, slave int
}

// cores are the ones that a placement uses.
func (p placement) cores() (pins, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return pins{}, os.NewSyscallError("sched_getaffinity", err)
	}
	var found []int
	for cpu := 0; len(found) < 2 && cpu < 8192; cpu++ {
		if allowed.IsSet(cpu) {
			found = append(found, cpu)
		}
	}
	switch {
	case len(found) == 0:
		return pins{}, errors.New("the kernel names no core that this process may run on")
	case p == placeOneCore:
		return pins{master: found[0]}, nil
	case len(found) < 2:
		return pins{}, fmt.Errorf("--placement %s needs two cores, this process may run on %d only", p, found[0])
	}
	return pins{two: true, master: found[0], slave: found[1]}, nil
}

// pin puts this process on the master's core until undo. What it starts
// meanwhile is there, too, unless pins.startOnPeerCore starts it.
func (p placement) pin() (at pins, undo func(), err error) {
	if p == placeAny || p == "" {
		return pins{}, func() {}, nil
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return pins{}, nil, os.NewSyscallError("sched_getaffinity", err)
	}
	if at, err = p.cores(); err != nil {
		return pins{}, nil, err
	}
	if err := pinThreads(oneCPU(at.master)); err != nil {
		return pins{}, nil, err
	}
	procs := runtime.GOMAXPROCS(1)
	return at, func() {
		runtime.GOMAXPROCS(procs)
		_ = pinThreads(&before) // it was allowed before
	}, nil
}

// startOnPeerCore runs start, which starts a process, so that the process is on
// the slave's core. Go starts no thread of its own from one that is locked.
func (p pins) startOnPeerCore(start func() error) error {
	if !p.two {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, oneCPU(p.slave)); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return errors.Join(start(), os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, oneCPU(p.master))))
}

func oneCPU(cpu int) *unix.CPUSet {
	var set unix.CPUSet
	set.Set(cpu)
	return &set
}

// pinThreads gives all threads of this process a set of processors. Threads to
// come inherit it from the one that starts them, so that a second look finds
// those which an unpinned one started during the first.
func pinThreads(set *unix.CPUSet) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}
