// Package sim runs the replication protocol in a world of its own: nodes with
// a log, a network and a clock, all driven by one seed and one goroutine.
//
//	           Clock: events in order of time, then of their making
//	             │
//	  ┌──────────┼───────────────────────────────┐
//	  ▼          ▼                               ▼
//	Node ── server ── Socket ══ Network ══ Socket ── client ── Node
//	(log,   (transfer.Session)  delay, cuts,       (transfer.Follower)
//	 master)                    loss, silence
//
// The servers and clients are drivers like the engine's: they decide nothing
// and carry out what transfer's state machines say. The network carries byte
// streams: it cuts and joins them anywhere, delays them, fills up, breaks with
// or without telling either side, and falls silent in one direction. Nodes
// crash and come back with less than they had. A Session, a Follower or a
// Quorum is the real one.
//
// After every event the checker compares the whole world with what must hold:
//
//   - a replica's log is, byte for byte, a contiguous part of one history of its
//     master, from its first byte to its end;
//   - what a session counts as acknowledged was sent on that connection or asked
//     for first, and its replica did hold it;
//   - a report never exceeds the log's end;
//   - the quorum's committed offset is held by that many replicas;
//   - a stray client is never a replica;
//   - nothing spins: events do not pile up on one instant.
//
// Then the faults stop, and within bounded time every replica must have the
// master's log, or say why not.
//
// A run is a function of its Config: the same seed gives the same events. Run
// returns the first violation with the time it happened at.
package sim
