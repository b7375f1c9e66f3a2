package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

func numbered(n int) (all []*Message) {
	for i := range n {
		all = append(all, &Message{Body: []byte(strconv.Itoa(i))})
	}
	return all
}

func TestMessagesOfAQueueAreReadAsTheyWereGiven(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	sent := sendAll(t, c, "orders", ProducerOptions{}, numbered(500)...)
	byQueue := map[Queue][]string{}
	for i, s := range sent {
		if int64(len(byQueue[s.Queue])) != s.Offset {
			t.Fatalf("message %d is at offset %d of its queue, and the %dth that went there", i, s.Offset, len(byQueue[s.Queue]))
		}
		byQueue[s.Queue] = append(byQueue[s.Queue], strconv.Itoa(i))
	}
	if len(byQueue) != 4 {
		t.Errorf("messages went to %d queues, want 4", len(byQueue))
	}
	all := readAll(t, c, ReaderOptions{Topic: "orders"})
	read := map[Queue][]string{}
	for i, m := range all {
		read[m.queue] = append(read[m.queue], string(m.Content))
		if i > 0 && m.PhysicalOffset < all[i-1].PhysicalOffset {
			t.Errorf("message at %d comes after the one at %d", m.PhysicalOffset, all[i-1].PhysicalOffset)
		}
	}
	if len(all) != 500 || !maps.EqualFunc(read, byQueue, slices.Equal) {
		t.Errorf("%d messages were read, not those that were sent", len(all))
	}
}

func TestAReaderBeginsWhereItIsTold(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	one := ProducerOptions{Queues: []int32{0}}
	sendAll(t, c, "orders", one, &Message{Body: []byte("a"), Tags: "x", Keys: "k"}, &Message{Body: []byte("b"), Tags: "y"})
	first := readAll(t, c, ReaderOptions{Topic: "orders"})
	if key, _ := first[0].Property("KEYS"); key != "k" {
		t.Errorf("key %q", key)
	}
	// Times of storage are ms: the next one is later only in the next of them.
	eventually(t, "the clock goes on", func() bool { return time.Now().UnixMilli() > first[1].StoreTimestamp })
	later := time.Now()
	sendAll(t, c, "orders", one, &Message{Body: []byte("c"), Tags: "x"})
	for _, want := range []struct {
		o    ReaderOptions
		text string
	}{
		{ReaderOptions{}, "a b c"},
		{ReaderOptions{From: Last()}, ""},
		{ReaderOptions{From: At(later)}, "c"},
		{ReaderOptions{From: At(later.Add(-time.Hour))}, "a b c"},
		{ReaderOptions{From: At(later.Add(time.Hour))}, ""},
		{ReaderOptions{From: AtOffset(1), Queues: []int32{0}}, "b c"},
		{ReaderOptions{From: AtOffset(3), Queues: []int32{0}}, ""},
		{ReaderOptions{Queues: []int32{1, 2}}, ""},
		{ReaderOptions{Tags: "x"}, "a c"},
		{ReaderOptions{Tags: " y || z "}, "b"},
		{ReaderOptions{Tags: "z"}, ""},
	} {
		want.o.Topic = "orders"
		if got := strings.Join(bodies(readAll(t, c, want.o)), " "); got != want.text {
			t.Errorf("%+v: %q, want %q", want.o, got, want.text)
		}
	}
	beyond, err := c.OpenReader(within(t), ReaderOptions{Topic: "orders", From: AtOffset(4), Queues: []int32{0}, Patience: 10 * patience})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := beyond.Next(within(t)); !errors.Is(err, errBeyond) {
		t.Errorf("from beyond the end: %v %v", m, err)
	}
	beyond.Close(within(t))
	for _, o := range []ReaderOptions{{Topic: "nowhere"}, {Topic: "orders", Queues: []int32{7}}, {Topic: "orders", Group: "g", Queues: []int32{0}}, {Topic: "ord ers"}} {
		if r, err := c.OpenReader(within(t), o); err == nil {
			r.Close(context.Background())
			t.Errorf("%+v can be read", o)
		}
	}
}

