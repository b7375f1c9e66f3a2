package remoting

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

// sendFixture is Sends on a real log.
type sendFixture struct {
	*Sends
	t      testing.TB
	engine *engine.Engine
	topics *Topics
	groups *Groups
	peer   *fakePeer
}

func newSends(t testing.TB, e engine.Options, o SendsOptions, topics TopicsOptions) *sendFixture {
	t.Helper()
	f := &sendFixture{t: t, peer: newFakePeer("192.0.2.7:40123")}
	if e.Store == "" {
		e.Store = t.TempDir()
	}
	if e.SegmentBytes == 0 {
		e.SegmentBytes = 16 << 20
	}
	e.Reactors, e.Logger = 1, quiet
	var err error
	if f.engine, err = engine.Open(e); err != nil {
		t.Fatal(err)
	}
	topics.Dir = e.Store
	if f.topics, err = OpenTopics(topics); err != nil {
		t.Fatal(err)
	}
	if f.groups, err = OpenGroups(GroupsOptions{ConfigOptions: ConfigOptions{Dir: e.Store}}); err != nil {
		t.Fatal(err)
	}
	o.Engine, o.Topics, o.Groups = f.engine, f.topics, f.groups
	f.Sends = NewSends(o)
	t.Cleanup(func() {
		f.Close()
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := f.engine.Close(ctx); err != nil {
			t.Error(err)
		}
		f.topics.Close()
		f.groups.Close()
	})
	return f
}

// sendCommand is a send as clients make it: V1 for code 10, letters for others.
func sendCommand(code int32, topic string, queue int32, properties, body string) Command {
	fields := []struct{ long, letter, value string }{
		{"producerGroup", "a", "pg"}, {"topic", "b", topic}, {"defaultTopic", "c", "TBW102"},
		{"defaultTopicQueueNums", "d", "4"}, {"queueId", "e", strconv.Itoa(int(queue))}, {"sysFlag", "f", "0"},
		{"bornTimestamp", "g", "1795962962147"}, {"flag", "h", "0"}, {"properties", "i", properties},
		{"reconsumeTimes", "j", "0"}, {"unitMode", "k", "false"}, {"batch", "m", strconv.FormatBool(code == CodeSendBatch)},
	}
	c := Command{Code: code, Language: "JAVA", Version: 479, Body: []byte(body)}
	for _, f := range fields {
		if code == CodeSendMessage {
			c.Ext = c.Ext.With(f.long, f.value)
		} else {
			c.Ext = c.Ext.With(f.letter, f.value)
		}
	}
	return c
}

func (f *sendFixture) send(c Command) *Command {
	f.t.Helper()
	return call(f.t, f.Sends, f.peer, c)
}

// record reads what an answer says was stored.
func (f *sendFixture) record(a *Command) engine.Record {
	f.t.Helper()
	return f.at(a.Ext.Text("msgId"))
}

