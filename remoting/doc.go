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
// # Who may do what
//
// A Handler runs on the event loop of the connection that the request came on and
// must not block: what has to wait (a put's replicas, a long poll, the disk) goes
// on elsewhere and answers by Request.Reply, from any goroutine. Answers may
// overtake each other. The request's body is valid until Serve returns.
//
// RocketMQ: NettyRemotingServer with its processors, BrokerController.
package remoting
