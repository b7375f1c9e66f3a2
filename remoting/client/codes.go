package client

import (
	"fmt"

	"github.com/haengine/haengine/remoting"
)

// Status says what became of a message, with the names that RocketMQ's clients
// use (SendStatus) as long as it is stored.
type Status string

// What is stored; all but SendOK with a doubt, and sent again it is there twice.
const (
	SendOK            Status = "SEND_OK"
	FlushDiskTimeout  Status = "FLUSH_DISK_TIMEOUT"  // not known to be on the master's disk
	FlushSlaveTimeout Status = "FLUSH_SLAVE_TIMEOUT" // not known to be on enough slaves
	SlaveNotAvailable Status = "SLAVE_NOT_AVAILABLE" // no slave in sync to wait for
)

// What is not stored, but for NoAnswer. A refusal has the name of its response code;
// SYSTEM_ERROR may be one that came when the message was stored already, and is not
// tried again either.
const (
	NotSent  Status = "NOT_SENT"  // nobody could take it
	NoAnswer Status = "NO_ANSWER" // it was sent, and may be stored
)

// Stored tells that a broker has said that it has the message.
func (s Status) Stored() bool {
	switch s {
	case SendOK, FlushDiskTimeout, FlushSlaveTimeout, SlaveNotAvailable:
		return true
	}
	return false
}

var statuses = map[int32]Status{
	remoting.Success: SendOK, remoting.FlushDiskTimeout: FlushDiskTimeout,
	remoting.FlushSlaveTimeout: FlushSlaveTimeout, remoting.SlaveNotAvailable: SlaveNotAvailable,
}

// Response codes that our broker does not give.
const (
	subscriptionParseFailed = 23
	flowControl             = 215
)

var codeNames = map[int32]string{
	remoting.SystemError: "SYSTEM_ERROR", remoting.SystemBusy: "SYSTEM_BUSY",
	remoting.RequestCodeNotSupported: "REQUEST_CODE_NOT_SUPPORTED", remoting.MessageIllegal: "MESSAGE_ILLEGAL",
	remoting.ServiceNotAvailable: "SERVICE_NOT_AVAILABLE", remoting.NoPermission: "NO_PERMISSION",
	remoting.TopicNotExist: "TOPIC_NOT_EXIST", remoting.PullNotFound: "PULL_NOT_FOUND",
	remoting.PullRetryImmediately: "PULL_RETRY_IMMEDIATELY", remoting.PullOffsetMoved: "PULL_OFFSET_MOVED",
	remoting.QueryNotFound: "QUERY_NOT_FOUND", remoting.SubscriptionNotExist: "SUBSCRIPTION_NOT_EXIST",
	remoting.GroupNotExist: "SUBSCRIPTION_GROUP_NOT_EXIST", remoting.InvalidParameter: "INVALID_PARAMETER",
	remoting.ConsumerNotOnline: "CONSUMER_NOT_ONLINE", flowControl: "FLOW_CONTROL", remoting.GoAway: "GO_AWAY",
}

// CodeName is RocketMQ's name of a response code.
func CodeName(code int32) string {
	if name := codeNames[code]; name != "" {
		return name
	}
	return fmt.Sprintf("CODE_%d", code)
}
