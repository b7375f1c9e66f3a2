package remoting

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// nameServer is a name server that listens.
func nameServer(t *testing.T, o NameServerOptions) (*NameServer, *Server) {
	t.Helper()
	if o.Logger == nil {
		o.Logger, _ = testLogger(t)
	}
	n := NewNameServer(o)
	s := listen(t, n, ServerOptions{})
	t.Cleanup(n.Close)
	return n, s
}

const (
	oneTopic  = `"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":3}`
	twoTopics = oneTopic + `,"TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}`
)

// wrapper is the JSON of topics as a broker registers them, with the bare keys
// that real ones write.
func wrapper(counter, topics string) string {
	return `{"dataVersion":{"counter":` + counter + `,"stateVersion":0,"timestamp":1795963032047},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},` +
		`"topicConfigTable":{` + topics + `},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"S":{"currIdMap":{0:1,1:2}}}}`
}

func registerCommand(broker, id, addr, counter, topics string) *Command {
	body := []byte(`{"filterServerList":[],"topicConfigSerializeWrapper":` + wrapper(counter, topics) + `}`)
	return &Command{Code: CodeRegisterBroker, Body: body, Ext: Ext{
		{"brokerId", id}, {"clusterName", "C"}, {"brokerAddr", addr}, {"enableActingMaster", "false"}, {"haServerAddr", addr + "9"},
		{"compressed", "false"}, {"brokerName", broker},
	}.WithInt("bodyCrc32", bodySum(body))}
}

func mustCall(t *testing.T, c *Client, request *Command) *Command {
	t.Helper()
	a := ask(t, c, request)
	if err := a.Err(); err != nil {
		t.Fatalf("code %d: %v", request.Code, err)
	}
	return a
}

func route(t *testing.T, c *Client, topic string) string {
	t.Helper()
	a := ask(t, c, &Command{Code: CodeGetRouteInfo, Ext: Ext{{"topic", topic}}})
	if a.Code == TopicNotExist {
		if want := "No topic route info in name server for the topic: " + topic; a.Remark != want {
			t.Errorf("remark %q, want %q", a.Remark, want)
		}
		return ""
	}
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	return string(a.Body)
}

// The Go client cuts the JSON at commas and colons: each byte counts.
func TestRouteIsWrittenAsClientsReadIt(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	if a := mustCall(t, c, registerCommand("b", "0", "127.0.0.1:10911", "1", twoTopics)); a.Ext == nil || len(a.Ext) != 0 || a.Body != nil {
		t.Errorf("a master is answered %+v", a)
	}
	a := mustCall(t, c, registerCommand("b", "1", "127.0.0.1:20911", "1", twoTopics))
	if a.Ext.Text("masterAddr") != "127.0.0.1:10911" || a.Ext.Text("haServerAddr") != "127.0.0.1:109119" {
		t.Errorf("a slave is answered %+v", a.Ext)
	}
	const want = `{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:20911"},"brokerName":"b","cluster":"C","enableActingMaster":false}],` +
		`"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":3}]}`
	if got := route(t, c, "T"); got != want {
		t.Errorf("route\n%s, want\n%s", got, want)
	}
	if got := route(t, c, "U"); got != "" {
		t.Errorf("route of a topic that nobody has: %s", got)
	}
	const cluster = `{"brokerAddrTable":{"b":{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:20911"},"brokerName":"b","cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["b"]}}`
	if got := string(mustCall(t, c, &Command{Code: CodeGetClusterInfo}).Body); got != cluster {
		t.Errorf("cluster\n%s, want\n%s", got, cluster)
	}
	if got := string(mustCall(t, c, &Command{Code: CodeGetAllTopicsFromNames}).Body); got != `{"topicList":["T","TBW102"]}` {
		t.Errorf("topics %s", got)
	}
	for cluster, want := range map[string]string{"C": `{"topicList":["T","TBW102"]}`, "D": `{"topicList":[]}`} {
		if got := string(mustCall(t, c, &Command{Code: CodeGetTopicsByCluster, Ext: Ext{{"cluster", cluster}}}).Body); got != want {
			t.Errorf("topics of %s: %s", cluster, got)
		}
	}
}

