// Package remoting is RocketMQ's client protocol: unmodified producers,
// consumers and admin tools use a haengine node through it. It stands on the
// engine's public API and knows nothing of how the log is replicated.
//
//	gnet event loops                 handlers                      engine
//	┌──────────────┐  Request  ┌──────────────────────┐  Put  ┌──────────────┐
//	│ Server: bytes│──────────▶│ Mux: code → Handler  │──────▶│ log, queues, │
//	│ → Command    │◀──────────│ sends, pulls, groups,│◀──────│ replication  │
//	└──────────────┘   Reply   │ topics, admin, route │       └──────────────┘
//	                           └──────────────────────┘
//
// # A frame
//
//	at       bytes  field
//	0        4      length of what follows
//	4        4      header word: top byte 0 JSON or 1 binary, then header bytes
//	8        h      header: code, language, version, opaque, flag, remark, ext fields
//	8 + h    rest   body
//
// Both headers are read at any time, and answered in JSON, as RocketMQ's default
// is. What is no frame closes its connection with a Reason, which is counted.
//
// # Who may do what
//
// A Handler runs on the event loop of the connection that the request came on and
// must not block: what has to wait (a put's replicas, a long poll, the disk) goes
// on elsewhere and answers by Request.Reply, from any goroutine. Answers may
// overtake each other. The request's body is valid until Serve returns.
//
// # What is bounded
//
// Nothing that a peer does costs more than ServerOptions say: the longest frame,
// bytes of frames that are not whole (over all connections), how long one may
// take, requests that wait and answers that are not read (of one connection),
// silence, and connections. A read serves at most 64 KiB of requests before the
// next connection has its turn, and a write never waits. An idle connection costs
// less than 1 KiB of heap, and no goroutine.
//
// RocketMQ: NettyRemotingServer with its processors, BrokerController.
package remoting
