package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// Policy says what an issuer grants. The zero value grants nothing: Issuer is required.
type Policy struct {
	// Issuer is what "iss" says, the issuer's URL (--service-account-issuer). It is
	// required.
	Issuer string
	// APIAudiences are the audiences that the API server itself accepts
	// (--api-audiences). They are given to a request that states none; it is required
	// that there is one.
	APIAudiences []string
	// MaxExpiration is the longest lifetime that is granted
	// (--service-account-max-token-expiration), 600 to 2^32 seconds, cut to whole
	// seconds; longer requests are shortened, with a warning. 0 means that every
	// lifetime that a request may state is granted. The flag of kube-apiserver takes an
	// hour or more; less comes from an external signer.
	MaxExpiration time.Duration
	// ExtendExpiration makes the token that the kubelet projects into a pod live for
	// MaxExtendedExpiration (--service-account-extend-token-expiration, which is true
	// for kube-apiserver unless told otherwise). MaxExpiration does not bound it.
	ExtendExpiration bool
	// MaxExtendedExpiration is that lifetime in whole seconds; 0 means 365 days. An
	// external signer may allow less; see [Policy.LimitTo].
	MaxExtendedExpiration time.Duration
}

// Grant is a request that was granted: what is to be signed, and what to tell the one
// who asked.
type Grant struct {
	// Claims are the claims of the token.
	Claims *claims.Claims
	// ExpirationSeconds is spec.expirationSeconds of the answer: what was asked for,
	// shortened where it must be. The token itself may live longer; see
	// Policy.ExtendExpiration.
	ExpirationSeconds int64
	// Expiration is status.expirationTimestamp of the answer: now and
	// ExpirationSeconds.
	Expiration time.Time
	// Warnings are the texts of the Warning headers of the answer.
	Warnings []string
	// AuditAnnotations are what the audit event of the request is annotated with.
	AuditAnnotations map[string]string
}

// IssuedCredentialIDKey is the audit annotation that holds the credential ID of the
// token that was issued (k8s.io/apiserver, authentication/serviceaccount/util.go).
const IssuedCredentialIDKey = "authentication.kubernetes.io/issued-credential-id"

// Check reports what a policy lacks, as a [refusal.CheckConfig] error.
func (p *Policy) Check() error {
	const longest = MaxExpirationSeconds * time.Second
	switch {
	case p == nil || p.Issuer == "":
		return refusal.Config("Issuer", "", "the issuer's URL")
	case len(p.APIAudiences) == 0 || slices.Contains(p.APIAudiences, ""):
		return refusal.Config("APIAudiences", "without one, or with an empty one", "at least one, none empty")
	case p.MaxExpiration != 0 && (p.MaxExpiration < MinExpirationSeconds*time.Second || p.MaxExpiration > longest):
		return refusal.Config("MaxExpiration", p.MaxExpiration.String(), "0, or 600 to 2^32 seconds")
	case p.MaxExtendedExpiration != 0 && (p.MaxExtendedExpiration < MinExpirationSeconds*time.Second || p.MaxExtendedExpiration > longest):
		return refusal.Config("MaxExtendedExpiration", p.MaxExtendedExpiration.String(), "0, or 600 to 2^32 seconds")
	}
	return nil
}

// LimitTo returns the policy for an external signer that signs no token that lives
// longer than max, as kube-apiserver 1.36 derives it at its start
// (pkg/controlplane/apiserver/options): max becomes the maximum lifetime where the
// policy has none, a longer maximum is an error, and the extended lifetime is cut to it.
// The lifetime of [DefaultExpirationSeconds] is shortened like any other.
func (p Policy) LimitTo(max time.Duration) (Policy, error) {
	switch {
	case max < MinExpirationSeconds*time.Second:
		return Policy{}, refusal.Config("max", max.String(), "at least 10 minutes")
	case p.MaxExpiration > max:
		return Policy{}, refusal.Config("MaxExpiration", p.MaxExpiration.String(), "at most the signer's "+max.String())
	case p.MaxExpiration == 0:
		p.MaxExpiration = max
	}
	p.MaxExtendedExpiration = min(max, p.extended())
	return p, nil
}

