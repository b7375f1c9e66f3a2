package remoting

import (
	"math"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestLookUpsInQueues(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	x := pullOf{queue: 1}.ext()
	if got := b.ask(CodeGetEarliestStoreTime, x); number(t, got, "timestamp") != -1 {
		t.Errorf("the first message of none: %v", got.Ext)
	}
	for _, code := range []int32{CodeGetMaxOffset, CodeGetMinOffset} {
		if got := b.ask(code, x); got.Code != Success || number(t, got, "offset") != 0 {
			t.Errorf("code %d without a queue: %d %v", code, got.Code, got.Ext)
		}
	}
	first := b.put(1, "", []byte("first"))
	eventuallyRead(t, "the clock moves on", func() bool { return time.Now().UnixMilli() > first.StoreTimestamp })
	second := b.put(1, "", []byte("second"))
	b.settled()
	if got := b.ask(CodeGetMaxOffset, x); number(t, got, "offset") != 2 {
		t.Errorf("the end: %v", got.Ext)
	}
	if got := b.ask(CodeGetEarliestStoreTime, x); number(t, got, "timestamp") != first.StoreTimestamp {
		t.Errorf("the first message: %v", got.Ext)
	}
	for _, c := range []struct {
		at    int64
		bound string
		want  int64
	}{
		{first.StoreTimestamp - 1, "", 0}, {first.StoreTimestamp, "lower", 0}, {first.StoreTimestamp + 1, "LOWER", 1}, {math.MaxInt64, "", 2},
		{first.StoreTimestamp - 1, "UPPER", 0}, {second.StoreTimestamp - 1, "upper", 0}, {second.StoreTimestamp, "UPPER", 1}, {math.MaxInt64, "UPPER", 1},
	} {
		got := b.ask(CodeSearchOffsetByTime, x.WithInt("timestamp", c.at).With("boundaryType", c.bound))
		if got.Code != Success || number(t, got, "offset") != c.want {
			t.Errorf("%+v: %d %v", c, got.Code, got.Ext)
		}
	}
	got := b.ask(CodeViewMessageByID, Ext(nil).WithInt("offset", second.Offset))
	if _, bodies := recordsOf(t, got.Body); got.Code != Success || len(bodies) != 1 || string(bodies[0]) != "second" {
		t.Errorf("a message by its offset: %d %q", got.Code, bodies)
	}
	for _, at := range []int64{-1, second.Offset + 1, second.EndOffset, math.MaxInt64} {
		if got := b.ask(CodeViewMessageByID, Ext(nil).WithInt("offset", at)); got.Code != SystemError || got.Remark == "" {
			t.Errorf("at %d: %d %q", at, got.Code, got.Remark)
		}
	}
	for _, code := range []int32{CodeGetMaxOffset, CodeSearchOffsetByTime, CodeViewMessageByID, CodeQueryConsumerOffset, CodeUpdateConsumerOffset} {
		if got := b.ask(code, nil); got.Code != SystemError || got.Remark == "" {
			t.Errorf("code %d without fields: %d %q", code, got.Code, got.Remark)
		}
	}
}

func TestAGroupsOffsetsAreStoredAndTold(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	x := pullOf{}.ext()
	if got := b.ask(CodeQueryConsumerOffset, x); got.Code != QueryNotFound {
		t.Errorf("of an empty queue: %d", got.Code)
	}
	b.put(0, "", nil)
	b.settled()
	if got := b.ask(CodeQueryConsumerOffset, x); got.Code != Success || number(t, got, "offset") != 0 {
		t.Errorf("a new group begins with what is at hand: %d %v", got.Code, got.Ext)
	}
	if got := b.ask(CodeQueryConsumerOffset, x.With("setZeroIfNotFound", "false")); got.Code != QueryNotFound {
		t.Errorf("if it is not asked to begin there: %d", got.Code)
	}
	commit := func(p pullOf, offset int64) int32 {
		return b.ask(CodeUpdateConsumerOffset, p.ext().WithInt("commitOffset", offset)).Code
	}
	for _, c := range []struct {
		p      pullOf
		offset int64
		code   int32
	}{
		{pullOf{group: "none", topic: "none"}, 1, GroupNotExist}, {pullOf{topic: "none"}, 1, TopicNotExist},
		{pullOf{queue: -1}, 1, InvalidParameter}, {pullOf{}, 9, Success}, {pullOf{}, 4, Success},
	} {
		if got := commit(c.p, c.offset); got != c.code {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if got := b.ask(CodeQueryConsumerOffset, x); got.Code != Success || number(t, got, "offset") != 4 {
		t.Errorf("the offset that went back: %d %v", got.Code, got.Ext)
	}
	if commit(pullOf{queue: 2}, -1) != Success {
		t.Error("-1 is not taken")
	}
	if got := b.ask(CodeQueryConsumerOffset, pullOf{queue: 2}.ext()); got.Code != QueryNotFound {
		t.Errorf("-1 is an offset: %d %v", got.Code, got.Ext)
	}
	b.pulls.o.NearBytes = 0
	if got := b.ask(CodeQueryConsumerOffset, pullOf{group: "x"}.ext()); got.Code != QueryNotFound {
		t.Errorf("a new group on a queue whose first message is far behind: %d", got.Code)
	}
}
