// Package engine is a replicated log: RocketMQ's commit log on this machine,
// copied live to any number of replicas over RocketMQ's HA protocol.
//
// The data path in ten lines. A producer's Put encodes the message outside any
// lock, reserves room in the rings of waiters, and enters the log's append
// section, where the record gets its offset, its tickets and its place in the
// mapped segment; then the end offset is published. Idle replica connections
// are woken once for the batch that formed meanwhile. Each connection lives on
// one reactor loop; its transfer.Session says which frame is next, the loop
// sends it from the segment by sendfile or writev. A slave's loop reads the
// socket straight into its own segment (small bodies with their header, and
// copies them), publishes whole frames and reports its end. The report advances transfer.Quorum on the master's loop, and the
// completion pass releases all waiters that the new quorum offset covers.
//
//	Put ─▶ commitlog.Append ─▶ tickets in transfer.Ring ─▶ wake loops
//	                                  ▲                        │ sendfile
//	          transfer.Quorum ◀─ report ◀─ socket ◀─ slave ◀───┘
//
// Who owns what:
//
//	Engine      life cycle, settings, status; any goroutine
//	put, Future one put: its caller until the append, then the completion pass
//	rings       the rings of waiters and their expiry; any goroutine
//	master      the listener and the list of replicas; a replica belongs to the loop that accepted it
//	slave       the connection to the master; its loop only
//	lease       until when a master may act as one, if somebody elects; whoever renews or ends it, by compare-and-swap
//
// An Engine is safe for use by any number of goroutines.
package engine
