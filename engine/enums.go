package engine

import (
	"fmt"
	"strings"

	"github.com/haengine/haengine/commitlog"
)

// names spells the values of an enumeration, in order from zero.
type names []string

func (n names) of(i int) string {
	if i < 0 || i >= len(n) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return n[i]
}

// parse takes any case, and - for _.
func parse[T ~uint8](what, s string, n names) (T, error) {
	for i, name := range n {
		if strings.EqualFold(strings.ReplaceAll(s, "-", "_"), strings.ReplaceAll(name, "-", "_")) {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q is none of %s", what, s, strings.Join(n, ", "))
}

// Role is what a node does (RocketMQ BrokerRole).
type Role uint8

// The roles: a master whose puts wait for nobody, a master whose puts wait for
// replicas, and a replica.
const (
	AsyncMaster Role = iota
	SyncMaster
	Slave
)

var roleNames = names{"ASYNC_MASTER", "SYNC_MASTER", "SLAVE"}

// String is RocketMQ's name of the role.
func (r Role) String() string { return roleNames.of(int(r)) }

// MarshalText writes RocketMQ's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// ParseRole reads a role in any case, with - or _.
func ParseRole(s string) (Role, error) { return parse[Role]("role", s, roleNames) }

// FlushMode is when a put is durable here (RocketMQ FlushDiskType).
type FlushMode uint8

// AsyncFlush flushes by time and pages; SyncFlush lets each put wait for its
// fdatasync, one of which serves all that wait.
const (
	AsyncFlush FlushMode = iota
	SyncFlush
)

var flushNames = names{"ASYNC_FLUSH", "SYNC_FLUSH"}

// String is RocketMQ's name of the mode.
func (f FlushMode) String() string { return flushNames.of(int(f)) }

// MarshalText writes RocketMQ's name.
func (f FlushMode) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// ParseFlushMode reads a flush mode in any case, with - or _.
func ParseFlushMode(s string) (FlushMode, error) {
	return parse[FlushMode]("flush mode", s, flushNames)
}

func (f FlushMode) log() commitlog.FlushMode {
	if f == SyncFlush {
		return commitlog.SyncFlush
	}
	return commitlog.AsyncFlush
}

// AckKind is what a replica's acknowledgement says of its copy.
type AckKind uint8

// AckReceived: the bytes are in the replica's page cache, which is all that
// RocketMQ's report says. AckFlushed: they are fsynced there.
const (
	AckReceived AckKind = iota
	AckFlushed
)

var ackNames = names{"received", "flushed"}

// String is the kind's name on the command line.
func (a AckKind) String() string { return ackNames.of(int(a)) }

// MarshalText writes the kind's name.
func (a AckKind) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAckKind reads an acknowledgement kind in any case.
func ParseAckKind(s string) (AckKind, error) { return parse[AckKind]("ack", s, ackNames) }

// WireMode is which protocol two nodes may speak.
type WireMode uint8

// WireAuto negotiates the richest protocol that both ends know; WirePlain
// speaks RocketMQ's own and never tries another.
const (
	WireAuto WireMode = iota
	WirePlain
)

var wireNames = names{"auto", "plain"}

// String is the mode's name on the command line.
func (w WireMode) String() string { return wireNames.of(int(w)) }

// MarshalText writes the mode's name.
func (w WireMode) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// ParseWireMode reads a wire mode in any case.
func ParseWireMode(s string) (WireMode, error) { return parse[WireMode]("wire", s, wireNames) }

// PlainIdentity is what makes a plain peer one replica, since RocketMQ's
// protocol carries no name.
type PlainIdentity uint8

// IdentityIP: connections from one address are one replica, counted once.
// IdentityConnection: each connection is a replica of its own, for several
// slaves behind one address; two connections of one slave then count twice.
const (
	IdentityIP PlainIdentity = iota
	IdentityConnection
)

var identityNames = names{"ip", "connection"}

// String is the identity's name on the command line.
func (p PlainIdentity) String() string { return identityNames.of(int(p)) }

// MarshalText writes the identity's name.
func (p PlainIdentity) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParsePlainIdentity reads a plain identity in any case.
func ParsePlainIdentity(s string) (PlainIdentity, error) {
	return parse[PlainIdentity]("plain identity", s, identityNames)
}

// PlainHistory is what an empty plain replica (first report 0) is sent.
type PlainHistory uint8

// HistoryLast is RocketMQ's rule: the last segment only. HistoryFirst sends
// everything from the log's first byte.
const (
	HistoryLast PlainHistory = iota
	HistoryFirst
)

var historyNames = names{"last", "first"}

// String is the history's name on the command line.
func (p PlainHistory) String() string { return historyNames.of(int(p)) }

// MarshalText writes the history's name.
func (p PlainHistory) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParsePlainHistory reads a plain history in any case.
func ParsePlainHistory(s string) (PlainHistory, error) {
	return parse[PlainHistory]("plain history", s, historyNames)
}
