// Package tune looks at a machine and says which settings of a node differ from
// their defaults there, and why.
//
// Three steps, each of which can be tested without the next one:
//
//	Look    the machine as /proc, /sys and a few system calls tell   Machine
//	Measure what no file tells, in at most ten seconds               Measured
//	Advise  rules: what to set, to try, to keep, to change outside   []Advice
//
// Nothing is changed. Look reads; Measure works on a file without a name in the
// store's filesystem, on loopback sockets of its own, and connects to a peer
// without a word. What cannot be seen is said (Machine.Unseen), not guessed.
//
// A rule says only what was shown to help, with its source: docs/tuning.md,
// docs/benchmarks.md, or arithmetic that stands in the reason. What was not shown,
// or depends on the load, is Try, with the command that would show it; a default
// that nothing speaks against is Keep.
//
// The package knows names and defaults of settings as text. The command's tests
// hold them against the real ones.
package tune
