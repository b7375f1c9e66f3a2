package remoting

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What a connection may have waiting is counted in bytes of its requests: memory
// is bounded only if none costs more than it counts.
func TestARequestThatWaitsCostsNoMoreThanItCounts(t *testing.T) {
	const waiting = 10000
	for _, test := range []struct {
		name string
		ext  Ext
	}{
		{"bare", nil},
		{"a pull's", pullOf{flags: pullSuspends}.ext()},
		{"a send's", sendCommand(CodeSendMessageV2, "orders", 0, "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02", "x").Ext},
		{"more fields than there is room for", func() (x Ext) {
			for i := range 40 {
				x = x.With(fmt.Sprint("name", i), strings.Repeat("\x01", 20))
			}
			return x
		}()},
		{"nothing but fields", slices.Repeat(Ext{{"a", ""}}, 300)},
	} {
		var mu sync.Mutex
		held := make([]*Request, 0, waiting)
		s := listen(t, HandlerFunc(func(r *Request) {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, r)
		}), ServerOptions{PendingIn: 1 << 30})
		c := dial(t, s, nil)
		frame := AppendFrame(nil, &Command{Code: 1, Language: "JAVA", Version: Version, Ext: test.ext})
		before := heapBytes()
		for range waiting {
			if err := c.sendFrame(frame); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "all wait", func() bool { mu.Lock(); defer mu.Unlock(); return len(held) == waiting })
		each, counted := int((heapBytes()-before)/waiting), held[0].served.cost
		t.Logf("%s: %d bytes each, counted as %d", test.name, each, counted)
		if each > counted {
			t.Errorf("%s: a request that waits costs %d bytes and counts %d", test.name, each, counted)
		}
		mu.Lock()
		for _, r := range held {
			r.ReplyCode(Success, "")
		}
		mu.Unlock()
	}
}
