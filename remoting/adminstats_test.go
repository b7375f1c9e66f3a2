package remoting

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A request of a few hundred bytes for statistics that no frame can hold made
// hundreds of megabytes for each twenty topics that it named.
func TestStatisticsThatNoFrameHoldsAreNotMade(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{Name: "b1"})
	var names []string
	for i := range 20 {
		c := NewTopicConfig(fmt.Sprint("wide", i), queuesMax)
		if err := await(func(done func(error)) { b.topics.Create(c, done) }); err != nil {
			t.Fatal(err)
		}
		names = append(names, c.Name)
	}
	c := dialAddr(t, b.Server().Addr().String(), nil)
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	answer := ask(t, c, &Command{Code: CodeGetConsumeStats, Ext: Ext{{"consumerGroup", "g"}, {"topicList", strings.Join(names, topicListSeparator)}}})
	wantCode(t, answer, SystemError)
	if used := allocated() - before; used > 10*FrameBytesMax {
		t.Errorf("%d bytes were allocated for the answer %q", used, answer.Remark)
	}
	if !strings.Contains(answer.Remark, "fewer topics") {
		t.Errorf("the answer %q does not say what to do", answer.Remark)
	}
	answer = ask(t, c, &Command{Code: CodeGetConsumeStats, Ext: Ext{{"consumerGroup", "g"}, {"topicList", names[0]}}})
	wantCode(t, answer, Success)

	b.pulls.closed.Store(true) // as when the broker closes: what takes long ends
	defer b.pulls.closed.Store(false)
	var told *Command
	a := &admin{b: b}
	if a.goesOn(NewRequest(Command{}, &reader{}, func(c *Command) { told = c }), nil) || told == nil || told.Code != SystemBusy {
		t.Errorf("a broker that closes answers %+v", told)
	}
}
