package transfer

import (
	"fmt"
	"time"
)

// Sizes that hold where a configuration says 0.
const (
	DefaultOverlapBytes    = 64 << 10
	DefaultFrameBytesLimit = 64 << 20
	// DefaultHelloWait is how long a master has to answer -1 before it is taken
	// for RocketMQ's own, and DefaultPlainMemory for how long it is then.
	DefaultHelloWait   = time.Second
	DefaultPlainMemory = 10 * time.Minute
)

// FollowerConfig is what a follower needs to know. Zero values are defaults.
type FollowerConfig struct {
	SegmentBytes    int64 // segment size of our log; must be set
	Heartbeat       time.Duration
	Housekeeping    time.Duration
	OverlapBytes    int64 // bytes compared again at each connection; 0: DefaultOverlapBytes, below 0: none
	FrameBytesLimit int32 // largest body taken; 0: DefaultFrameBytesLimit
	LastSegment     bool  // an empty log wants a RocketMQ master's last segment, not everything
	Elsewhere       bool  // an empty log begins at an offset, which RocketMQ's protocol cannot ask for

	// Extended has each connection ask for the extended protocol first. A master
	// that is silent for HelloWait is RocketMQ's: the connection goes on in its
	// protocol, and so do later ones for PlainMemory.
	Extended    bool
	HelloWait   time.Duration
	PlainMemory time.Duration

	// Secret has each master prove to know it before a byte of its log is taken,
	// or of ours cut; then there is no RocketMQ's protocol. Empty: anybody is
	// followed.
	Secret []byte
}

// FollowerState says what a follower is doing.
type FollowerState int

// The states; the picture in the package comment has the transitions.
const (
	FollowerConnecting   FollowerState = iota // no connection
	FollowerNegotiating                       // connected; not known yet whether both histories agree
	FollowerTransferring                      // the master's bytes continue ours
	FollowerStalled                           // the master has not sent what we hold: it is behind
	FollowerDiverged                          // the master's bytes differ from ours
	FollowerRefused                           // one of both does not take the other
)

var followerStates = [...]string{"connecting", "negotiating", "transferring", "stalled", "diverged", "refused"}

// String returns the state's name in the status document.
func (s FollowerState) String() string {
	if s < 0 || int(s) >= len(followerStates) {
		return fmt.Sprintf("FollowerState(%d)", int(s))
	}
	return followerStates[s]
}

// WantKind says what the next bytes of the stream are.
type WantKind int

// The kinds of bytes in a stream.
const (
	WantHeader  WantKind = iota // give them to Header
	WantCompare                 // compare them with our log from Offset, then call Compared
	WantStore                   // store them at Offset, then call Stored
)

// Want is what the next bytes of the stream are, and how many at most.
type Want struct {
	Kind   WantKind
	Offset int64 // log offset of the next byte; of no meaning for a header
	Bytes  int64 // never 0 while the connection is good
}
