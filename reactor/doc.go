// Package reactor moves bytes between sockets and memory, and keeps time, on
// a few epoll loops instead of a goroutine for each connection.
//
// A Group holds the loops. Everything that belongs to a connection happens on
// the one loop that owns it, so handlers need no locks:
//
//	      any goroutine                       one loop's goroutine
//	Post(fn) ───▶ queue ─┐              ┌──────────────────────────────┐
//	Waker.Wake ─▶ list  ─┴▶ wake-up ──▶ │ epoll_wait: a batch of events│
//	                        timerfd ──▶ │  Readable, then Writable     │
//	                        listener ─▶ │  timers that are due         │
//	                        sockets ──▶ │ posted functions, wakers     │
//	                                    ├──────────────────────────────┤
//	                                    │ end of turn: fds closed,     │
//	                                    │ Closed and failed dials told │
//	                                    └──────────────────────────────┘
//
// What the loop promises:
//   - Data comes before the hang-up that arrived with it: Readable is called
//     first and reads what the kernel still holds. A write that fails because
//     the peer is gone is reported by the reading side, after its last bytes.
//   - Readiness is level triggered. What a handler leaves unread is announced
//     again, after everybody else had their turn and what was queued has run.
//   - A hang-up that nobody consumes closes the connection; it never spins.
//   - A file descriptor is closed only between two batches of events, so an
//     event of a connection that is gone cannot reach the next connection
//     with that number. Conn.ID names a connection for good.
//   - Closed is called exactly once for each connection that got a Handler.
//
// What a handler must do: never block, limit its work in one call, close the
// connection on an error that Readv, Splice, Writev or Sendfile returns, and leave
// the loop's things to the loop. From other goroutines only Post, Wake, Now
// (the function), Listen, Listener.Close and Group.Close may be called.
//
// The loop's goroutine is not locked to a thread unless Options.PinCPUs asks
// for it: a locked one must hand over to another thread to wake a producer,
// which costs more than the wake-up itself. A loop sleeps in Go's own poller, so
// that its processor is free for others, and where events follow each other
// closely it looks for the next one for a while first.
//
// Linux only; poller.go alone knows epoll.
package reactor
