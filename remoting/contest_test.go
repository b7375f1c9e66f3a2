package remoting

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A node that was master and is started again as one registers beside the new one.
func TestTwoMastersOfABrokerAreWarnedOf(t *testing.T) {
	logger, text := testLogger(t)
	n := newNameServer(NameServerOptions{Logger: logger})
	register := func(addr string) {
		if _, err := n.Register(&Registration{Cluster: "C", Broker: "b", Address: addr, Topics: map[string]Queues{"T": {}, "U": {}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	warnings := func() int { return strings.Count(text.String(), "two nodes register") }
	register("h:1")
	register("h:1")
	register("h:2")
	register("h:2")
	register("h:1") // a change of the master, and back
	if got := warnings(); got != 0 {
		t.Errorf("%d warnings of a new master", got)
	}
	register("h:2")
	if got := warnings(); got != 1 || !strings.Contains(text.String(), "address=h:2 other=h:1") {
		t.Errorf("%d warnings: %s", got, text)
	}
	for i := range 6 {
		register(fmt.Sprintf("h:%d", 1+i%2))
	}
	if got := warnings(); got != 3 {
		t.Errorf("%d warnings, want one for each three changes", got)
	}
}

func TestChangesOfTheMasterOverDaysAreNoContest(t *testing.T) {
	var c contest
	now := time.Now()
	for range 10 {
		if c.another(now) {
			t.Error("warned")
		}
		now = now.Add(contestWithin)
	}
}