func TestRegistrations(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	if a := ask(t, c, registerCommand("one", "0", "h:1", "1", oneTopic)); a.Code != SystemError || !strings.HasPrefix(a.Remark, "register broker failed") {
		t.Errorf("a new broker with one topic: %+v", a)
	}
	if got := string(mustCall(t, c, &Command{Code: CodeGetClusterInfo}).Body); got != `{"brokerAddrTable":{},"clusterAddrTable":{}}` {
		t.Errorf("it left %s", got)
	}
	mustCall(t, c, registerCommand("b", "0", "h:1", "1", twoTopics))
	eight := strings.Replace(oneTopic, `"writeQueueNums":3`, `"writeQueueNums":8`, 1)
	mustCall(t, c, registerCommand("b", "0", "h:1", "1", eight))
	if got := route(t, c, "T"); !strings.Contains(got, `"writeQueueNums":3`) {
		t.Errorf("the same version changed the queues: %s", got)
	}
	mustCall(t, c, registerCommand("b", "0", "h:1", "2", eight))
	if got := route(t, c, "T"); !strings.Contains(got, `"writeQueueNums":8`) {
		t.Errorf("a new version with one topic: %s", got)
	}
	if got := route(t, c, "TBW102"); got == "" {
		t.Error("a topic that is missing in a registration is gone")
	}
	// Topics of a slave count while there is no master.
	mustCall(t, c, registerCommand("b", "1", "h:2", "3", strings.ReplaceAll(twoTopics, `"T"`, `"S"`)))
	if route(t, c, "S") != "" {
		t.Error("a slave added a topic beside its master")
	}
	mustCall(t, c, &Command{Code: CodeUnregisterBroker, Ext: Ext{{"brokerName", "b"}, {"brokerAddr", "h:1"}, {"clusterName", "C"}, {"brokerId", "0"}}})
	if got := route(t, c, "T"); !strings.Contains(got, `"brokerAddrs":{"1":"h:2"}`) {
		t.Errorf("without its master: %s", got)
	}
	mustCall(t, c, registerCommand("b", "1", "h:2", "4", strings.ReplaceAll(twoTopics, `"T"`, `"S"`)))
	if route(t, c, "S") == "" {
		t.Error("a slave without a master added no topic")
	}
	// It becomes master at the same address.
	mustCall(t, c, registerCommand("b", "0", "h:2", "5", twoTopics))
	if got := route(t, c, "T"); !strings.Contains(got, `"brokerAddrs":{"0":"h:2"}`) {
		t.Errorf("after the promotion: %s", got)
	}
	// Another takes its id.
	mustCall(t, c, registerCommand("b", "0", "h:3", "6", twoTopics))
	if got := route(t, c, "T"); !strings.Contains(got, `"brokerAddrs":{"0":"h:3"}`) {
		t.Errorf("after the replacement: %s", got)
	}
	mustCall(t, c, &Command{Code: CodeDeleteTopicInNames, Ext: Ext{{"topic", "T"}, {"clusterName", "other"}}})
	if route(t, c, "T") == "" {
		t.Error("removed from another cluster, and gone here")
	}
	mustCall(t, c, &Command{Code: CodeDeleteTopicInNames, Ext: Ext{{"topic", "T"}}})
	if got := route(t, c, "T"); got != "" {
		t.Errorf("after its removal: %s", got)
	}
}

func TestBadRegistrationsAreRefused(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	for name, change := range map[string]func(r *Command){
		"crc32 not match":     func(r *Command) { r.Body[40] ^= 1 },
		"brokerName is empty": func(r *Command) { r.Ext = r.Ext.With("brokerName", "") },
		"haServerAddr is missing": func(r *Command) {
			r.Ext = Ext{{"brokerName", "b"}, {"brokerAddr", "a"}, {"clusterName", "C"}, {"brokerId", "0"}}
		},
		`brokerId is "x"`:             func(r *Command) { r.Ext = r.Ext.With("brokerId", "x") },
		"registration of broker b ca": func(r *Command) { r.Body, r.Ext = []byte("{"), r.Ext.With("bodyCrc32", "0") },
	} {
		r := registerCommand("b", "0", "h:1", "1", twoTopics)
		change(r)
		if a := ask(t, c, r); a.Code != SystemError || !strings.Contains(a.Remark, name) {
			t.Errorf("%s: answer %d %q", name, a.Code, a.Remark)
		}
	}
	if got := string(mustCall(t, c, &Command{Code: CodeGetAllTopicsFromNames}).Body); got != `{"topicList":[]}` {
		t.Errorf("topics %s", got)
	}
}

func TestBrokerWhoseConnectionEndsIsGoneAtOnce(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c, broker, moved := dial(t, s, nil), dial(t, s, nil), dial(t, s, nil)
	mustCall(t, broker, registerCommand("b", "0", "h:1", "1", twoTopics))
	mustCall(t, broker, registerCommand("moved", "0", "h:2", "1", twoTopics))
	mustCall(t, moved, registerCommand("moved", "0", "h:2", "1", twoTopics))
	broker.Close()
	until(t, "b is gone", func() bool { return !strings.Contains(route(t, c, "T"), `"b"`) })
	if got := route(t, c, "T"); !strings.Contains(got, `"moved"`) {
		t.Errorf("one that has registered on another connection is gone, too: %s", got)
	}
}

