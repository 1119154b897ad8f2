package attest

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// Stage says how far a verification has come when membership is asked.
type Stage int

const (
	// StageHello: the node has presented its certificates and proven nothing
	// with its AK yet. Nothing may be recorded at this stage.
	StageHello Stage = 1
	// StageAnswer: every other check of the answer has passed.
	StageAnswer Stage = 2
)

// String returns "hello" or "answer".
func (s Stage) String() string {
	switch s {
	case StageHello:
		return "hello"
	case StageAnswer:
		return "answer"
	}
	return "stage(?)"
}

// Authorizer answers whether this machine may be this node. A root of trust
// admits every machine that its issuer ever certified, an attacker's included,
// so there is no acceptance without one.
//
// Authorize sees the result so far ([Result.Stage] says how far that is), and
// the request object as it was filed; [Result.Checked] has the machine that the
// policy found for the node's name. It returns what it vouches for: the issuer
// of the certificate writes the provider ID and the SANs given here and no
// others. To refuse, it returns an error that wraps [CheckMembership], best made
// with [NotMember]. Any other error means that it could not decide: the request
// is neither approved nor denied and is looked at again. A nil Authorization
// without an error is a refusal.
//
// It is called from many goroutines, must not keep or change its arguments, and
// at [StageHello] must not change any state.
type Authorizer interface {
	Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error)
}

// AuthorizerFunc is an [Authorizer] made of a function.
type AuthorizerFunc func(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error)

// Authorize calls f. A nil f decides nothing.
func (f AuthorizerFunc) Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error) {
	if f == nil {
		return nil, errors.New("attest: a nil AuthorizerFunc")
	}
	return f(ctx, r, request)
}

// Authorization is what an [Authorizer] vouches for.
type Authorization struct {
	// ProviderID is the provider ID to write into the certificate; empty for
	// none. A request that claims another one is refused.
	ProviderID string
	// DNSNames and IPAddresses are the SANs that a serving certificate for this
	// node may have. A request for others is refused.
	DNSNames    []string
	IPAddresses []netip.Addr
	// NotAfter is the latest end of any certificate that is issued on this
	// authorization, in whole seconds; the zero time bounds nothing.
	NotAfter time.Time
}

// CheckMembership: the [Authorizer] refused the machine.
const CheckMembership Check = "not-a-member"

// NotMember returns a refusal with a reason for people, for example "machine
// gce:p/1 is registered as node b".
func NotMember(reason string) error {
	return &Error{Check: CheckMembership, Got: reason}
}

// CheckProviderID: the request claims a provider ID that the authorizer does not
// vouch for.
const CheckProviderID Check = "provider-id"

// asMembership gives a refusal that only wraps the check the form that
// [csr.Decide] denies.
func asMembership(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e != nil && e.Check == CheckMembership {
		return err
	}
	return &Error{Check: CheckMembership, Got: "a machine that the authorizer refuses", Err: err}
}

// authorize asks for membership. Only what it fills in makes the result good for a
// certificate.
func (v *Verifier) authorize(ctx context.Context, r *Result, request *csr.Request) error {
	m := membershipOf(r)
	a, err := m.decide(ctx, func(ctx context.Context) (*Authorization, error) {
		return v.authorizer.Authorize(ctx, r, request)
	})
	if err != nil {
		return err
	}
	r.Authorization = *a
	if r.Stage == StageAnswer {
		r.verified = a.Verified(r.checked, m.machine)
	}
	return nil
}

func membershipOf(r *Result) *membership {
	return &membership{machine: r.Machine, claimed: r.ClaimedProviderID, early: r.Stage == StageHello}
}

func checkClaimedProviderID(r *Result, a *Authorization) error { return membershipOf(r).checkClaim(a) }
