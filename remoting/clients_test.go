package remoting

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// clientsFixture is Clients on topics and groups of an empty store.
type clientsFixture struct {
	*Clients
	topics *Topics
	groups *Groups
	clock  *fakeClock
}

func newClients(t testing.TB, o ClientsOptions, g GroupsOptions) *clientsFixture {
	t.Helper()
	f := &clientsFixture{clock: &fakeClock{now: time.Unix(1700000000, 0)}}
	dir := t.TempDir()
	var err error
	if f.topics, err = OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}}); err != nil {
		t.Fatal(err)
	}
	g.Dir = dir
	if f.groups, err = OpenGroups(g); err != nil {
		t.Fatal(err)
	}
	o.Topics, o.Groups, o.Now = f.topics, f.groups, f.clock.Now
	f.Clients = NewClients(o)
	t.Cleanup(func() {
		f.Close()
		f.topics.Close()
		f.groups.Close()
	})
	return f
}

// consumerBeat is a heartbeat as a Java 5.3 client sends it.
func consumerBeat(client, group string, subscriptions ...string) Command {
	var subs []string
	for _, s := range subscriptions {
		topic, text, _ := strings.Cut(s, "=")
		subs = append(subs, fmt.Sprintf(`{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":%q,"subVersion":1795962962147,"tagsSet":[],"topic":%q}`, text, topic))
	}
	return Command{Code: CodeHeartbeat, Language: "JAVA", Version: 479, Body: fmt.Appendf(nil,
		`{"clientID":%q,"consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":%q,"messageModel":"CLUSTERING","subscriptionDataSet":[%s],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}`,
		client, group, strings.Join(subs, ","))}
}

func unregister(client, group string) Command {
	return Command{Code: CodeUnregisterClient, Ext: Ext{{"clientID", client}, {"consumerGroup", group}}}
}

func listOf(group string) Command {
	return Command{Code: CodeGetConsumerList, Ext: Ext{{"consumerGroup", group}}}
}

func TestAHeartbeatMakesAMemberAndTheRetryTopic(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	a := newFakePeer("192.0.2.1:4000")
	wantCode(t, call(t, f, a, listOf("g")), SystemError)
	wantCode(t, call(t, f, a, consumerBeat("a@1", "g", "orders=*", "%RETRY%g=*")), Success)
	if c, ok := f.topics.Lookup("%RETRY%g"); !ok || c.ReadQueues != 1 || c.WriteQueues != 1 || c.Perm != 6 {
		t.Errorf("the retry topic is %+v, %v", c, ok)
	}
	if _, ok := f.groups.Lookup("g"); !ok {
		t.Error("the group is not there")
	}
	c := call(t, f, a, listOf("g"))
	if c.Code != Success || string(c.Body) != `{"consumerIdList":["a@1"]}` {
		t.Errorf("list %d %s", c.Code, c.Body)
	}
	eventually(t, "the new member hears of itself", func() bool { return a.notified("g") > 0 })
	now, ok := f.Consumers("g")
	if !ok || now.Model != "CLUSTERING" || now.From != "CONSUME_FROM_FIRST_OFFSET" || now.Type != "CONSUME_PASSIVELY" ||
		len(now.Connections) != 1 || now.Connections[0] != (ConsumerConnection{"a@1", "192.0.2.1:4000", "JAVA", 479}) ||
		len(now.Subscriptions) != 2 || now.Subscriptions[1].Topic != "orders" {
		t.Errorf("group is %+v", now)
	}
}

func TestMembersAreToldOfChangesAndOfNothingElse(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	a, b := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.2:4000")
	beat := func(p *fakePeer, id string, subs ...string) {
		t.Helper()
		wantCode(t, call(t, f, p, consumerBeat(id, "g", subs...)), Success)
	}
	told := func(what string, p *fakePeer, change func()) {
		t.Helper()
		before := p.notified("g")
		change()
		eventually(t, what, func() bool { return p.notified("g") > before })
	}
	told("a joins", a, func() { beat(a, "a", "orders=*") })
	told("b joins", a, func() { beat(b, "b", "orders=*") })
	told("a topic more", b, func() { beat(a, "a", "orders=*", "more=*") })
	told("a topic less", b, func() { beat(a, "a", "orders=*") })
	told("b leaves", a, func() { wantCode(t, call(t, f, b, unregister("b", "g")), Success) })
	told("b joins again", a, func() { beat(b, "b", "orders=*") })
	told("b's connection ends", a, func() { b.Close(errFakeClosed) })
	if got := f.Members("g"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("members %v", got)
	}
	settled := a.notified("g")
	beat(a, "a", "orders=*")
	beat(a, "a", "orders=TagA") // another expression: no reason to balance
	if s, ok := f.Subscription("g", "orders"); !ok || s.Text != "TagA" {
		t.Errorf("subscription %+v", s)
	}
	told("the next change", a, func() { beat(a, "a", "more=*") })
	if n := a.notified("g"); n != settled+1 {
		t.Errorf("told %d times of one change", n-settled)
	}
}

