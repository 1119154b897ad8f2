package attesttest

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"net/netip"

	"github.com/nodeattest/nodeattest/csr"
)

// wish is what an applicant asks for. The zero value is machine-1 asking for a client
// certificate of node-1, with a bootstrap token.
type wish struct {
	machine    string             // "" is MachineOne
	node       string             // "" is NodeName; no other node claims a provider ID
	serving    bool               // the node itself asks for a serving certificate
	key        crypto.Signer      // nil is the world's first
	object     func(*csr.Request) // changes the object before there is evidence
	bundle     func(*csr.Bundle)  // changes provider and data afterwards
	challenged bool               // honest evidence results from the provider's own challenge, if it has one
	// prove makes the evidence; nil is honest evidence.
	prove func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error)
}

// asked is an attack that consists of a wish.
func asked(class, name, what string, i wish) Attack {
	return Attack{Name: name, Class: class, Description: what, make: i.make}
}

// applicant makes the request and the object of a wish.
func (w *World) applicant(i wish) *Applicant {
	a := &Applicant{Machine: cmp.Or(i.machine, MachineOne), Key: i.key, bundle: i.bundle}
	node, purpose, signer, options := cmp.Or(i.node, NodeName), csr.PurposeClient, w.client, csr.CreateOptions{}
	by := csr.User{Username: csr.BootstrapUserPrefix + TokenID, Groups: []string{"system:bootstrappers", "system:authenticated"}}
	if a.Key == nil {
		a.Key = w.key
	}
	if node == NodeName {
		options.ProviderID = ProviderID
	}
	if i.serving {
		purpose, signer = csr.PurposeServing, w.serving
		options.DNSNames, options.IPAddresses = []string{"node-1.example.com"}, []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		by = csr.User{Username: csr.NodeUserPrefix + node, Groups: []string{"system:nodes", "system:authenticated"}}
	}
	a.Request = must(csr.Create(purpose, a.Key, node, options))
	a.Object = *csr.Filed(&csr.Spec{SignerName: signer, Usages: purpose.Usages(false)}, by, w.answeredAt())
	a.Object.APIVersion, a.Object.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	a.Object.Metadata.Name, a.Object.Metadata.UID = "csr-1", "6f2b0f6a-0000-4000-8000-000000000001"
	if i.object != nil {
		i.object(&a.Object)
	}
	return a
}

// filed is the applicant's request with this evidence, unless the attack is on the evidence.
func (a *Applicant) filed(evidence *csr.Bundle) *csr.Request {
	whole := csr.Bundle{Request: a.Request, Provider: evidence.Provider, Data: evidence.Data}
	if a.bundle != nil {
		a.bundle(&whole)
	}
	r := a.Object
	r.Spec.Request = must(whole.Marshal())
	return &r
}

// errForgery says that an attack could not be made.
var errForgery = errors.New("attesttest: an attack could not be made")

// errShut is the outcome of an attack that failed before there was a request.
type errShut string

func (s errShut) Error() string    { return "the attack came to nothing: " + string(s) }
func (errShut) DenyReason() string { return "AttackFailed" }

// make makes the request object of a wish, with honest evidence for what is asked.
func (i wish) make(ctx context.Context, a *attempt) (*csr.Request, error) {
	applicant, prove := a.applicant(i), i.prove
	if prove == nil {
		prove = func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
			return a.prove(ctx, applicant, i.challenged)
		}
	}
	bundle, err := prove(ctx, a, applicant)
	if err != nil {
		return nil, err
	}
	return applicant.filed(bundle), nil
}

// prove makes honest evidence.
func (a *attempt) prove(ctx context.Context, applicant *Applicant, challenged bool) (*csr.Bundle, error) {
	d := a.options.Documents
	switch {
	case d == nil:
		return a.options.Prove(ctx, a.provider, applicant)
	case challenged:
		return d.join(ctx, a, applicant)
	}
	return a.forge(ctx, applicant).bundle(ctx), nil
}

// challenge has the provider challenge a hello.
func (a *attempt) challenge(ctx context.Context, hello *csr.Request) ([]byte, error) {
	challenger, ok := a.provider.(interface {
		Challenge(ctx context.Context, hello *csr.Request) ([]byte, error)
	})
	if !ok {
		return nil, errShut("the provider has no method Challenge")
	}
	hello.Spec.SignerName = a.challenges
	return challenger.Challenge(ctx, hello)
}
