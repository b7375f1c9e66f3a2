package main

import (
	"os"
	"runtime"
	"sync"
)

// processors is GOMAXPROCS as Go or the environment chose it.
var processors = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// takeProcessors gives the runtime more of them than there are cores, unless the
// environment says how many. One more, because a producer that never pauses has one and a
// loop in the kernel another, and who makes pages ready ahead of the log's end would get none.
// Or one for each of gnet's loops, if clients are served: such a loop keeps one while it
// waits for clients, until the runtime's monitor takes it away. Go no longer follows
// changes of the quota then.
func takeProcessors(clientLoops int) {
	more := clientLoops
	if more == 0 && processors() > 1 { // on one core woken producers are to run on the loop's own
		more = 1
	}
	if more > 0 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors() + more)
	}
}
