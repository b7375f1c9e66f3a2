package remoting

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestPullsAreCheckedInTheRealBrokersOrder(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	for _, c := range []struct {
		name string
		pull pullOf
		code int32
	}{
		{"unknown group before unknown topic", pullOf{group: "none", topic: "none"}, GroupNotExist},
		{"group that may not consume before unknown topic", pullOf{group: "x", topic: "none"}, NoPermission},
		{"unknown topic before a bad queue", pullOf{topic: "none", queue: 9}, TopicNotExist},
		{"topic that may not be read before a bad queue", pullOf{topic: "w", queue: 9}, NoPermission},
		{"a bad queue before the subscription", pullOf{queue: 4, kind: "SQL92", flags: pullSubscription}, InvalidParameter},
		{"a negative queue", pullOf{queue: -1}, InvalidParameter},
		{"a filter that is none of ours", pullOf{kind: "SQL92", text: "a > 1", flags: pullSubscription}, SystemError},
		{"a subscription by heartbeat", pullOf{kind: "SQL92"}, PullNotFound},
	} {
		if got := b.pull(c.pull); got.Code != c.code || got.Code != PullNotFound && got.Remark == "" {
			t.Errorf("%s: %d %q, want %d", c.name, got.Code, got.Remark, c.code)
		}
	}
	b.broadcasts = true
	if got := b.pull(pullOf{}); got.Code != NoPermission || !strings.Contains(got.Remark, "broadcast") {
		t.Errorf("a group that may not broadcast: %d %q", got.Code, got.Remark)
	}
	b.mayBroadcast = true
	if got := b.pull(pullOf{}); got.Code != PullNotFound {
		t.Errorf("a group that may broadcast: %d %q", got.Code, got.Remark)
	}
	b.subs = nil
	if got := b.pull(pullOf{}); got.Code != SubscriptionNotExist {
		t.Errorf("no subscription: %d %q", got.Code, got.Remark)
	}
	whole := pullOf{}.ext()
	for _, name := range pullFields {
		x := slices.DeleteFunc(slices.Clone(whole), func(f Field) bool { return f.Name == name })
		if got := b.ask(CodePullMessage, x); got.Code != SystemError || !strings.Contains(got.Remark, name) {
			t.Errorf("without %s: %d %q", name, got.Code, got.Remark)
		}
		if name == "topic" || name == "consumerGroup" {
			continue
		}
		if got := b.ask(CodePullMessage, x.With(name, "1x")); got.Code != SystemError || !strings.Contains(got.Remark, name) {
			t.Errorf("%s is no number: %d %q", name, got.Code, got.Remark)
		}
	}
	b.pulls.o.NotReadable = true
	if got := b.pull(pullOf{group: "none"}); got.Code != NoPermission {
		t.Errorf("a broker that may not be read: %d", got.Code)
	}
}

func TestPullStatusesOfAMaster(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	for range 3 {
		b.put(1, "A", []byte("x"))
	}
	b.settled()
	for _, c := range []struct {
		name           string
		pull           pullOf
		code           int32
		next, min, max int64
		records        int
		remark         string
	}{
		{"all", pullOf{queue: 1}, Success, 3, 0, 3, 3, "FOUND"},
		{"no number of messages is one", pullOf{queue: 1, most: -5}, Success, 1, 0, 3, 1, "FOUND"},
		{"few bytes are one message", pullOf{queue: 1, bytes: 1}, Success, 1, 0, 3, 1, "FOUND"},
		{"none that is wanted", pullOf{queue: 1, flags: 4, text: "B"}, PullRetryImmediately, 3, 0, 3, 0, "NO_MATCHED_MESSAGE"},
		{"at the end", pullOf{queue: 1, from: 3}, PullNotFound, 3, 0, 3, 0, "OFFSET_OVERFLOW_ONE"},
		{"behind it", pullOf{queue: 1, from: 4}, PullOffsetMoved, 3, 0, 3, 0, "OFFSET_OVERFLOW_BADLY"},
		{"before the first", pullOf{queue: 1, from: -1}, PullOffsetMoved, 0, 0, 3, 0, "OFFSET_TOO_SMALL"},
		{"no queue", pullOf{}, PullNotFound, 0, 0, 0, 0, "NO_MATCHED_LOGIC_QUEUE"},
		{"no queue and an offset", pullOf{from: 2}, PullOffsetMoved, 0, 0, 0, 0, "NO_MATCHED_LOGIC_QUEUE"},
	} {
		got := b.pull(c.pull)
		offsets, _ := recordsOf(t, got.Body)
		if got.Code != c.code || got.Remark != c.remark || len(offsets) != c.records ||
			number(t, got, "nextBeginOffset") != c.next || number(t, got, "minOffset") != c.min || number(t, got, "maxOffset") != c.max ||
			number(t, got, "suggestWhichBrokerId") != 0 || got.Opaque != 7 || got.Flag != FlagResponse {
			t.Errorf("%s: %d %s %v with %d records, want %+v", c.name, got.Code, got.Remark, got.Ext, len(offsets), c)
		}
	}
	lite := b.ask(CodeLitePullMessage, pullOf{queue: 1, flags: 22, text: "A"}.ext())
	if lite.Code != Success {
		t.Errorf("lite pull: %d %q", lite.Code, lite.Remark)
	}
}

