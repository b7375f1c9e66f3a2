// Package house holds the rules of the source tree, and checks them.
//
// The design cuts the engine into rooms: the log stores bytes, transfer
// decides, the reactor moves, the engine introduces them to each other, the
// command talks to people. The compiler keeps none of that apart by itself, so
// the rules are a table (see Project) and a test compares the tree with it:
//
//	cmd/haengine ─▶ engine ─┬─▶ transfer    no I/O, no clock, no goroutine
//	     │                  ├─▶ commitlog   bytes and segments, nothing of peers
//	     │                  └─▶ reactor     descriptors and time, nothing of logs
//	     └─▶ commitlog                      offline reading only
//
// Source is parsed, not loaded: build tags do not hide a file, and the check
// needs no compiler. A finding names the file, the line, the rule and what
// stands there.
package house