func (f *sendFixture) at(id string) engine.Record {
	f.t.Helper()
	if len(id) != 32 && len(id) != 56 {
		f.t.Fatalf("message id %q", id)
	}
	offset, err := strconv.ParseInt(id[len(id)-16:], 16, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := f.engine.Get(offset)
	if err != nil {
		f.t.Fatal(err)
	}
	if got := r.OffsetMsgID(); got != id {
		f.t.Errorf("the record's id is %s, the answer's %s", got, id)
	}
	return r
}

func TestASendIsStoredAsItCame(t *testing.T) {
	f := newSends(t, engine.Options{StoreHost: engine.Host{Addr: netip.MustParseAddr("192.0.2.1"), Port: 10911}}, SendsOptions{}, TopicsOptions{})
	const properties = "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA"
	for i, code := range []int32{CodeSendMessage, CodeSendMessageV2} {
		c := sendCommand(code, "orders", 3, properties, "one book")
		for j := range c.Ext {
			switch c.Ext[j].Name {
			case "sysFlag", "f":
				c.Ext[j].Value = "769"
			case "flag", "h":
				c.Ext[j].Value = "-5"
			case "reconsumeTimes", "j":
				c.Ext[j].Value = "2"
			}
		}
		a := f.send(c)
		wantCode(t, a, Success)
		if a.Ext.Text("queueId") != "3" || a.Ext.Text("queueOffset") != strconv.Itoa(i) || a.Ext.Text("transactionId") != "7F0000010001" ||
			a.Ext.Text("MSG_REGION") != "DefaultRegion" || a.Ext.Text("TRACE_ON") != "true" || len(a.Ext) != 6 || a.Remark != "" {
			t.Errorf("answer %+v", a.Ext)
		}
		if id := a.Ext.Text("msgId"); !strings.HasPrefix(id, "C000020100002A9F") {
			t.Errorf("message id %s", id)
		}
		r := f.record(a)
		if r.Topic != "orders" || r.QueueID != 3 || r.QueueOffset != int64(i) || r.Properties != properties || string(r.Body) != "one book" ||
			r.SysFlag != 769 || r.Flag != -5 || r.ReconsumeTimes != 2 || r.BornTimestamp != 1795962962147 ||
			r.BornHost.String() != "192.0.2.7|40123" || r.StoreHost.String() != "192.0.2.1|10911" {
			t.Errorf("stored %+v", r.Message)
		}
	}
	if c, _ := f.topics.Lookup("orders"); c.WriteQueues != 4 || c.ReadQueues != 4 || c.Perm != 6 {
		t.Errorf("the topic was made as %+v", c)
	}
}

func TestHostsOfSixteenBytesAreStored(t *testing.T) {
	f := newSends(t, engine.Options{StoreHost: engine.Host{Addr: netip.MustParseAddr("2001:db8::1"), Port: 10911}}, SendsOptions{}, TopicsOptions{})
	f.peer = newFakePeer("[2001:db8::7]:40123")
	a := f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))
	wantCode(t, a, Success)
	if r := f.record(a); r.SysFlag != 0x30 || r.BornHost.String() != "2001:db8:0:0:0:0:0:7|40123" || len(a.Ext.Text("msgId")) != 56 {
		t.Errorf("stored %+v as %s", r.Message, a.Ext.Text("msgId"))
	}
	f.peer = newFakePeer("[::ffff:192.0.2.9]:1")
	if r := f.record(f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))); r.BornHost.String() != "192.0.2.9|1" {
		t.Errorf("a mapped address is stored as %v", r.BornHost)
	}
	body := clientBatch(engine.Message{Body: []byte("a")}, engine.Message{Body: []byte("bb"), Properties: "A\x01b\x02"})
	ids := strings.Split(f.send(sendCommand(CodeSendBatch, "orders", 0, "", body)).Ext.Text("msgId"), ",")
	if len(ids) != 2 || string(f.at(ids[1]).Body) != "bb" {
		t.Errorf("ids of the batch: %v", ids)
	}
}

func clientBatch(messages ...engine.Message) string {
	var b []byte
	for i := range messages {
		b = engine.AppendClientMessage(b, &messages[i])
	}
	return string(b)
}

