package remoting

import "testing"

// A send's header costs its text, in which escapes are replaced, and the list of its
// fields.
func TestHeaderOfASendCostsTwoAllocations(t *testing.T) {
	frame := rawFrame(0, sendV2, "hello")
	var c Command
	if n := testing.AllocsPerRun(1000, func() {
		if err := ParseFrame(frame, &c); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("reading costs %v allocations, want at most 2", n)
	}
	out := make([]byte, 0, 2*len(frame))
	if n := testing.AllocsPerRun(1000, func() { out = AppendFrame(out[:0], &c) }); n > 0 {
		t.Errorf("writing costs %v allocations, want none", n)
	}
}

func BenchmarkParseSend(b *testing.B) {
	frame := rawFrame(0, sendV2, "hello")
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	var c Command
	for b.Loop() {
		if err := ParseFrame(frame, &c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	frame := rawFrame(0, sendV2, "hello")
	var c Command
	if err := ParseFrame(frame, &c); err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		out = AppendFrame(out[:0], &c)
	}
}
