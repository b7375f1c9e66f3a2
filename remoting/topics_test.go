package remoting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/haengine/haengine/engine"
)

func openTopics(t testing.TB, o TopicsOptions) *Topics {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	topics, err := OpenTopics(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(topics.Close)
	return topics
}

func updateTopic(topic string) Command {
	return Command{Code: CodeUpdateTopic, Ext: Ext{
		{"topic", topic}, {"defaultTopic", "TBW102"}, {"readQueueNums", "8"}, {"writeQueueNums", "4"}, {"perm", "6"},
		{"topicFilterType", "SINGLE_TAG"}, {"topicSysFlag", "0"}, {"order", "false"}, {"attributes", ""}, {"force", "false"},
	}}
}

func TestAdministratorsMakeChangeAndRemoveTopics(t *testing.T) {
	topics := openTopics(t, TopicsOptions{})
	var told []string
	topics.OnChange(func(changed []string) { told = append(told, changed...) })
	p := newFakePeer("192.0.2.1:4000")
	version := topics.Version()
	wantCode(t, call(t, topics, p, updateTopic("orders")), Success)
	if c, ok := topics.Lookup("orders"); !ok || c.ReadQueues != 8 || c.WriteQueues != 4 || c.Perm != 6 || c.Order {
		t.Errorf("orders is %+v, %v", c, ok)
	}
	if v := topics.Version(); v.Counter != version.Counter+1 {
		t.Errorf("version %+v after %+v", v, version)
	}
	more := updateTopic("orders")
	more.Ext = more.Ext.With("writeQueueNums", "8").With("order", "true").With("attributes", "+message.type=FIFO")
	wantCode(t, call(t, topics, p, more), Success)
	if c, _ := topics.Lookup("orders"); c.WriteQueues != 8 || !c.Order || c.Attributes["message.type"] != "FIFO" {
		t.Errorf("orders is %+v", c)
	}
	version = topics.Version()
	more.Ext = more.Ext.With("attributes", "")
	wantCode(t, call(t, topics, p, more), Success) // nothing changes, the attribute stays
	if topics.Version() != version {
		t.Error("a change that is none has a new version")
	}
	more.Ext = more.Ext.With("attributes", "-message.type")
	wantCode(t, call(t, topics, p, more), Success)
	if c, _ := topics.Lookup("orders"); len(c.Attributes) != 0 {
		t.Errorf("attributes %v", c.Attributes)
	}
	wantCode(t, call(t, topics, p, Command{Code: CodeDeleteTopic, Ext: Ext{{"topic", "orders"}}}), Success)
	wantCode(t, call(t, topics, p, Command{Code: CodeDeleteTopic, Ext: Ext{{"topic", "orders"}}}), Success)
	if _, ok := topics.Lookup("orders"); ok {
		t.Error("a removed topic is there")
	}
	if !slices.Equal(told, []string{"orders", "orders", "orders", "orders"}) {
		t.Errorf("told of %v", told)
	}
}

func TestBadTopicChangesAreRefused(t *testing.T) {
	master := true
	topics := openTopics(t, TopicsOptions{Master: func() bool { return master }})
	p := newFakePeer("192.0.2.1:4000")
	for _, c := range []struct {
		name, value string
		code        int32
	}{
		{"topic", "a b", InvalidParameter},
		{"topic", "", InvalidParameter},
		{"topic", "TBW102", InvalidParameter},
		{"topic", "rmq_sys_x", InvalidParameter},
		{"readQueueNums", "x", SystemError},
		{"writeQueueNums", "-1", SystemError},
		{"writeQueueNums", "65536", SystemError},
		{"perm", "16", SystemError},
		{"topicFilterType", "x", InvalidParameter},
		{"attributes", "message.type=FIFO", InvalidParameter},
		{"attributes", "+message.type=X", InvalidParameter},
		{"attributes", "+queue.type=BatchCQ", InvalidParameter},
		{"attributes", "+unknown=1", InvalidParameter},
		{"attributes", "-message.type", InvalidParameter},
		{"attributes", "+", InvalidParameter},
	} {
		m := updateTopic("orders")
		m.Ext = m.Ext.With(c.name, c.value)
		t.Run(c.name+"="+c.value, func(t *testing.T) { wantCode(t, call(t, topics, p, m), c.code) })
	}
	if _, ok := topics.Lookup("orders"); ok {
		t.Error("a refused change has made the topic")
	}
	master = false
	wantCode(t, call(t, topics, p, updateTopic("orders")), ServiceNotAvailable)
	master = true
	wantCode(t, call(t, topics, p, updateTopic("orders")), Success)
}

func TestTopicsAreBounded(t *testing.T) {
	topics := openTopics(t, TopicsOptions{ConfigOptions: ConfigOptions{Most: 6}})
	have := len(topics.Names())
	for i := range 10 {
		err := await(func(done func(error)) { topics.Create(NewTopicConfig(fmt.Sprint("t", i), 1), done) })
		if wants := i >= 6-have; errors.Is(err, ErrTooMany) != wants {
			t.Errorf("topic %d: %v", have+i, err)
		}
	}
	if len(topics.Names()) != 6 {
		t.Errorf("there are %d topics", len(topics.Names()))
	}
}

func TestManyChangesAtOnceAreAllKept(t *testing.T) {
	dir := t.TempDir()
	topics := openTopics(t, TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for j := range 25 {
				name := fmt.Sprintf("t-%d-%d", i, j)
				err := await(func(done func(error)) { topics.Create(NewTopicConfig(name, 1), done) })
				if _, ok := topics.Lookup(name); !ok || err != nil {
					t.Errorf("%s is not there: %v", name, err)
				}
			}
		})
	}
	wait.Wait()
	topics.Close()
	again := openTopics(t, TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}})
	if !slices.Equal(again.Names(), topics.Names()) || again.Version() != topics.Version() {
		t.Errorf("%d topics are read again, want %d", len(again.Names()), len(topics.Names()))
	}
}