func TestSilentBrokerIsGone(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{Expiry: 300 * time.Millisecond, Scan: 10 * time.Millisecond})
	c, silent, beating := dial(t, s, nil), dial(t, s, nil), dial(t, s, nil)
	mustCall(t, silent, registerCommand("silent", "0", "h:1", "1", twoTopics))
	mustCall(t, beating, registerCommand("beating", "0", "h:2", "1", twoTopics))
	until(t, "the silent one is gone", func() bool {
		mustCall(t, beating, &Command{Code: CodeBrokerHeartbeat, Ext: Ext{{"clusterName", "C"}, {"brokerAddr", "h:2"}, {"brokerName", "beating"}}})
		return !strings.Contains(route(t, c, "T"), "silent")
	})
	if got := route(t, c, "T"); !strings.Contains(got, "beating") {
		t.Errorf("route %s", got)
	}
	<-silent.Done() // its connection is closed, so that it notices
}

func TestKeyValueConfiguration(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	key := Ext{{"namespace", "ORDER_TOPIC_CONFIG"}, {"key", "T"}}
	for _, code := range []int32{CodeGetKVConfig, CodeGetKVList} {
		if a := ask(t, c, &Command{Code: code, Ext: key}); a.Code != QueryNotFound {
			t.Errorf("%d before: %+v", code, a)
		}
	}
	mustCall(t, c, &Command{Code: CodePutKVConfig, Ext: append(Ext{{"value", "b:4"}}, key...)})
	if a := mustCall(t, c, &Command{Code: CodeGetKVConfig, Ext: key}); a.Ext.Text("value") != "b:4" {
		t.Errorf("value %+v", a.Ext)
	}
	if a := mustCall(t, c, &Command{Code: CodeGetKVList, Ext: key}); string(a.Body) != `{"table":{"T":"b:4"}}` {
		t.Errorf("list %s", a.Body)
	}
	if a := mustCall(t, c, registerCommand("b", "0", "h:1", "1", twoTopics)); string(a.Body) != `{"table":{"T":"b:4"}}` {
		t.Errorf("a broker is told %s", a.Body)
	}
	mustCall(t, c, &Command{Code: CodeDeleteKVConfig, Ext: key})
	if a := ask(t, c, &Command{Code: CodeGetKVConfig, Ext: key}); a.Code != QueryNotFound {
		t.Errorf("after: %+v", a)
	}
	if a := ask(t, c, &Command{Code: CodeSendMessageV2}); a.Code != RequestCodeNotSupported {
		t.Errorf("a send is answered %+v", a)
	}
}

// registrar starts one with its topics, which ends with its test.
func registrar(t *testing.T, o RegistrarOptions) *Registrar {
	t.Helper()
	o.Cluster, o.Broker, o.Address, o.HAAddress = "C", "b", "127.0.0.1:10911", "127.0.0.1:10912"
	o.Logger, _ = testLogger(t)
	if o.ID == nil {
		o.ID = func() int64 { return 0 }
	}
	if o.Topics == nil {
		o.Topics = func(dst []byte) []byte { return append(dst, wrapper("1", twoTopics)...) }
	}
	r := StartRegistrar(o)
	t.Cleanup(r.Close)
	return r
}

