package engine

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/haengine/haengine/transfer"
)

// Reasons why a peer is not served where there is a secret, or why it goes.
const (
	unprovenPlain   = "plain"       // it speaks RocketMQ's protocol, or none
	unprovenNothing = "no-proof"    // it speaks ours, and proved nothing
	unprovenWrong   = "wrong-proof" // it knows another secret
	unprovenWanted  = "no-secret"   // it has a secret, and this node has none
	unprovenGone    = "gone"        // it went, or was silent, when it was asked for its proof: an earlier version, or a connection that broke
)

// UnprovenReasons are the values that Metrics.Unproven may get.
func UnprovenReasons() []string {
	return []string{unprovenPlain, unprovenNothing, unprovenWrong, unprovenWanted, unprovenGone}
}

// unproven names why a connection that was never a replica ended for want of a
// proof; empty: it ended for another reason.
func unproven(s *transfer.Session, why error) string {
	var refusal *transfer.RefusalError
	switch {
	case errors.Is(why, transfer.ErrPlainPeer):
		return unprovenPlain
	case errors.Is(why, transfer.ErrWrongProof):
		return unprovenWrong
	case errors.Is(why, transfer.ErrNoProof), errors.As(why, &refusal) && refusal.Code == transfer.RefusedAuth && !s.Trusted():
		return unprovenNothing
	case errors.As(why, &refusal) && refusal.Code == transfer.RefusedAuth:
		return unprovenWanted
	case s.Challenged():
		return unprovenGone
	}
	return ""
}

// prove answers a master that wants, or should want, a proof of the secret.
func (s *slave) prove(now time.Duration) error {
	b, err := s.follower.Prove(newNonce(), now)
	if err != nil {
		return err
	}
	s.out = append(s.out, b...)
	s.flushOut()
	return nil
}

func newNonce() (n transfer.Nonce) {
	rand.Read(n[:])
	return n
}
