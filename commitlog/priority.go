package commitlog

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lowestPriority is the nice value of work that may wait for everybody else.
const lowestPriority = 19

// atLowPriority runs f on a thread that the kernel gives what others leave of the
// processors. The thread ends with f: nobody may raise its priority again without
// privilege (setpriority(2); on Linux a nice value is a thread's own).
func atLowPriority(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The process's first thread never ends. While it is held, another goroutine
			// gets another.
			atLowPriority(f)
			runtime.UnlockOSThread()
			return
		}
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowestPriority) // refused: it competes
		f()
	}()
	<-done
}
