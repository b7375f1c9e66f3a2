package main

import (
	"os"
	"runtime"
	"sync"
)

// processors is GOMAXPROCS as Go or the environment chose it.
var processors = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// takeProcessors gives the runtime so many processors beyond those that Go took, unless
// the environment says how many. Go no longer follows changes of the quota then.
func takeProcessors(more int) {
	if before := processors(); more > 0 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(before + more)
	}
}

// fewCores is up to how many cores may all be taken by one producer and the loops.
const fewCores = 4

// producersProcessors is how many more a program with producers of its own does well to
// take: one where cores are few. A producer that never pauses has one, a loop in the kernel
// another, and who makes pages ready ahead of the log's end would get none. None on one
// core, where woken producers are to run on the loop's own, and none under a quota, which
// more threads at a time use up sooner.
func producersProcessors(procs, cores int) int {
	if procs > 1 && procs <= fewCores && procs == cores {
		return 1
	}
	return 0
}