func TestASlaveTakesOverItsMastersTopicsAndGroups(t *testing.T) {
	master, slave := openTopics(t, TopicsOptions{}), openTopics(t, TopicsOptions{})
	for _, c := range []struct {
		topics *Topics
		name   string
	}{{master, "orders"}, {slave, "old"}} {
		if err := await(func(done func(error)) { c.topics.Create(NewTopicConfig(c.name, 1), done) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := slave.Replace(master.AppendJSON(nil), always); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slave.Names(), master.Names()) || slave.Version() != master.Version() {
		t.Errorf("the slave has %v, %+v", slave.Names(), slave.Version())
	}
	if err := slave.Replace([]byte(`{"topicConfigTable":[]}`), always); err == nil || len(slave.Names()) != len(master.Names()) {
		t.Errorf("a bad body: %v", err)
	}
	var groups [2]*Groups
	for i := range groups {
		var err error
		if groups[i], err = OpenGroups(GroupsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir()}}); err != nil {
			t.Fatal(err)
		}
		defer groups[i].Close()
	}
	c := NewGroupConfig("g")
	c.RetryMax = 3
	if err := await(func(done func(error)) { groups[0].Update(c, done) }); err != nil {
		t.Fatal(err)
	}
	if err := groups[1].Replace(groups[0].AppendJSON(nil), always); err != nil {
		t.Fatal(err)
	}
	if got, ok := groups[1].Peek("g"); !ok || got.RetryMax != 3 || groups[1].Version() != groups[0].Version() {
		t.Errorf("the slave's group is %+v", got)
	}
}

func TestAGroupIsMadeWhenItIsLookedFor(t *testing.T) {
	dir := t.TempDir()
	open := func(o GroupsOptions) *Groups {
		t.Helper()
		o.Dir, o.Logger = dir, quiet
		g, err := OpenGroups(o)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := open(GroupsOptions{})
	for range 3 {
		if c, ok := g.Lookup("g"); !ok || c.RetryMax != 16 || c.RetryQueues != 1 || !c.ConsumeEnable {
			t.Errorf("the new group is %+v, %v", c, ok)
		}
	}
	if _, ok := g.Lookup("a b"); ok {
		t.Error("a bad name has a group")
	}
	g.Close()
	if v := g.Version(); v.Counter != 1 {
		t.Errorf("one group was made with %d changes", v.Counter)
	}
	if len(g.mu.fresh) != 0 {
		t.Errorf("kept twice: %v", g.mu.fresh)
	}
	if c, ok := g.Lookup("late"); !ok || c.Name != "late" {
		t.Error("no group once the file is closed, though its settings are known")
	}
	g = open(GroupsOptions{NoAutoCreate: true})
	defer g.Close()
	if _, ok := g.Lookup("g"); !ok {
		t.Error("the group is not in the file")
	}
	if _, ok := g.Lookup("h"); ok {
		t.Error("a group was made, though creation is off")
	}
	c, err := ParseGroupConfig([]byte(`{"groupName":"h","retryMaxTimes":3,"new":{1:2}}`))
	if err != nil || c.RetryMax != 3 || !strings.Contains(string(c.AppendJSON(nil)), `"new":{"1":2}`) {
		t.Errorf("parsed %+v, %v", c, err)
	}
	for _, bad := range []string{"", "[]", `{"groupName":"a b"}`, `{"groupName":"h","retryQueueNums":-1}`, `{"groupName":"h","retryMaxTimes":"x"}`} {
		if _, err := ParseGroupConfig([]byte(bad)); err == nil {
			t.Errorf("%s is a group", bad)
		}
	}
}

func TestAFailedWriteOfAGroupIsTriedAgain(t *testing.T) {
	disk := &brokenDisk{Disk: engine.OSDisk(), broken: true}
	g, err := OpenGroups(GroupsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir(), Disk: disk, Logger: quiet}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, ok := g.Lookup("g"); !ok {
		t.Error("no group, though its settings are known")
	}
	g.table.writers.Wait()
	disk.broken = false
	g.Lookup("g")
	g.table.writers.Wait()
	if _, ok := g.Peek("g"); !ok {
		t.Error("the group was not written in the end")
	}
}
