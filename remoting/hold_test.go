package remoting

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func (b *broker) held() int { return int(b.pulls.holds.some.Load()) }

// unanswered is what the limits count.
func (b *broker) unanswered() (pulls int, bytes int64) {
	b.pulls.mu.Lock()
	defer b.pulls.mu.Unlock()
	return b.pulls.pulls, b.pulls.bytes
}

// readsIn is how many reads there were, when the queues have been looked at some
// more times.
func (b *broker) readsIn(looks int64) int64 {
	b.t.Helper()
	from := b.pulls.holds.passes.Load()
	eventuallyRead(b.t, "the queues are looked at", func() bool {
		b.pulls.holds.nudge()
		return b.pulls.holds.passes.Load() > from+looks
	})
	b.pulls.hot.mu.Lock()
	defer b.pulls.hot.mu.Unlock()
	return b.pulls.hot.served
}

func (b *broker) none(answer <-chan *Command) {
	b.t.Helper()
	select {
	case c := <-answer:
		b.t.Fatalf("answered: %d %q %v", c.Code, c.Remark, c.Ext)
	default:
	}
}

func TestAPullIsHeldUntilAMessageThatItWants(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	other := b.send(&reader{}, CodePullMessage, pullOf{queue: 1, flags: pullSuspends, suspend: time.Minute}.ext())
	held := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends | pullSubscription, text: "A", suspend: time.Minute}.ext())
	for range 3 {
		b.put(0, "B", []byte("x"))
		b.settled()
	}
	eventuallyRead(t, "both are held again", func() bool { return b.held() == 2 })
	if n := b.readsIn(20); n > 4 {
		t.Errorf("%d reads of what was looked at before", n)
	}
	b.none(held)
	b.put(0, "A", []byte("wanted"))
	got := b.await(held)
	if offsets, _ := recordsOf(t, got.Body); got.Code != Success || !slices.Equal(offsets, []int64{3}) || number(t, got, "nextBeginOffset") != 4 {
		t.Errorf("%d %v, offsets %v", got.Code, got.Ext, offsets)
	}
	b.none(other)
}

func TestAHeldPullIsAnsweredAtItsTime(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	const wait = 40 * time.Millisecond
	began := time.Now()
	late := b.send(&reader{}, CodePullMessage, pullOf{queue: 1, flags: pullSuspends, suspend: time.Hour}.ext())
	first := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends, suspend: wait}.ext())
	if got := b.await(first); got.Code != PullNotFound || number(t, got, "nextBeginOffset") != 0 {
		t.Errorf("%d %v", got.Code, got.Ext)
	}
	if d := time.Since(began); d < wait {
		t.Errorf("answered after %v", d)
	}
	b.none(late)
	// What was passed over meanwhile is not looked at again.
	passed := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends | pullSubscription, text: "A", suspend: time.Second}.ext())
	b.put(0, "B", nil)
	if got := b.await(passed); got.Code != PullRetryImmediately || number(t, got, "nextBeginOffset") != 1 {
		t.Errorf("%d %v", got.Code, got.Ext)
	}
	// Who names no time does not ask again at once.
	began = time.Now()
	if b.pull(pullOf{from: 1, flags: pullSuspends}); time.Since(began) < 500*time.Millisecond {
		t.Error("a suspended pull without a time is answered at once")
	}
	if n, _ := b.unanswered(); n != 1 {
		t.Errorf("%d pulls are counted, one is held", n)
	}
}

func TestNothingIsHeldWithoutItsFlag(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	if got := b.pull(pullOf{suspend: time.Hour}); got.Code != PullNotFound {
		t.Errorf("%d", got.Code)
	}
	if got := b.pull(pullOf{from: 3, flags: pullSuspends, suspend: time.Hour}); got.Code != PullOffsetMoved {
		t.Errorf("an offset that is wrong: %d", got.Code)
	}
}

func TestTheHoldsOfAClosedConnectionGoAtOnce(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	gone, stays := &reader{}, &reader{}
	var answers []<-chan *Command
	for i := range 20 {
		answers = append(answers, b.send(gone, CodePullMessage, pullOf{queue: int32(i % 4), flags: pullSuspends, suspend: time.Hour}.ext()))
	}
	other := b.send(stays, CodePullMessage, pullOf{flags: pullSuspends, suspend: time.Hour}.ext())
	if b.held() != 21 {
		t.Fatalf("%d are held", b.held())
	}
	gone.Close(errGone)
	if n, _ := b.unanswered(); b.held() != 1 || n != 1 {
		t.Errorf("%d are held, %d counted", b.held(), n)
	}
	b.send(gone, CodePullMessage, pullOf{flags: pullSuspends, suspend: time.Hour}.ext())
	if n, _ := b.unanswered(); b.held() != 1 || n != 1 {
		t.Errorf("after its end: %d are held, %d counted", b.held(), n)
	}
	b.put(0, "", nil)
	b.await(other)
	for _, a := range answers {
		b.none(a)
	}
	eventuallyRead(t, "nothing is counted", func() bool {
		n, bytes := b.unanswered()
		return n == 0 && bytes == 0
	})
	b.pulls.mu.Lock()
	defer b.pulls.mu.Unlock()
	if len(b.pulls.peers) != 1 {
		t.Errorf("%d connections are remembered", len(b.pulls.peers))
	}
}

