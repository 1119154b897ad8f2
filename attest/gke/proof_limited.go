package gke

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// LimitedSubject is what primary evidence without a challenge has proven, and what
// a second proof must be about.
type LimitedSubject struct {
	// Machine is the machine's identity according to the primary evidence.
	Machine attest.Identity
	// NodeName and SignerName are what the request asks for.
	NodeName   string
	SignerName string
	// RequestHash is SHA-256 of the CertificationRequestInfo.
	RequestHash [message.HashSize]byte
}

// LimitedProof is what a second proof says.
type LimitedProof struct {
	// Machine is the machine that the proof is about, in the form of the subject's.
	Machine attest.Identity
	// RequestHash is the request that the proof covers with its signature. It is all zeros if
	// the mechanism covers none: then anyone who sees the proof can use it for a request of
	// their own for as long as it lasts.
	RequestHash [message.HashSize]byte
	// IssuedAt and NotAfter are the period for which the proof's issuer made it.
	IssuedAt, NotAfter time.Time
}

// TimeLimitedVerifier verifies the second, time-limited proof that the kubelet authentication
// proposal requires in addition to evidence that has no challenge, nonce or timestamp (the
// section "Secure providers"; its example is a signed AWS request alongside an instance
// identity document). Evidence of package attest's join has a challenge and needs none.
//
// VerifyTimeLimited finds the proof in the request object, verifies its signature, and returns
// what it says, without comparing it with the subject: [CheckTimeLimited] does that. A bad or
// missing proof is an [*Error] or another error with DenyReason; any other error means that it
// could not be examined.
type TimeLimitedVerifier interface {
	VerifyTimeLimited(ctx context.Context, subject *LimitedSubject, request *csr.Request) (*LimitedProof, error)
}

// LimitedOptions say how long a second proof may last. The zero value is the strict form.
type LimitedOptions struct {
	// MaxWindow is the longest time from IssuedAt to NotAfter, at most one hour;
	// zero means 10 minutes.
	MaxWindow time.Duration
	// InsecureAllowAnyRequest accepts a proof that covers no request.
	InsecureAllowAnyRequest bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// limitedSkew is how far in the future a proof may have been made.
const limitedSkew = 60 * time.Second

// Checks of a time-limited proof.
const (
	// CheckLimitedMissing: there is no proof.
	CheckLimitedMissing Check = "limited-proof-missing"
	// CheckLimitedMachine: the proof is about another machine.
	CheckLimitedMachine Check = "limited-proof-machine"
	// CheckLimitedRequest: the proof covers another request or none.
	CheckLimitedRequest Check = "limited-proof-request"
	// CheckLimitedWindow: the proof states no time, or too long a one.
	CheckLimitedWindow Check = "limited-proof-window"
	// CheckLimitedExpired: the proof has expired.
	CheckLimitedExpired Check = "limited-proof-expired"
	// CheckLimitedEarly: the proof is dated more than 60 s in the future.
	CheckLimitedEarly Check = "limited-proof-early"
)

// CheckTimeLimited asks v for the proof and checks it against the subject and the clock. It
// returns the proof, a refusal as an [*Error], or what v returned.
func CheckTimeLimited(ctx context.Context, v TimeLimitedVerifier, subject *LimitedSubject, request *csr.Request, o LimitedOptions) (*LimitedProof, error) {
	switch {
	case v == nil || subject == nil || request == nil:
		return nil, errors.New("gke: time-limited proof: no verifier, subject or request")
	case o.MaxWindow < 0 || o.MaxWindow > message.MaxWindow:
		return nil, fmt.Errorf("gke: time-limited proof: MaxWindow of %s is not within %s", o.MaxWindow, message.MaxWindow)
	case subject.Machine == "" || subject.RequestHash == [message.HashSize]byte{}:
		return nil, errors.New("gke: time-limited proof: the subject has no machine or request")
	}
	if o.MaxWindow == 0 {
		o.MaxWindow = message.DefaultWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	proof, err := v.VerifyTimeLimited(ctx, subject, request)
	switch {
	case err != nil:
		return nil, err
	case proof == nil:
		return nil, &Error{Check: CheckLimitedMissing, Got: "nothing", Want: "a time-limited proof"}
	}
	if err := proof.check(subject, &o); err != nil {
		return nil, err
	}
	return proof, nil
}

func (p *LimitedProof) check(s *LimitedSubject, o *LimitedOptions) error {
	now, length := o.Now(), p.NotAfter.Sub(p.IssuedAt)
	switch {
	case p.Machine != s.Machine:
		return &Error{Check: CheckLimitedMachine, Got: refusal.OrNothing(string(p.Machine)), Want: string(s.Machine)}
	case p.RequestHash == [message.HashSize]byte{} && !o.InsecureAllowAnyRequest:
		return &Error{Check: CheckLimitedRequest, Got: "a proof that covers no request", Want: hex.EncodeToString(s.RequestHash[:])}
	case p.RequestHash != [message.HashSize]byte{} && p.RequestHash != s.RequestHash:
		return &Error{Check: CheckLimitedRequest, Got: hex.EncodeToString(p.RequestHash[:]), Want: hex.EncodeToString(s.RequestHash[:])}
	case p.IssuedAt.IsZero() || length < 0 || length > o.MaxWindow:
		return &Error{Check: CheckLimitedWindow, Got: length.String(), Want: "up to " + o.MaxWindow.String()}
	case now.After(p.NotAfter):
		return &Error{Check: CheckLimitedExpired, Got: "one until " + p.NotAfter.UTC().Format(time.RFC3339), Want: "one at " + now.UTC().Format(time.RFC3339)}
	case now.Before(p.IssuedAt.Add(-limitedSkew)):
		return &Error{Check: CheckLimitedEarly, Got: "one of " + p.IssuedAt.UTC().Format(time.RFC3339), Want: "one at " + now.UTC().Format(time.RFC3339)}
	}
	return nil
}
