package remoting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsNotThereIsRefusedInRocketMQsWords(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	sub := func(kind string) string {
		return `{"clientId":"c","group":"g","subscriptionData":{"expressionType":"` + kind + `","subString":"a > 1","topic":"t"}}`
	}
	for _, want := range []struct {
		code   int32
		body   string
		answer int32
		text   string // of the remark, or the body
	}{
		{CodeQueryMessage, "", RequestCodeNotSupported, "request type 12 not supported: this broker keeps no index of keys"},
		{CodeEndTransaction, "", RequestCodeNotSupported, "request type 37 not supported"},
		{CodeGetTimerCheckpoint, "", SystemError, "The checkpoint is null"},
		{CodeGetTimerMetrics, "", SystemError, "The timer message store is null"},
		{CodeGetAllRequestModes, "", Success, `{"messageRequestModeMap":{}}`},
		{CodeCheckClientConfig, sub("TAG"), Success, ""},
		{CodeCheckClientConfig, `{"clientId":"c"}`, Success, ""},
		{CodeCheckClientConfig, sub("SQL92"), SystemError, "by SQL92, only by TAG"},
		{CodeCheckClientConfig, "{", SystemError, "body"},
		{CodeCheckClientConfig, strings.Repeat(" ", smallBodyMax+1), SystemError, "at most"},
		{CodeUpdateGroup, strings.Repeat(" ", smallBodyMax+1), InvalidParameter, "at most"},
		{CodeLockBatch, strings.Repeat(" ", lockBytesMax+1), InvalidParameter, "at most"},
	} {
		got := ask(t, c, &Command{Code: want.code, Body: []byte(want.body)})
		if got.Code != want.answer || !strings.Contains(got.Remark+string(got.Body), want.text) {
			t.Errorf("code %d: %d %q %s, want %d %s", want.code, got.Code, got.Remark, got.Body, want.answer, want.text)
		}
	}
}

// A slave of RocketMQ's that is told of none would deliver what was delayed before
// once more.
func TestDelayOffsetsOfAStoreAreTold(t *testing.T) {
	store := t.TempDir()
	b, _ := openBroker(t, store, BrokerOptions{})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	offsets := func(want string) {
		t.Helper()
		if got := ask(t, c, &Command{Code: CodeGetAllDelayOffset}); got.Code != Success || !strings.Contains(string(got.Body), want) {
			t.Errorf("%d %q %s, want %s", got.Code, got.Remark, got.Body, want)
		}
	}
	offsets(`"offsetTable":{}`)
	text := `{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},"offsetTable":{1:17,3:2}}`
	if err := os.WriteFile(filepath.Join(store, "config", "delayOffset.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	offsets(text)
}

func TestStatisticsAreOfTheTopicsThatAreAskedFor(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{Name: "b1"})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	for _, topic := range []string{"a", "b", "c"} {
		if err := await(func(done func(error)) { b.topics.Create(NewTopicConfig(topic, 1), done) }); err != nil {
			t.Fatal(err)
		}
		if err := b.offsets.Commit("g", topic, 0, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	topics := func(x Ext, want string) {
		t.Helper()
		got := ask(t, c, &Command{Code: CodeGetConsumeStats, Ext: append(Ext{{"consumerGroup", "g"}}, x...)})
		wantCode(t, got, Success)
		seen := ""
		for _, name := range []string{"a", "b", "c"} {
			if strings.Contains(string(got.Body), `"topic":"`+name+`"`) {
				seen += name
			}
		}
		if seen != want {
			t.Errorf("%v: topics %q, want %q", x, seen, want)
		}
	}
	topics(nil, "abc")
	topics(Ext{{"topic", "b"}}, "b")
	topics(Ext{{"topicList", "c;a;c"}}, "ac")
	beat := consumerBeat("c1", "g", "a=*")
	wantCode(t, ask(t, c, &beat), Success)
	topics(nil, "a")
	topics(Ext{{"topic", "b"}}, "") // not subscribed to any more
	topics(Ext{{"topicList", "b"}}, "b")
}
