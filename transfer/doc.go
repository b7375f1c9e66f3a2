// Package transfer decides what a master sends, what a slave reports, and when
// a put has been replicated.
//
// It does no I/O, reads no clock and starts no goroutine: bytes, times and the
// log's ends come in as arguments, and small values come back for the caller to
// carry out. Every run of the protocol can therefore be replayed from a seed;
// see internal/sim. Times are a monotonic clock's, since any start. Offsets are
// byte positions in the whole log, and ranges are half-open.
//
// # Wire
//
// The plain protocol is RocketMQ's DefaultHAService, byte for byte. Integers
// are big-endian and signed. The slave dials and speaks first; there is no
// greeting, no version and no error message: a refusal is a close.
//
//	report, slave to master                   frame, master to slave
//	┌─────────────────────────┐               ┌──────────────┬─────────┬──────────┐
//	│ offset wanted next    8 │               │ offset     8 │ bytes 4 │ body     │
//	└─────────────────────────┘               └──────────────┴─────────┴──────────┘
//	one past the last byte held               log offset of the body's first byte;
//	                                          bytes 0: heartbeat, offset of the next
//
// A body is raw log, cut anywhere but at a segment's end, which it never
// passes; header and body together are at most 4 MiB (FrameBytesMax). Both
// directions are plain streams: units arrive cut and joined anywhere, which is
// a Decoder's business.
//
// The first report chooses the start, the later ones only acknowledge:
//
//	first report     the master serves
//	0                from its last segment's start (HistoryFirst: its first byte),
//	                 once it has a byte; before that it sends nothing at all
//	1                the same waiting while the log is empty, then from 1
//	in [min, end]    from exactly there, inside a record or a filler too
//	-1               nothing, or its hello: the next report counts as the first
//	anything else    a close with a *ReportError
//
// Two haengine nodes agree on an extended protocol: the slave's first report is
// -1, the master answers with a Hello, the slave with its own (see AppendHello,
// extendedHeader and extendedReport for the bytes, docs/protocol.md for all of
// it). Align decides between the two what of the slave's log has to go. Who has
// the hello and does not answer it may ask for checksums of the log (Question)
// and is no replica; see Asker.
//
// Where both have a secret, an opening of each stands before the master's hello,
// and three proofs show that both know it (see trust, proving, transcript):
// nothing is told or taken before, and RocketMQ's protocol is not spoken. A
// nonce for each connection comes from the caller, who draws it at random.
//
// # Session: the master's view of one replica
//
//	        -1                     0, or 1 on an empty log
//	silent ────▶ hello    silent, hello ─────────────────▶ held
//	   │           │ ↺ a question, its answer               │ the log has a byte
//	   └───────────┴── offset in [min, end] ──▶ serving ◀───┘
//
// While serving, acked <= sent <= end of the log. A report below acked or above
// sent ends the connection and acknowledges nothing. So do 20 s (Housekeeping)
// without a first report, without a report, or without progress of a frame.
// A heartbeat goes out after 5 s (Heartbeat) in which nothing was sent.
//
// A frame is as large as what there is, up to the size agreed on. A Pace cuts it
// smaller: one rate holds for a replica that is live, another one for a replica
// that is catching up; see pacing for the border between them.
//
// # Follower: the slave
//
//	             Begin              all of the overlap equal
//	connecting ────────▶ negotiating ─────────────────────▶ transferring
//	    ▲                 │    ▲  │                               │
//	    │   a heartbeat   ▼    │  │ a difference: diverged        │
//	    │   without it  stalled┘  │ a bad frame, or a close       │ Ended
//	    │                         ▼ without a byte: refused       │
//	    └─────────────────────────────────────────────────────────┘
//
// Offsets do not prove that two logs are one history, so bytes are compared:
// the first report lies up to 64 KiB before the log's end, and what comes again
// has to equal what is there before anything is stored. Too few bytes mean that
// the master is behind (stalled; it goes on when more comes), a difference means
// two histories (diverged). Diverged and refused stay until a connection proves
// otherwise. A log without bytes has nothing to compare: it reports 1 to get the
// master's whole history (the byte skipped is a known 0), and 0 for the last
// segment when the master answers that with nothing.
//
// # Waits
//
// A Quorum turns the replicas' acks into the offset that enough distinct ones
// hold, for each kind of ack. A Ring holds the waits of puts in offset order and
// ends them when that offset passes them or their time is over.
//
// # The caller's duties
//
// Session and Follower are loop-confined: one goroutine at a time, in order.
//
//	readable, master   Feed; on an error close. Then Acked goes to the quorum.
//	writable, master   Next; write header and body; Sent at each progress; until
//	                   Next has nothing or the socket is full.
//	log grew           the same for each replica that is not waiting for its socket.
//	connected, slave   SetPeer; Begin; write the report; Reported.
//	opening, slave     when Challenged, Prove (or Refuse) and write what it gives.
//	hello, slave       while Greeting waits take nothing from the socket: Align,
//	                   cut the log, Answer (or Refuse) and write what it gives.
//	hello, master      Control goes out before the next frame; Unproved asks for a
//	                   checksum of our log, which goes to Prove.
//	question, master   Question asks for checksums, which go to AnswerQuestion.
//	readable, slave    Want; read at most that much to where it says; Header,
//	                   Compared or Stored; publish what Stored says; at the end
//	                   of the turn NextReport.
//	an empty log       after Header ask StartOffset and SkipByte before the body.
//	timer              at Deadline ask Expired, then Next; or FallBack and
//	                   NextReport.
//	closed, slave      zero the Unpublished bytes, then Ended; dial again after
//	                   what Backoff says.
//
// The master's log must not lose bytes that a session may still be asked for:
// what Next gave is read from the log by the caller.
package transfer
