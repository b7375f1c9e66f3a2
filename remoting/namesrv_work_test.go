package remoting

import (
	"fmt"
	"strings"
	"testing"
)

// checkCounts compares what a name server has with what it counts.
func checkCounts(t *testing.T, n *NameServer) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	count, bytes := 0, 0
	for _, of := range n.topics {
		count += len(of)
	}
	for namespace, of := range n.kv {
		for key, value := range of {
			bytes += len(namespace) + len(key) + len(value)
		}
	}
	if n.count != count || n.kvBytes != bytes {
		t.Errorf("%d topics and %d bytes are counted, there are %d and %d", n.count, n.kvBytes, count, bytes)
	}
}

func manyTopics(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s%d":{"perm":6,"readQueueNums":1,"writeQueueNums":1}`, prefix, i)
	}
	return b.String()
}

// Whoever reaches a name server may say that he is a thousand brokers.
func TestWhatOthersRegisterIsBounded(t *testing.T) {
	n, s := nameServer(t, NameServerOptions{Brokers: 3, Topics: 20})
	c := dial(t, s, nil)
	for i := range 3 {
		mustCall(t, c, registerCommand(fmt.Sprint("b", i), "0", fmt.Sprint("h:", i), "1", manyTopics(5, "T")))
	}
	refused := func(what string, r *Command) {
		t.Helper()
		if a := ask(t, c, r); a.Code != SystemError || !strings.Contains(a.Remark, ErrTooMany.Error()) {
			t.Errorf("%s: %d %q", what, a.Code, a.Remark)
		}
	}
	refused("a fourth broker", registerCommand("b3", "0", "h:3", "1", manyTopics(2, "T")))
	refused("more topics of one that is known", registerCommand("b0", "0", "h:0", "2", manyTopics(11, "U")))
	checkCounts(t, n)
	mustCall(t, c, registerCommand("b0", "0", "h:0", "3", manyTopics(5, "U")))
	if got := route(t, c, "U4"); !strings.Contains(got, "b0") {
		t.Errorf("route %s", got)
	}
	// The node's own broker is never the one that is too many.
	topics, version, err := registeredTopics(registerCommand("", "", "", "1", manyTopics(9, "V")).Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Register(&Registration{Cluster: "C", Broker: "own", Address: "h:9", Topics: topics, Version: version}, nil); err != nil {
		t.Error(err)
	}
	mustCall(t, c, &Command{Code: CodeDeleteTopicInNames, Ext: Ext{{"topic", "T1"}}})
	mustCall(t, c, &Command{Code: CodeUnregisterBroker, Ext: Ext{{"brokerName", "b1"}, {"brokerAddr", "h:1"}, {"clusterName", "C"}, {"brokerId", "0"}}})
	checkCounts(t, n)
	n.Unregister("C", "own", 0, "h:9")
	c.Close()
	until(t, "all are gone", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.live) == 0 && len(n.topics) == 0 && n.count == 0 && len(n.peers) == 0 && len(n.askers) == 0 && n.waiting == 0
	})
}

func TestNamesThatAreTooLongAreRefused(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	long := strings.Repeat("x", groupTopicNameMax+1)
	for _, field := range []string{"brokerName", "brokerAddr", "clusterName", "haServerAddr"} {
		r := registerCommand("b", "0", "h:1", "1", twoTopics)
		r.Ext = r.Ext.With(field, long)
		if a := ask(t, c, r); a.Code != SystemError || !strings.Contains(a.Remark, field) {
			t.Errorf("%s: %d %q", field, a.Code, a.Remark)
		}
	}
	if a := ask(t, c, registerCommand("b", "0", "h:1", "1", manyTopics(2, long))); a.Code != SystemError || !strings.Contains(a.Remark, "topic") || len(a.Remark) > 300 {
		t.Errorf("a topic: %d %q", a.Code, a.Remark)
	}
}

func TestKeysAndValuesAreBoundedTogether(t *testing.T) {
	n, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	put := func(key string, bytes int) int32 {
		return ask(t, c, &Command{Code: CodePutKVConfig, Ext: Ext{{"namespace", "N"}, {"key", key}, {"value", strings.Repeat("v", bytes)}}}).Code
	}
	for i := range 3 {
		if code := put(fmt.Sprint("k", i), kvBytesMax/4); code != Success {
			t.Fatalf("key %d: %d", i, code)
		}
	}
	if code := put("k3", kvBytesMax/4); code != SystemError {
		t.Errorf("one too many: %d", code)
	}
	if code := put("k0", 1); code != Success {
		t.Errorf("a smaller value of one that is there: %d", code)
	}
	if code := put("k3", kvBytesMax/4); code != Success {
		t.Errorf("now that there is room: %d", code)
	}
	checkCounts(t, n)
	for i := range 4 {
		mustCall(t, c, &Command{Code: CodeDeleteKVConfig, Ext: Ext{{"namespace", "N"}, {"key", fmt.Sprint("k", i)}}})
	}
	mustCall(t, c, &Command{Code: CodeDeleteKVConfig, Ext: Ext{{"namespace", "N"}, {"key", "k0"}}})
	checkCounts(t, n)
	if n.kvBytes != 0 {
		t.Errorf("%d bytes are counted at the end", n.kvBytes)
	}
}

// The loops of a name server are a broker's, too.
func TestLongWorkOfANameServerKeepsNoLoop(t *testing.T) {
	n, s := nameServer(t, NameServerOptions{})
	busy, release := make(chan struct{}), make(chan struct{})
	n.work.add(&lanePeer{}, taskFunc(func() { close(busy); <-release }))
	<-busy
	slow, c := dial(t, s, nil), dial(t, s, nil)
	registered := make(chan error, 1)
	go func() {
		a, err := slow.Call(t.Context(), registerCommand("b", "0", "h:1", "1", twoTopics))
		if err == nil {
			err = a.Err()
		}
		registered <- err
	}()
	until(t, "it waits", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.waiting > 0
	})
	if got := route(t, c, "T"); got != "" {
		t.Errorf("route %s", got)
	}
	// One that has sent more than its share waits for what it has sent.
	n.mu.Lock()
	n.waiting = namesWaitingMax
	n.mu.Unlock()
	large := registerCommand("b", "0", "h:1", "1", twoTopics)
	large.Body = make([]byte, FrameBytesMax/2)
	n.mu.Lock()
	for i := range 9 { // so that a share is less
		n.askers[&peer{begun: i > 0}] = &asker{}
	}
	n.mu.Unlock()
	if a := ask(t, slow, large); a.Code != SystemBusy {
		t.Errorf("answer %d %q", a.Code, a.Remark)
	}
	small := make(chan *Command, 1)
	go func() {
		a, _ := c.Call(t.Context(), &Command{Code: CodeGetClusterInfo})
		small <- a
	}()
	close(release)
	if err := <-registered; err != nil {
		t.Error(err)
	}
	if a := <-small; a == nil || a.Code != Success {
		t.Errorf("another one is answered %+v", a)
	}
}
