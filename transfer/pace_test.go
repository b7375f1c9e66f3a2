package transfer

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pieceSent is one frame that went out.
type pieceSent struct {
	at         time.Duration
	bytes      int64 // header included
	catchingUp bool
}

// pacedRun lets a log grow and a session send what it may, and returns the
// frames. grow tells how much the log grows in the millisecond that begins at
// now; the session is asked at each of them and when its pacer is free.
func pacedRun(cfg SessionConfig, end, from int64, length time.Duration, grow func(now time.Duration) int64) (all []pieceSent, s *Session, log Range) {
	s, log = NewSession(cfg, 0), Range{0, end}
	if err := s.Feed(AppendReport(nil, from), log, 0); err != nil {
		panic(err)
	}
	for tick := time.Duration(0); tick < length; tick += time.Millisecond {
		log.End += grow(tick)
		for now := tick; now < tick+time.Millisecond; {
			f, ok := s.Next(log, now)
			if ok && f.Bytes > 0 {
				s.Sent(f, f.Bytes, now)
				all = append(all, pieceSent{now, FrameHeaderBytes + int64(f.Bytes), s.CatchingUp()})
				continue
			}
			free := s.pacing.pacer().FreeAt()
			if free <= now {
				break // it waits for the log
			}
			now = free
		}
		if err := s.Feed(AppendReport(nil, s.SentOffset()), log, tick); err != nil {
			panic(err)
		}
	}
	return all, s, log
}

// busiest returns the most bytes of one phase in any second; quietest the least,
// of the seconds that lie whole in [from, to).
func busiest(all []pieceSent, catchingUp bool) (most int64) {
	for i := range all {
		sum := int64(0)
		for _, p := range all[i:] {
			if p.at < all[i].at+time.Second && p.catchingUp == catchingUp {
				sum += p.bytes
			}
		}
		most = max(most, sum)
	}
	return most
}

func quietest(all []pieceSent, from, to time.Duration) (least int64) {
	least = math.MaxInt64
	for at := from; at+time.Second <= to; at += 10 * time.Millisecond {
		sum := int64(0)
		for _, p := range all {
			if p.at >= at && p.at < at+time.Second {
				sum += p.bytes
			}
		}
		least = min(least, sum)
	}
	return least
}

const mib = 1 << 20

// Whatever producers do, in no second do more bytes of a phase pass than its
// rate and a tenth.
func TestEachPhaseKeepsItsRateInAnySecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(64<<10, 8*mib)
		pace := Pace{Live: rate.Draw(t, "live"), CatchUp: rate.Draw(t, "catch-up")}
		cfg := SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: pace, CatchUpBytes: rapid.Int64Range(mib, 4*mib).Draw(t, "border")}
		bursts := rapid.SliceOfN(rapid.Int64Range(0, 6*mib), 1, 8).Draw(t, "bursts")
		all, _, _ := pacedRun(cfg, rapid.Int64Range(1, 20*mib).Draw(t, "log"), 1, 4*time.Second, func(now time.Duration) int64 {
			if now%(500*time.Millisecond) == 0 {
				return bursts[int(now/(500*time.Millisecond))%len(bursts)]
			}
			return 0
		})
		for _, phase := range []struct {
			catchingUp bool
			rate       int64
		}{{false, pace.Live}, {true, pace.CatchUp}} {
			if most := busiest(all, phase.catchingUp); most > phase.rate+phase.rate/10 {
				t.Fatalf("%d bytes in a second, catching up %v, at a rate of %d", most, phase.catchingUp, phase.rate)
			}
		}
	})
}

// A phase that has enough to send reaches its rate in every second.
func TestAPhaseThatHasEnoughReachesItsRate(t *testing.T) {
	const rate, length = 2 * mib, 5 * time.Second
	behind := SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: Pace{CatchUp: rate}}
	all, s, _ := pacedRun(behind, 60*mib, 1, length, func(time.Duration) int64 { return 0 })
	if least := quietest(all, 0, length); least < rate-rate/10 || !s.CatchingUp() {
		t.Errorf("catching up: %d bytes in a second, want %d", least, rate)
	}
	live := SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: Pace{Live: rate}}
	all, s, _ = pacedRun(live, 1, 1, length, func(time.Duration) int64 { return 3 * mib / 1000 })
	if least := quietest(all, time.Second, length); least < rate-rate/10 || s.CatchingUp() {
		t.Errorf("live: %d bytes in a second, want %d", least, rate)
	}
}

// The limit of one phase is none of the other's business.
func TestALimitHoldsInItsPhaseOnly(t *testing.T) {
	const slow = 64 << 10
	steady := func(time.Duration) int64 { return 1000 }
	cfg := SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: Pace{CatchUp: slow}}
	if _, s, log := pacedRun(cfg, 1000, 1, 3*time.Second, steady); s.SentOffset() != log.End || s.CatchingUp() {
		t.Errorf("a live replica was sent %d of %d bytes, and catching up is %v, under a limit for catching up", s.SentOffset(), log.End, s.CatchingUp())
	}
	cfg.Pace = Pace{Live: slow}
	all, s, _ := pacedRun(cfg, 60*mib, 1, time.Second, func(time.Duration) int64 { return 0 })
	if s.SentOffset() < 59*mib {
		t.Errorf("sent %d bytes in a second under a live limit, 60 MiB behind", s.SentOffset())
	}
	for _, p := range all {
		if p.catchingUp && p.at > 0 {
			t.Fatalf("waited until %v while catching up, under a live limit", p.at)
		}
	}
}

