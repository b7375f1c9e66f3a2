package transfer

import (
	"errors"
	"time"
)

// trust is a session's side of the proofs, where the node has a secret. A peer
// that asks with -1 gets an opening, which tells nothing but a nonce. It answers
// with an opening of its own, and in it the proof that it knows the secret: from
// then on it is trusted, and gets the hello with the proof that we know it, too.
// A replica's hello carries the last proof, of all that was said.
//
//	silent ──▶ opening ──▶ trusted ──▶ as without a secret
type trust struct {
	said    transcript
	trusted bool
}

// Trusted tells whether the peer may know of our log and be sent it: it has
// proved to know the secret, or there is none.
func (s *Session) Trusted() bool { return s.trusted || len(s.cfg.Secret) == 0 }

// Challenged tells whether the peer asked for the extended protocol, and so was
// told that it has to prove something, and has not.
func (s *Session) Challenged() bool { return s.greeted && !s.Trusted() }

func (s *Session) challenge() {
	opening := openingPayload(s.cfg.Nonce)
	s.said.add(opening)
	s.control = messageOf(unitHello, opening)
}

// takeOpening takes what a peer that is not trusted says of itself.
func (s *Session) takeOpening(b []byte, log Range, now time.Duration) error {
	if err := s.said.check(s.cfg.Secret, proofDialler, b); err != nil {
		return s.unproven(err)
	}
	if opening, err := isOpening(b); err != nil || !opening {
		return s.unproven(ErrNoProof)
	}
	s.trusted, s.heard = true, now
	hello := s.said.prove(s.cfg.Secret, proofListener, s.ownHello(log))
	s.control = append(s.control, messageOf(unitHello, hello)...)
	return nil
}

// takeProof checks the proof in a replica's hello.
func (s *Session) takeProof(b []byte) error {
	if len(s.cfg.Secret) == 0 {
		return nil
	}
	if err := s.said.check(s.cfg.Secret, proofReplica, b); err != nil {
		return s.unproven(err)
	}
	s.said = nil // all is proved
	return nil
}

func (s *Session) unproven(what error) error {
	if errors.Is(what, ErrWrongProof) {
		return refuseAuth(what, "peer %s proves to know another secret than this node's, or its bytes were changed on the way", s.cfg.Peer)
	}
	return refuseAuth(what, "peer %s does not prove to know this node's secret", s.cfg.Peer)
}

func (s *Session) plainPeer(offset int64) error {
	return refuseAuth(ErrPlainPeer, "peer %s reported offset %d, as in RocketMQ's protocol, and this node takes only peers that prove to know its secret", s.cfg.Peer, offset)
}
