package remoting

import (
	"fmt"
	"log/slog"
	"testing"

	"pgregory.net/rapid"
)

// Whatever brokers and others say, and in which order: what is in routes is
// somebody's who is registered, and goes with him.
func TestRoutesHaveNobodyWhoIsNotRegistered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNameServer(NameServerOptions{Logger: slog.New(slog.DiscardHandler), Brokers: 6, Topics: 12})
		peers := []Peer{&reader{}, &reader{}, &reader{}}
		name := func(what string, most int) string { return fmt.Sprint(what, rapid.IntRange(0, most).Draw(t, what)) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r := Registration{
				Cluster: name("C", 1), Broker: name("b", 3), ID: int64(rapid.IntRange(0, 2).Draw(t, "id")), Address: name("h:", 3), MaySubstitute: true,
				Version: DataVersion{Counter: int64(rapid.IntRange(0, 3).Draw(t, "version"))}, Topics: map[string]Queues{},
			}
			for range rapid.IntRange(0, 4).Draw(t, "topics") {
				r.Topics[name("T", 5)] = Queues{ReadQueues: 1}
			}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			default:
				_, _ = n.Register(&r, rapid.SampledFrom(peers).Draw(t, "peer"))
			case 1:
				n.Unregister(r.Cluster, r.Broker, r.ID, r.Address)
			case 2:
				i := rapid.IntRange(0, len(peers)-1).Draw(t, "closed")
				n.peerClosed(peers[i])
			}
			checkRoutes(t, n)
		}
		for _, p := range peers {
			n.peerClosed(p)
		}
		if len(n.brokers) > 0 || len(n.topics) > 0 || len(n.live) > 0 || n.count != 0 {
			t.Fatalf("when all are gone there are %v %v %v, %d counted", n.brokers, n.topics, n.live, n.count)
		}
	})
}

func checkRoutes(t *rapid.T, n *NameServer) {
	for name, b := range n.brokers {
		if len(b.addrs) == 0 {
			t.Fatalf("broker %s has no address", name)
		}
		for id, addr := range b.addrs {
			if l := n.live[addr]; l == nil || l.broker != name || l.id != id {
				t.Fatalf("broker %s has address %s as %d, which nobody registered", name, addr, id)
			}
		}
	}
	count := 0
	for topic, of := range n.topics {
		count += len(of)
		for name := range of {
			if n.brokers[name] == nil {
				t.Fatalf("topic %s is a broker's that is not there: %s", topic, name)
			}
		}
	}
	if len(n.live) > n.o.Brokers || count > n.o.Topics || n.count != count {
		t.Fatalf("%d addresses, %d topics, %d counted", len(n.live), count, n.count)
	}
}
