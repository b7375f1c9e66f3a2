package remoting

import (
	"strconv"
	"testing"

	"github.com/haengine/haengine/engine"
)

func backCommand(group string, offset int64, level int) Command {
	return Command{Code: CodeConsumerSendBack, Ext: Ext{
		{"offset", strconv.FormatInt(offset, 10)}, {"group", group}, {"delayLevel", strconv.Itoa(level)}, {"originTopic", "orders"},
	}}
}

// last reads the newest of so many messages of a queue.
func (f *sendFixture) last(topic string, messages int64) engine.Record {
	f.t.Helper()
	var r engine.Record
	eventually(f.t, "a message in "+topic, func() bool {
		_, to, ok := f.engine.QueueBounds(topic, 0)
		if !ok || to != messages {
			return false
		}
		var err error
		r, err = f.engine.GetByQueue(topic, 0, to-1)
		return err == nil
	})
	return r
}

func TestAMessageSentBackGoesToTheRetryTopicAndInTheEndToTheDeadLetters(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	config := NewGroupConfig("g")
	config.RetryMax = 2
	if err := await(func(done func(error)) { f.groups.Update(config, done) }); err != nil {
		t.Fatal(err)
	}
	c := sendCommand(CodeSendMessage, "orders", 3, "TAGS\x01TagA\x02WAIT\x01true\x02REAL_TOPIC\x01orders\x02REAL_QID\x013", "one book")
	c.Ext = c.Ext.With("flag", "7").With("sysFlag", "1")
	first := f.record(f.send(c))
	f.peer = newFakePeer("192.0.2.99:1") // the consumer

	stored := map[string]int64{}
	back := func(at engine.Record, level int, topic string, n int32) engine.Record {
		t.Helper()
		a := f.send(backCommand("g", at.PhysicalOffset, level))
		wantCode(t, a, Success)
		if a.Ext.Text("msgId") != "" {
			t.Errorf("answer %+v", a.Ext)
		}
		stored[topic]++
		r := f.last(topic, stored[topic])
		property := func(name string) string { v, _ := r.Property(name); return v }
		if r.ReconsumeTimes != n || string(r.Body) != "one book" || r.Flag != 7 || r.SysFlag != 1 || r.BornHost != first.BornHost ||
			r.BornTimestamp != first.BornTimestamp || property("TAGS") != "TagA" || property("RETRY_TOPIC") != "orders" ||
			property("ORIGIN_MESSAGE_ID") != first.OffsetMsgID() || property("WAIT") != "false" || property("REAL_TOPIC")+property("REAL_QID") != "" {
			t.Errorf("%s holds %+v", topic, r.Message)
		}
		return r
	}
	delay := func(r engine.Record) string { v, _ := r.Property("DELAY"); return v }
	one := back(first, 5, "%RETRY%g", 1)
	two := back(one, 0, "%RETRY%g", 2)
	dead := back(two, 0, "%DLQ%g", 3)
	if delay(one) != "5" || delay(two) != "4" || delay(dead) != "0" {
		t.Errorf("levels %s, %s, %s", delay(one), delay(two), delay(dead))
	}
	back(first, -1, "%DLQ%g", 1) // the consumer wants it no more
	if c, ok := f.topics.Lookup("%DLQ%g"); !ok || c.Perm != 6 || c.WriteQueues != 1 {
		t.Errorf("the dead-letter topic is %+v", c)
	}
	own := backCommand("g", first.PhysicalOffset, 0)
	own.Ext = own.Ext.With("maxReconsumeTimes", "0")
	wantCode(t, f.send(own), Success)
	if r := f.last("%DLQ%g", 3); r.ReconsumeTimes != 1 || r.QueueOffset != 2 {
		t.Errorf("the client's own limit: %+v", r.Message)
	}
}

func TestBadSendBacksAreRefused(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	at := f.record(f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))).PhysicalOffset
	wantCode(t, f.send(backCommand("bad group", at, 0)), GroupNotExist)
	wantCode(t, f.send(backCommand("g", at+1, 0)), SystemError)
	wantCode(t, f.send(backCommand("g", 1<<40, 0)), SystemError)
	wantCode(t, f.send(Command{Code: CodeConsumerSendBack, Ext: Ext{{"group", "g"}}}), SystemError)
	none := NewGroupConfig("none")
	none.RetryQueues = 0
	if err := await(func(done func(error)) { f.groups.Update(none, done) }); err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.send(backCommand("none", at, 0)), Success)
	if _, ok := f.topics.Lookup("%RETRY%none"); ok {
		t.Error("a group without retry queues got a retry topic")
	}
}

// A client whose send-back failed sends the message to the retry topic itself.
func TestAClientsOwnRetryIsTakenAtOnceOrGoesToTheDeadLetters(t *testing.T) {
	locked := false
	f := newSends(t, engine.Options{}, SendsOptions{Locked: func(string) bool { return locked }}, TopicsOptions{})
	retry := func(times, most string) *Command {
		c := sendCommand(CodeSendMessageV2, "%RETRY%g", 0, "DELAY\x014\x02TRAN_MSG\x01true\x02A\x01b", "x")
		return f.send(Command{Code: c.Code, Body: c.Body, Ext: c.Ext.With("j", times).With("l", most)})
	}
	for _, c := range []struct {
		times, most, topic, delay string
		locked                    bool
	}{
		{"1", "", "%RETRY%g", "4", false},
		{"16", "", "%RETRY%g", "4", false},
		{"17", "", "%DLQ%g", "0", false},
		{"2", "2", "%RETRY%g", "4", false},
		{"3", "2", "%DLQ%g", "0", false},
		{"1", "", "%DLQ%g", "0", true},
	} {
		locked = c.locked
		a := retry(c.times, c.most)
		wantCode(t, a, Success)
		r := f.record(a)
		delay, _ := r.Property("DELAY")
		if r.Topic != c.topic || delay != c.delay || strconv.Itoa(int(r.ReconsumeTimes)) != c.times {
			t.Errorf("%+v: stored in %s with DELAY %s, %d times", c, r.Topic, delay, r.ReconsumeTimes)
		}
	}
}

// A group that got more retry queues than its retry topic has: what is sent back
// goes where consumers look.
func TestAMessageSentBackGoesToAQueueThatIsRead(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	at := f.record(f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))).PhysicalOffset
	wantCode(t, f.send(backCommand("g", at, 0)), Success) // makes %RETRY%g with one queue
	config := NewGroupConfig("g")
	config.RetryQueues = 1 << 10
	if err := await(func(done func(error)) { f.groups.Update(config, done) }); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		wantCode(t, f.send(backCommand("g", at, 0)), Success)
	}
	f.last("%RETRY%g", 6)
}

func TestNothingGoesBackWhereTheRetryTopicMayNotBeWritten(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	at := f.record(f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))).PhysicalOffset
	topic := NewTopicConfig("%RETRY%g", 1)
	topic.Perm = PermRead
	if err := await(func(done func(error)) { f.topics.Update(topic, done) }); err != nil {
		t.Fatal(err)
	}
	for _, level := range []int{0, -1} {
		wantCode(t, f.send(backCommand("g", at, level)), NoPermission)
	}
}