func TestABatchIsStoredAsConsecutiveMessages(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 1, "", "before")), Success)
	var messages []engine.Message
	for i := range 5 {
		messages = append(messages, engine.Message{
			Flag: int32(i), Body: fmt.Appendf(nil, "body %d", i), Properties: fmt.Sprintf("UNIQ_KEY\x01id%d\x02WAIT\x01true", i),
		})
	}
	a := f.send(sendCommand(CodeSendBatch, "orders", 1, "UNIQ_KEY\x01batch\x02WAIT\x01true\x02", clientBatch(messages...)))
	wantCode(t, a, Success)
	ids := strings.Split(a.Ext.Text("msgId"), ",")
	if len(ids) != 5 || a.Ext.Text("queueOffset") != "1" || a.Ext.Text("transactionId") != "batch" {
		t.Fatalf("answer %+v", a.Ext)
	}
	for i, id := range ids {
		r := f.at(id)
		if r.QueueOffset != int64(1+i) || r.QueueID != 1 || r.Topic != "orders" || string(r.Body) != string(messages[i].Body) ||
			r.Properties != messages[i].Properties || r.Flag != int32(i) || r.BornHost.String() != "192.0.2.7|40123" || r.BornTimestamp != 1795962962147 {
			t.Errorf("message %d is stored as %+v", i, r.Message)
		}
	}
	for name, c := range map[string]Command{
		"retry topic": sendCommand(CodeSendBatch, "%RETRY%g", 0, "", clientBatch(messages...)),
		"no message":  sendCommand(CodeSendBatch, "orders", 0, "", ""),
		"cut":         sendCommand(CodeSendBatch, "orders", 0, "", clientBatch(messages...)[:60]),
		"delayed":     sendCommand(CodeSendBatch, "orders", 0, "", clientBatch(engine.Message{Body: []byte("x"), Properties: "DELAY\x013\x02"})),
		"too long":    sendCommand(CodeSendBatch, "orders", 0, "", strings.Repeat("x", 4<<20+1)),
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, f.send(c), MessageIllegal) })
	}
	of := func(properties string) Command {
		return sendCommand(CodeSendBatch, "orders", 0, "", clientBatch(messages[0], engine.Message{Body: []byte("x"), Properties: properties}))
	}
	wantCode(t, f.send(of("TRAN_MSG\x01true\x02")), NoPermission)
	wantCode(t, f.send(of("TIMER_DELAY_SEC\x015\x02")), SystemError)
}

func TestLimitsOfASend(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	property := func(n int) string { return "K\x01" + strings.Repeat("v", n-3) + "\x02" }
	for _, c := range []struct {
		name       string
		properties int
		body       int
		code       int32
	}{
		{"no body", 10, 0, MessageIllegal},
		{"one byte", 10, 1, Success},
		{"largest body", 10, 4 << 20, Success},
		{"body too large", 10, 4<<20 + 1, MessageIllegal},
		{"properties 32766", 32766, 1, Success},
		{"properties 32767", 32767, 1, Success},
		{"properties 32768", 32768, 1, MessageIllegal},
		{"properties 65535", 65535, 1, MessageIllegal},
		{"properties 65536", 65536, 1, MessageIllegal},
	} {
		a := f.send(sendCommand(CodeSendMessageV2, "orders", 0, property(c.properties), strings.Repeat("b", c.body)))
		if a.Code != c.code {
			t.Errorf("%s: code %d (%s), want %d", c.name, a.Code, a.Remark, c.code)
		} else if a.Code == Success {
			if r := f.record(a); len(r.Properties) != c.properties || len(r.Body) != c.body {
				t.Errorf("%s: stored %d and %d bytes", c.name, len(r.Properties), len(r.Body))
			}
		}
	}
	if f.Outstanding() != 0 || f.sends.bytes.Load() != 0 {
		eventually(t, "everything is given back", func() bool { return f.sends.bytes.Load() == 0 })
	}
}

