// Package commitlog is RocketMQ's commit log on the disk: segments of records,
// the consume queues that index them, and the small files around them. What
// RocketMQ 4.x or 5.x wrote is opened, read and appended to, and what is
// written here is what RocketMQ would have written, byte for byte.
//
// The one idea: the log is a sequence of bytes with absolute offsets, and
// whatever else there is can be built from it again. A record says where it
// stands, how long it is and what its body's checksum is; it is good when all
// three hold, and the log ends where they stop to.
//
//	<store>/commitlog/00000000000000000000    segments of one size, named by
//	<store>/commitlog/00000000001073741824    the offset of their first byte
//	<store>/consumequeue/<topic>/<id>/<20 digits>
//	<store>/checkpoint  abort  lock           RocketMQ's, see checkpoint.go
//	<store>/haengine.flushed                  ours: what is known to be durable
//	<store>/epochFileCheckpoint               RocketMQ's: which master wrote what,
//	<store>/haengine.epochs                   and ours with the ids; see epochs.go
//	<store>/cut/                              ours: what was taken off the log
//	<store>/haengine.aside                    ours: while all of it is, see aside.go
//
// # A segment
//
//	base                    end offset                             base + size
//	| record | record | record |          zeros          |
//	| record | record | record | filler: size, magic, any bytes to the end |
//
// A record is written only if 8 bytes are left behind it. Otherwise a filler
// takes the rest of the segment, and the record goes to the next one.
//
// # A record
//
// All integers are big-endian and signed. B and S are the widths of the two
// hosts: 8 bytes with an IPv4 address and 20 with an IPv6 one, its port of 4
// bytes included. The offsets are for B = S = 8.
//
//	at   bytes  field
//	 0   4      size of the whole record
//	 4   4      magic: 0xDAA320A7 (V1) or 0xDAA320AB (V2)
//	 8   4      CRC-32 of the body, top bit cleared; 0 for an empty body
//	12   4      queue id
//	16   4      flag, the user's
//	20   8      queue offset: index in the consume queue
//	28   8      physical offset: of byte 0 of this record in the log
//	36   4      system flags: 0x0C transaction, 0x10 IPv6 born host,
//	            0x20 IPv6 store host, 0x80 inner batch; others the client's
//	40   8      born timestamp, ms
//	48   B      born host
//	56   8      store timestamp, ms; does not go back within a log
//	64   S      store host
//	72   4      times it was consumed again
//	76   8      prepared transaction offset
//	84   4      body length
//	88   b      body
//	     1 / 2  topic length, V1 / V2
//	     t      topic
//	     2      properties length
//	     p      properties: name U+0001 value U+0002 …
//
// # A consume queue
//
// Unit i of a queue stands at byte 20·i of its files.
//
//	at   bytes  field
//	 0   8      offset of the record
//	 8   4      its size; 0x7FFFFFFF with offset 0: no record
//	12   8      tags code: Java's hash of the tags, or when a delayed message is due
//
// # Who writes what
//
// One appender at a time extends the log: Append on a master, or Reserve, Place
// and Publish on a replica, whose bytes come from a socket, through the mapping or
// through the file. Behind what these have claimed the window writes zeros. The
// dispatcher follows the end and fills the queues; on a replica it also checks what was received.
// The flusher moves FlushedOffset, the keeper writes the small files and cleans
// up. Each piece of state has one writer; readers load atomics. With
// Options.Manual none of these has a goroutine: the owner gives each its
// turns (Log.Work).
//
// # What is guaranteed
//
//   - Published bytes do not change and are not overwritten in place.
//   - FlushedOffset is durable, directory entries and earlier segments included.
//   - Memory that is mapped is touched in guard.go only: a file that was cut, or
//     a disk that fails, is an error and not the end of the process.
//   - Queue offsets go on where they were after any restart: the queues are
//     completed from the log before the first append.
//   - After a failed sync, or damage below what was durable, nothing more is
//     written; reads go on, and Writable says why.
//
// # What the caller must do
//
// Close what was opened, Release views and encoded records, keep slices of
// mapped memory to system calls, and not call the log from the callbacks in
// Options. Nothing but segments goes into commitlog/: RocketMQ would not start.
package commitlog
