// Package e2e holds the tests that need more than one process: the real
// binary, built once, run as daemons on loopback ports, and looked at from
// outside as an operator and a peer would.
//
//	test ──▶ daemon (child process) ◀── HA port: slaves, raw peers
//	  │            │
//	  │            ├─ stdout: one JSON line for each put of --load
//	  │            ├─ stderr: the log, as JSON
//	  │            └─ admin port: /status, /readyz, /healthz
//	  └──▶ store directory: read with commitlog.OpenReadOnly, and byte by byte
//
// Nothing is known of a daemon but what it prints, what it answers, and the
// bytes it leaves. A test waits for conditions, never for time to pass; where
// time is the point (a kill at a random moment, a period of idleness) it waits
// for the daemon's end or the time, whichever is first. Only children of the
// test are signalled, each by its process id.
//
// Long tests are left out with -short. What needs root (a small file system
// that can be filled, a read-only mount) or strace says so when it cannot run.
package e2e
