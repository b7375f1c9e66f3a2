package engine

import (
	"time"

	"github.com/haengine/haengine/commitlog"
)

// What whoever speaks RocketMQ's client protocol needs of the log's format. The
// functions are commitlog's.

// Disk is how files are reached; see commitlog.Disk.
type Disk = commitlog.Disk

// File is an open file of a Disk; see commitlog.File.
type File = commitlog.File

// LimitError says which limit a message is over; see commitlog.LimitError.
type LimitError = commitlog.LimitError

// Flags of Message.SysFlag (RocketMQ MessageSysFlag).
const (
	FlagTransactionMask = commitlog.FlagTransactionMask
	FlagInnerBatch      = commitlog.FlagInnerBatch
)

// ErrOutOfRange means that no record begins at an offset, or that a queue does
// not hold it; see commitlog.ErrOutOfRange.
var ErrOutOfRange = commitlog.ErrOutOfRange

// OSDisk is the operating system's Disk.
func OSDisk() Disk { return commitlog.OSDisk() }

// DecodeClientBatch reads the body of a client's batch; see
// commitlog.DecodeClientBatch.
func DecodeClientBatch(body []byte) ([]Message, error) { return commitlog.DecodeClientBatch(body) }

// AppendClientMessage appends one message of a client's batch; see
// commitlog.AppendClientMessage.
func AppendClientMessage(dst []byte, m *Message) []byte { return commitlog.AppendClientMessage(dst, m) }

// RecordSize gives the bytes that a message takes in the log.
func RecordSize(m *Message) (int, error) { return commitlog.RecordSize(m) }

// TagHash is the hash of a tag in a consume queue's tags code.
func TagHash(tag string) int32 { return commitlog.TagHash(tag) }

// FindProperty gives a property's value in a properties text.
func FindProperty(text, name string) (string, bool) { return commitlog.FindProperty(text, name) }

// NextProperty cuts the first property off a properties text.
func NextProperty(text string) (name, value, rest string) { return commitlog.NextProperty(text) }

// DecodeRecord reads one record; see commitlog.DecodeRecord.
func DecodeRecord(b []byte) (Record, error) { return commitlog.DecodeRecord(b) }

// DueTimestamp is when a message with a delay level is due; see
// commitlog.DueTimestamp.
func DueTimestamp(properties string, storeTimestamp int64) (int64, bool) {
	return commitlog.DueTimestamp(properties, storeTimestamp)
}

// StoreHost is the node's address in records and in offset message ids.
func (e *Engine) StoreHost() Host { return e.log.StoreHost() }

// MaxBody is the largest body of a message, in bytes.
func (e *Engine) MaxBody() int { return e.opts.MaxBody }

// AppendHeld is for how long the append section is held now: long means that the
// disk hangs. 0: it is free. Any goroutine.
func (e *Engine) AppendHeld() time.Duration { return e.log.AppendHeld() }

// MinOffset is where the log's first record begins. Any goroutine.
func (e *Engine) MinOffset() int64 { return e.log.MinOffset() }

// AppendRecord appends a message as a record; see commitlog.AppendRecord.
func AppendRecord(dst []byte, m *Message) []byte { return commitlog.AppendRecord(dst, m) }
