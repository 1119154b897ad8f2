package attest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// ChallengeDecision is the decision about a hello, from what [Verifier.Challenge] returned. A
// hello that was challenged is denied, since it is never signed, with the reason
// AttestationChallenge, and the message of the condition is the challenge in base64 (RFC 4648
// section 4, padded, unbroken). An error is decided as by [csr.Decide], and neither challenge
// nor error is a retry. [csr.UnplacedDecision.For] makes what can be written of it.
func ChallengeDecision(challenge []byte, err error) csr.UnplacedDecision {
	if err != nil || len(challenge) == 0 {
		return csr.Decide(err)
	}
	return csr.UnplacedDecision{Verdict: csr.VerdictDeny, Reason: ReasonChallenge, Message: base64.StdEncoding.EncodeToString(challenge)}
}

// checkNoChallenge: a hello was decided without a challenge.
const checkNoChallenge Check = "no-challenge"

// ChallengeOf returns the challenge in the status of a hello that the node has filed, for
// [Attester.Answer]: the inverse of [ChallengeDecision]. An error that wraps [refusal.ErrRetry]
// means that nothing has been decided yet. One with "no-challenge" means that the hello
// was decided in another way, as its text says, and that the node has to file again; one with
// "message-encoding" or "message-size" means that it is not a challenge. ChallengeOf does not look
// inside the DER.
func ChallengeOf(hello *csr.Request) ([]byte, error) {
	if hello == nil {
		return nil, errNotMade
	}
	for _, c := range hello.Status.Conditions {
		if c.Type == csr.ConditionDenied && c.Reason == message.ReasonChallenge {
			return parseChallengeMessage(c.Message)
		}
	}
	for _, c := range hello.Status.Conditions {
		switch c.Type {
		case csr.ConditionDenied, csr.ConditionApproved, csr.ConditionFailed:
			return nil, &Error{Check: checkNoChallenge, Got: c.Type + ": " + c.Reason + ": " + c.Message, Want: message.ReasonChallenge}
		}
	}
	return nil, &Error{Check: checkNoChallenge, Got: "no decision", Want: message.ReasonChallenge, Err: refusal.ErrRetry}
}

// parseChallengeMessage reads base64, and refuses other encodings of the same bytes.
func parseChallengeMessage(message string) ([]byte, error) {
	if len(message) > base64.StdEncoding.EncodedLen(der.MaxChallengeSize) {
		return nil, &Error{Check: der.CheckSize, Got: "a longer challenge message", Want: "at most 21848 characters"}
	}
	challenge, err := base64.StdEncoding.Strict().DecodeString(message)
	if err != nil || base64.StdEncoding.EncodeToString(challenge) != message {
		return nil, &Error{Check: der.CheckEncoding, Got: "a challenge message in another form", Want: "padded, unbroken base64"}
	}
	return challenge, nil
}

// makeChallenge completes the Binding with key, nonce and times, and adds the secret: in the clear, or
// only in the credential if the kind makes one.
func (v *Verifier) makeChallenge(ctx context.Context, k *openKind, format string, hello HelloEvidence, q *Inquiry, b message.Binding, created time.Time) ([]byte, error) {
	key, err := v.c.KeyRing.newest(q.Now)
	if err != nil {
		return nil, err
	}
	b.KeyID = key.ID
	_, _ = rand.Read(b.Nonce[:]) // never fails
	b.IssuedAt = created.Unix()
	b.NotAfter = created.Add(v.c.Window).Unix()
	der, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	secret := key.challengeSecret(format, der)
	credential, err := hello.Seal(ctx, q, secret)
	if err != nil {
		return nil, err
	}
	c := &message.Challenge{Binding: b, Credential: (*message.Credential)(credential)}
	switch {
	case (credential != nil) != (b.Road == message.RoadEK):
		return nil, k.fault("a credential, or none, on road "+b.Road.String(), "one on road ek, and only there")
	case credential == nil:
		c.Clear = secret
	}
	return c.Marshal()
}

// expected returns the Binding of the verifier's own values, without key, nonce and times.
func expected(r *Result, p *Presented, request *csr.Request) message.Binding {
	s := &Subject{ClusterID: r.ClusterID, SignerName: r.SignerName}
	if lifetime := request.Spec.ExpirationSeconds; lifetime != nil {
		s.ExpirationSeconds = *lifetime
	}
	return s.binding(p, request.User.Username, r.RequestHash)
}
