package remoting

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

// openBroker runs a whole broker on a store; close ends it and its engine.
func openBroker(t *testing.T, store string, o BrokerOptions) (b *Broker, closeAll func()) {
	t.Helper()
	return openBrokerOf(t, engine.Options{Store: store}, o)
}

func openBrokerOf(t *testing.T, node engine.Options, o BrokerOptions) (b *Broker, closeAll func()) {
	t.Helper()
	logger, _ := testLogger(t)
	node.SegmentBytes, node.Reactors, node.Logger = 1<<20, 1, logger
	e, err := engine.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	o.Engine, o.Store, o.Listen, o.Logger = e, node.Store, "127.0.0.1:0", logger
	if len(o.NameServers) == 0 {
		o.NameServerListen = "127.0.0.1:0"
	}
	b, err = OpenBroker(o)
	if err != nil {
		t.Fatal(err)
	}
	over := false
	closeAll = func() {
		if over {
			return
		}
		over = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(b.Close(ctx), e.Close(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
		if n := b.server.Count(HandlerPanicked); n > 0 {
			t.Errorf("%d requests made their handler panic", n)
		}
	}
	t.Cleanup(closeAll)
	return b, closeAll
}

func dialAddr(t *testing.T, addr string, h Handler) *Client {
	t.Helper()
	c, err := Dial(t.Context(), addr, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func routeOf(t *testing.T, names *Client, topic string) *Command {
	t.Helper()
	return ask(t, names, &Command{Code: CodeGetRouteInfo, Ext: Ext{{"topic", topic}}})
}

// queueExt is the header of a question about queue 1.
func queueExt(group, topic string) Ext {
	return Ext{{"consumerGroup", group}, {"topic", topic}, {"queueId", "1"}}
}

func pullExt(group, topic string, queue int, from int64, flags, suspend int) Ext {
	return Ext{{"consumerGroup", group}, {"topic", topic}, {"queueId", strconv.Itoa(queue)}}.
		WithInt("queueOffset", from).With("maxMsgNums", "32").WithInt("sysFlag", int64(flags)).With("commitOffset", "0").
		WithInt("suspendTimeoutMillis", int64(suspend)).With("subVersion", "1")
}

func TestABrokerServesProducersAndConsumers(t *testing.T) {
	store := t.TempDir()
	b, closeAll := openBroker(t, store, BrokerOptions{})
	names := dialAddr(t, b.NameServerAddr().String(), nil)
	until(t, "the broker is registered", func() bool { return routeOf(t, names, TopicTemplate).Code == Success })
	wantCode(t, routeOf(t, names, "orders"), TopicNotExist)

	producer := dialAddr(t, b.Server().Addr().String(), nil)
	one := sendCommand(CodeSendMessageV2, "orders", 1, "UNIQ_KEY\x01A\x02TAGS\x01paid", "first")
	sent := ask(t, producer, &one)
	wantCode(t, sent, Success)
	if got := sent.Ext.Text("transactionId"); got != "A" {
		t.Errorf("transactionId %q", got)
	}
	route := routeOf(t, names, "orders")
	wantCode(t, route, Success)
	if !strings.Contains(string(route.Body), `"0":"`+b.Address()+`"`) {
		t.Errorf("route %s", route.Body)
	}
	batch := sendCommand(CodeSendBatch, "orders", 1, "", "")
	for _, body := range []string{"second", "third"} {
		batch.Body = engine.AppendClientMessage(batch.Body, &engine.Message{Body: []byte(body), Properties: "TAGS\x01paid\x02"})
	}
	sent = ask(t, producer, &batch)
	wantCode(t, sent, Success)
	if ids := strings.Split(sent.Ext.Text("msgId"), ","); len(ids) != 2 || sent.Ext.Text("queueOffset") != "1" {
		t.Errorf("batch: %v", sent.Ext)
	}

	changes := make(chan string, 8)
	consumer := dialAddr(t, b.Server().Addr().String(), HandlerFunc(func(r *Request) {
		if r.Code == CodeNotifyConsumersChanged {
			changes <- r.Ext.Text("consumerGroup")
		}
	}))
	beat := consumerBeat("c1", "shop", "orders=paid", RetryPrefix+"shop=*")
	wantCode(t, ask(t, consumer, &beat), Success)
	if group := <-changes; group != "shop" {
		t.Errorf("change of group %q", group)
	}
	wantCode(t, routeOf(t, names, RetryPrefix+"shop"), Success)
	members := listOf("shop")
	if got := ask(t, consumer, &members); string(got.Body) != `{"consumerIdList":["c1"]}` {
		t.Errorf("members %s", got.Body)
	}
	until(t, "the messages are in their queue", func() bool {
		_, end, _ := b.o.Engine.QueueBounds("orders", 1)
		return end == 3
	})
	offset := ask(t, consumer, &Command{Code: CodeQueryConsumerOffset, Ext: queueExt("shop", "orders")})
	if offset.Code != Success || offset.Ext.Text("offset") != "0" {
		t.Errorf("a new group begins at %d %v", offset.Code, offset.Ext)
	}
	pulled := ask(t, consumer, &Command{Code: CodePullMessage, Ext: pullExt("shop", "orders", 1, 0, 0, 0)})
	wantCode(t, pulled, Success)
	if offsets, _ := recordsOf(t, pulled.Body); !slices.Equal(offsets, []int64{0, 1, 2}) {
		t.Errorf("pulled %v", offsets)
	}
	first, err := engineRecord(b, sent)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, ask(t, consumer, &Command{Code: CodeConsumerSendBack, Ext: Ext{{"group", "shop"}, {"delayLevel", "0"}}.WithInt("offset", first)}), Success)
	again := ask(t, consumer, &Command{Code: CodePullMessage, Ext: pullExt("shop", RetryPrefix+"shop", 0, 0, pullSuspends, 20000)})
	wantCode(t, again, Success)

	held := make(chan *Command, 1)
	go func() {
		c, err := consumer.Call(t.Context(), &Command{Code: CodePullMessage, Ext: pullExt("shop", "orders", 1, 3, pullSuspends, 20000)})
		if err != nil {
			t.Error(err)
		}
		held <- c
	}()
	until(t, "the pull is held", func() bool { return b.pulls.holds.some.Load() == 1 })
	one = sendCommand(CodeSendMessage, "orders", 1, "TAGS\x01paid\x02", "fourth")
	wantCode(t, ask(t, producer, &one), Success)
	if got := <-held; got == nil || got.Code != Success || got.Ext.Text("nextBeginOffset") != "4" {
		t.Fatalf("a held pull: %+v", got)
	}
	wantCode(t, ask(t, consumer, &Command{Code: CodeUpdateConsumerOffset, Ext: queueExt("shop", "orders").With("commitOffset", "4")}), Success)
	closeAll()

	b, _ = openBroker(t, store, BrokerOptions{})
	consumer = dialAddr(t, b.Server().Addr().String(), nil)
	offset = ask(t, consumer, &Command{Code: CodeQueryConsumerOffset, Ext: queueExt("shop", "orders")})
	if offset.Code != Success || offset.Ext.Text("offset") != "4" {
		t.Errorf("after a restart the group is at %d %v", offset.Code, offset.Ext)
	}
	config := ask(t, consumer, &Command{Code: CodeGetTopicConfig, Ext: Ext{{"topic", "orders"}}})
	if config.Code != Success || !strings.Contains(string(config.Body), `"writeQueueNums":4`) {
		t.Errorf("after a restart the topic is %d %s", config.Code, config.Body)
	}
	if groups := ask(t, consumer, &Command{Code: CodeGetAllGroups}); !strings.Contains(string(groups.Body), `"shop":{`) {
		t.Errorf("after a restart the groups are %s", groups.Body)
	}
}

// engineRecord gives the offset in the log of a batch's first message.
func engineRecord(b *Broker, sent *Command) (int64, error) {
	id, _, _ := strings.Cut(sent.Ext.Text("msgId"), ",")
	offset, err := strconv.ParseInt(id[len(id)-16:], 16, 64)
	if err != nil {
		return 0, err
	}
	_, err = b.o.Engine.Get(offset)
	return offset, err
}

func TestABrokerThatClosesAnswersHeldPulls(t *testing.T) {
	b, closeAll := openBroker(t, t.TempDir(), BrokerOptions{})
	producer := dialAddr(t, b.Server().Addr().String(), nil)
	one := sendCommand(CodeSendMessage, "orders", 0, "", "x")
	wantCode(t, ask(t, producer, &one), Success)
	until(t, "the message is in its queue", func() bool {
		_, end, _ := b.o.Engine.QueueBounds("orders", 0)
		return end == 1
	})
	held := make(chan *Command, 1)
	go func() {
		for { // as a client does: what is answered early is asked again
			c, err := producer.Call(t.Context(), &Command{Code: CodePullMessage, Ext: pullExt("g", "orders", 0, 1, pullSuspends|pullSubscription, 60000)})
			if err != nil || c.Code == SystemBusy {
				held <- c
				return
			}
		}
	}()
	until(t, "the pull is held", func() bool { return b.pulls.holds.some.Load() == 1 })
	closeAll()
	if got := <-held; got == nil || got.Code != SystemBusy {
		t.Errorf("held until %+v", got)
	}
}

func TestASlaveFollowsTopicsGroupsAndOffsets(t *testing.T) {
	master, _ := openBrokerOf(t, engine.Options{Store: t.TempDir(), HAListen: "127.0.0.1:0"}, BrokerOptions{})
	producer := dialAddr(t, master.Server().Addr().String(), nil)
	one := sendCommand(CodeSendMessage, "orders", 1, "", "x")
	wantCode(t, ask(t, producer, &one), Success)
	wantCode(t, ask(t, producer, &Command{Code: CodeUpdateConsumerOffset, Ext: queueExt("shop", "orders").With("commitOffset", "1")}), Success)
	until(t, "the group is there", func() bool { _, ok := master.groups.Peek("shop"); return ok })

	for _, reads := range []bool{false, true} {
		slave, closeAll := openBrokerOf(t, engine.Options{Store: t.TempDir(), Role: engine.Slave, Master: master.o.Engine.HAAddr().String()},
			BrokerOptions{NameServers: []string{master.NameServerAddr().String()}, SlaveReads: reads})
		until(t, "the slave has the group's offset", func() bool {
			_, topic := slave.topics.Lookup("orders")
			_, group := slave.groups.Peek("shop")
			at, ok := slave.offsets.Offset("shop", "orders", 1)
			return topic && group && ok && at == 1
		})
		c := dialAddr(t, slave.Server().Addr().String(), nil)
		one := sendCommand(CodeSendMessage, "orders", 1, "", "y")
		wantCode(t, ask(t, c, &one), ServiceNotAvailable)
		if !reads {
			wantCode(t, ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("shop", "orders", 1, 0, pullSubscription, 0)}), SystemBusy)
			closeAll()
			continue
		}
		until(t, "the slave serves the message", func() bool {
			got := ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("shop", "orders", 1, 0, pullSubscription, 0)})
			return got.Code == Success && got.Ext.Text("suggestWhichBrokerId") == "0"
		})
	}
}

