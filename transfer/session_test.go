package transfer

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testSegment = 4096

func newTestSession() *Session {
	return NewSession(SessionConfig{Peer: "b", SegmentBytes: testSegment, FrameBytesMax: 1000}, 0)
}

// The valid range of a first report has both its ends in it.
func TestFirstReportEdges(t *testing.T) {
	log := Range{2 * testSegment, 4*testSegment + 100}
	tests := []struct {
		name   string
		report int64
		start  int64 // -1: refused
		frame  int32 // the first frame's size; 0: nothing to send
	}{
		{"end", log.End, log.End, 0},
		{"end+1", log.End + 1, -1, 0},
		{"end-1", log.End - 1, log.End - 1, 1},
		{"min", log.Min, log.Min, 1000},
		{"min-1", log.Min - 1, -1, 0},
		{"min+1", log.Min + 1, log.Min + 1, 1000},
		{"0", 0, 4 * testSegment, 100},
		{"1", 1, -1, 0},
		{"-2", -2, -1, 0},
		{"segment base", 3 * testSegment, 3 * testSegment, 1000},
		{"segment base-1", 3*testSegment - 1, 3*testSegment - 1, 1},
		{"segment base+1", 3*testSegment + 1, 3*testSegment + 1, 1000},
		{"inside a record or filler", 3*testSegment - 77, 3*testSegment - 77, 77},
		{"2^63-1", math.MaxInt64, -1, 0},
		{"-2^63", math.MinInt64, -1, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestSession()
			err := s.Feed(AppendReport(nil, test.report), log, 0)
			if test.start < 0 {
				var r *ReportError
				if !errors.As(err, &r) || !errors.Is(err, ErrReportRange) || !r.First || r.Reported != test.report {
					t.Fatalf("error %v", err)
				}
				if s.Started() || s.Acked() != 0 {
					t.Errorf("started %v, acked %d after a refusal", s.Started(), s.Acked())
				}
				if _, ok := s.Next(log, time.Hour); ok {
					t.Error("sends to a refused replica")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if start, ok := s.StartOffset(); !ok || start != test.start || s.SentOffset() != test.start {
				t.Errorf("starts at %d, %v, want %d", start, ok, test.start)
			}
			f, ok := s.Next(log, 0)
			if want := (Frame{test.start, test.frame}); ok != (test.frame > 0) || ok && f != want {
				t.Errorf("first frame %v, %v, want %v", f, ok, want)
			}
			if test.report != 0 && s.Acked() != test.report {
				t.Errorf("acked %d, want %d", s.Acked(), test.report)
			}
		})
	}
}

func TestMinusOneIsSilentAndNoReplica(t *testing.T) {
	s := newTestSession()
	log := Range{0, 5000}
	if err := s.Feed(AppendReport(nil, -1), log, 0); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Next(log, 19*time.Second); ok || s.Started() || s.Acked() != 0 {
		t.Error("-1 made a replica")
	}
}

// Reports cut and joined in every way count once each, in order; the tail is
// kept for the next read.
func TestReportsCutAnywhere(t *testing.T) {
	log := Range{0, 1 << 20}
	stream := AppendReport(nil, 100)
	for v := int64(101); v <= 1100; v++ {
		stream = AppendReport(stream, v)
	}
	ready := func() *Session {
		s := newTestSession()
		if err := s.Feed(stream[:8], log, 0); err != nil {
			t.Fatal(err)
		}
		f, _ := s.Next(log, 0)
		s.Sent(f, f.Bytes, 0)
		return s
	}
	for name, pieces := range map[string][]int{
		"1+7": {1, 7}, "7+1": {7, 1}, "3 reports and 5 bytes": {29, 3}, "1000 in one read": {8000},
	} {
		s, rest, total := ready(), stream[8:], 0
		for _, n := range pieces {
			if err := s.Feed(rest[:n], log, 0); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rest = rest[n:]
			total += n
			if want := 100 + int64(total/8); s.Acked() != want {
				t.Errorf("%s: after %d bytes acked %d, want %d", name, total, s.Acked(), want)
			}
		}
	}
	for cut := 1; cut < 64; cut++ {
		s := ready()
		if err := errors.Join(s.Feed(stream[8:8+cut], log, 0), s.Feed(stream[8+cut:], log, 0)); err != nil || s.Acked() != 1100 {
			t.Errorf("cut at %d: acked %d, %v", cut, s.Acked(), err)
		}
	}
}

// A connection that has not made a report counts for nothing and is closed
// after the housekeeping time, whatever it trickles.
func TestUnreadyConnectionIsClosedInTime(t *testing.T) {
	for name, b := range map[string][]byte{"nothing": nil, "3 bytes": {0, 0, 0}, "-1": AppendReport(nil, -1), "-1 and 3 bytes": append(AppendReport(nil, -1), 0, 0, 0)} {
		s := newTestSession()
		log := Range{0, 1 << 20}
		for now := time.Duration(0); now < DefaultHousekeeping; now += time.Second {
			if len(b) > 0 {
				if err := s.Feed(b[:1], log, now); err != nil {
					t.Fatal(name, err)
				}
				b = b[1:]
			}
			if err := s.Expired(now); err != nil || s.Started() || s.Acked() != 0 {
				t.Fatalf("%s: at %v: %v, started %v, acked %d", name, now, err, s.Started(), s.Acked())
			}
		}
		if at := s.Deadline(log); at != DefaultHousekeeping {
			t.Errorf("%s: deadline %v", name, at)
		}
		var expired *ExpiredError
		if err := s.Expired(DefaultHousekeeping); !errors.Is(err, ErrNoReport) || !errors.As(err, &expired) {
			t.Errorf("%s: after 20 s: %v", name, err)
		}
	}
}

// The last report before a close counts, also with half a report behind it.
func TestLastReportBeforeACloseCounts(t *testing.T) {
	s := newTestSession()
	log := Range{0, 5000}
	if err := s.Feed(AppendReport(nil, 1), log, 0); err != nil {
		t.Fatal(err)
	}
	f, _ := s.Next(log, 0)
	s.Sent(f, f.Bytes, 0)
	if err := s.Feed(append(AppendReport(nil, f.End()), 0, 0, 0), log, 0); err != nil || s.Acked() != f.End() {
		t.Errorf("acked %d, %v, want %d", s.Acked(), err, f.End())
	}
}

func TestSessionStaysFailed(t *testing.T) {
	s := newTestSession()
	log := Range{0, 100}
	first := s.Feed(AppendReport(nil, 101), log, 0)
	if again := s.Feed(AppendReport(nil, 100), log, 0); first == nil || again != first || s.Expired(0) != first || s.Acked() != 0 {
		t.Errorf("first %v, then %v and %v, acked %d", first, again, s.Expired(0), s.Acked())
	}
}

// Whatever is put in: acked stays within what was sent or asked for first,
// nothing goes back, frames are consecutive and stay in their segment.
func TestSessionKeepsItsInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := Range{testSegment * rapid.Int64Range(0, 2).Draw(t, "min"), 0}
		log.End = log.Min + rapid.Int64Range(0, 10000).Draw(t, "bytes")
		s := NewSession(SessionConfig{
			Peer: "b", SegmentBytes: testSegment,
			FrameBytesMax: int32(rapid.IntRange(1, 5000).Draw(t, "frame")),
			HistoryFirst:  rapid.Bool().Draw(t, "first"),
			Pace: Pace{
				Live:    rapid.SampledFrom([]int64{0, 100, 1 << 20}).Draw(t, "live"),
				CatchUp: rapid.SampledFrom([]int64{0, 100, 1 << 20}).Draw(t, "catch-up"),
			},
			CatchUpBytes: rapid.SampledFrom([]int64{0, 2000}).Draw(t, "border"),
		}, 0)
		now, left := time.Duration(0), int32(0)
		var frame Frame
		var sent, acked int64
		first := rapid.SampledFrom([]int64{0, 1, log.Min, log.End, log.Min + (log.End-log.Min)/2}).Draw(t, "first")
		failed := s.Feed(AppendReport(nil, first), log, now) != nil
		t.Repeat(map[string]func(*rapid.T){
			"grow": func(t *rapid.T) { log.End += rapid.Int64Range(0, 3000).Draw(t, "by") },
			"time": func(t *rapid.T) { now += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "by")) },
			"next": func(t *rapid.T) {
				f, ok := s.Next(log, now)
				if !ok {
					return
				}
				if failed || left > 0 {
					t.Fatalf("sends %v, failed %v, %d left of the last", f, failed, left)
				}
				if f.Offset != s.SentOffset() || f.End() > log.End || f.Offset < log.Min || f.Bytes < 0 {
					t.Fatalf("frame %v, sent %d, log %v", f, s.SentOffset(), log)
				}
				if f.Bytes > 0 && (f.End()-1)/testSegment != f.Offset/testSegment {
					t.Fatalf("frame %v crosses a border", f)
				}
				s.Sent(f, 0, now)
				frame, left = f, f.Bytes
			},
			"body": func(t *rapid.T) {
				if left > 0 {
					n := rapid.Int32Range(1, left).Draw(t, "n")
					s.Sent(frame, n, now)
					left -= n
				}
			},
			"report": func(t *rapid.T) {
				lo, hi := s.Acked(), s.SentOffset()
				v := rapid.SampledFrom([]int64{lo, hi, (lo + hi) / 2, hi, hi, lo - 1, hi + 1}).Draw(t, "v")
				before := s.Acked()
				if err := s.Feed(AppendReport(nil, v), log, now); err != nil {
					failed = true
					if s.Acked() != before {
						t.Fatalf("%v acknowledged %d", err, s.Acked())
					}
				}
			},
			"": func(t *rapid.T) {
				if s.SentOffset() < sent || s.Acked() < acked {
					t.Fatalf("sent %d to %d, acked %d to %d", sent, s.SentOffset(), acked, s.Acked())
				}
				sent, acked = s.SentOffset(), s.Acked()
				if acked > sent {
					t.Fatalf("acked %d of %d", acked, sent)
				}
			},
		})
	})
}