func TestAFollowingReaderGetsWhatComes(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	sendAll(t, c, "orders", ProducerOptions{}, &Message{Body: []byte("old")})
	ctx := within(t)
	r, err := c.OpenReader(ctx, ReaderOptions{Topic: "orders", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	for i := range 3 {
		want := "old"
		if i > 0 {
			want = fmt.Sprint("new ", i)
			sendAll(t, c, "orders", ProducerOptions{}, &Message{Body: []byte(want)})
		}
		if m, err := r.Next(ctx); err != nil || string(m.Content) != want {
			t.Fatalf("%v %v, want %q", m, err, want)
		}
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Next(short); !errors.Is(err, context.Canceled) {
		t.Errorf("without a message: %v", err)
	}
}

func TestAGroupGoesOnWhereItWas(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	sendAll(t, c, "orders", ProducerOptions{}, numbered(50)...)
	if all := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"}); len(all) != 50 {
		t.Errorf("%d messages", len(all))
	}
	if all := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"}); len(all) != 0 {
		t.Errorf("%d messages are read again", len(all))
	}
	sendAll(t, c, "orders", ProducerOptions{}, &Message{Body: []byte("more"), Tags: "t"})
	if all := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop", Tags: "other"}); len(all) != 0 {
		t.Errorf("%d messages have the wrong tag", len(all))
	}
	g, err := c.DescribeGroup(within(t), "shop")
	if err != nil || len(g.Members) != 0 || len(g.Queues) != 5 { // the retry topic's, too
		t.Fatalf("%+v %v", g, err)
	}
	for _, q := range g.Queues {
		if q.Lag() != 0 { // what is not wanted is dealt with, too
			t.Errorf("%+v: lag %d", q, q.Lag())
		}
	}
	// Of a batch, what is consumed does not come again, and the rest does.
	sendAll(t, c, "single", ProducerOptions{Queues: []int32{0}}, numbered(10)...)
	ctx := within(t)
	r, err := c.OpenReader(ctx, ReaderOptions{Topic: "single", Group: "one"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			r.Consumed(m)
		}
	}
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	if got := strings.Join(bodies(readAll(t, c, ReaderOptions{Topic: "single", Group: "one"})), " "); got != "3 4 5 6 7 8 9" {
		t.Errorf("the rest is %q", got)
	}
	// A message that is not consumed comes again.
	sendAll(t, c, "orders", ProducerOptions{}, &Message{Body: []byte("again")})
	for range 2 {
		ctx := within(t)
		r, err := c.OpenReader(ctx, ReaderOptions{Topic: "orders", Group: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := r.Next(ctx); err != nil || string(m.Content) != "again" {
			t.Errorf("%v %v", m, err)
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestMembersShareTheQueues(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	if _, err := c.CreateTopic(within(t), "orders", TopicSettings{ReadQueues: 4, WriteQueues: 4, Perm: 6}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	type got struct {
		member int
		text   string
	}
	read := make(chan got, 1000)
	var readers []*Reader
	done := make(chan struct{})
	begin := func() {
		i := len(readers)
		r, err := newClient(t, n.names).OpenReader(ctx, ReaderOptions{Topic: "orders", Group: "shop", Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				m, err := r.Next(ctx)
				if err != nil {
					return
				}
				r.Consumed(m)
				read <- got{i, string(m.Content)}
			}
		}()
	}
	queuesOf := func(r *Reader) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		own := 0
		for q, s := range r.mu.stints {
			if q.Topic == "orders" && s.known {
				own++
			}
		}
		return own
	}
	begin()
	eventually(t, "one member has all queues", func() bool { return queuesOf(readers[0]) == 4 })
	begin()
	eventually(t, "both have their share", func() bool { return queuesOf(readers[0]) == 2 && queuesOf(readers[1]) == 2 })
	sendAll(t, c, "orders", ProducerOptions{}, numbered(100)...)
	seen, by := map[string]int{}, map[int]int{}
	for range 100 {
		select {
		case m := <-read:
			seen[m.text]++
			by[m.member]++
		case <-ctx.Done():
			t.Fatalf("only %d messages were read", len(seen))
		}
	}
	if len(seen) != 100 || by[0] == 0 || by[1] == 0 {
		t.Errorf("%d different messages, by member %v", len(seen), by)
	}
	if g, err := c.DescribeGroup(ctx, "shop"); err != nil || len(g.Members) != 2 || g.Model != "CLUSTERING" {
		t.Errorf("%+v %v", g, err)
	}
	if err := readers[1].Close(ctx); err != nil {
		t.Error(err)
	}
	eventually(t, "the one that is left has all queues", func() bool { return queuesOf(readers[0]) == 4 })

	// Members that run are told where to go on.
	plan, err := c.PlanReset(ctx, "shop", "orders", First(), -1)
	if err != nil || len(plan.Members) != 1 || len(plan.Queues) != 4 {
		t.Fatalf("%+v %v", plan, err)
	}
	if err := c.Reset(ctx, plan); err != nil {
		t.Fatal(err)
	}
	again := map[string]bool{}
	for len(again) < 100 {
		select {
		case m := <-read:
			again[m.text] = true
		case <-ctx.Done():
			t.Fatalf("only %d messages were read again", len(again))
		}
	}
	if _, err := c.PlanReset(ctx, "shop", "orders", AtOffset(1), 0); err == nil {
		t.Error("an offset can be set while a member runs")
	}
	stop()
	<-done
	<-done
	if err := readers[0].Close(within(t)); err != nil {
		t.Error(err)
	}
}

func TestAGroupWithoutMembersIsReset(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	sendAll(t, c, "orders", ProducerOptions{Queues: []int32{0}}, numbered(10)...)
	readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"})
	for _, want := range []struct {
		to    Position
		queue int
		left  int
	}{{First(), -1, 10}, {Last(), -1, 0}, {AtOffset(7), 0, 3}, {At(time.Now().Add(-time.Hour)), -1, 10}} {
		plan, err := c.PlanReset(within(t), "shop", "orders", want.to, want.queue)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Reset(within(t), plan); err != nil {
			t.Fatal(err)
		}
		if all := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"}); len(all) != want.left {
			t.Errorf("reset to %v: %d messages, want %d", want.to, len(all), want.left)
		}
	}
	for _, queue := range []int{0, 9} {
		if plan, err := c.PlanReset(within(t), "shop", "orders", AtOffset(11), queue); err == nil {
			t.Errorf("queue %d, offset 11: %+v", queue, plan)
		}
	}
}

func TestASlaveIsReadWhileThereIsNoMaster(t *testing.T) {
	m := openNode(t, engine.Options{HAListen: "127.0.0.1:0"}, remoting.BrokerOptions{})
	s := openNode(t, engine.Options{Role: engine.Slave, Master: m.engine.HAAddr().String()},
		remoting.BrokerOptions{NameServers: []string{m.names}, SlaveReads: true})
	c := newClient(t, m.names, s.names)
	sendAll(t, c, "orders", ProducerOptions{}, numbered(40)...)
	ctx := within(t)
	following, err := c.OpenReader(ctx, ReaderOptions{Topic: "orders", Group: "shop", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer following.Close(ctx)
	if m, err := following.Next(ctx); err != nil {
		t.Fatal(err)
	} else {
		following.Consumed(m)
	}
	eventually(t, "the slave has everything, and its name server the topic", func() bool {
		r, err := newClient(t, s.names).Route(ctx, "orders")
		return err == nil && len(r.Queues) == 1 && s.engine.EndOffset() == m.engine.EndOffset()
	})
	m.close()
	// It began before: what it has not read yet comes from the slave.
	for range 39 {
		m, err := following.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		following.Consumed(m)
	}
	if all := readAll(t, c, ReaderOptions{Topic: "orders"}); len(all) != 40 {
		t.Errorf("one that begins now reads %d messages, want 40", len(all))
	}
	if _, err := c.NewProducer(ctx, "orders", ProducerOptions{Patience: 50 * time.Millisecond}); !errors.Is(err, ErrNoMaster) {
		t.Errorf("a producer: %v", err)
	}
	if _, err := c.CreateTopic(ctx, "new", TopicSettings{ReadQueues: 1, WriteQueues: 1, Perm: 6}); !errors.Is(err, ErrNoMaster) {
		t.Errorf("a new topic: %v", err)
	}
}

func TestTopicsAreMadeDescribedAndDeleted(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	ctx := within(t)
	settings := TopicSettings{ReadQueues: 2, WriteQueues: 2, Perm: 6}
	for i, want := range []int{1, 0} {
		if created, err := c.CreateTopic(ctx, "orders", settings); err != nil || len(created) != want {
			t.Fatalf("time %d: %v %v", i, created, err)
		}
	}
	if _, err := c.CreateTopic(ctx, "orders", TopicSettings{ReadQueues: 3, WriteQueues: 3, Perm: 6}); err == nil {
		t.Error("a topic that is there is made with other settings")
	}
	sendAll(t, c, "orders", ProducerOptions{}, numbered(3)...)
	readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"})
	all, err := c.DescribeTopic(ctx, "orders")
	if err != nil || len(all) != 1 || all[0].Messages() != 3 || len(all[0].Queues) != 2 || all[0].Settings.WriteQueues != 2 {
		t.Errorf("%+v %v", all, err)
	}
	if groups, err := c.TopicGroups(ctx, "orders", all); err != nil || !slices.Equal(groups, []string{"shop"}) {
		t.Errorf("groups %v %v", groups, err)
	}
	if names, err := c.Groups(ctx); err != nil || !slices.Contains(names, "shop") {
		t.Errorf("groups %v %v", names, err)
	}
	if err := c.DeleteTopic(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if names, err := c.Topics(ctx); err != nil || slices.Contains(names, "orders") || !slices.Contains(names, remoting.TopicTemplate) {
		t.Errorf("topics %v %v", names, err)
	}
	if _, err := c.DescribeTopic(ctx, "orders"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("describe: %v", err)
	}
	if g, err := c.DescribeGroup(ctx, "shop"); err != nil || slices.ContainsFunc(g.Queues, func(q GroupQueue) bool { return q.Queue.Topic == "orders" }) {
		t.Errorf("the group's offsets are not forgotten: %+v %v", g, err)
	}
	if _, err := c.DescribeGroup(ctx, "nobody"); err == nil {
		t.Error("a group that is not there is described")
	}
}
