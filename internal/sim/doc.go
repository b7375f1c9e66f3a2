// Package sim runs a cluster in a world of its own: the real commit log on the
// disk's twin, the real protocol of package transfer, and around them a network,
// clocks, producers and an operator, all driven by one seed and one goroutine.
//
//	           Clock: events in order of time, then of their making
//	             │
//	  ┌──────────┼───────────────────────────────────┐
//	  ▼          ▼                                   ▼
//	Node ── server ── Socket ══ Network ══ Socket ── client ── Node
//	 │      (transfer.Session)  delay, cuts,         (transfer.Follower)
//	 │ puts: transfer.Ring,     loss, silence              │
//	 │       transfer.Quorum                               │
//	 ▼                                                     ▼
//	commitlog.Log ── commitlog.Twin               commitlog.Log ── commitlog.Twin
//	append, epochs, recovery                      reserve, publish, truncate, take over
//
// Servers, slaves and roles are drivers like the engine's, named in their
// comments: they decide nothing and carry out what transfer says. The log's
// workers have no goroutine here (commitlog.Options.Manual): the world gives them
// their turns, in a drawn order.
//
// What happens, as a Config has it: connections that are cut, half-open, silent in
// one direction, doubled, or no replica's; processes that are stopped, killed or
// paused; power that goes, between or within the steps of an operation; disks that
// fill up, fail a sync or change a byte; wall clocks that jump; masters that
// change while the old one writes on, each counting its epochs by itself.
//
// After every event the checker compares the whole world with what must hold:
//
//   - each log is, byte for byte, a contiguous part of one history of a master,
//     and bytes that were sent never change in place;
//   - records are whole, queue offsets go up by one, store times never go back, and
//     epochs grow in both columns;
//   - a log gets shorter at a handshake, a promotion or an opening only; a cut is
//     durable when it is made, and what was cut is kept;
//   - what a session counts as acknowledged was sent on that connection or asked
//     for first, and its replica did hold it; a report never exceeds the log's end;
//   - what was said or shown to be on a disk is there after any power cut: each
//     opening is compared, and now and then the power of a disk's copy is cut;
//   - a put that returned OK is held by as many replicas as it asked for, in the kind
//     that it asked for; no wait outlives its deadline;
//   - damage is met by whoever reads it, and never acknowledged as flushed;
//   - a stray client is never a replica, and nothing spins.
//
// Then the faults stop. Within bounded time every replica must have the master's
// log, and queues that lead to each record of it; one that cannot, and says why,
// must be right about that, and is copied anew. No put that returned OK may be
// missing, but for those that the choice of another master has lost.
//
// A run is a function of its Config: the same seed gives the same events. Run
// returns the first violation with the time it happened at. testdata holds the
// protocol's stories, as scripts that the same world plays.
package sim