// Puts, pulls and filters at random against slices of messages, with many readers
// at once that go on where the broker says.
func TestConsumersReadWhatWasPut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// What is cold goes the other way; here it is most.
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{HotBytes: 20 << 10, Messages: 7, Bytes: 3000, Readers: 2, ColdReaders: 2})
	tags := []string{"", "A", "B", "C"}
	type message struct{ tag, body string }
	model := make([][]message, 4)
	const total = 600
	filters := []string{"*", "A", "B || C", "D"}
	want := make([][]string, 4*len(filters))
	for i := range total {
		m := message{tags[random.IntN(4)], fmt.Sprintf("%d %s", i, strings.Repeat("x", random.IntN(1500)))}
		q := random.IntN(4)
		model[q] = append(model[q], m)
		for f, text := range filters {
			if text == "*" || m.tag != "" && strings.Contains(text, m.tag) {
				want[q*len(filters)+f] = append(want[q*len(filters)+f], m.body)
			}
		}
	}
	type result struct {
		reader int
		got    []string
		err    string
	}
	done := make(chan result)
	stop := make(chan struct{})
	defer close(stop)
	for i := range want {
		go func() {
			queue, text := int32(i/len(filters)), filters[i%len(filters)]
			r := result{reader: i}
			for from, p := int64(0), (&reader{}); ; {
				x := pullOf{queue: queue, from: from, flags: pullSubscription | pullSuspends, text: text, suspend: 20 * time.Second}.ext()
				var c *Command
				select {
				case c = <-b.send(p, CodePullMessage, x):
				case <-stop:
					return
				}
				offsets, bodies := recordsOf(t, c.Body)
				if c.Code != Success && c.Code != PullRetryImmediately || (c.Code == Success) != (len(offsets) > 0) || !slices.IsSorted(offsets) ||
					len(offsets) > 0 && offsets[0] < from {
					r.err = fmt.Sprintf("from %d: %d %s %v, offsets %v", from, c.Code, c.Remark, c.Ext, offsets)
				}
				for _, body := range bodies {
					r.got = append(r.got, string(body))
				}
				from = number(t, c, "nextBeginOffset")
				if r.err != "" || len(r.got) >= len(want[i]) {
					done <- r
					return
				}
			}
		}()
	}
	for range total { // while they read
		for q := range model {
			if len(model[q]) > 0 {
				b.put(int32(q), model[q][0].tag, []byte(model[q][0].body))
				model[q] = model[q][1:]
			}
		}
	}
	for n := len(want) - 4; n > 0; n-- { // the readers of D have nothing to wait for but their first answer
		select {
		case r := <-done:
			if r.err != "" || !slices.Equal(r.got, want[r.reader]) {
				t.Errorf("reader %d: %d messages, want %d; %s", r.reader, len(r.got), len(want[r.reader]), r.err)
			}
			if len(want[r.reader]) == 0 {
				n++
			}
		case <-time.After(readingTimeout):
			t.Fatalf("%d readers have not got all", n)
		}
	}
}

func TestAnOffsetThatComesWithAPullIsStored(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	b.pull(pullOf{commit: 5})
	if _, ok := b.offsets.Offset("g", "t", 0); ok {
		t.Error("stored without its flag")
	}
	b.pull(pullOf{commit: 5, flags: pullCommits, from: 3})
	if at, ok := b.offsets.Offset("g", "t", 0); !ok || at != 5 || b.offsets.PullOffset("g", "t", 0) != 3 {
		t.Errorf("stored %d, %v", at, ok)
	}
	b.pull(pullOf{group: "x", commit: 9, flags: pullCommits})
	if _, ok := b.offsets.Offset("x", "t", 0); ok {
		t.Error("stored of a pull that was refused")
	}
}

// A synchronous master without replicas confirms nothing: what it has appended is
// seen by nobody, and who waits for it waits.
func TestWhatIsNotConfirmedIsNotServed(t *testing.T) {
	dir := t.TempDir()
	e := openReadingNode(t, engine.Options{Role: engine.SyncMaster, HAListen: "127.0.0.1:0", SlaveTimeout: time.Millisecond, Store: dir})
	b := newBroker(t, e, PullOptions{Visible: engine.VisibleConfirmed})
	for range 3 {
		b.put(0, "", []byte("x"))
	}
	b.settled()
	if got := b.pull(pullOf{}); got.Code != PullNotFound || number(t, got, "maxOffset") != 0 || len(got.Body) > 0 {
		t.Errorf("before a replica: %d %v", got.Code, got.Ext)
	}
	if got := b.ask(CodeGetMaxOffset, pullOf{}.ext()); number(t, got, "offset") != 0 {
		t.Errorf("its end is told: %v", got.Ext)
	}
	if got := b.ask(CodeViewMessageByID, Ext(nil).WithInt("offset", 0)); got.Code != SystemError {
		t.Errorf("it is read by its offset: %d", got.Code)
	}
	if got := b.pull(pullOf{from: 2}); got.Code != PullNotFound || number(t, got, "nextBeginOffset") != 2 {
		t.Errorf("a consumer that has been further is reset: %d %v", got.Code, got.Ext)
	}
	held := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends, suspend: readingTimeout}.ext())
	b.put(0, "", []byte("y"))
	b.settled()
	select {
	case got := <-held:
		t.Fatalf("answered before a replica has it: %d %v", got.Code, got.Ext)
	default:
	}
	openReadingNode(t, engine.Options{Role: engine.Slave, Master: e.HAAddr().String()})
	got := b.await(held)
	if offsets, _ := recordsOf(t, got.Body); got.Code != Success || len(offsets) == 0 {
		t.Errorf("with a replica: %d %v", got.Code, got.Ext)
	}
}

