package apiserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// IssuerConfig is what an Issuer needs.
type IssuerConfig struct {
	// Policy says what is granted. It is required.
	Policy Policy
	// Signer signs the tokens. It is required. The tokens of kube-apiserver's own
	// signers have no "typ" in their header, those of an external signer "JWT".
	Signer jws.Signer
	// Objects gets service accounts, pods, Secrets and nodes. It is required, and must
	// not be a [claims.StaleObjects]: a token for an object that is gone is refused later.
	Objects claims.Objects
	// Now is the clock; nil for time.Now.
	Now func() time.Time
	// NewID makes the ID of a token; nil for [NewID].
	NewID func() (string, error)
}

// Issuer issues bound service-account tokens by the rules of kube-apiserver's
// TokenRequest. It is safe for concurrent use.
type Issuer struct {
	config IssuerConfig
}

// Issued is a token with what is to be answered along with it.
type Issued struct {
	Grant
	// Token is the token in compact form: whoever has it can use it.
	Token secret.Value[string]
}

// NewIssuer checks a configuration. Its errors are [refusal.CheckConfig].
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	if err := config.Policy.Check(); err != nil {
		return nil, err
	}
	if config.Signer == nil {
		return nil, refusal.Config("Signer", "", "a jws.Signer")
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	fresh := claims.FreshObjects{From: config.Objects, Now: config.Now}
	if err := fresh.Check(); err != nil {
		return nil, err
	}
	config.Objects = fresh
	if config.NewID == nil {
		config.NewID = NewID
	}
	return &Issuer{config: config}, nil
}

// Issue serves one request: it gets the objects, decides as [Policy.Grant] does, in the
// order of kube-apiserver, and signs. Refusals are a [*StatusError]. In an error that is
// no refusal (an object could not be read, the signer failed) errors.Is finds
// [ErrRetry].
func (i *Issuer) Issue(ctx context.Context, r *TokenRequest) (*Issued, error) {
	if i == nil || i.config.Signer == nil {
		return nil, refusal.Config("Issuer", "that NewIssuer did not make", "one that it made")
	}
	if r == nil {
		return nil, badRequest("a request is required")
	}
	b, err := i.lookUp(ctx, r)
	if err != nil {
		return nil, err
	}
	id, err := i.config.NewID()
	if err != nil {
		return nil, internal(fmt.Sprintf("failed to generate token: %v", err), err)
	}
	grant, err := i.config.Policy.Grant(r, b, id, i.config.Now())
	if err != nil {
		return nil, err
	}
	payload, err := grant.Claims.Marshal()
	if err != nil {
		return nil, err
	}
	signature, err := i.config.Signer.Sign(ctx, payload)
	if err == nil && signature == nil {
		err = errNoSignature
	}
	if err != nil {
		return nil, internal(fmt.Sprintf("failed to generate token: %v", err), err)
	}
	return &Issued{Grant: *grant, Token: secret.New(signature.Token(payload))}, nil
}

// errNoSignature is about a signer that breaks its contract.
var errNoSignature = errors.New("the signer returned nothing")

// lookUp gets the objects of a request, each after the checks that kube-apiserver makes
// before it gets that object.
func (i *Issuer) lookUp(ctx context.Context, r *TokenRequest) (b Bound, err error) {
	if err := r.checkMetadata(); err != nil {
		return b, err
	}
	objects := i.config.Objects
	if b.ServiceAccount, err = found(objects.ServiceAccount(ctx, r.Namespace, r.Name)); err != nil {
		return b, err
	}
	if err := r.checkServiceAccount(b.ServiceAccount); err != nil {
		return b, err
	}
	if _, err := r.lifetime(); err != nil {
		return b, err
	}
	kind, err := r.kind()
	if err != nil {
		return b, err
	}
	switch kind {
	case "Pod":
		b.Pod, err = found(objects.Pod(ctx, r.Namespace, r.BoundObject.Name))
	case "Secret":
		b.Secret, err = found(objects.Secret(ctx, r.Namespace, r.BoundObject.Name))
	case "Node":
		b.Node, err = found(objects.Node(ctx, r.BoundObject.Name))
	}
	if b.Pod == nil || b.Pod.NodeName == "" || b.Pod.ServiceAccountName != r.Name {
		return b, err
	}
	b.Node, err = found(objects.Node(ctx, b.Pod.NodeName))
	return b, err
}

// found makes nil of an object that does not exist.
func found[T any](object *T, err error) (*T, error) {
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

// NewID returns a random UUID (RFC 9562, version 4), of 122 bits from crypto/rand.
func NewID() (string, error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
