package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// A queue that another member has by now is neither read nor are offsets of it
// stored, whatever comes late.
func TestAQueueThatWasGivenUpDoesNotBeginAgain(t *testing.T) {
	c := newClient(t, "127.0.0.1:1")
	q := Queue{BrokerName: "b", Topic: "orders"}
	r := &Reader{c: c, o: ReaderOptions{Topic: "orders", Group: "shop"}, ready: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	r.mu.stints = map[Queue]*stint{}
	lost := &stint{r: r, queue: q, next: 9, batches: make(chan batch, 1)}
	lost.ctx, lost.cancel = context.WithCancel(r.ctx)
	if _, err := lost.moved(3, "the broker says so"); err != nil {
		t.Error(err)
	}
	another := &stint{r: r, queue: q}
	r.mu.stints[q] = another
	if _, err := lost.moved(3, "the broker says so"); err != nil {
		t.Error(err)
	}
	if r.mu.stints[q] != another {
		t.Error("the queue that was given up, and is here again, is begun where it was told to be before")
	}
	r.cancel()
	r.ended.Wait()
}

// membership answers what a group's only member asks.
func membership(r *remoting.Request, id string) bool {
	switch r.Code {
	case remoting.CodeGetConsumerList:
		r.Reply(&remoting.Command{Body: []byte(`{"consumerIdList":["` + id + `"]}`)})
	case remoting.CodeUpdateConsumerOffset:
		r.Reply(&remoting.Command{})
	default:
		return false
	}
	return true
}

// Its messages since then would never be read.
func TestAGroupDoesNotBeginAnewBecauseASlaveHasNoOffset(t *testing.T) {
	commits := make(chan string, 100)
	slave := newFakeBroker(t, 7, func(r *remoting.Request) {
		if r.Code == remoting.CodeUpdateConsumerOffset {
			commits <- r.Ext.Text("commitOffset")
		}
		if !membership(r, "me") {
			r.ReplyCode(remoting.QueryNotFound, "Not found, maybe this group consumer boot first")
		}
	})
	names := newFakeBroker(t, 7, nil)
	names.master, names.slave = "127.0.0.1:1", slave.addr()
	c, err := New(Options{NameServers: []string{names.addr()}, ID: "me", Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r, err := c.OpenReader(within(t), ReaderOptions{Topic: "orders", Group: "shop", From: Last(), Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.Next(within(t)); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "knows no offset of group shop") {
		t.Errorf("%v %v", m, err)
	}
	if err := r.Close(within(t)); err != nil {
		t.Error(err)
	}
	if len(commits) > 0 {
		t.Errorf("the group's offset is set to %s", <-commits)
	}
}

// The master of such a slave was told so by its own settings.
func TestASlaveThatServesNoReadsIsLeftForTheMaster(t *testing.T) {
	refusing := newFakeBroker(t, 3, func(r *remoting.Request) { r.ReplyCode(remoting.SystemBusy, "[REJECTREQUEST] a slave") })
	f := newFakeBroker(t, 3, func(r *remoting.Request) {
		at, _ := r.Ext.Int("queueOffset", 0, 9)
		ext := remoting.Ext{{Name: "suggestWhichBrokerId", Value: "1"}, {Name: "minOffset", Value: "0"}, {Name: "maxOffset", Value: "3"}}
		r.Reply(&remoting.Command{Ext: ext.WithInt("nextBeginOffset", at+1), Body: record(at, 0, "m")})
	})
	f.slave = refusing.addr()
	if all := readAll(t, newClient(t, f.addr()), ReaderOptions{Topic: "orders", Patience: patience}); len(all) != 3 {
		t.Errorf("%d messages", len(all))
	}
	if refusing.count(remoting.CodePullMessage) == 0 {
		t.Error("the slave was not asked")
	}
}

func TestAFollowingReaderReadsQueuesThatAreMadeLater(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	ctx := within(t)
	if _, err := c.CreateTopic(ctx, "orders", TopicSettings{ReadQueues: 1, WriteQueues: 1, Perm: 6}); err != nil {
		t.Fatal(err)
	}
	sendAll(t, c, "orders", ProducerOptions{}, &Message{Body: []byte("old")})
	var readers []*Reader
	for _, o := range []ReaderOptions{{}, {From: Last()}, {Queues: []int32{0}}} {
		o.Topic, o.Follow = "orders", true
		r, err := c.OpenReader(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close(ctx)
		readers = append(readers, r)
	}
	if err := c.updateTopic(ctx, n.broker.Server().Addr().String(), "orders", TopicSettings{ReadQueues: 3, WriteQueues: 3, Perm: 6}); err != nil {
		t.Fatal(err)
	}
	sendAll(t, c, "orders", ProducerOptions{Queues: []int32{2}}, &Message{Body: []byte("elsewhere")})
	sendAll(t, c, "orders", ProducerOptions{Queues: []int32{0}}, &Message{Body: []byte("here")})
	for i, want := range [][]string{{"elsewhere", "here", "old"}, {"elsewhere", "here"}, {"here", "old"}} {
		readers[i].refresh(ctx, 0) // as it does every 30 s
		var got []string
		for range want {
			m, err := readers[i].Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(m.Content))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("reader %d reads %v, want %v", i, got, want)
		}
	}
}