// Who is far behind is sent to a slave if slaves serve, and back when it has caught
// up.
func TestWhoIsFarBehindIsSentToASlave(t *testing.T) {
	m := openReadingNode(t, engine.Options{HAListen: "127.0.0.1:0"})
	e := openReadingNode(t, engine.Options{Role: engine.Slave, Master: m.HAAddr().String()})
	for range 20 {
		if _, err := m.Put(context.Background(), &engine.Message{Topic: "t", Body: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	near := int64(5 * 1100)
	master := newBroker(t, m, PullOptions{NearBytes: near})
	slave := newBroker(t, e, PullOptions{NearBytes: near, SlaveReads: true})
	master.settled()
	eventuallyRead(t, "the slave has it", func() bool { return e.EndOffset() == m.EndOffset() })
	slave.settled()
	for _, c := range []struct {
		name string
		b    *broker
		from int64
		want int64
	}{
		{"no slave serves", master, 0, 0}, {"far behind", master, 0, 1}, {"near", master, 19, 0},
		{"far behind, on the slave", slave, 0, 1}, {"near, on the slave", slave, 19, 0},
	} {
		if got := c.b.pull(pullOf{from: c.from, most: 1}); got.Code != Success || number(t, got, "suggestWhichBrokerId") != c.want {
			t.Errorf("%s: %d %v", c.name, got.Code, got.Ext)
		}
		master.pulls.o.SlaveReads = true
	}
}

func TestASlaveServesAndResetsNobody(t *testing.T) {
	m := openReadingNode(t, engine.Options{HAListen: "127.0.0.1:0"})
	e := openReadingNode(t, engine.Options{Role: engine.Slave, Master: m.HAAddr().String()})
	b := newBroker(t, e, PullOptions{})
	if got := b.pull(pullOf{}); got.Code != SystemBusy {
		t.Errorf("a slave that serves no reads: %d", got.Code)
	}
	b.pulls.o.SlaveReads = true
	put := func() {
		if _, err := m.Put(context.Background(), &engine.Message{Topic: "t", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	held := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends, suspend: readingTimeout}.ext())
	put()
	if got := b.await(held); got.Code != Success || number(t, got, "suggestWhichBrokerId") != 0 {
		t.Errorf("what came from the master: %d %v", got.Code, got.Ext)
	}
	if got := b.pull(pullOf{from: 5}); got.Code != PullRetryImmediately || number(t, got, "nextBeginOffset") != 5 {
		t.Errorf("ahead of a slave: %d %v", got.Code, got.Ext)
	}
	if got := b.pull(pullOf{from: -1}); got.Code != PullRetryImmediately || number(t, got, "nextBeginOffset") != -1 {
		t.Errorf("behind a slave: %d %v", got.Code, got.Ext)
	}
	// One that may wait does not come again at once, and goes on when the slave has got there.
	held = b.send(&reader{}, CodePullMessage, pullOf{from: 2, flags: pullSuspends, suspend: readingTimeout}.ext())
	put()
	put()
	if got := b.await(held); got.Code != Success || number(t, got, "nextBeginOffset") != 3 {
		t.Errorf("a slave that was behind: %d %v", got.Code, got.Ext)
	}
	parked := b.send(&reader{}, CodePullMessage, pullOf{from: -1, flags: pullSuspends, suspend: 50 * time.Millisecond}.ext())
	put()
	if got := b.await(parked); got.Code != PullRetryImmediately {
		t.Errorf("before a slave's first: %d %v", got.Code, got.Ext)
	}
}

func BenchmarkPullRequest(b *testing.B) {
	e := openReadingNode(b, engine.Options{})
	k := newBroker(b, e, PullOptions{})
	for range 64 {
		k.put(0, "", bytes.Repeat([]byte("x"), 1024))
	}
	k.settled()
	x, p, answer := pullOf{from: 7}.ext(), &reader{}, make(chan *Command, 1)
	reply := func(c *Command) { answer <- c }
	b.ReportAllocs()
	for b.Loop() {
		k.mux.Serve(NewRequest(Command{Code: CodePullMessage, Ext: x}, p, reply))
		if c := <-answer; c.Code != Success || len(c.Body) < 32<<10 {
			b.Fatalf("%d %q, %d bytes", c.Code, c.Remark, len(c.Body))
		}
	}
}
