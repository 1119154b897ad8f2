package attesttest

import (
	"cmp"
	"context"
	"crypto"
	"net/netip"

	"github.com/nodeattest/nodeattest/csr"
)

// requestOptions describe a request. The zero value is machine-1's for a client certificate of node-1,
// with a bootstrap token.
type requestOptions struct {
	machine    string             // "" is MachineOne
	node       string             // "" is NodeName, the only node that claims a provider ID
	serving    bool               // a serving certificate, requested by the node itself
	key        crypto.Signer      // nil is the world's first
	object     func(*csr.Request) // changes the object before the evidence is made
	bundle     func(*csr.Bundle)  // changes provider and data afterwards
	claims     string             // the provider ID to claim; "" is the one of node-1, and none for others
	challenged bool               // answer the provider's own challenge, if it challenges
	evidenceOf *requestOptions    // whose applicant the evidence is of, made in this request's way; nil is this one
	// prove makes the evidence; nil is honest evidence.
	prove func(ctx context.Context, provider csr.Provider, a *Applicant) (*csr.Bundle, error)
}

// attackOf returns an attack that files one request.
func attackOf(class, name, what string, o requestOptions) Attack {
	return Attack{Name: name, Class: class, Description: what, make: o.make, serving: o.serving}
}

// applicant makes the request and the object, without evidence.
func (w *World) applicant(i requestOptions) *Applicant {
	a := &Applicant{Machine: cmp.Or(i.machine, MachineOne), Key: cmp.Or(i.key, w.key), bundle: i.bundle}
	node, purpose, signer, options := cmp.Or(i.node, NodeName), csr.PurposeClient, w.client, csr.CreateOptions{}
	by := csr.User{Username: csr.BootstrapUserPrefix + TokenID, Groups: []string{"system:bootstrappers", "system:authenticated"}}
	if options.ProviderID = i.claims; node == NodeName {
		options.ProviderID = cmp.Or(i.claims, ProviderID)
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

// filed returns the object with request and evidence, after the changes of the attack.
func (a *Applicant) filed(evidence *csr.Bundle) *csr.Request {
	whole := csr.Bundle{Request: a.Request, Provider: evidence.Provider, Data: evidence.Data}
	if a.bundle != nil {
		a.bundle(&whole)
	}
	r := a.Object
	r.Spec.Request = must(whole.Marshal())
	return &r
}

// errNotApplicable is the outcome of one of the package's own attacks that this evidence has no place for.
type errNotApplicable string

func (s errNotApplicable) Error() string { return "the attack does not apply: " + string(s) }

// make makes the request object, with honest evidence unless prove is set.
func (i requestOptions) make(ctx context.Context, a *attempt) (*csr.Request, error) {
	applicant := a.applicant(i)
	of := applicant
	if i.evidenceOf != nil {
		of = a.applicant(*i.evidenceOf)
	}
	bundle, err := i.evidence(ctx, a, of)
	if err != nil {
		return nil, err
	}
	return applicant.filed(bundle), nil
}

// evidence makes the evidence of an applicant.
func (i requestOptions) evidence(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
	d := a.options.Documents
	switch {
	case i.prove != nil:
		return i.prove(ctx, a.provider, applicant)
	case d == nil:
		return a.options.Prove(ctx, a.provider, applicant)
	case i.challenged:
		return d.join(ctx, a, applicant)
	}
	return a.forge(ctx, applicant).bundle(ctx), nil
}
