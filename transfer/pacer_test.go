package transfer

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Over any stretch no more passes than the rate, one burst and the last piece.
func TestPacerKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1<<36).Draw(t, "rate")
		p := NewPacer(rate)
		now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		begun, total, last := now, 0.0, 0.0
		for range rapid.IntRange(1, 50).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "wait for it") {
				now = max(now, p.FreeAt())
			} else {
				now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause"))
			}
			if !p.Ready(now) {
				if p.FreeAt() <= now {
					t.Fatalf("not ready at %v, free at %v", now, p.FreeAt())
				}
				continue
			}
			n := rapid.Int64Range(1, FrameBytesMax).Draw(t, "bytes")
			p.Take(n, now)
			last = float64(n)
			total += last
			allowed := float64(rate)*(now-begun+pacerBurst).Seconds() + last
			if total > allowed*(1+1e-9)+1 {
				t.Fatalf("%v bytes in %v at %d a second, want at most %v", total, now-begun, rate, allowed)
			}
		}
	})
}

func TestPacerThatIsAlwaysAskedReachesItsRate(t *testing.T) {
	p := NewPacer(1 << 20)
	now, total := time.Duration(0), int64(0)
	for now < 10*time.Second {
		n := p.Quantum()
		p.Take(n, now)
		total += n
		now = max(now, p.FreeAt())
	}
	if want := int64(10 << 20); total < want || total > want+want/50 {
		t.Errorf("%d bytes in 10 s, want %d", total, want)
	}
}

func TestPacerWithoutLimitLetsAllThrough(t *testing.T) {
	var p Pacer
	p.Take(math.MaxInt64, 0)
	if !p.Ready(0) || p.Quantum() != math.MaxInt64 {
		t.Error("the zero pacer holds something back")
	}
	p = NewPacer(-5)
	if p.Take(1, 0); !p.Ready(0) {
		t.Error("a negative rate is no limit")
	}
}

func TestNewRateForgivesTheDebt(t *testing.T) {
	p := NewPacer(1)
	p.Take(1<<20, time.Second)
	p.SetRate(1)
	if p.Ready(time.Hour) {
		t.Error("the same rate changes nothing")
	}
	p.SetRate(2)
	if !p.Ready(time.Second) {
		t.Errorf("free at %v after the change", p.FreeAt())
	}
}

func TestHugeDebtDoesNotOverflow(t *testing.T) {
	p := NewPacer(1)
	for range 3 {
		p.Take(math.MaxInt64, time.Hour)
	}
	if p.FreeAt() != math.MaxInt64 {
		t.Errorf("free at %v", p.FreeAt())
	}
}

func TestIdlePacerRunsAheadByOneBurst(t *testing.T) {
	p := NewPacer(1000)
	p.Take(1, 0)
	p.Take(50, time.Hour)
	if !p.Ready(time.Hour) {
		t.Errorf("a burst's worth has to be waited for until %v", p.FreeAt())
	}
	if p.Take(1, time.Hour); p.Ready(time.Hour) {
		t.Error("more than a burst passes at once")
	}
}