func TestTheNewestSubscriptionOfAClientCounts(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	a, b := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.2:4000")
	beat := func(p *fakePeer, id, tag string, version int64) {
		t.Helper()
		c := consumerBeat(id, "g", "orders="+tag)
		c.Body = []byte(strings.Replace(string(c.Body), "1795962962147", fmt.Sprint(version), 1))
		wantCode(t, call(t, f, p, c), Success)
	}
	want := func(tag string) {
		t.Helper()
		if s, ok := f.Subscription("g", "orders"); !ok || s.Text != tag {
			t.Errorf("subscription %+v, want %s", s, tag)
		}
	}
	beat(a, "a", "TagA", 1795962962147000000) // in ns, as the Go client counts
	beat(a, "a", "TagB", 1795962962146000000) // overtaken on the way
	want("TagA")
	beat(b, "b", "TagC", 1795962962147) // in ms, of another client
	want("TagC")
	beat(a, "a", "TagA", 1795962962147000000)
	want("TagA")
}

func TestOneIDOnTwoConnectionsIsOneMember(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	a, again := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.1:4001")
	wantCode(t, call(t, f, a, consumerBeat("a", "g", "orders=*")), Success)
	wantCode(t, call(t, f, again, consumerBeat("a", "g", "orders=*")), Success)
	if got := f.Members("g"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("members %v", got)
	}
	a.Close(errFakeClosed)
	if got := f.Members("g"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("members when the old connection is over: %v", got)
	}
}

func TestClientsExpireWithTheirConnection(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	a, b, idle := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.2:4000"), newFakePeer("192.0.2.3:4000")
	wantCode(t, call(t, f, a, consumerBeat("a", "g", "orders=*")), Success)
	wantCode(t, call(t, f, b, consumerBeat("b", "g", "orders=*")), Success)
	wantCode(t, call(t, f, idle, consumerBeat("i", "h")), Success)
	wantCode(t, call(t, f, idle, unregister("i", "h")), Success)
	wantCode(t, call(t, f, idle, Command{Code: CodeUnregisterClient, Ext: Ext{{"clientID", "i"}, {"producerGroup", "CLIENT_INNER_PRODUCER"}}}), Success)
	f.clock.pass(119 * time.Second)
	wantCode(t, call(t, f, b, consumerBeat("b", "g", "orders=*")), Success)
	f.expire()
	if got := f.Members("g"); len(got) != 2 {
		t.Errorf("members before the time is over: %v", got)
	}
	f.clock.pass(2 * time.Second)
	f.expire()
	if got := f.Members("g"); !slices.Equal(got, []string{"b"}) || a.closed == nil || b.closed != nil || idle.closed != nil {
		t.Errorf("members %v, closed: %v, %v, %v", got, a.closed, b.closed, idle.closed)
	}
}

func TestABroadcastOrSilentGroupIsNotTold(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{})
	quiet := NewGroupConfig("quiet")
	quiet.NotifyConsumersChanged = false
	if err := await(func(done func(error)) { f.groups.Update(quiet, done) }); err != nil {
		t.Fatal(err)
	}
	p := newFakePeer("192.0.2.1:4000")
	wantCode(t, call(t, f, p, consumerBeat("a", "quiet", "orders=*")), Success)
	all := consumerBeat("a", "all", "orders=*")
	all.Body = []byte(strings.Replace(string(all.Body), "CLUSTERING", "BROADCASTING", 1))
	wantCode(t, call(t, f, p, all), Success)
	wantCode(t, call(t, f, p, consumerBeat("a", "g", "orders=*")), Success)
	eventually(t, "the last group is told", func() bool { return p.notified("g") > 0 })
	if p.notified("quiet")+p.notified("all") > 0 {
		t.Error("told, but should not be")
	}
}

