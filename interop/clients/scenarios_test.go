package clients

import (
	"strings"

	"github.com/haengine/haengine/interop/rocketmq"
)

// scenario is what a client does and what it sees, by one name in each program.
type scenario struct {
	name  string
	title string // in the table
	java  bool
	goes  bool   // the client for Go has it
	mixed bool   // run at the clusters of both kinds, too
	small bool   // run without -full
	alone bool   // not compared: RocketMQ takes what we refuse
	why   string // if it is not the same at ours: why. testdata/results.txt says what it is
	why4  string // the same, for 4.9.7 only
}

// atMaster are run while all are up; prepare among them.
var atMaster = []scenario{
	{name: prepare, title: "a group that runs, one that left, a producer: for what comes after the kill", java: true, goes: true, mixed: true, small: true},
	{name: "send-sync", title: "synchronous sends; the first makes the topic", java: true, goes: true, mixed: true, small: true},
	{name: "send-async", title: "asynchronous sends", java: true, goes: true},
	{name: "send-oneway", title: "one-way sends", java: true, goes: true},
	{name: "send-batch", title: "batches", java: true, goes: true, small: true},
	{name: "send-orderly", title: "sends to a queue that the key chooses", java: true, goes: true},
	{name: "send-compressed", title: "large bodies, compressed by the client", java: true, goes: true},
	{name: "send-properties", title: "tags, keys, flag and properties", java: true, goes: true, small: true, why: "`MSG_REGION`, `TRACE_ON` and `CLUSTER` are not added to a message's properties"},
	{name: "send-refused", title: "sends that are refused", java: true, goes: true, why4: "a queue that is not there is refused with code 29, as by 5.x; by 4.9.7 with 1"},
	{name: "send-unsupported", title: "delayed, transactional messages and queries by key", java: true, goes: true, alone: true, why: "not supported yet: refused, and nothing is stored"},
	{name: "push-group", title: "a push group: two members share, one leaves", java: true, goes: true, mixed: true, small: true},
	{name: "push-broadcast", title: "push, broadcasting", java: true, goes: true},
	{name: "push-tags", title: "push by tags, two of one hash code", java: true, goes: true},
	{name: "push-retry", title: "push, consumption fails: retries, then the dead-letter topic", java: true, goes: true, mixed: true, small: true},
	{name: "push-continue", title: "a push group comes back and goes on", java: true, goes: true},
	{name: "push-last", title: "a new group that begins at the end of a young topic: at its first message", java: true, goes: true},
	{name: "push-time", title: "a new group that begins at a time of a young topic: at its first message", java: true, goes: true},
	{name: "orderly-group", title: "orderly push: two members, order within each queue", java: true, goes: true, mixed: true, small: true},
	{name: "orderly-suspend", title: "orderly push: a queue waits, nothing overtakes", java: true},
	{name: "orderly-dead", title: "orderly push: too many tries, then the dead-letter topic", java: true},
	{name: "lite-subscribe", title: "lite pull: subscribe, commit, come back", java: true, mixed: true},
	{name: "lite-assign", title: "lite pull: assign and seek", java: true, small: true},
	{name: "lite-time", title: "lite pull: offsets by time", java: true, why4: "a time to come gives the end, as with 5.x; with 4.9.7 the last message"},
	{name: "pull-queue", title: "pull at offsets inside, at and beyond the end", java: true, goes: true, small: true, why4: "a queue that is not there is refused with code 29, as by 5.x; by 4.9.7 with 1"},
	{name: "pull-blocking", title: "a pull that waits for a message", java: true},
	{name: "pull-poll", title: "pull: poll, acknowledge, come back", goes: true},
	{name: "view-by-id", title: "a message by its offset id", java: true, small: true},
}

// prepare names the scenario, and what it leaves, for those after the kill.
const prepare = "slave-prepare"

// deaf is why there is nothing to compare with: RocketMQ's own slave lacks offsets
// that ours has, or has them by chance.
const deaf = "RocketMQ 5.5.0's slave cannot read all answers of a 5.5.0 master about offsets, and a group may begin anew; at ours it goes on, as with 4.9.7"

// atSlave are run when the masters have been killed.
var atSlave = []scenario{
	{name: "slave-running", title: "a push group that was running goes on", java: true, goes: true, mixed: true, small: true},
	{name: "slave-push", title: "a push group that starts now (Java: reads all, stores offsets; Go: gets nothing)", java: true, goes: true, mixed: true, small: true},
	{name: "slave-continue", title: "a push group goes on from the offsets that its master had", java: true, mixed: true, small: true, why: deaf},
	{name: "slave-retry", title: "push, consumption fails: retried in the client", java: true},
	{name: "slave-orderly", title: "orderly push: no lock, nothing", java: true, mixed: true},
	{name: "slave-lite-subscribe", title: "lite pull: subscribe", java: true, mixed: true},
	{name: "slave-lite-assign", title: "lite pull: assign and seek", java: true, small: true},
	{name: "slave-pull", title: "pull, and what is known of a queue", java: true, goes: true, mixed: true},
	{name: "slave-send", title: "sends: no route", java: true, goes: true, mixed: true, small: true},
	{name: "slave-view", title: "a message by its offset id: its address is the master's", java: true},
}

// command is one of mqadmin's.
type command struct {
	text  string // with MASTER, SLAVE, TOPIC and ID in it
	since string // versions before it do not have the command
	until string // nor those from this on
	small bool
	why   string
}

func (c command) knows(version string) bool {
	return version >= c.since && (c.until == "" || version < c.until)
}

const never = "the times of the last read and write are not told"

var mqadmin = []command{
	{text: "clusterList", small: true},
	{text: "brokerStatus -b MASTER", small: true},
	{text: "brokerStatus -b SLAVE"},
	{text: "haStatus -b MASTER", since: "5", small: true},
	{text: "haStatus -b SLAVE", since: "5", why: never},
	{text: "topicList"},
	{text: "topicRoute -t TOPIC"},
	{text: "topicStatus -t TOPIC", small: true},
	{text: "consumerProgress -g TOPIC-group-gone", small: true},
	{text: "consumerProgress"},
	{text: "queryMsgById -i ID", until: "5"},
	{text: "queryMsgById -t TOPIC -i ID", since: "5", small: true},
	{text: "updateTopic -c interop -t TOPIC-made -r 3 -w 2", small: true},
	{text: "topicRoute -t TOPIC-made"},
	{text: "updateTopic -b MASTER -t TOPIC-by-address"},
}

var mqadminAtSlave = []command{
	{text: "clusterList", small: true},
	{text: "brokerStatus -b SLAVE"},
	{text: "topicList"},
	{text: "topicRoute -t TOPIC"},
	{text: "topicStatus -t TOPIC", small: true},
	{text: "consumerProgress -g TOPIC-group-gone", why: deaf},
	{text: "queryMsgById -i ID", until: "5"},
	{text: "queryMsgById -t TOPIC -i ID", since: "5"},
	{text: "updateTopic -c interop -t TOPIC-late"},
}

// reason is why a client finds something else at ours; empty: it must not.
func (s scenario) reason(c *client) string {
	if s.why4 != "" && c.name == "Java "+string(rocketmq.V4Broker) {
		return s.why4
	}
	return s.why
}

// apart tells whether RocketMQ's result is none to compare with.
func (s scenario) apart(c *client) bool {
	return s.alone || s.why == deaf && c.name == "Java "+string(rocketmq.V5)
}

func (s scenario) has(c *client) bool {
	if strings.HasPrefix(c.name, "Java") {
		return s.java
	}
	return s.goes
}