func TestTooManyPullsAreRefused(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{PeerPulls: 2, Pulls: 5, PullBytes: 8 << 10})
	hold := pullOf{flags: pullSuspends, suspend: time.Hour}
	flood, others := &reader{}, &reader{}
	b.send(flood, CodePullMessage, hold.ext())
	b.send(flood, CodePullMessage, hold.ext())
	if got := b.await(b.send(flood, CodePullMessage, hold.ext())); got.Code != SystemBusy || got.Remark == "" {
		t.Errorf("one more of a connection: %d %q", got.Code, got.Remark)
	}
	if got := b.await(b.send(flood, CodeSearchOffsetByTime, pullOf{}.ext().With("timestamp", "0"))); got.Code != SystemBusy {
		t.Errorf("a look-up: %d", got.Code)
	}
	tags := pullOf{flags: pullSuspends | pullSubscription, suspend: time.Hour}
	for i := range 4 << 10 {
		tags.text += fmt.Sprintf("||%d", i)
	}
	if got := b.await(b.send(others, CodePullMessage, tags.ext())); got.Code != SystemBusy {
		t.Errorf("one that needs much memory: %d", got.Code)
	}
	b.send(others, CodePullMessage, hold.ext())
	b.send(others, CodePullMessage, hold.ext())
	b.send(&reader{}, CodePullMessage, hold.ext())
	if got := b.ask(CodePullMessage, hold.ext()); got.Code != SystemBusy {
		t.Errorf("one more of all: %d", got.Code)
	}
	flood.Close(errGone)
}

// A connection that does not take its answers gets no more of them, and delays
// nobody.
func TestAStuckConnectionIsNotReadFor(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{PeerBytes: 1 << 20, Readers: 1, ColdReaders: 1})
	b.put(0, "", []byte("x"))
	b.settled()
	stuck := &reader{}
	stuck.backlog.Store(1 << 20)
	var answers []<-chan *Command
	for range 50 {
		answers = append(answers, b.send(stuck, CodePullMessage, pullOf{}.ext()))
	}
	for range 50 {
		if got := b.pull(pullOf{}); got.Code != Success {
			t.Fatalf("another connection: %d", got.Code)
		}
	}
	for _, a := range answers {
		b.none(a)
	}
	stuck.backlog.Store(0)
	for _, a := range answers {
		b.await(a)
	}
}

// Cold reads that hang, however many, delay nobody who reads what is hot.
func TestColdReadsDelayNobodyElse(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{HotBytes: 1, ColdReaders: 2})
	hang := make(chan struct{})
	slow := &reader{}
	begun := make(chan struct{}, 9)
	for range 9 {
		s, err := b.pulls.reader(slow, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.pulls.cold.add(&s.cold, taskFunc(func() { begun <- struct{}{}; <-hang }))
	}
	<-begun
	b.put(0, "", []byte("x"))
	b.put(1, "", []byte("x"))
	b.settled()
	cold := b.send(slow, CodePullMessage, pullOf{}.ext()) // behind the others
	for range 20 {
		// The second cold reader is left by the one that hangs to the others.
		if got := b.pull(pullOf{}); got.Code != Success {
			t.Fatalf("cold, of another connection: %d", got.Code)
		}
		if got := b.pull(pullOf{from: 1, queue: 1}); got.Code != PullNotFound {
			t.Fatalf("hot: %d", got.Code)
		}
	}
	b.none(cold)
	close(hang)
	b.await(cold)
}

// Peers take turns: whoever has few reads does not wait for all of one that has
// many.
func TestPeersTakeTurns(t *testing.T) {
	l := newLane(1, 1, func() {})
	defer l.stop()
	gate, order := make(chan struct{}), make(chan string, 100)
	var many, few lanePeer
	l.add(&many, taskFunc(func() { <-gate }))
	for range 50 {
		l.add(&many, taskFunc(func() { order <- "many" }))
	}
	l.add(&few, taskFunc(func() { order <- "few" }))
	close(gate)
	for n := 0; ; n++ {
		if <-order == "few" {
			if n > 2 {
				t.Errorf("it was done after %d of the other", n)
			}
			return
		}
	}
}