func TestHeartbeatsBeyondTheLimitsAreRefused(t *testing.T) {
	f := newClients(t, ClientsOptions{Clients: 2, GroupsPerClient: 2, TopicsPerGroup: 2, HeartbeatBytes: 2000},
		GroupsOptions{ConfigOptions: ConfigOptions{Most: 3}})
	a, b, c := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.2:4000"), newFakePeer("192.0.2.3:4000")
	wantCode(t, call(t, f, a, consumerBeat("a", "g1", "t1=*", "t2=*")), Success)
	wantCode(t, call(t, f, a, consumerBeat("a", "g1", "t1=*", "t2=*", "t3=*")), SystemError)
	wantCode(t, call(t, f, b, consumerBeat("b", "g2", "t1="+strings.Repeat("x", 2000))), SystemError)
	wantCode(t, call(t, f, b, consumerBeat("b", "g2")), Success)
	wantCode(t, call(t, f, c, consumerBeat("c", "g2")), SystemError) // a third client
	b.Close(errFakeClosed)
	wantCode(t, call(t, f, c, consumerBeat("c", "g2")), Success)
	wantCode(t, call(t, f, c, consumerBeat("c", "g3")), Success)
	wantCode(t, call(t, f, c, consumerBeat("c", "g4")), SystemError) // a fourth group
	for _, body := range []string{
		"", "{", `[]`, `{"clientID":""}`, `{"clientID":"a","producerDataSet":[{"groupName":"a b"}]}`,
		`{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"../x"}]}]}`,
		`{"clientID":"a","consumerDataSet":[{"groupName":""}]}`,
		`{"clientID":"a","producerDataSet":[{"groupName":"p"},{"groupName":"q"},{"groupName":"r"}]}`,
	} {
		wantCode(t, call(t, f, a, Command{Code: CodeHeartbeat, Body: []byte(body)}), SystemError)
	}
	wantCode(t, call(t, f, a, Command{Code: CodeHeartbeat, Body: []byte(`{"clientID":"a"}`)}), Success)
	if got := f.Members("g1"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a refused heartbeat has changed the members: %v", got)
	}
}

func TestHeartbeatsAreBoundedTogether(t *testing.T) {
	f := newClients(t, ClientsOptions{HeldBytes: 1000}, GroupsOptions{})
	a, b := newFakePeer("192.0.2.1:4000"), newFakePeer("192.0.2.2:4000")
	beat := consumerBeat("a", "g", "t="+strings.Repeat("x", 300))
	wantCode(t, call(t, f, a, beat), Success)
	wantCode(t, call(t, f, a, beat), Success)
	wantCode(t, call(t, f, b, beat), SystemError)
	a.Close(errFakeClosed)
	wantCode(t, call(t, f, b, beat), Success)
	b.Close(errFakeClosed)
	if f.mu.held != 0 || len(f.mu.peers)+len(f.mu.consumers)+len(f.mu.producers) > 0 {
		t.Errorf("something is kept of clients that are gone: %+v", f.mu.held)
	}
}

func TestAClientInAsManyGroupsAsItMayBeKeepsThem(t *testing.T) {
	f := newClients(t, ClientsOptions{GroupsPerClient: 2}, GroupsOptions{})
	p := newFakePeer("192.0.2.1:4000")
	producers := func(a, b string) Command {
		return Command{Code: CodeHeartbeat, Body: fmt.Appendf(nil, `{"clientID":"a","producerDataSet":[{"groupName":%q},{"groupName":%q}]}`, a, b)}
	}
	wantCode(t, call(t, f, p, producers("p1", "p2")), Success)
	wantCode(t, call(t, f, p, producers("p3", "p4")), Success)
	wantCode(t, call(t, f, p, producers("p3", "p4")), Success)
	wantCode(t, call(t, f, p, producers("p3", "p5")), SystemError) // a fifth, and none was left
}

func TestAGroupThatMayNotBeMadeIsLeftOut(t *testing.T) {
	f := newClients(t, ClientsOptions{}, GroupsOptions{NoAutoCreate: true})
	p := newFakePeer("192.0.2.1:4000")
	if err := await(func(done func(error)) { f.groups.Update(NewGroupConfig("known"), done) }); err != nil {
		t.Fatal(err)
	}
	body := `{"clientID":"a","consumerDataSet":[{"groupName":"unknown","subscriptionDataSet":[]},{"groupName":"known","subscriptionDataSet":[]}]}`
	wantCode(t, call(t, f, p, Command{Code: CodeHeartbeat, Body: []byte(body)}), SystemError)
	if f.Members("unknown") != nil || len(f.Members("known")) != 1 {
		t.Errorf("members %v, %v", f.Members("unknown"), f.Members("known"))
	}
	if _, ok := f.topics.Lookup("%RETRY%known"); !ok {
		t.Error("the known group has no retry topic")
	}
}
