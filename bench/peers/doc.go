// Command peers does the same work on haengine and on other replicated logs,
// taking turns on this machine, and prints what each of them did.
//
// A peer is a set of processes. One of them, the driver, takes the load: it
// reads commands from its standard input, a line each, and answers each with a
// line of JSON, as interop/run.sh does for the real RocketMQ. The driver is the
// master's own process where the peer is a library, and a client of its own
// where it is a server; Peer.About says which, and what an acknowledgement of
// the peer means. The runner itself only waits:
//
//	runner ── "phase size=1024,threads=64,seconds=2" ─▶ driver ─▶ replicas
//	       ◀─ {"event":"phase","messages":…,"p99_us":…} ──┘
//
// In each turn each peer is started anew in an empty directory, warmed up, and
// given all the works one after the other; the order of the peers moves on by
// one from turn to turn. A figure is the median over the turns.
//
//	peer      what a peer has to be able to do, and what a running one is
//	work      the loads
//	run       turns, budget, failures
//	report    medians, spread, ratios: text, Markdown, JSON
//	process   a process that answers commands; usage: its CPU time and memory
//	node      the other end: this program as a part of a peer
//	load      producers of a driver
//
// and a file for each peer. It is a module of its own so that haengine does not
// depend on what it is compared with.
package main
