//go:build !race

package remoting

import (
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

// The race detector's instrumentation allocates, so this runs without it.

// sendAllocationsMax is for one send: the request and its answer function, which
// the test makes as a server does, the answer with its fields, and the text of
// its ids.
const sendAllocationsMax = 4

func TestASendAllocatesItsAnswerOnly(t *testing.T) {
	f := newSends(t, engine.Options{SegmentBytes: 64 << 20}, SendsOptions{}, TopicsOptions{})
	c := sendCommand(CodeSendMessageV2, "orders", 0, "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02", strings.Repeat("x", 1024))
	wantCode(t, f.send(c), Success)
	answer := make(chan *Command, 1)
	send := func() {
		f.Serve(NewRequest(c, f.peer, func(a *Command) { answer <- a }))
		if a := <-answer; a.Code != Success {
			t.Fatal(a.Remark)
		}
	}
	if n := testing.AllocsPerRun(2000, send); n > sendAllocationsMax {
		t.Errorf("%v allocations a send, want at most %d", n, sendAllocationsMax)
	}
}
