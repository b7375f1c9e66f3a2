package transfer

import "time"

// Redial delays. A loss is most often over at once (a restart, a dropped
// connection), and puts wait for the replica meanwhile; a refusal is not over
// until somebody does something.
const (
	lossDelayMin    = 10 * time.Millisecond
	lossDelayMax    = 250 * time.Millisecond
	refusalDelayMin = time.Second
	refusalDelayMax = 30 * time.Second
)

// Backoff says how long to wait before the next dial. Loop-confined. Losses
// and refusals grow apart from each other until a connection succeeds.
type Backoff struct {
	random  func(n int64) int64 // uniform in [0, n)
	loss    time.Duration
	refusal time.Duration
}

// NewBackoff returns a backoff that draws its jitter from random: uniform in
// [0, n), for example rand.Int64N.
func NewBackoff(random func(n int64) int64) *Backoff {
	b := &Backoff{random: random}
	b.Succeeded()
	return b
}

// Lost returns the delay after a failed dial or a lost connection: 10 ms
// doubling to 250 ms, of which a random half is taken off so that replicas
// that lost their master together do not come back together.
func (b *Backoff) Lost() time.Duration {
	d := b.loss
	b.loss = min(2*d, lossDelayMax)
	return d - time.Duration(b.random(int64(d/2)+1))
}

// Refused returns the delay after either side refused the other for a reason
// that time alone does not mend: 1 s doubling to 30 s.
func (b *Backoff) Refused() time.Duration {
	d := b.refusal
	b.refusal = min(2*d, refusalDelayMax)
	return d
}

// Succeeded starts both sequences again: data flows.
func (b *Backoff) Succeeded() {
	b.loss, b.refusal = lossDelayMin, refusalDelayMin
}
