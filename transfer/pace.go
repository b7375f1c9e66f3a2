package transfer

// Pace limits what one replica is sent, in bytes a second, headers included;
// 0 or less: no limit. Which of the two holds depends on how far behind the
// replica is; see pacing.
type Pace struct {
	Live    int64 // while it gets what producers write now
	CatchUp int64 // while it gets what was written long before
}

// DefaultCatchUpBytes is how far a live replica may fall behind before it is
// catching up: more than what a pause of a tenth of a second or so leaves at
// the rates of fast disks, because a replica that puts wait for must not be
// slowed for a hiccup; and little against a backlog that is worth a limit.
const DefaultCatchUpBytes = 16 << 20

// pacing is a session's pace. The replica is in one of two phases:
//
//	        more than border bytes are left to send
//	live ────────────────────────────────────────────▶ catching up
//	  ▲   all that is left goes out in one frame           │
//	  └────────────────────────────────────────────────────┘
//
// It is decided anew each time when a frame is asked for, and each frame counts
// in the phase that it was cut in; the one that reaches the log's end is live.
// The borders lie far apart (a frame is at most FrameBytesMax), so that a
// replica does not go back and forth. One that is catching up more slowly than
// producers write stays in that phase.
//
// Each phase has a pacer of its own, which keeps its debt when the phase ends:
// what was sent while catching up is never a reason to hold back live bytes,
// nor the reverse, and going back and forth gains nothing. The zero value lets
// all through.
type pacing struct {
	border        int64
	catchingUp    bool
	live, catchUp Pacer
}

func newPacing(p Pace, border int64) pacing {
	if border <= 0 {
		border = DefaultCatchUpBytes
	}
	return pacing{border: border, live: NewPacer(p.Live), catchUp: NewPacer(p.CatchUp)}
}

// cut decides the phase and returns how many bytes the next frame has. left are
// what the log holds beyond what was sent; no more than most may go at once.
func (p *pacing) cut(left, most int64) int64 {
	switch {
	case left > p.border:
		p.catchingUp = true
	case left <= min(most, p.catchUp.Quantum()):
		p.catchingUp = false
	}
	return min(most, p.pacer().Quantum())
}

// pacer is the current phase's.
func (p *pacing) pacer() *Pacer {
	if p.catchingUp {
		return &p.catchUp
	}
	return &p.live
}

// SetPace changes the pace from the next frame on. A rate that is another one
// than before forgets what was sent.
func (s *Session) SetPace(p Pace) {
	s.pacing.live.SetRate(p.Live)
	s.pacing.catchUp.SetRate(p.CatchUp)
}

// Pace returns the pace in force.
func (s *Session) Pace() Pace {
	return Pace{Live: s.pacing.live.rate, CatchUp: s.pacing.catchUp.rate}
}

// CatchingUp tells whether the last frame that Next was asked for was cut for a
// replica that is far behind.
func (s *Session) CatchingUp() bool { return s.pacing.catchingUp }
