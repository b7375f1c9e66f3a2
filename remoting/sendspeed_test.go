package remoting

import (
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

func TestParsingASendAllocatesNothing(t *testing.T) {
	var h sendHeader
	var p sendProperties
	for _, code := range []int32{CodeSendMessage, CodeSendMessageV2} {
		c := sendCommand(code, "orders", 0, "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02", "x")
		n := testing.AllocsPerRun(100, func() {
			if err := h.parse(c.Ext); err != nil {
				t.Fatal(err)
			}
			if err := p.parse(h.properties); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("code %d: %v allocations", code, n)
		}
	}
}

// BenchmarkSend is one connection that keeps 256 sends under way, as a loop that
// has read many frames does.
func BenchmarkSend(b *testing.B) {
	f := newSends(b, engine.Options{SegmentBytes: 1 << 30}, SendsOptions{}, TopicsOptions{})
	c := sendCommand(CodeSendMessageV2, "orders", 0, "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02", strings.Repeat("x", 1024))
	wantCode(b, f.send(c), Success)
	room := make(chan struct{}, 256)
	answered := func(a *Command) {
		if a.Code != Success {
			b.Error(a.Remark)
		}
		<-room
	}
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		room <- struct{}{}
		f.Serve(NewRequest(c, f.peer, answered))
	}
	for range cap(room) {
		room <- struct{}{}
	}
}

func FuzzSendHeaders(f *testing.F) {
	f.Add("a", "x", "queueId", "-1", "UNIQ_KEY\x01a\x02DELAY\x013")
	f.Fuzz(func(t *testing.T, name, value, other, number, properties string) {
		var h sendHeader
		var p sendProperties
		c := sendCommand(CodeSendMessage, "orders", 0, "", "x")
		_ = h.parse(append(c.Ext, Field{name, value}, Field{other, number}))
		_ = p.parse(properties)
		if value == "" || strings.ContainsAny(name+value, "\x01\x02") || name == "" {
			return
		}
		text := setProperty(properties, name, value)
		if got, ok := engine.FindProperty(text, name); !ok || got != value {
			t.Fatalf("property %q of %q is %q, want %q", name, text, got, value)
		}
		text = setProperty(text, name, "")
		if _, ok := engine.FindProperty(text, name); ok {
			t.Fatalf("%q still has %q", text, name)
		}
	})
}
