package transfer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// SecretBytesMin is the least length of a secret that two nodes share.
const SecretBytesMin = 16

// Nonce is what one end of a connection draws for it at random, so that no proof
// is good on another one.
type Nonce [32]byte

// Errors of a peer that does not prove to know the secret. They stand behind a
// *RefusalError with RefusedAuth.
var (
	// ErrPlainPeer means a peer that speaks RocketMQ's protocol, which has no
	// proofs, or none at all.
	ErrPlainPeer = errors.New("peer speaks no protocol in which it could prove to know the secret")
	// ErrNoProof means that one of both ends has a secret and the other none.
	ErrNoProof = errors.New("peer proves nothing")
	// ErrWrongProof means another secret, or bytes that are not the sender's: of
	// another connection, or changed on the way.
	ErrWrongProof = errors.New("peer's proof is wrong")
)

// proofLabel keeps a proof from being worth anything where the same secret is
// used for something else.
const proofLabel = "haengine replication proof 1"

const proofBytes = sha256.Size

// proofStep says whose proof it is and where it stands, so that none can be sent
// back to the one who made it.
type proofStep byte

const (
	proofDialler  proofStep = iota + 1 // in the opening of who dialled
	proofListener                      // in the hello of who was dialled
	proofReplica                       // in the hello of who dialled
)

// transcript is what both ends of a connection have said on the way to trusting
// each other: each payload behind its length. A proof is of all of it, so that
// nothing said can be changed, left out or taken from another connection.
type transcript []byte

func (t *transcript) add(payload []byte) {
	*t = binary.BigEndian.AppendUint32(*t, uint32(len(payload)))
	*t = append(*t, payload...)
}

// proof is HMAC-SHA256 of: label | step 1 | transcript | bytes 4 | body.
func (t *transcript) proof(secret []byte, step proofStep, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(proofLabel))
	mac.Write([]byte{byte(step)})
	mac.Write(*t)
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(body))))
	mac.Write(body)
	return mac.Sum(nil)
}

const sumSize = 4 // the CRC-32C that ends a hello

// prove puts a proof into a hello or an opening, as its last field.
func (t *transcript) prove(secret []byte, step proofStep, hello []byte) []byte {
	body := hello[:len(hello)-sumSize]
	proof := t.proof(secret, step, body)
	hello = appendField(body, tagProof, proof)
	hello = binary.BigEndian.AppendUint32(hello, crc32.Checksum(hello, castagnoli))
	t.add(hello)
	return hello
}

// check says whether the proof that ends a payload is right: nil, ErrNoProof or
// ErrWrongProof.
func (t *transcript) check(secret []byte, step proofStep, payload []byte) error {
	at := len(payload) - sumSize - proofBytes - fieldHeader
	if at < 0 || binary.BigEndian.Uint16(payload[at:]) != tagProof || binary.BigEndian.Uint16(payload[at+2:]) != proofBytes {
		return ErrNoProof
	}
	body, proof := payload[:at], payload[at+fieldHeader:at+fieldHeader+proofBytes]
	if !hmac.Equal(proof, t.proof(secret, step, body)) {
		return ErrWrongProof
	}
	t.add(payload)
	return nil
}

// openingPayload is what stands before the hello where there is a secret, and
// tells nothing of the node: a hello with a nonce and no other field.
func openingPayload(n Nonce) []byte {
	b := appendHelloHead(nil, VersionMin, VersionMax)
	b = appendField(b, tagNonce, n[:])
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// isOpening tells an opening from a hello. The error wraps ErrHello.
func isOpening(payload []byte) (bool, error) {
	opening := false
	_, err := helloFields(payload, func(tag uint16, v []byte) error {
		if tag != tagNonce {
			return nil
		}
		if len(v) != len(Nonce{}) {
			return fmt.Errorf("%w: field %d of %d bytes, want %d", ErrHello, tag, len(v), len(Nonce{}))
		}
		opening = true
		return nil
	})
	return opening, err
}

func refuseAuth(what error, format string, args ...any) *RefusalError {
	r := refuse(RefusedAuth, format, args...)
	r.What = what
	return r
}

// proving is the part in the proofs of the end that dialled: a Follower or an
// Asker. Without a secret on both ends it takes no part.
//
//	        opening            Prove             hello with its proof
//	asking ────────▶ challenged ────▶ proving ──────────────────────▶ proved
type proving struct {
	said       transcript
	met        bool // the peer said something that had to be answered by prove
	challenged bool // it waits for that
	opened     bool // and was an opening
	asked      bool // our opening went out
	proved     bool // the peer knows the secret
}

// takeFirst takes the payload that the peer said first. waits is false if it is a
// hello and we have no secret: then there is nothing to prove.
func (p *proving) takeFirst(payload []byte, secret []byte) (waits bool, err error) {
	if p.opened, err = isOpening(payload); err != nil {
		return false, err
	}
	p.challenged = p.opened || len(secret) > 0
	p.met = p.challenged
	if p.opened {
		p.said.add(payload)
	}
	return p.challenged, nil
}

// prove gives our opening with our proof, or a *RefusalError if one of both ends
// has no secret.
func (p *proving) prove(secret []byte, n Nonce) ([]byte, error) {
	p.challenged = false
	switch {
	case len(secret) == 0:
		return nil, refuseAuth(ErrNoProof, "the peer takes only those that prove to know its secret, and this node was given none")
	case !p.opened:
		return nil, refuseAuth(ErrNoProof, "the peer proves nothing: it was given no secret, is of an earlier version, or somebody stands between; this node has a secret and takes only peers that prove to know it")
	}
	p.asked = true
	return appendReply(nil, unitHello, p.said.prove(secret, proofDialler, openingPayload(n))), nil
}

// takeHello checks the proof in the peer's hello.
func (p *proving) takeHello(payload, secret []byte) error {
	if err := p.said.check(secret, proofListener, payload); err != nil {
		return refuseAuth(err, "the peer does not prove to know our secret: it has another one, or somebody stands between")
	}
	p.proved = true
	return nil
}

// hearsay makes of a refusal by a peer that has proved nothing what can be
// believed of it: anybody can send one.
func (p *proving) hearsay(err error, secret []byte) error {
	var r *RefusalError
	if len(secret) == 0 || p.proved || !errors.As(err, &r) {
		return err
	}
	switch r.Code {
	case RefusedAuth, RefusedVersion, RefusedStopping:
		return err
	}
	return &RefusalError{Code: RefusedAuth, Text: "a peer that has not proved to know the secret refuses: " + r.Text, What: ErrNoProof}
}
