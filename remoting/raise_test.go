package remoting

import (
	"testing"

	"github.com/haengine/haengine/engine"
)

// A topic that was made on the master after the slave's last copy has messages in the
// slave's log: when it is promoted they can be read, whatever it knows of topics.
func TestAPromotedSlaveServesTheQueuesThatItsLogHas(t *testing.T) {
	master, _ := openBrokerOf(t, engine.Options{Store: t.TempDir(), HAListen: "127.0.0.1:0"}, BrokerOptions{})
	// Nobody tells this slave where to copy topics from.
	slave, _ := openBrokerOf(t, engine.Options{Store: t.TempDir(), Role: engine.Slave, Master: master.o.Engine.HAAddr().String()},
		BrokerOptions{NameServers: []string{"127.0.0.1:1"}})
	old := NewTopicConfig("known", 4)
	if err := await(func(done func(error)) { slave.topics.Update(old, done) }); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"known", "unknown"} {
		m := engine.Message{Topic: topic, QueueID: 7, Body: []byte("x")}
		if _, err := master.o.Engine.Put(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the slave has both messages", func() bool {
		_, known, _ := slave.o.Engine.QueueBounds("known", 7)
		_, unknown, _ := slave.o.Engine.QueueBounds("unknown", 7)
		return known == 1 && unknown == 1
	})
	if _, err := slave.o.Engine.Promote(t.Context(), engine.PromoteOptions{Role: engine.AsyncMaster}); err != nil {
		t.Fatal(err)
	}
	c := dialAddr(t, slave.Server().Addr().String(), nil)
	for topic, write := range map[string]int32{"known": 4, "unknown": 8} {
		until(t, "the message in queue 7 of "+topic+" is read", func() bool {
			got := ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("shop", topic, 7, 0, pullSubscription, 0)})
			return got.Code == Success
		})
		if got, _ := slave.topics.Lookup(topic); got.ReadQueues != 8 || got.WriteQueues != write {
			t.Errorf("%s has %d queues to read and %d to write, want 8 and %d", topic, got.ReadQueues, got.WriteQueues, write)
		}
	}
}
