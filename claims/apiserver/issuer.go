package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// issuedCredentialIDKey is the audit annotation that holds the credential ID of the
// token that was issued (k8s.io/apiserver, authentication/serviceaccount/util.go).
const issuedCredentialIDKey = "authentication.kubernetes.io/issued-credential-id"

// grant answers a request for a token of that many seconds, with the given ID, bound to the
// objects of b, but for the Token. It reads no clock, makes no calls and signs nothing.
func (p *IssuerConfig) grant(r *TokenRequest, b Bound, seconds int64, id string, now time.Time) (*Issued, error) {
	g := &Issued{ExpirationSeconds: seconds}
	if most := int64(p.MaxLifetime / time.Second); most > 0 && seconds > most {
		g.Warnings = append(g.Warnings, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, most))
		g.ExpirationSeconds = most
	}
	audiences := r.Audiences
	if len(audiences) == 0 {
		audiences = p.APIAudiences
	}
	lives, warnAfter := g.ExpirationSeconds, int64(0)
	if p.extends(&b, g.ExpirationSeconds, audiences) {
		extended := cmp.Or(p.MaxExtendedLifetime, maxExtendedExpirationSeconds*time.Second)
		lives, warnAfter = int64(extended/time.Second), g.ExpirationSeconds
	}
	var err error
	if g.Claims, err = NewClaims(b, lives, warnAfter, slices.Clone(audiences), id, now); err != nil {
		return nil, err
	}
	g.Claims.Issuer = p.Issuer
	g.Expiration = after(now, g.ExpirationSeconds)
	if id != "" {
		g.AuditAnnotations = map[string]string{issuedCredentialIDKey: g.Claims.CredentialID()}
	}
	return g, nil
}

// extends reports whether a request is the kubelet's own for a pod's projected token,
// valid only for the API server.
func (p *IssuerConfig) extends(b *Bound, seconds int64, audiences []string) bool {
	foreign := func(audience string) bool { return !slices.Contains(p.APIAudiences, audience) }
	return p.ExtendLifetime && b.Pod != nil && seconds == extendedRequestSeconds && !slices.ContainsFunc(audiences, foreign)
}

// NewClaims makes the claims of a token for the service account b.ServiceAccount, bound to
// the pod with its node, the Secret or the node that b holds, or to none of them if it
// holds none. The token lives for the given number of seconds from now; if warnAfter is not
// 0, uses are recorded as stale after that many seconds. The issuer is left empty.
//
// These are the rules of Claims in pkg/serviceaccount/claims.go of k8s.io/kubernetes
// 1.36. A Secret together with another object is an error with "InternalError", as
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
			ServiceAccount: *ref(account),
			Pod:            ref(b.Pod),
			Secret:         ref(b.Secret),
			Node:           ref(b.Node),
		},
	}
	if warnAfter != 0 {
		c.Kubernetes.WarnAfter = claims.NewNumericDate(after(now, warnAfter))
	}
	return c, nil
}

// ref names an object; nil names none.
func ref(o *claims.Object) *claims.Ref {
	if o == nil {
		return nil
	}
	return &claims.Ref{Name: o.Name, UID: o.UID}
}

func after(t time.Time, seconds int64) time.Time {
	return t.Add(time.Duration(seconds) * time.Second)
}

// programming returns the error for a mistake of the calling program, which no request can
// cause.
func programming(message string) *StatusError {
	return &StatusError{Reason: reasonInternalError, Code: 500, Message: message}
}

