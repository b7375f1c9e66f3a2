package remoting

import (
	"context"
	"net/netip"
	"strconv"
	"testing"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/internal/fixture"
)

// Messages of a real broker's log, sent again over the protocol, are stored with
// the same content.
func TestWhatARealBrokerStoredIsStoredTheSame(t *testing.T) {
	broker, err := engine.Open(engine.Options{Store: fixture.Unpack(t, "mixed"), Reactors: 1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close(context.Background())
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	type queue struct {
		topic string
		id    int32
	}
	skipped := map[queue]bool{} // a message of it could not be sent: offsets differ from there
	compared, offsets := 0, 0
	for want, err := range broker.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		q := queue{want.Topic, want.QueueID}
		level, _ := want.Property("DELAY")
		if ValidateTopic(want.Topic) != "" || sendForbidden(want.Topic) || len(want.Body) == 0 || level != "" ||
			want.SysFlag&engine.FlagTransactionMask != 0 {
			skipped[q] = true
			continue
		}
		if _, ok := f.topics.Lookup(want.Topic); !ok {
			if err := await(func(done func(error)) { f.topics.Create(NewTopicConfig(want.Topic, 64), done) }); err != nil {
				t.Fatal(err)
			}
		}
		code := int32(CodeSendMessageV2)
		c := sendCommand(code, want.Topic, want.QueueID, want.Properties, string(want.Body))
		c.Ext = c.Ext.With("f", strconv.Itoa(int(want.SysFlag))).With("h", strconv.Itoa(int(want.Flag))).
			With("g", strconv.FormatInt(want.BornTimestamp, 10)).With("j", strconv.Itoa(int(want.ReconsumeTimes)))
		f.peer.addr = netip.AddrPortFrom(want.BornHost.Addr, uint16(want.BornHost.Port))
		a := f.send(c)
		wantCode(t, a, Success)
		got := f.record(a)
		if !skipped[q] {
			offsets++
			if got.QueueOffset != want.QueueOffset {
				t.Errorf("%s queue %d: offset %d, want %d", want.Topic, want.QueueID, got.QueueOffset, want.QueueOffset)
			}
		}
		const storeHostBit = 0x20
		if got.Topic != want.Topic || got.QueueID != want.QueueID || got.Flag != want.Flag || got.SysFlag|storeHostBit != want.SysFlag|storeHostBit ||
			got.Properties != want.Properties || string(got.Body) != string(want.Body) || got.BodyCRC != want.BodyCRC || got.Magic != want.Magic ||
			got.BornHost != want.BornHost || got.BornTimestamp != want.BornTimestamp || got.ReconsumeTimes != want.ReconsumeTimes {
			t.Errorf("stored %+v\nwant   %+v", got.Message, want.Message)
		}
		compared++
	}
	if compared < 100 || offsets < 50 {
		t.Errorf("only %d messages and %d queue offsets were compared", compared, offsets)
	}
}