func TestSendsAreCheckedAsTheRealBrokerDoes(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{Cluster: "DefaultCluster"})
	with := func(name, value string) func(*Command) {
		return func(c *Command) { c.Ext = c.Ext.With(name, value) } // the last one counts
	}
	without := func(name string) func(*Command) {
		return func(c *Command) {
			var x Ext
			for _, field := range c.Ext {
				if field.Name != name {
					x = append(x, field)
				}
			}
			c.Ext = x
		}
	}
	for _, c := range []struct {
		name  string
		edit  func(*Command)
		code  int32
		words string
	}{
		{"blank topic", with("b", ""), InvalidParameter, "blank"},
		{"bad topic", with("b", "a b"), InvalidParameter, "illegal characters"},
		{"topic of 127 bytes", with("b", strings.Repeat("t", 127)), Success, ""},
		{"topic of 128 bytes", with("b", strings.Repeat("t", 128)), InvalidParameter, "127"},
		{"broker's own topic", with("b", "SCHEDULE_TOPIC_XXXX"), NoPermission, "forbidden"},
		{"half topic", with("b", "RMQ_SYS_TRANS_HALF_TOPIC"), NoPermission, "forbidden"},
		{"no template", func(c *Command) { with("b", "n1")(c); with("c", "nothing")(c) }, TopicNotExist, "nothing"},
		{"template not inherited", func(c *Command) { with("b", "n2")(c); with("c", "SELF_TEST_TOPIC")(c) }, TopicNotExist, "perm 6"},
		{"cluster as template", func(c *Command) { with("b", "n3")(c); with("c", "DefaultCluster")(c) }, Success, ""},
		{"queue beyond", with("e", "4"), InvalidParameter, "queueId[4]"},
		{"any queue", with("e", "-1"), Success, ""},
		{"retry topic of a bad group", with("b", "%RETRY%"+strings.Repeat("g", 121)), GroupNotExist, "group"},
		{"prepared by flag", with("f", "4"), NoPermission, "transaction"},
		{"rollback by flag", with("f", "12"), NoPermission, "transaction"},
		{"prepared by property", with("i", "TRAN_MSG\x01TRUE\x02"), NoPermission, "transaction"},
		{"delayed", with("i", "DELAY\x013\x02"), MessageIllegal, "DELAY is 3"},
		{"not delayed", with("i", "DELAY\x010\x02"), Success, ""},
		{"bad delay", with("i", "DELAY\x01x\x02"), MessageIllegal, "DELAY"},
		{"at a time", with("i", "TIMER_DELIVER_MS\x01123\x02"), SystemError, "TIMER_DELIVER_MS"},
		{"after seconds", with("i", "TIMER_DELAY_SEC\x01123\x02"), SystemError, "TIMER_DELAY_SEC"},
		{"inner batch", with("f", "128"), MessageIllegal, "inner"},
		{"no topic", without("b"), SystemError, "topic (b) is missing"},
		{"no queue", without("e"), SystemError, "queueId"},
		{"no number", with("f", "x"), SystemError, `"x"`},
		{"empty number", with("h", ""), SystemError, `""`},
		{"number too large", with("e", "2147483648"), SystemError, "2147483648"},
		{"no properties", without("i"), Success, ""},
		{"no optional field", func(c *Command) { without("j")(c); without("k")(c); without("m")(c) }, Success, ""},
		{"unknown fields", with("bname", "broker-a"), Success, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sendCommand(CodeSendMessageV2, "orders", 0, "", "x")
			c.edit(&m)
			a := f.send(m)
			wantCode(t, a, c.code)
			if !strings.Contains(a.Remark, c.words) {
				t.Errorf("remark %q, want %q in it", a.Remark, c.words)
			}
		})
	}
	wantCode(t, f.send(sendCommand(CodeSendReplyV2, "orders", 0, "", "x")), RequestCodeNotSupported)
	if _, ok := f.topics.Lookup("n1"); ok {
		t.Error("a refused send has made its topic")
	}
}

func TestWithoutAutoCreationATopicHasToBeMade(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{NoAutoCreate: true})
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), TopicNotExist)
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "%RETRY%g", 0, "", "x")), Success)
	if err := await(func(done func(error)) { f.topics.Update(NewTopicConfig("orders", 1), done) }); err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), Success)
}

func TestASlaveTakesNoSends(t *testing.T) {
	master := newSends(t, engine.Options{HAListen: "127.0.0.1:0"}, SendsOptions{}, TopicsOptions{})
	f := newSends(t, engine.Options{Role: engine.Slave, Master: master.engine.HAAddr().String()}, SendsOptions{}, TopicsOptions{})
	for _, code := range []int32{CodeSendMessage, CodeSendMessageV2, CodeSendBatch} {
		a := f.send(sendCommand(code, "orders", 0, "", "x"))
		wantCode(t, a, ServiceNotAvailable)
		if !strings.Contains(a.Remark, "slave") {
			t.Errorf("remark %q", a.Remark)
		}
	}
	wantCode(t, f.send(backCommand("g", 0, 0)), ServiceNotAvailable)
	if _, ok := f.topics.Lookup("orders"); ok {
		t.Error("a slave has made a topic")
	}
}

func TestAClosedNodeTakesNoSends(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), Success)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := f.engine.Close(ctx); err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), ServiceNotAvailable)
	f.Close()
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), ServiceNotAvailable)
}
