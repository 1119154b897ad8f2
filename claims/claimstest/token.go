package claimstest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
)

// webhookLifetime is the longest lifetime of a token for an admission webhook, and its default.
const webhookLifetime = 10 * time.Minute

// TokenOptions choose the object that a token is bound to, its audiences and lifetime. At most one of Pod, Node, Secret,
// ValidatingWebhook and MutatingWebhook may be set, to the name of an object of the cluster.
// Without any, the token is bound to nothing but its service account, as that of "kubectl create
// token" is, and claims.Validator refuses it by default.
type TokenOptions struct {
	// Pod is a pod of the service account, as for the kubelet's requests. The token names its node
	// too, if it has one.
	Pod string
	// Node is a node.
	Node string
	// Secret is a Secret in the service account's namespace.
	Secret string
	// ValidatingWebhook and MutatingWebhook are webhook configurations. The token is that of an API
	// server of 1.37 with the gate APIServerWebhookAuthenticationToken, for all API groups.
	ValidatingWebhook, MutatingWebhook string
	// Audiences are the services that the token is for; nil means [Audience].
	Audiences []string
	// Lifetime is at least 10 minutes, in whole seconds; 0 means an hour, or 10 minutes for a
	// webhook, which is then the longest.
	Lifetime time.Duration
	// Edit changes the claims before they are signed, to ones that no API server writes; nil
	// changes nothing.
	Edit func(*claims.Claims)
}

// Token issues a token for a service account by the rules of kube-apiserver, and returns it in compact form.
// A refusal is an [*apiserver.StatusError]: of an object that does not exist, a pod of another
// service account, a lifetime that is not allowed. ctx ends a call of a key that hangs.
func (c *Cluster) Token(ctx context.Context, namespace, account string, opts TokenOptions) (string, error) {
	signer, from := c.snapshot()
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: c.Issuer(), APIAudiences: []string{c.Issuer()}, Signer: signer, Objects: from, Now: c.now,
	})
	if err != nil {
		return "", err
	}
	request, err := opts.request(namespace, account)
	if err != nil {
		return "", err
	}
	issued, err := issuer.Issue(ctx, request)
	if err != nil {
		return "", err
	}
	hook, err := opts.webhook(ctx, from, issued.Claims)
	if err != nil {
		return "", err
	}
	if !hook && opts.Edit == nil {
		return issued.Token.Reveal(), nil
	}
	if opts.Edit != nil {
		opts.Edit(issued.Claims)
	}
	payload, err := issued.Claims.Marshal()
	if err != nil {
		return "", err
	}
	signature, err := signer.Sign(ctx, payload)
	if err != nil {
		return "", err
	}
	return signature.Token(payload), nil
}

// snapshot returns the signer, and the objects without faults.
func (c *Cluster) snapshot() (jws.Signer, *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signer, c.current.clone()
}

// request returns the TokenRequest.
func (o *TokenOptions) request(namespace, account string) (*apiserver.TokenRequest, error) {
	r := &apiserver.TokenRequest{Namespace: namespace, Name: account, Audiences: o.Audiences}
	if len(r.Audiences) == 0 {
		r.Audiences = []string{Audience}
	}
	objects := 0
	for _, bound := range [...]struct{ kind, name string }{
		{"Pod", o.Pod}, {"Node", o.Node}, {"Secret", o.Secret}, {"", o.ValidatingWebhook}, {"", o.MutatingWebhook},
	} {
		if bound.name == "" {
			continue
		}
		objects++
		if bound.kind != "" {
			r.BoundObject = &apiserver.BoundObjectReference{Kind: bound.kind, APIVersion: "v1", Name: bound.name}
		}
	}
	if objects > 1 {
		return nil, fmt.Errorf("claimstest: got a token that is bound to %d objects, want at most one", objects)
	}
	lifetime := time.Hour
	if cmp.Or(o.ValidatingWebhook, o.MutatingWebhook) != "" {
		lifetime = webhookLifetime
	}
	seconds := int64(cmp.Or(o.Lifetime, lifetime) / time.Second)
	r.ExpirationSeconds = &seconds
	return r, nil
}

// webhook binds the claims to a webhook configuration, and reports whether it did.
func (o *TokenOptions) webhook(ctx context.Context, from claims.Objects, c *claims.Claims) (bool, error) {
	resource, name, to := "validatingwebhookconfigurations", o.ValidatingWebhook, &c.Kubernetes.ValidatingWebhookConfiguration
	if o.MutatingWebhook != "" {
		resource, name, to = "mutatingwebhookconfigurations", o.MutatingWebhook, &c.Kubernetes.MutatingWebhookConfiguration
	}
	if name == "" {
		return false, nil
	}
	object, err := from.Get(ctx, resource, "", name)
	if err != nil {
		return false, fmt.Errorf("claimstest: %w", err)
	}
	*to = &claims.Ref{Name: object.Name, UID: object.UID}
	c.Kubernetes.Attestations = &claims.Attestations{AdmissionReviewAPIGroups: []string{"*"}}
	return true, nil
}