func TestRegistrarTellsAllNameServers(t *testing.T) {
	_, one := nameServer(t, NameServerOptions{})
	_, two := nameServer(t, NameServerOptions{})
	logger, _ := testLogger(t)
	local := NewNameServer(NameServerOptions{Logger: logger})
	defer local.Close()
	counter := "1"
	r := registrar(t, RegistrarOptions{
		NameServers: []string{one.Addr().String(), two.Addr().String()}, Local: local,
		Topics: func(dst []byte) []byte { return append(dst, wrapper(counter, twoTopics)...) },
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Register(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Server{one, two} {
		if route(t, dial(t, s, nil), "T") == "" {
			t.Error("there is no route")
		}
	}
	if local.Route("T") == nil {
		t.Error("there is no route in the name server of this process")
	}
	r.Close()
	for _, s := range []*Server{one, two} {
		if route(t, dial(t, s, nil), "T") != "" {
			t.Error("there is a route at the end")
		}
	}
	if local.Route("T") != nil {
		t.Error("there is a route in the name server of this process at the end")
	}
	if err := r.Register(ctx); err == nil {
		t.Error("registered after the end")
	}
}

func TestSlavesRegistrarLearnsItsMaster(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	told := make(chan Registered, 100)
	registrar(t, RegistrarOptions{
		NameServers: []string{s.Addr().String()}, ID: func() int64 { return 1 }, Every: 20 * time.Millisecond, OnMaster: func(r Registered) { told <- r },
	})
	if got := <-told; got != (Registered{}) {
		t.Errorf("without a master it is told %+v", got)
	}
	mustCall(t, c, registerCommand("b", "0", "h:1", "1", twoTopics))
	until(t, "the slave knows", func() bool { return <-told == Registered{MasterAddress: "h:1", MasterHAAddress: "h:19"} })
}

// A slave that is started before its master does not wait for half a minute, and
// does not ask for ever either.
func TestASlaveThatIsToldNoMasterAsksAgainSoon(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	told := make(chan Registered, 1000)
	r := registrar(t, RegistrarOptions{
		NameServers: []string{s.Addr().String()}, ID: func() int64 { return 1 }, Every: time.Hour, Again: 100 * time.Millisecond,
		OnMaster: func(r Registered) { told <- r },
	})
	if got := <-told; got != (Registered{}) {
		t.Errorf("without a master it is told %+v", got)
	}
	mustCall(t, c, registerCommand("b", "0", "h:1", "1", twoTopics))
	until(t, "the slave knows", func() bool { return (<-told).MasterAddress == "h:1" })
	g := &registration{r: r}
	for range lonelyTries {
		if d := g.pause(true, nil); d != r.o.Again {
			t.Fatalf("alone, it waits %v", d)
		}
	}
	if d := g.pause(true, nil); d != r.o.Every {
		t.Errorf("after %d times it waits %v", lonelyTries, d)
	}
	if d := g.pause(false, nil); d != r.o.Every || g.lonely != 0 {
		t.Errorf("with a master it waits %v", d)
	}
}

// A topic that is made is there for who waits, though a name server is away.
func TestNobodyWaitsForANameServerThatIsAway(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := registrar(t, RegistrarOptions{
		NameServers: []string{silent.Addr().String(), s.Addr().String()}, Timeout: 50 * time.Millisecond, Again: time.Hour, Every: time.Hour,
	})
	until(t, "it is away", func() bool { return r.all[0].failed.Load() })
	r.all[0].r.o.Timeout = time.Hour // whoever waits for it waits in vain
	if err := r.Register(t.Context()); !errors.Is(err, errAway) || !strings.Contains(err.Error(), silent.Addr().String()) {
		t.Errorf("it is told %v", err)
	}
}

// A name server that is down, and one that is restarted and knows nothing, get
// the registration as soon as they are there.
func TestRegistrarComesBackAfterItsNameServer(t *testing.T) {
	logger, _ := testLogger(t)
	n := NewNameServer(NameServerOptions{Logger: logger})
	defer n.Close()
	s, err := Listen("127.0.0.1:0", n, ServerOptions{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr().String()
	r := registrar(t, RegistrarOptions{NameServers: []string{addr}, Again: 10 * time.Millisecond})
	for range 2 { // so that no further registration is under way
		if err := r.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := NewNameServer(NameServerOptions{Logger: logger})
	defer fresh.Close()
	again, err := Listen(addr, fresh, ServerOptions{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(t.Context())
	until(t, "it is registered again", func() bool { return fresh.Route("T") != nil })
}

// FuzzRegistration: whatever a broker registers is taken or refused, and routes
// are JSON afterwards.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"topicConfigSerializeWrapper":`+wrapper("1", twoTopics)+`}`), "b", "0")
	f.Add([]byte(`{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":null,"U":{"perm":-1}}}}`), "b\xff\"", "1")
	f.Fuzz(func(t *testing.T, body []byte, broker, id string) {
		n := newNameServer(NameServerOptions{Logger: slog.New(slog.DiscardHandler)})
		serve := func(code int32, x Ext, body []byte) (answer Command) {
			n.answer(NewRequest(Command{Code: code, Ext: x, Body: body}, nil, func(c *Command) { answer = *c }))
			return answer
		}
		x := Ext{{"brokerName", broker}, {"brokerId", id}, {"clusterName", "C"}, {"brokerAddr", "h:1"}, {"haServerAddr", "h:2"}, {"topic", "T"}}
		if a := serve(CodeRegisterBroker, x, body); a.Code != Success && a.Remark == "" {
			t.Fatalf("answer %+v", a)
		}
		for _, code := range []int32{CodeGetRouteInfo, CodeGetClusterInfo, CodeGetAllTopicsFromNames} {
			if a := serve(code, x, nil); a.Code == Success && !json.Valid(a.Body) || a.Code == SystemError {
				t.Fatalf("code %d: answer %d %q", code, a.Code, a.Body)
			}
		}
		serve(CodeUnregisterBroker, x, nil)
	})
}