func (p *Policy) extended() time.Duration {
	return cmp.Or(p.MaxExtendedExpiration, MaxExtendedExpirationSeconds*time.Second)
}

// grant answers a request for a token of that many seconds, with the given ID, bound to the
// objects of b. It reads no clock, asks nobody and signs nothing.
func (p *Policy) grant(r *TokenRequest, b Bound, seconds int64, id string, now time.Time) (*Grant, error) {
	g := &Grant{ExpirationSeconds: seconds}
	if most := int64(p.MaxExpiration / time.Second); most > 0 && seconds > most {
		g.Warnings = append(g.Warnings, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, most))
		g.ExpirationSeconds = most
	}
	audiences := r.Audiences
	if len(audiences) == 0 {
		audiences = p.APIAudiences
	}
	lives, warnAfter := g.ExpirationSeconds, int64(0)
	if p.extends(&b, g.ExpirationSeconds, audiences) {
		lives, warnAfter = int64(p.extended()/time.Second), g.ExpirationSeconds
	}
	var err error
	if g.Claims, err = NewClaims(b, lives, warnAfter, slices.Clone(audiences), id, now); err != nil {
		return nil, err
	}
	g.Claims.Issuer = p.Issuer
	g.Expiration = after(now, g.ExpirationSeconds)
	if id != "" {
		g.AuditAnnotations = map[string]string{IssuedCredentialIDKey: g.Claims.CredentialID()}
	}
	return g, nil
}

// extends reports whether a request is the kubelet's own for a pod's projected token,
// good for the API server alone.
func (p *Policy) extends(b *Bound, seconds int64, audiences []string) bool {
	if !p.ExtendExpiration || b.Pod == nil || seconds != ExtendedRequestSeconds {
		return false
	}
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(p.APIAudiences, a) })
}

// NewClaims makes the claims of a token for the service account b.ServiceAccount, bound to
// the pod with its node, the Secret or the node that b holds; to none of them where it
// holds none. The token lives from now for the given seconds; where warnAfter is not 0, its
// use is recorded as stale that many seconds from now on. The issuer is left empty.
//
// These are the rules of Claims in pkg/serviceaccount/claims.go of k8s.io/kubernetes
// 1.36. A Secret together with another object is an error with ReasonInternalError, as
// is a Bound without a service account.
func NewClaims(b Bound, seconds, warnAfter int64, audiences []string, id string, now time.Time) (*claims.Claims, error) {
	if b.ServiceAccount == nil {
		return nil, programming("internal error, token needs a service account")
	}
	if b.Secret != nil && (b.Pod != nil || b.Node != nil) {
		return nil, programming("internal error, token can only be bound to one object type")
	}
	account := b.ServiceAccount
	c := &claims.Claims{
		Subject:   claims.MakeSubject(account.Namespace, account.Name),
		Audiences: audiences,
		IssuedAt:  claims.NewNumericDate(now),
		NotBefore: claims.NewNumericDate(now),
		Expiry:    claims.NewNumericDate(after(now, seconds)),
		ID:        id,
		Kubernetes: claims.Private{
			Namespace:      account.Namespace,
			ServiceAccount: claims.Ref{Name: account.Name, UID: account.UID},
		},
	}
	if b.Pod != nil {
		c.Kubernetes.Pod = &claims.Ref{Name: b.Pod.Name, UID: b.Pod.UID}
	}
	if b.Secret != nil {
		c.Kubernetes.Secret = &claims.Ref{Name: b.Secret.Name, UID: b.Secret.UID}
	}
	if b.Node != nil {
		c.Kubernetes.Node = &claims.Ref{Name: b.Node.Name, UID: b.Node.UID}
	}
	if warnAfter != 0 {
		c.Kubernetes.WarnAfter = claims.NewNumericDate(after(now, warnAfter))
	}
	return c, nil
}

func after(t time.Time, seconds int64) time.Time {
	return t.Add(time.Duration(seconds) * time.Second)
}

// programming is a mistake of the calling program, which no request can cause.
func programming(message string) *StatusError {
	return &StatusError{Reason: ReasonInternalError, Code: 500, Message: message}
}