func FuzzReports(f *testing.F) {
	f.Add(AppendReport(AppendReport(nil, 0), 4096), 3)
	f.Add(AppendReport(AppendReport(nil, -1), 1), 9)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 1)
	f.Add([]byte{0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 12)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		log := Range{0, 10000}
		whole, cutUp := newTestSession(), newTestSession()
		err := whole.Feed(b, log, 0)
		checkReportError(t, err)
		if whole.Acked() > max(whole.SentOffset(), 0) || whole.Acked() < 0 {
			t.Fatalf("acked %d, sent %d", whole.Acked(), whole.SentOffset())
		}
		at := min(max(cut, 0), len(b))
		cutErr := cutUp.Feed(b[:at], log, 0)
		if cutErr == nil {
			cutErr = cutUp.Feed(b[at:], log, 0)
		}
		// A controller's handshake is recognised by what follows in one read.
		if looksLikeController(first8(b)) {
			return
		}
		if (err == nil) != (cutErr == nil) || whole.Acked() != cutUp.Acked() || whole.Started() != cutUp.Started() {
			t.Fatalf("whole: %v, acked %d; cut at %d: %v, acked %d", err, whole.Acked(), at, cutErr, cutUp.Acked())
		}
	})
}

func first8(b []byte) int64 {
	return ParseReport(append(bytes.Clone(b), make([]byte, 8)...))
}

func checkReportError(t *testing.T, err error) {
	if err != nil && !errors.Is(err, ErrReportRange) && !errors.Is(err, ErrControllerHandshake) && !errors.Is(err, ErrUnservable) {
		t.Fatalf("not one of the package's errors: %v", err)
	}
}

func TestSessionDoesNotAllocate(t *testing.T) {
	s := newTestSession()
	log := Range{0, 1 << 40}
	report := AppendReport(nil, 1)
	if err := s.Feed(report, log, 0); err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	allocs := testing.AllocsPerRun(1000, func() {
		now += time.Millisecond
		f, ok := s.Next(log, now)
		s.Sent(f, 0, now)
		s.Sent(f, f.Bytes, now)
		report = AppendReport(report[:0], f.End())
		if !ok || s.Feed(report[:3], log, now) != nil || s.Feed(report[3:], log, now) != nil || s.Expired(now) != nil || s.Deadline(log) < now {
			t.Fatal("the session failed")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a frame, want 0", allocs)
	}
}