// IssuerConfig configures an Issuer.
type IssuerConfig struct {
	// Issuer is the value of "iss", the issuer's URL (--service-account-issuer). It is
	// required.
	Issuer string
	// APIAudiences are the audiences that the API server itself accepts
	// (--api-audiences). A request that states no audiences gets these; at least one is
	// required.
	APIAudiences []string
	// MaxLifetime is the longest lifetime that is granted
	// (--service-account-max-token-expiration), 600 to 2^32 seconds, truncated to whole
	// seconds; longer requests are shortened, with a warning. 0 means that every
	// lifetime that a request may state is granted. kube-apiserver's flag takes an hour or
	// more; a lower value comes from an external signer.
	MaxLifetime time.Duration
	// ExtendLifetime makes the token that the kubelet projects into a pod live for
	// MaxExtendedLifetime (--service-account-extend-token-expiration, which defaults to
	// true for kube-apiserver). MaxLifetime does not limit it.
	ExtendLifetime bool
	// MaxExtendedLifetime is that lifetime in whole seconds; 0 means 365 days. An
	// external signer may allow less.
	MaxExtendedLifetime time.Duration
	// Signer signs the tokens. It is required. The tokens of kube-apiserver's own
	// signers have no "typ" in their header, and of an external signer "JWT".
	Signer jws.Signer
	// Objects gets service accounts, pods, Secrets and nodes. It is required, and must be
	// [claims.LiveObjects]: a token for an object that is gone is refused later.
	Objects claims.Objects
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// NewID makes the ID of a token; nil means a random UUID.
	NewID func() string
}

// Issuer issues bound service-account tokens by the rules of kube-apiserver's
// TokenRequest. It is safe for concurrent use.
type Issuer struct {
	config IssuerConfig
}

// Issued is the answer to a request: the token, and its lifetime and warnings.
type Issued struct {
	// Token is the token in compact form: anyone who has it can use it.
	Token secret.Value[string]
	// Claims are the claims of the token.
	Claims *claims.Claims
	// ExpirationSeconds is spec.expirationSeconds of the answer: the requested
	// lifetime, shortened if necessary. The token itself may live longer; see
	// IssuerConfig.ExtendLifetime.
	ExpirationSeconds int64
	// Expiration is status.expirationTimestamp of the answer: now plus
	// ExpirationSeconds.
	Expiration time.Time
	// Warnings are the texts of the Warning headers of the answer.
	Warnings []string
	// AuditAnnotations are the annotations for the audit event of the request.
	AuditAnnotations map[string]string
}

// NewIssuer checks a configuration. Its errors are [refusal.CheckConfig].
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	const shortest, longest = minExpirationSeconds * time.Second, maxExpirationSeconds * time.Second
	switch {
	case config.Issuer == "":
		return nil, refusal.Config("Issuer", "", "the issuer's URL")
	case len(config.APIAudiences) == 0 || slices.Contains(config.APIAudiences, ""):
		return nil, refusal.Config("APIAudiences", "without one, or with an empty one", "at least one, none empty")
	case config.MaxLifetime != 0 && (config.MaxLifetime < shortest || config.MaxLifetime > longest):
		return nil, refusal.Config("MaxLifetime", config.MaxLifetime.String(), "0, or 600 to 2^32 seconds")
	case config.MaxExtendedLifetime != 0 && (config.MaxExtendedLifetime < shortest || config.MaxExtendedLifetime > longest):
		return nil, refusal.Config("MaxExtendedLifetime", config.MaxExtendedLifetime.String(), "0, or 600 to 2^32 seconds")
	case config.Signer == nil:
		return nil, refusal.Config("Signer", "", "a jws.Signer")
	}
	config.Now = wallclock.Or(config.Now)
	fresh := claims.FreshObjects{From: config.Objects, Now: config.Now}
	if err := fresh.Check(); err != nil {
		return nil, err
	}
	config.Objects = fresh
	if config.NewID == nil {
		config.NewID = newID
	}
	return &Issuer{config: config}, nil
}

