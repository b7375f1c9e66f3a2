package remoting

import (
	"strings"
	"testing"
)

func resetExt(group, topic, at, forced string) Ext {
	return Ext{{"topic", topic}, {"group", group}, {"timestamp", at}, {"isForce", forced}}
}

func TestMembersAreToldWhereToGoOn(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{Name: "b1"})
	told := make(chan *Command, 8)
	member := dialAddr(t, b.Server().Addr().String(), HandlerFunc(func(r *Request) {
		if r.Code == CodeResetClientOffset {
			told <- &Command{Flag: r.Flag, Ext: r.Ext, Body: append([]byte(nil), r.Body...)}
		}
	}))
	for range 3 {
		one := sendCommand(CodeSendMessageV2, "orders", 1, "", "x")
		wantCode(t, ask(t, member, &one), Success)
	}
	until(t, "the messages are in their queue", func() bool {
		_, end, _ := b.o.Engine.QueueBounds("orders", 1)
		return end == 3
	})
	reset := func(language string, ext Ext) *Command {
		return ask(t, member, &Command{Code: CodeInvokeResetOffset, Language: language, Ext: ext})
	}
	wantCode(t, reset("", resetExt("shop", "nowhere", "0", "true")), SystemError)
	wantCode(t, reset("", resetExt("shop", "orders", "0", "true")), SystemError) // it has no offset yet
	for queue := range int32(4) {
		if err := b.offsets.Commit("shop", "orders", queue, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, reset("", resetExt("shop", "orders", "0", "true")), ConsumerNotOnline)
	wantCode(t, reset("", Ext{{"topic", "orders"}, {"group", "shop"}, {"timestamp", "x"}, {"isForce", "true"}}), SystemError)
	wantCode(t, reset("", Ext{{"topic", "orders"}, {"group", "shop"}, {"timestamp", "1"}}), SystemError)

	beat := consumerBeat("c1", "shop", "orders=*")
	wantCode(t, ask(t, member, &beat), Success)
	wantCode(t, reset("", resetExt("shop", "orders", "0", "true").With("queueId", "1").With("offset", "1")), InvalidParameter)
	key := func(queue string) string { return `{"brokerName":"b1","queueId":` + queue + `,"topic":"orders"}` }
	for _, want := range []struct {
		language, at, forced string
		body                 string
	}{
		{"JAVA", "0", "true", key("1") + ":0"},
		{"JAVA", "-1", "true", key("1") + ":3"},
		{"JAVA", "-1", "false", key("1") + ":2"}, // not further than it is
		{"CPP", "-1", "true", `{"brokerName":"b1","offset":3,"queueId":1,"topic":"orders"}`},
	} {
		answer := reset(want.language, resetExt("shop", "orders", want.at, want.forced))
		wantCode(t, answer, Success)
		got := <-told
		if got.Flag != FlagOneway || got.Ext.Text("group") != "shop" || got.Ext.Text("topic") != "orders" || got.Ext.Text("timestamp") != want.at {
			t.Errorf("%+v: told %+v", want, got)
		}
		if !strings.Contains(string(got.Body), want.body) {
			t.Errorf("%+v: told %s", want, got.Body)
		}
		if !strings.HasPrefix(string(answer.Body), `{"offsetTable":{`+key("0")+":") {
			t.Errorf("answer %s", answer.Body)
		}
	}
	if at, ok := b.offsets.Offset("shop", "orders", 1); !ok || at != 2 {
		t.Errorf("the broker has set the offset to %d by itself", at)
	}
}

func TestADeletedTopicTakesItsOffsetsAlong(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	for _, topic := range []string{"orders", "other"} {
		one := sendCommand(CodeSendMessageV2, topic, 1, "", "x")
		wantCode(t, ask(t, c, &one), Success)
		if err := b.offsets.Commit("shop", topic, 1, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, ask(t, c, &Command{Code: CodeDeleteTopic, Ext: Ext{{"topic", "orders"}}}), Success)
	if topics := b.offsets.Topics("shop"); len(topics) != 1 || topics[0] != "other" {
		t.Errorf("the group has offsets of %v", topics)
	}
	wantCode(t, ask(t, c, &Command{Code: CodeGetTopicConfig, Ext: Ext{{"topic", "orders"}}}), TopicNotExist)
	wantCode(t, ask(t, c, &Command{Code: CodeDeleteTopic, Ext: Ext{{"topic", TopicTemplate}}}), InvalidParameter)
}

func TestToolsReadWhereGroupsAreNotMade(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{NoAutoGroups: true})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	one := sendCommand(CodeSendMessageV2, "orders", 1, "", "x")
	wantCode(t, ask(t, c, &one), Success)
	wantCode(t, ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("shop", "orders", 1, 0, pullSubscription, 0)}), GroupNotExist)
	until(t, "tools read the message", func() bool {
		return ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt(toolsGroup, "orders", 1, 0, pullSubscription, 0)}).Code == Success
	})
}
