package main

import (
	"os"
	"runtime"
	"sync"
)

// processors is GOMAXPROCS as Go or the environment chose it.
var processors = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// takeProcessors raises GOMAXPROCS as moreProcessors says, unless the environment has
// it. Go no longer follows changes of the quota then.
func takeProcessors(clientLoops int) {
	if more := moreProcessors(processors(), runtime.NumCPU(), clientLoops); more > 0 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors() + more)
	}
}

// fewCores is up to how many cores may all be taken by one producer and the loops.
const fewCores = 4

// moreProcessors is how many of Go's processors a node gets beyond those that Go took.
//
// One for each of gnet's loops, if clients are served: such a loop keeps one while it
// waits for clients, until the runtime's monitor takes it away. Otherwise one where cores
// are few: a producer that never pauses has one, a loop in the kernel another, and who
// makes pages ready ahead of the log's end would get none. None on one core, where woken
// producers are to run on the loop's own, and none under a quota, which more threads at a
// time use up sooner.
func moreProcessors(procs, cores, clientLoops int) int {
	switch {
	case clientLoops > 0:
		return clientLoops
	case procs > 1 && procs <= fewCores && procs == cores:
		return 1
	}
	return 0
}