// Holding and waking at random, with every reader counting what it is given.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, visible := range []engine.Visible{engine.VisibleAppended, engine.VisibleFlushed} {
		t.Run(visible.String(), func(t *testing.T) {
			b := newBroker(t, openReadingNode(t, engine.Options{Flush: engine.SyncFlush}), PullOptions{Visible: visible})
			const rounds, readers = 200, 5
			done := make(chan string, readers)
			for range readers {
				go func() {
					p := &reader{}
					for from := int64(0); from < rounds; {
						x := pullOf{from: from, flags: pullSuspends, suspend: time.Hour}.ext()
						select {
						case c := <-b.send(p, CodePullMessage, x):
							if c.Code != Success {
								done <- fmt.Sprintf("from %d: %d %q", from, c.Code, c.Remark)
								return
							}
							from = number(t, c, "nextBeginOffset")
						case <-time.After(readingTimeout):
							done <- fmt.Sprintf("no answer from %d on", from)
							return
						}
					}
					done <- ""
				}()
			}
			for range rounds {
				b.put(0, "", []byte("x"))
			}
			for range readers {
				if why := <-done; why != "" {
					t.Error(why)
				}
			}
		})
	}
}

// What is in a queue and not visible makes nobody look at it again and again.
func TestWhatIsNotVisibleIsNotReadAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	e, err := engine.Open(engine.Options{Store: dir, Logger: quiet, SegmentBytes: 1 << 20, Reactors: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Put(t.Context(), &engine.Message{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A master's own end, that no other has shown to be history.
	e = openReadingNode(t, engine.Options{Store: dir, Role: engine.Slave, Master: "127.0.0.1:1"})
	b := newBroker(t, e, PullOptions{SlaveReads: true})
	held := b.send(&reader{}, CodePullMessage, pullOf{flags: pullSuspends, suspend: time.Hour}.ext())
	eventuallyRead(t, "it is held", func() bool { return b.held() > 0 })
	if n := b.readsIn(20); n > 2 {
		t.Errorf("it was read %d times", n)
	}
	b.none(held)
}

// What waits when the broker is closed is answered, so that nobody waits for it.
func TestCloseRefusesWhatWaits(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{PeerBytes: 1 << 20, ColdReaders: 1})
	hang, begun := make(chan struct{}), make(chan struct{})
	p := &reader{}
	s, err := b.pulls.reader(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.pulls.cold.add(&s.cold, taskFunc(func() { close(begun); <-hang }))
	<-begun
	b.put(0, "", nil)
	b.settled()
	stuck := &reader{}
	stuck.backlog.Store(1 << 20)
	answers := []<-chan *Command{
		b.send(p, CodePullMessage, pullOf{queue: 1, flags: pullSuspends, suspend: time.Hour}.ext()),
		b.send(p, CodeGetEarliestStoreTime, pullOf{}.ext()),
		b.send(stuck, CodePullMessage, pullOf{}.ext()),
	}
	closed := make(chan struct{})
	go func() {
		b.pulls.Close()
		close(closed)
	}()
	eventuallyRead(t, "it is closed", b.pulls.closed.Load)
	close(hang)
	<-closed
	answers = append(answers, b.send(p, CodePullMessage, pullOf{}.ext()), b.send(p, CodeGetEarliestStoreTime, pullOf{}.ext()))
	for i, a := range answers {
		if c := b.await(a); c.Code != SystemBusy || c.Remark == "" {
			t.Errorf("request %d: %d %q", i, c.Code, c.Remark)
		}
	}
	if n, bytes := b.unanswered(); n != 1 || bytes != 0 { // the one of reader above
		t.Errorf("%d are counted, with %d bytes", n, bytes)
	}
}

// What comes between a pull's look at its queue and its being held is seen: it was
// told while nobody was held.
func TestWhatComesJustBeforeAHoldIsSeen(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{})
	b.send(&reader{}, CodePullMessage, pullOf{queue: 1, flags: pullSuspends, suspend: time.Minute}.ext()) // due before the other
	answer := make(chan *Command, 1)
	r := NewRequest(Command{Ext: pullOf{flags: pullSuspends, suspend: time.Hour}.ext()}, &reader{}, func(c *Command) { answer <- c })
	h, err := parsePull(r.Ext)
	if err != nil {
		t.Fatal(err)
	}
	b.pulls.o.HoldLongest = time.Hour
	q, _, err := b.pulls.admit(r, &h)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.pulls.enter(q); err != nil {
		t.Fatal(err)
	}
	b.put(0, "", []byte("x"))
	b.settled()
	last := int64(-1)
	eventuallyRead(t, "what was told was looked at", func() bool {
		n := b.pulls.holds.passes.Load()
		rests := n == last && len(b.pulls.holds.wake) == 0
		last = n
		return rests
	})
	b.pulls.holds.add(q)
	if got := b.await(answer); got.Code != Success {
		t.Errorf("%d %v", got.Code, got.Ext)
	}
}
