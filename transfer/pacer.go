package transfer

import (
	"math"
	"math/bits"
	"time"
)

// pacerBurst is how far a pacer that was idle may run ahead. With the last
// piece, which is as long, what passes in any second stays within a tenth of the
// rate.
const pacerBurst = 50 * time.Millisecond

// Pacer is a token bucket that allows debt: what is taken must be paid for by
// waiting afterwards, so a frame is never cut small for lack of tokens and the
// mean still holds. The bucket is kept as one time, when the debt will be paid,
// which needs no fractions and no refilling. The zero value lets all through.
//
// RocketMQ: FlowMonitor, which counts only the headers; here the bodies count.
type Pacer struct {
	rate int64         // bytes a second; 0: no limit
	free time.Duration // the debt is paid at this time
}

// NewPacer returns a pacer of bytesPerSecond; 0 or less: no limit.
func NewPacer(bytesPerSecond int64) Pacer {
	return Pacer{rate: max(bytesPerSecond, 0)}
}

// SetRate changes the rate and forgives the debt: a wait computed for a slow
// rate would hold up a fast one.
func (p *Pacer) SetRate(bytesPerSecond int64) {
	if rate := max(bytesPerSecond, 0); rate != p.rate {
		*p = Pacer{rate: rate}
	}
}

// Ready tells whether bytes may be taken now.
func (p *Pacer) Ready(now time.Duration) bool { return p.rate == 0 || p.free <= now }

// FreeAt returns the time from which on Ready is true.
func (p *Pacer) FreeAt() time.Duration { return p.free }

// Take accounts for n bytes, whether they were allowed or not.
func (p *Pacer) Take(n int64, now time.Duration) {
	if p.rate == 0 || n <= 0 {
		return
	}
	p.free = addTime(max(p.free, now-pacerBurst), p.cost(n))
}

// Quantum returns how many bytes are a good piece at this rate: a burst's
// worth, so that a low rate is smooth and not a frame every minute, and a record
// that comes meanwhile does not wait long for what is going out. Never less than
// 1 KiB, where headers would be most of it.
func (p *Pacer) Quantum() int64 {
	if p.rate == 0 {
		return math.MaxInt64
	}
	return max(p.rate/int64(time.Second/pacerBurst), 1<<10)
}

// cost returns the time that n bytes take, rounded up.
func (p *Pacer) cost(n int64) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(time.Second))
	rate := uint64(p.rate)
	if hi >= rate {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, rate)
	if r > 0 {
		q++
	}
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(q)
}

// addTime adds two times and stays at the largest one instead of passing it.
func addTime(a, b time.Duration) time.Duration {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
