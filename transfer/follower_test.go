package transfer

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// randomLog returns n bytes; the first is 0, as in every log whose first record
// is below 16 MiB.
func randomLog(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if n > 0 {
		b[0] = 0
	}
	return b
}

// masterStream returns the frames that carry log from offset on, each at most
// frame bytes and inside its segment.
func masterStream(log []byte, from, frame, segment int) (stream []byte, frames int) {
	for at := from; at < len(log); frames++ {
		n := min(frame, len(log)-at, segment-at%segment)
		stream = append(AppendFrame(stream, Frame{int64(at), int32(n)}), log[at:at+n]...)
		at += n
	}
	return stream, frames
}

// 50 frames cut at every byte, in single bytes, and all at once with the next
// header's beginning, always give the same log; reports name whole bodies only.
func TestFramesCutAnywhere(t *testing.T) {
	const segment, frame = 1024, 100
	want := randomLog(1, 4600)
	stream, frames := masterStream(want, 1, frame, segment)
	if frames < 50 {
		t.Fatalf("%d frames", frames)
	}
	stream = append(stream, AppendFrame(nil, Frame{int64(len(want)), 5})[:7]...)
	check := func(what string, pieces ...[]byte) {
		l := &byteLog{}
		f := NewFollower(FollowerConfig{SegmentBytes: segment})
		f.Begin(l.held(), 0)
		for _, piece := range pieces {
			if err := l.feed(t, f, piece, 0); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if r, _ := f.NextReport(l.held(), 0); r != max(1, l.held().End) {
				t.Fatalf("%s: reports %d with a log that ends at %d", what, r, l.held().End)
			}
		}
		if !bytes.Equal(l.data, want) {
			t.Fatalf("%s: the log has %d bytes and differs", what, len(l.data))
		}
	}
	check("all at once", stream)
	for cut := 1; cut < len(stream); cut++ {
		check("cut", stream[:cut], stream[cut:])
	}
	var single [][]byte
	for i := range stream {
		single = append(single, stream[i:i+1])
	}
	check("single bytes", single...)
}

func TestBadHeadersEndTheConnectionAtOnce(t *testing.T) {
	const segment = 1 << 20
	held := Range{0, 1000}
	tests := []struct {
		name  string
		frame Frame
		want  error
	}{
		{"size 0x7FFFFFFF", Frame{1000, math.MaxInt32}, ErrFrameSize},
		{"size -1", Frame{1000, -1}, ErrFrameSize},
		{"size -2^31", Frame{1000, math.MinInt32}, ErrFrameSize},
		{"size above the limit", Frame{1000, 1<<16 + 1}, ErrFrameSize},
		{"offset after our end", Frame{1001, 1}, ErrFrameOffset},
		{"offset before our end", Frame{999, 1}, ErrFrameOffset},
		{"offset -1", Frame{-1, 0}, ErrFrameOffset},
		{"heartbeat elsewhere", Frame{0, 0}, ErrFrameOffset},
		{"largest offset", Frame{math.MaxInt64, 10}, ErrFrameOffset},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := NewFollower(FollowerConfig{SegmentBytes: segment, OverlapBytes: -1, FrameBytesLimit: 1 << 16})
			f.Begin(held, 0)
			n, err := f.Header(AppendFrame(nil, test.frame), held, 0)
			var fe *FrameError
			if n != FrameHeaderBytes || !errors.Is(err, test.want) || !errors.As(err, &fe) || fe.Frame != test.frame {
				t.Fatalf("took %d: %v", n, err)
			}
			if w := f.Want(); w.Bytes != 0 {
				t.Errorf("still wants %v", w)
			}
			if _, ok := f.NextReport(held, time.Hour); ok {
				t.Error("reports on a failed connection")
			}
			if f.Expired(0) != err || f.Deadline() > 0 {
				t.Errorf("expired %v, deadline %v", f.Expired(0), f.Deadline())
			}
			f.Ended(err, 0)
			if f.State() != FollowerRefused || f.Reason() == "" {
				t.Errorf("%v: %q", f.State(), f.Reason())
			}
		})
	}
}

func TestFrameOverOurBorderNamesTheSizes(t *testing.T) {
	f := NewFollower(FollowerConfig{SegmentBytes: 4096})
	f.Begin(Range{}, 0)
	_, err := f.Header(AppendFrame(nil, Frame{1, 4096}), Range{}, 0)
	if !errors.Is(err, ErrFrameBorder) || !bytes.Contains([]byte(err.Error()), []byte("4096")) {
		t.Errorf("%v", err)
	}
	f.Ended(err, 0)
	f.Begin(Range{}, 0)
	if _, err := f.Header(AppendFrame(nil, Frame{1, 4095}), Range{}, 0); err != nil {
		t.Errorf("a frame up to the border: %v", err)
	}
}

// A master that accepts and says nothing never makes the follower spin, and is
// given up in time unless silence is in order.
func TestSilentMasterIsGivenUpInTime(t *testing.T) {
	for name, held := range map[string]Range{"with data": {0, 1000}, "empty": {}} {
		f := NewFollower(FollowerConfig{SegmentBytes: 4096})
		f.Reported(f.Begin(held, 0), 0)
		turns, reports := 0, 0
		now := time.Duration(0)
		var err error
		for now < time.Minute && err == nil {
			now = f.Deadline()
			if err = f.Expired(now); err != nil {
				break
			}
			if r, ok := f.NextReport(held, now); ok {
				f.Reported(r, now)
				reports++
			}
			turns++
		}
		if turns > 15 {
			t.Errorf("%s: %d turns in %v", name, turns, now)
		}
		if held.Empty() && (err != nil || reports < 11) || !held.Empty() && (!errors.Is(err, ErrSilent) || now != DefaultHousekeeping) {
			t.Errorf("%s: %v at %v after %d reports", name, err, now, reports)
		}
	}
}

