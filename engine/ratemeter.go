package engine

import (
	"sync/atomic"
	"time"
)

// rateMeter measures bytes a second over the last full second or so. add is
// loop-confined; perSecond may be called by any goroutine.
type rateMeter struct {
	window  time.Duration // loop-confined, as inside
	inside  int64
	rate    atomic.Int64 // bytes a second in the last full window
	updated atomic.Int64 // time.Duration: when rate was stored
}

const rateWindow = time.Second

func (m *rateMeter) add(n int64, now time.Duration) {
	m.inside += n
	if passed := now - m.window; passed >= rateWindow {
		m.rate.Store(int64(float64(m.inside) / passed.Seconds()))
		m.updated.Store(int64(now))
		m.window, m.inside = now, 0
	}
}

func (m *rateMeter) perSecond(now time.Duration) float64 {
	if now-time.Duration(m.updated.Load()) > 5*rateWindow {
		return 0
	}
	return float64(m.rate.Load())
}
