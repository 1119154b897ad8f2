package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
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

// Issue serves one request: it gets the objects, decides in the order of kube-apiserver,
// and signs. The objects' deletion times do not count, as they do not for kube-apiserver,
// whose admission plugins are not part of this either. A pod's node that does not exist is
// named without a UID.
//
// What kube-apiserver 1.36 refuses is a [*StatusError] in its words: ReasonBadRequest,
// ReasonNotFound, ReasonConflict and ReasonInvalid. In an error that is no refusal (an
// object could not be read, the signer failed) errors.Is finds [ErrRetry].
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
	id, err := i.config.NewID()
	if err != nil {
		return nil, internal(fmt.Sprintf("failed to generate token: %v", err), err)
	}
	grant, err := i.config.Policy.grant(r, b, seconds, id, i.config.Now())
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

// lookUp gets the objects of a request and the seconds that it asks for, with the checks
// that kube-apiserver makes before it gets the next object.
func (i *Issuer) lookUp(ctx context.Context, r *TokenRequest) (b Bound, seconds int64, err error) {
	if err := r.checkMetadata(); err != nil {
		return b, 0, err
	}
	if b.ServiceAccount, err = found(i.config.Objects.ServiceAccount(ctx, r.Namespace, r.Name)); err != nil {
		return b, 0, err
	}
	if err := r.checkServiceAccount(b.ServiceAccount); err != nil {
		return b, 0, err
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
	ref, objects := r.BoundObject, i.config.Objects
	var object *claims.Object // the one that the token is bound to
	switch group, version := splitAPIVersion(ref.APIVersion); {
	case group == "" && ref.Kind == "Pod":
		if b.Pod, err = found(objects.Pod(ctx, r.Namespace, ref.Name)); b.Pod != nil {
			object = &b.Pod.Object
		}
	case group == "" && ref.Kind == "Secret":
		b.Secret, err = found(objects.Secret(ctx, r.Namespace, ref.Name))
		object = b.Secret
	case group == "" && ref.Kind == "Node":
		if b.Node, err = found(objects.Node(ctx, ref.Name)); b.Node != nil {
			object = &b.Node.Object
		}
	default:
		return badRequest("cannot bind token to object of type " + group + "/" + version + ", Kind=" + ref.Kind)
	}
	switch {
	case err != nil:
		return err
	case object == nil:
		return notFound(strings.ToLower(ref.Kind)+"s", ref.Name)
	case b.Pod != nil && b.Pod.ServiceAccountName != r.Name:
		return badRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", r.Name))
	case b.Pod != nil && b.Pod.NodeName != "":
		if b.Node, err = found(objects.Node(ctx, b.Pod.NodeName)); err != nil {
			return err
		}
		b.Node = cmp.Or(b.Node, &claims.Node{Object: claims.Object{Name: b.Pod.NodeName}})
	}
	if ref.UID != "" && ref.UID != object.UID {
		return conflict("", ref.Kind, ref.Name, fmt.Sprintf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
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
