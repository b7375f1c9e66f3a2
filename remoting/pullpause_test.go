package remoting

import (
	"fmt"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func (b *broker) putBack(properties string, body string) engine.PutResult {
	b.t.Helper()
	r, err := b.e.Put(b.t.Context(), &engine.Message{Topic: "%RETRY%g", Properties: properties, Body: []byte(body)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.settled()
	return r
}

func TestAMessageThatWasSentBackStaysAwayForAWhile(t *testing.T) {
	const pause = 300 * time.Millisecond
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{RetryPause: pause})
	retry := pullOf{topic: "%RETRY%g", flags: pullSuspends | pullSubscription, suspend: readingTimeout}
	for i, properties := range []string{"DELAY\x013\x02", "RETRY_TOPIC\x01t\x02DELAY\x0118\x02"} {
		retry.from = int64(i)
		held := b.send(&reader{}, CodePullMessage, retry.ext()) // before it comes
		put := b.putBack(properties, fmt.Sprint(i))
		late := b.send(&reader{}, CodePullMessage, retry.ext()) // and behind it
		for _, answer := range []<-chan *Command{held, late} {
			got := b.await(answer)
			now := time.Now().UnixMilli()
			offsets, _ := recordsOf(t, got.Body)
			if got.Code != Success || len(offsets) != 1 || offsets[0] != int64(i) || now < put.StoreTimestamp+pause.Milliseconds() {
				t.Errorf("%q: code %d, messages %v after %d ms, want one after %v", properties, got.Code, offsets, now-put.StoreTimestamp, pause)
			}
		}
	}
	// What is due is given, what is not stays behind.
	if got := b.pull(pullOf{topic: "%RETRY%g", flags: pullSubscription}); got.Code != Success || number(t, got, "nextBeginOffset") != 2 {
		t.Errorf("what was due: %d %v", got.Code, got.Ext)
	}
}

func TestWhatIsNotDueIsNotGiven(t *testing.T) {
	b := newBroker(t, openReadingNode(t, engine.Options{}), PullOptions{RetryPause: time.Hour})
	b.putBack("A\x01b\x02", "no delay")
	b.putBack("DELAY\x010\x02", "none")
	b.putBack("DELAY\x014\x02REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x010\x02", "has waited at RocketMQ's broker")
	b.putBack("DELAY\x015\x02", "stays away")
	b.putBack("", "behind it")
	retry := pullOf{topic: "%RETRY%g", flags: pullSubscription}
	got := b.pull(retry)
	offsets, _ := recordsOf(t, got.Body)
	if got.Code != Success || len(offsets) != 3 || number(t, got, "nextBeginOffset") != 3 || number(t, got, "maxOffset") != 5 {
		t.Errorf("%d %v, messages %v", got.Code, got.Ext, offsets)
	}
	retry.from = 3
	if got := b.pull(retry); got.Code != PullNotFound || number(t, got, "nextBeginOffset") != 3 || len(got.Body) > 0 {
		t.Errorf("one that may not wait: %d %v, %d bytes", got.Code, got.Ext, len(got.Body))
	}
	retry.flags, retry.suspend = pullSubscription|pullSuspends, readingTimeout
	p := &reader{}
	held := b.send(p, CodePullMessage, retry.ext())
	eventuallyRead(t, "it is held", func() bool { return b.held() == 1 })
	// It is not looked at again and again for what is not due.
	if n := b.readsIn(20); n > 3 { // the two above, and its own
		t.Errorf("it was read %d times", n)
	}
	b.putBack("", "more")
	if n := b.readsIn(20); n > 3 {
		t.Errorf("after a put it was read %d times", n)
	}
	b.none(held)
	retry.suspend = 50 * time.Millisecond
	if got := b.pull(retry); got.Code != PullNotFound || number(t, got, "nextBeginOffset") != 3 {
		t.Errorf("its own time is over first: %d %v", got.Code, got.Ext)
	}
	// On another topic the property means nothing to a pull.
	if _, err := b.e.Put(t.Context(), &engine.Message{Topic: "t", Properties: "DELAY\x015\x02", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	b.settled()
	if got := b.pull(pullOf{}); got.Code != Success {
		t.Errorf("of another topic: %d", got.Code)
	}
}

func TestAPauseIsNoLongerThanItsLevelNorThanTheClockSays(t *testing.T) {
	record := func(level string, stored int64) *engine.Record {
		var r engine.Record
		r.Properties, r.StoreTimestamp = "DELAY\x01"+level+"\x02", stored
		return &r
	}
	const at = 1_000_000
	for _, c := range []struct {
		level  string
		stored int64
		want   time.Duration
	}{
		{"1", at, time.Second}, {"2", at, 5 * time.Second}, {"3", at, 10 * time.Second}, {"18", at, 10 * time.Second}, {"99", at - 4000, 6 * time.Second},
		{"3", at + 3_600_000, 10 * time.Second}, {"3", at - 10_000, 0}, {"0", at, 0}, {"x", at, 0},
	} {
		if got := max(0, pauseOf(record(c.level, c.stored), at, retryPause)); got != c.want {
			t.Errorf("level %s stored %d ms ago: %v, want %v", c.level, at-c.stored, got, c.want)
		}
	}
}