func TestAdministratorsAreAnswered(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{Name: "b1"})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	one := sendCommand(CodeSendMessage, "orders", 1, "", "x")
	wantCode(t, ask(t, c, &one), Success)
	beat := consumerBeat("c1", "shop", "orders=*")
	wantCode(t, ask(t, c, &beat), Success)
	wantCode(t, ask(t, c, &Command{Code: CodeUpdateConsumerOffset, Ext: queueExt("shop", "orders").With("commitOffset", "1")}), Success)
	group := Ext{{"consumerGroup", "shop"}}
	topic := Ext{{"topic", "orders"}}
	until(t, "the message is in its queue", func() bool {
		_, end, _ := b.o.Engine.QueueBounds("orders", 1)
		return end == 1
	})
	for _, want := range []struct {
		code int32
		ext  Ext
		body string
		text []string
		json bool
	}{
		{CodeGetAllTopicConfig, nil, "", []string{`"orders":{`, `"%RETRY%shop":{`, `"dataVersion":{"counter":`}, true},
		{CodeGetAllGroups, nil, "", []string{`"shop":{`}, true},
		{CodeGetAllConsumerOffset, nil, "", []string{`"orders@shop":{"1":1}`}, true},
		{CodeGetAllDelayOffset, nil, "", []string{`"offsetTable":{}`}, true},
		{CodeUpdateGroup, nil, `{"groupName":"other","retryMaxTimes":3}`, nil, false},
		{CodeGetAllGroups, nil, "", []string{`"retryMaxTimes":3`}, true},
		{CodeDeleteGroup, Ext{{"groupName", "other"}}, "", nil, false},
		{CodeGetTopicConfig, topic, "", []string{`"topicName":"orders"`}, true},
		{CodeGetTopicStats, topic, "", []string{`{"brokerName":"b1","queueId":1,"topic":"orders"}:{"lastUpdateTimestamp":1`, `"maxOffset":1,"minOffset":0}`}, false},
		{CodeGetConsumeStats, group, "", []string{`{"brokerName":"b1","queueId":1,"topic":"orders"}:{"brokerOffset":1,"consumerOffset":1,"lastTimestamp":1`}, false},
		{CodeQueryTopicConsumers, topic, "", []string{`{"groupList":["shop"]}`}, true},
		{CodeGetConsumerConnections, group, "", []string{`"clientId":"c1"`, `"subscriptionTable":{"orders":{`}, true},
		{CodeGetBrokerRuntimeInfo, nil, "", []string{`"brokerVersionDesc":"V5_3_3"`, `"commitLogMinOffset":"0"`}, true},
		{CodeGetHAStatus, nil, "", []string{`"master":true`, `"haConnectionInfo":[]`}, true},
	} {
		got := ask(t, c, &Command{Code: want.code, Ext: want.ext, Body: []byte(want.body)})
		if got.Code != Success {
			t.Errorf("code %d: %d %s", want.code, got.Code, got.Remark)
			continue
		}
		for _, text := range want.text {
			if !strings.Contains(string(got.Body), text) {
				t.Errorf("code %d: %s\nis without %s", want.code, got.Body, text)
			}
		}
		if want.json && !json.Valid(got.Body) {
			t.Errorf("code %d: no JSON: %s", want.code, got.Body)
		}
	}
	for code, want := range map[int32]int32{CodeGetTopicConfig: TopicNotExist, CodeGetTopicStats: TopicNotExist, CodeGetConsumerConnections: ConsumerNotOnline} {
		wantCode(t, ask(t, c, &Command{Code: code, Ext: Ext{{"topic", "nowhere"}, {"consumerGroup", "nobody"}}}), want)
	}
}
