package transfer

import (
	"bytes"
	"math"
	"testing"
	"testing/quick"
	"time"

	"pgregory.net/rapid"
)

func TestFrameHeaderIsRocketMQs(t *testing.T) {
	got := AppendFrame([]byte{0xee}, Frame{Offset: 0x0102030405060708, Bytes: 0x0a0b0c0d})
	want := []byte{0xee, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b, 0x0c, 0x0d}
	if !bytes.Equal(got, want) {
		t.Errorf("header % x, want % x", got, want)
	}
	if FrameHeaderBytes+FrameBytesMax != 4<<20 {
		t.Errorf("largest frame %d bytes, a real slave's buffer has %d", FrameHeaderBytes+FrameBytesMax, 4<<20)
	}
}

func TestFramesAndReportsReadBack(t *testing.T) {
	frames := func(offset int64, n int32) bool {
		f := Frame{offset, n}
		return ParseFrame(AppendFrame(nil, f)) == f
	}
	reports := func(offset int64) bool { return ParseReport(AppendReport(nil, offset)) == offset }
	for _, property := range []any{frames, reports} {
		if err := quick.Check(property, nil); err != nil {
			t.Error(err)
		}
	}
	for _, offset := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		if !reports(offset) || !frames(offset, -1) || !frames(offset, math.MaxInt32) {
			t.Errorf("offset %d does not read back", offset)
		}
	}
}

// However a stream is cut, the decoder gives the same units and keeps the same
// rest.
func TestDecoderGivesTheSameUnitsAtAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "stream")
		for _, d := range []Decoder{NewReportDecoder(), NewHeaderDecoder()} {
			size := d.Missing()
			var got []byte
			for rest := stream; len(rest) > 0; {
				piece := rest[:rapid.IntRange(1, len(rest)).Draw(t, "cut")]
				rest = rest[len(piece):]
				for len(piece) > 0 {
					unit, n := d.Take(piece)
					if n == 0 {
						t.Fatal("takes nothing of something")
					}
					got = append(got, unit...)
					piece = piece[n:]
				}
			}
			if whole := len(stream) / size * size; !bytes.Equal(got, stream[:whole]) || d.Held() != len(stream)-whole {
				t.Fatalf("units % x and %d bytes held, of % x", got, d.Held(), stream)
			}
		}
	})
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), 3)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		d := NewHeaderDecoder()
		piece := max(cut&31, 1)
		var got []byte
		for rest := stream; len(rest) > 0; {
			unit, n := d.Take(rest[:min(piece, len(rest))])
			if n <= 0 || d.Missing() <= 0 {
				t.Fatalf("took %d, missing %d", n, d.Missing())
			}
			if unit != nil {
				got = AppendFrame(got, ParseFrame(unit))
			}
			rest = rest[n:]
		}
		if !bytes.Equal(got, stream[:len(got)]) || len(stream)-len(got) != d.Held() {
			t.Fatalf("% x of % x, %d held", got, stream, d.Held())
		}
	})
}

func TestDecoderResetForgets(t *testing.T) {
	d := NewReportDecoder()
	d.Take([]byte{1, 2, 3})
	d.Reset()
	if unit, _ := d.Take(AppendReport(nil, 7)); unit == nil || ParseReport(unit) != 7 {
		t.Errorf("after a reset: % x", unit)
	}
}

func TestRangeHoldsItsEnd(t *testing.T) {
	r := Range{10, 20}
	for offset, want := range map[int64]bool{9: false, 10: true, 20: true, 21: false} {
		if r.Holds(offset) != want {
			t.Errorf("Holds(%d) = %v", offset, !want)
		}
	}
	if r.Empty() || !(Range{5, 5}).Empty() {
		t.Error("only a range without bytes is empty")
	}
}

func TestTimesDoNotOverflow(t *testing.T) {
	if got := addTime(math.MaxInt64-1, time.Second); got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
}