// A live replica that is slower than its producers is let catch up, not left
// behind more and more, and one that hovers around the border does not change
// its phase with every frame.
func TestPhasesDoNotFlap(t *testing.T) {
	cfg := SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: Pace{Live: mib, CatchUp: 8 * mib}, CatchUpBytes: 4 * mib}
	all, s, log := pacedRun(cfg, 1, 1, 20*time.Second, func(time.Duration) int64 { return 2 * mib / 1000 })
	if left := log.End - s.SentOffset(); left > 5*mib {
		t.Errorf("%d bytes are left", left)
	}
	changes := 0
	for i := 1; i < len(all); i++ {
		if all[i].catchingUp != all[i-1].catchingUp {
			changes++
		}
	}
	if changes < 4 || changes > 12 {
		t.Errorf("%d changes of phase in 20 s and %d frames", changes, len(all))
	}
}

// Frames are as large as what there is: one record on an idle log, the most
// that is allowed in a backlog, and a pacer's piece under a limit.
func TestFramesAreAsLargeAsWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		name      string
		pace      Pace
		left      int64
		want      int32
		catchUp   bool
		afterward int32 // the second frame; 0: none now
	}{
		{"one record on an idle log", Pace{}, 180, 180, false, 0},
		{"one record, with limits", Pace{Live: mib, CatchUp: 1 << 10}, 180, 180, false, 0},
		{"a burst", Pace{}, 3 * mib, mib, false, mib},
		{"a burst, with a live limit", Pace{Live: mib}, 3 * mib, mib / 20, false, 0},
		{"a backlog", Pace{}, 40 * mib, mib, true, mib},
		{"a backlog, with a limit", Pace{CatchUp: mib}, 40 * mib, mib / 20, true, 0},
		{"a backlog, with a live limit", Pace{Live: mib}, 40 * mib, mib, true, mib},
		{"a backlog, with a high limit", Pace{CatchUp: 1 << 40}, 40 * mib, mib, true, 0},
	} {
		s := NewSession(SessionConfig{Peer: "b", SegmentBytes: 64 * mib, FrameBytesMax: mib, Pace: c.pace}, 0)
		log := Range{0, 1 + c.left}
		if err := s.Feed(AppendReport(nil, 1), log, 0); err != nil {
			t.Fatal(err)
		}
		f, _ := s.Next(log, 0)
		if f.Bytes != c.want || s.CatchingUp() != c.catchUp {
			t.Errorf("%s: a frame of %d bytes, catching up %v, want %d, %v", c.name, f.Bytes, s.CatchingUp(), c.want, c.catchUp)
		}
		s.Sent(f, f.Bytes, 0)
		if f, _ := s.Next(log, 0); f.Bytes != c.afterward {
			t.Errorf("%s: then a frame of %d bytes, want %d", c.name, f.Bytes, c.afterward)
		}
	}
}

// Between two haengine nodes frames grow with what the connection has carried: on
// a link that breaks again and again some are whole each time.
func TestFramesGrowWithWhatTheConnectionHasCarried(t *testing.T) {
	own := Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", SegmentBytes: 1 << 30, FrameBytes: mib}
	log := Range{0, 20 * mib}
	sizes := func(acks bool) (all []int32) {
		s := NewSession(SessionConfig{SegmentBytes: 1 << 30, Hello: &own}, 0)
		replica := own
		replica.ReplicaID = "s"
		for _, b := range [][]byte{AppendReport(nil, helloAsked), appendReply(nil, unitHello, AppendHello(nil, replica))} {
			if err := s.Feed(b, log, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Prove(0, 0); err != nil {
			t.Fatal(err)
		}
		s.ControlSent(len(s.Control()), 0)
		for range 8 {
			f, ok := s.Next(log, 0)
			if !ok {
				t.Fatal("no frame")
			}
			s.Sent(f, f.Bytes, 0)
			all = append(all, f.Bytes>>10)
			if acks {
				report := appendExtendedReport(nil, extendedReport{kind: unitLog, acks: Acks{Received: f.End(), Damaged: notSaid}})
				if err := s.Feed(report, log, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		return all
	}
	if got, want := sizes(true), []int32{64, 64, 128, 256, 512, 1024, 1024, 1024}; !slices.Equal(got, want) {
		t.Errorf("frames of %v KiB, want %v", got, want)
	}
	if got, want := sizes(false), slices.Repeat([]int32{64}, 8); !slices.Equal(got, want) {
		t.Errorf("without acknowledgements frames of %v KiB, want %v", got, want)
	}
}