// Issue serves one request: it gets the objects, makes the checks in kube-apiserver's order,
// and signs. Like kube-apiserver, it ignores the objects' deletion times.
// kube-apiserver's admission plugins are not part of this. A pod's node that does not exist
// is named without a UID.
//
// A refusal of kube-apiserver 1.36 is a [*StatusError] in its words: "BadRequest",
// "NotFound", [ReasonConflict] and "Invalid". An error that is not a refusal (an
// object could not be read, the signer failed) wraps [refusal.ErrRetry].
func (i *Issuer) Issue(ctx context.Context, r *TokenRequest) (*Issued, error) {
	if i == nil || i.config.Signer == nil {
		return nil, refusal.Config("Issuer", "that NewIssuer did not make", "one that it made")
	}
	if r == nil {
		return nil, badRequest("a request is required")
	}
	b, seconds, err := i.lookUp(ctx, r)
	if err != nil {
		return nil, err
	}
	issued, err := i.config.grant(r, b, seconds, i.config.NewID(), i.config.Now())
	if err != nil {
		return nil, err
	}
	payload, err := issued.Claims.Marshal()
	if err != nil {
		return nil, err
	}
	signature, err := i.config.Signer.Sign(ctx, payload)
	if err == nil && signature == nil {
		err = errors.New("the signer returned nothing")
	}
	if err != nil {
		return nil, internal(fmt.Sprintf("failed to generate token: %v", err), err)
	}
	issued.Token = secret.New(signature.Token(payload))
	return issued, nil
}

// lookUp gets the objects of a request and the lifetime that it asks for in seconds, and
// makes the checks that kube-apiserver makes before it gets the next object.
func (i *Issuer) lookUp(ctx context.Context, r *TokenRequest) (b Bound, seconds int64, err error) {
	if err := r.checkMetadata(); err != nil {
		return b, 0, err
	}
	if b.ServiceAccount, err = i.get(ctx, alive.ServiceAccount, r.Namespace, r.Name); err != nil {
		return b, 0, err
	}
	switch account := b.ServiceAccount; {
	case account == nil:
		return b, 0, notFound("serviceaccounts", r.Name)
	case r.UID != "" && r.UID != account.UID:
		return b, 0, conflict(tokenRequestGroup, tokenRequestKind, r.Name, fmt.Sprintf(
			"the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	if seconds, err = r.lifetime(); err != nil || r.BoundObject == nil {
		return b, seconds, err
	}
	err = i.bind(ctx, r, &b)
	return b, seconds, err
}

// bind gets the object that the token is to be bound to, with the node of a pod, and
// compares it with the request.
func (i *Issuer) bind(ctx context.Context, r *TokenRequest, b *Bound) (err error) {
	ref, resource, bound := r.BoundObject, alive.Pod, &b.Pod
	switch group, version := splitAPIVersion(ref.APIVersion); {
	case group == "" && ref.Kind == "Pod":
	case group == "" && ref.Kind == "Secret":
		resource, bound = alive.Secret, &b.Secret
	case group == "" && ref.Kind == "Node":
		resource, bound = alive.Node, &b.Node
	default:
		return badRequest("cannot bind token to object of type " + group + "/" + version + ", Kind=" + ref.Kind)
	}
	*bound, err = i.get(ctx, resource, r.Namespace, ref.Name)
	object := *bound
	switch {
	case err != nil:
		return err
	case object == nil:
		return notFound(resource.Plural, ref.Name)
	case b.Pod != nil && b.Pod.ServiceAccountName != r.Name:
		return badRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", r.Name))
	case b.Pod != nil && b.Pod.NodeName != "":
		if b.Node, err = i.get(ctx, alive.Node, "", b.Pod.NodeName); err != nil {
			return err
		}
		b.Node = cmp.Or(b.Node, &claims.Object{Name: b.Pod.NodeName})
	}
	if ref.UID != "" && ref.UID != object.UID {
		return conflict("", ref.Kind, ref.Name, fmt.Sprintf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// get gets an object of a resource. One that does not exist is nil without an error.
func (i *Issuer) get(ctx context.Context, resource alive.Resource, namespace, name string) (*claims.Object, error) {
	object, err := i.config.Objects.Get(ctx, resource.Plural, resource.Namespace(namespace), name)
	switch {
	case errors.Is(err, claims.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, internal(err.Error(), err)
	case object == nil:
		return nil, internal("the object getter returned nothing", nil)
	}
	return object, nil
}

// newID returns a random UUID (RFC 9562, version 4) with 122 bits from crypto/rand.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
