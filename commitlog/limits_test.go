package commitlog

import (
	"errors"
	"strings"
	"testing"
)

func TestMessagesAreRefusedAtTheirLimits(t *testing.T) {
	const segment = 1 << 30
	limits := Limits{BodyBytes: 1000}
	body := func(n int) Message { return Message{Topic: "t", Body: make([]byte, n)} }
	properties := func(n int) Message { return Message{Topic: "t", Properties: strings.Repeat("p", n)} }
	topic := func(s string) Message { return Message{Topic: s} }
	for _, c := range []struct {
		name    string
		m       Message
		segment int64
		want    error
	}{
		{"largest body", body(1000), segment, nil},
		{"body", body(1001), segment, ErrMessageIllegal},
		{"properties of 32766 bytes", properties(32766), segment, nil},
		{"largest properties", properties(32767), segment, nil},
		{"properties of 32768 bytes", properties(32768), segment, ErrPropertiesTooLong},
		{"properties of 65535 bytes", properties(65535), segment, ErrPropertiesTooLong},
		{"properties of 65536 bytes", properties(65536), segment, ErrPropertiesTooLong},
		{"longest topic", topic(strings.Repeat("t", 127)), segment, nil},
		{"topic", topic(strings.Repeat("t", 128)), segment, ErrMessageIllegal},
		{"topic of 64 characters in 128 bytes", topic(strings.Repeat("é", 64)), segment, ErrMessageIllegal},
		{"longest retry topic", topic("%RETRY%" + strings.Repeat("t", 248)), segment, nil},
		{"retry topic", topic("%RETRY%" + strings.Repeat("t", 249)), segment, ErrMessageIllegal},
		{"no topic", topic(""), segment, ErrMessageIllegal},
		{"topic in another directory", topic("../../etc"), segment, ErrMessageIllegal},
		{"topic that is a directory", topic(".."), segment, ErrMessageIllegal},
		{"topic with a zero", topic("a\x00b"), segment, ErrMessageIllegal},
		{"topic with a line break", topic("a\nb"), segment, ErrMessageIllegal},
		{"topic that is no text", topic("a\xff"), segment, ErrMessageIllegal},
		{"topic of any script", topic("主题-тема"), segment, nil},
		{"properties with a zero, which recovery would take for a lost sector", Message{Topic: "t", Properties: "a\x01b\x00\x02"}, segment, ErrMessageIllegal},
		{"negative queue", Message{Topic: "t", QueueID: -1}, segment, ErrMessageIllegal},
		{"record that fills a segment to the smallest filler", body(1000), 91 + 1 + 1000 + 8, nil},
		{"record that leaves no filler", body(1000), 91 + 1 + 1000 + 7, ErrMessageIllegal},
	} {
		err := limits.Validate(&c.m, c.segment)
		if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err := limits.ValidateBatch([]*Message{{Topic: c.m.Topic}, &c.m}, c.segment*2); c.want != nil && !errors.Is(err, c.want) &&
			c.name != "record that leaves no filler" {
			t.Errorf("%s, in a batch: %v, want %v", c.name, err, c.want)
		}
	}
	m := body(DefaultBodyBytes)
	if err := (Limits{}).Validate(&m, segment); err != nil {
		t.Errorf("RocketMQ's largest body by default: %v", err)
	}
	var over *LimitError
	m = body(DefaultBodyBytes + 1)
	if err := (Limits{}).Validate(&m, segment); !errors.As(err, &over) || over.What != "body" || over.Value != DefaultBodyBytes+1 || over.Max != DefaultBodyBytes {
		t.Errorf("one byte more: %v", err)
	}
}

func TestBatchesAreOfOneQueueAndFitOneSegment(t *testing.T) {
	message := func(change func(*Message)) *Message {
		m := &Message{Topic: "t", QueueID: 3, Body: make([]byte, 100)}
		change(m)
		return m
	}
	plain := func(*Message) {}
	for _, c := range []struct {
		name   string
		second func(*Message)
		ok     bool
	}{
		{"alike", plain, true},
		{"another topic", func(m *Message) { m.Topic = "u" }, false},
		{"another queue", func(m *Message) { m.QueueID = 4 }, false},
		{"transaction", func(m *Message) { m.SysFlag = FlagTransactionPrepared }, false},
		{"delayed", func(m *Message) { m.Properties = "DELAY\x013\x02" }, false},
		{"delay level zero", func(m *Message) { m.Properties = "DELAY\x010\x02" }, true},
		{"properties", func(m *Message) { m.Properties = strings.Repeat("p", 32768) }, false},
	} {
		err := (Limits{}).ValidateBatch([]*Message{message(plain), message(c.second)}, 1<<20)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want accepted: %v", c.name, err, c.ok)
		}
	}
	two := []*Message{message(plain), message(plain)}
	if err := (Limits{}).ValidateBatch(two, 2*(91+1+100)+8); err != nil {
		t.Errorf("batch that fills a segment: %v", err)
	}
	if err := (Limits{}).ValidateBatch(two, 2*(91+1+100)+7); !errors.Is(err, ErrMessageIllegal) {
		t.Errorf("batch that does not fit: %v", err)
	}
	if err := (Limits{}).ValidateBatch(nil, 1<<20); !errors.Is(err, ErrMessageIllegal) {
		t.Errorf("empty batch: %v", err)
	}
}

func TestValidatingDoesNotAllocate(t *testing.T) {
	m := &Message{Topic: "topic", Properties: "TAGS\x01TagA\x02", Body: make([]byte, 1024)}
	if n := testing.AllocsPerRun(100, func() {
		if err := (Limits{}).Validate(m, 1<<20); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