// A follower cut off anywhere and connected again, over any history of cuts,
// ends with the master's log; with another history it stores nothing.
func TestFollowerAgreesWithItsMasterOverManyConnections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]int{64, 256, 1000}).Draw(t, "segment")
		want := randomLog(uint64(rapid.IntRange(0, 50).Draw(t, "seed")), rapid.IntRange(2, 3000).Draw(t, "bytes"))
		l := &byteLog{}
		f := NewFollower(FollowerConfig{SegmentBytes: int64(segment), OverlapBytes: rapid.Int64Range(1, 300).Draw(t, "overlap")})
		for range rapid.IntRange(1, 8).Draw(t, "connections") {
			report := f.Begin(l.held(), 0)
			stream, _ := masterStream(want, int(report), rapid.IntRange(1, 500).Draw(t, "frame"), segment)
			stream = stream[:rapid.IntRange(0, len(stream)).Draw(t, "cut")]
			before := len(l.data)
			otherHistory := before > 1 && len(stream) > FrameHeaderBytes && rapid.Bool().Draw(t, "other history")
			if otherHistory {
				stream[FrameHeaderBytes] ^= 1
			}
			err := l.feed(t, f, stream, 0)
			var d *DivergedError
			if !otherHistory && err != nil {
				t.Fatalf("%v", err)
			}
			if otherHistory && (!errors.As(err, &d) || d.Offset != report || len(l.data) != before || f.State() != FollowerDiverged) {
				t.Fatalf("%v, state %v, the log grew from %d to %d", err, f.State(), before, len(l.data))
			}
			if !bytes.Equal(l.data, want[:len(l.data)]) {
				t.Fatalf("the log's %d bytes are not the master's", len(l.data))
			}
			l.drop(f, errConnectionLost, 0)
		}
		report := f.Begin(l.held(), 0)
		stream, _ := masterStream(want, int(report), 100, segment)
		if err := l.feed(t, f, stream, 0); err != nil || !bytes.Equal(l.data, want) {
			t.Fatalf("%v, %d bytes of %d", err, len(l.data), len(want))
		}
	})
}

func TestMasterOffsetIsTheHighestFrameEnd(t *testing.T) {
	f := NewFollower(FollowerConfig{SegmentBytes: 4096})
	f.Begin(Range{}, 0)
	for _, fr := range []Frame{{1, 0}, {1, 99}} {
		if _, err := f.Header(AppendFrame(nil, fr), Range{}, 0); err != nil || f.MasterOffset() != fr.End() {
			t.Errorf("after %v: %d, %v", fr, f.MasterOffset(), err)
		}
	}
}

func FuzzFollower(f *testing.F) {
	log := randomLog(3, 300)
	stream, _ := masterStream(log, 200, 40, 256)
	f.Add(stream, 300, 7)
	stream, _ = masterStream(log, 1, 100, 256)
	f.Add(stream, 0, 1)
	f.Add(AppendFrame(nil, Frame{-1, 0}), 0, 5)
	f.Add(AppendFrame(nil, Frame{200, math.MaxInt32}), 256, 5)
	f.Fuzz(func(t *testing.T, stream []byte, held, piece int) {
		held = min(max(held, 0), len(log))
		l := &byteLog{data: bytes.Clone(log[:held])}
		fo := NewFollower(FollowerConfig{SegmentBytes: 256, OverlapBytes: 100, FrameBytesLimit: 1 << 10})
		fo.Begin(l.held(), 0)
		for rest := stream; len(rest) > 0; {
			n := min(max(piece&63, 1), len(rest))
			if err := l.feed(t, fo, rest[:n], 0); err != nil {
				if !errors.Is(err, ErrDiverged) && !errors.As(err, new(*FrameError)) {
					t.Fatalf("not one of the package's errors: %v", err)
				}
				break
			}
			rest = rest[n:]
		}
		if len(l.data) < held || !bytes.Equal(l.data[:held], log[:held]) {
			t.Fatal("bytes that were there have changed")
		}
		if r, ok := fo.NextReport(l.held(), 0); ok && r > max(l.held().End, 1) {
			t.Fatalf("reports %d, holds %v", r, l.held())
		}
	})
}

func TestFollowerDoesNotAllocate(t *testing.T) {
	f := NewFollower(FollowerConfig{SegmentBytes: 1 << 40})
	held := Range{}
	f.Reported(f.Begin(held, 0), 0)
	held.End = 1
	header := make([]byte, 0, FrameHeaderBytes)
	allocs := testing.AllocsPerRun(1000, func() {
		header = AppendFrame(header[:0], Frame{held.End, 100})
		_, err := f.Header(header[:5], held, 0)
		_, err2 := f.Header(header[5:], held, 0)
		f.Stored(50, 0)
		held.End += f.Stored(50, 0)
		r, ok := f.NextReport(held, 0)
		f.Reported(r, 0)
		if err != nil || err2 != nil || !ok || f.Expired(0) != nil {
			t.Fatal("the follower failed")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a frame, want 0", allocs)
	}
}
