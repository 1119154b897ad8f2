package attesttest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// wish is what an applicant asks for. The zero value is node-1, which asks for a
// client certificate with a bootstrap token.
type wish struct {
	machine string // "" is MachineOne
	node    string // "" is NodeName
	serving bool
	signer  string                                                                           // "" is the world's, for the purpose
	key     crypto.Signer                                                                    // nil is the world's
	request func(*x509.CertificateRequest)                                                   // changes the PKCS#10 request
	der     func([]byte) []byte                                                              // changes its encoding
	object  func(*csr.Request)                                                               // changes the object
	wrap    func(*csr.Bundle)                                                                // changes the bundle
	pem     func([]byte) []byte                                                              // changes the PEM
	prove   func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) // nil is honest evidence
}

// applicant makes the request and the object of a wish.
func (w *World) applicant(i wish) (*Applicant, error) {
	a := &Applicant{Machine: i.machine, Key: i.key}
	if a.Machine == "" {
		a.Machine = MachineOne
	}
	if a.Key == nil {
		a.Key = w.key
	}
	node := i.node
	if node == "" {
		node = NodeName
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: csr.NodeUserPrefix + node, Organization: []string{csr.NodesGroup}}}
	if node == NodeName {
		id, err := oid.ProviderIDExtension(ProviderID)
		if err != nil {
			return nil, err
		}
		template.ExtraExtensions = []pkix.Extension{id}
	}
	purpose, signers := csr.PurposeClient, w.Config.Policy.SignerNames
	a.Object = csr.Request{
		Metadata: csr.Metadata{Name: "csr-" + node, UID: "6f2b0f6a-0000-4000-8000-000000000001", CreationTimestamp: w.Now().Add(-time.Minute)},
		Spec: csr.Spec{SignerName: signers[0], Username: csr.BootstrapUserPrefix + TokenID,
			Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}},
	}
	if i.serving {
		purpose, a.Object.Spec.SignerName = csr.PurposeServing, signers[1]
		a.Object.Spec.Username, a.Object.Spec.Groups = csr.NodeUserPrefix+node, []string{csr.NodesGroup, csr.AuthenticatedGroup}
		template.DNSNames, template.IPAddresses = []string{"node-1.example.com"}, []net.IP{net.IPv4(192, 0, 2, 1).To4()}
	}
	a.Object.Spec.Usages = csr.Usages(purpose, false)
	if i.signer != "" {
		a.Object.Spec.SignerName = i.signer
	}
	if i.object != nil {
		i.object(&a.Object)
	}
	if i.request != nil {
		i.request(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, a.Key)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if i.der != nil {
		der = i.der(der)
	}
	a.Request = der
	return a, nil
}

// make makes the request object of a wish, with honest evidence for what is asked.
func (i wish) make(ctx context.Context, a *attempt) (*csr.Request, error) {
	applicant, err := a.applicant(i)
	if err != nil {
		return nil, err
	}
	prove := i.prove
	if prove == nil {
		prove = func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
			return a.prove(ctx, applicant)
		}
	}
	bundle, err := prove(ctx, a, applicant)
	if err != nil {
		return nil, err
	}
	return file(applicant, bundle, i.wrap, i.pem)
}

// prove makes honest evidence. For TPM evidence the challenge is one of the world's
// own making, so that a provider which refuses to challenge does not hide whether it
// would have let the answer in.
func (a *attempt) prove(ctx context.Context, applicant *Applicant) (*csr.Bundle, error) {
	if a.options.Prove != nil {
		return a.options.Prove(ctx, a.provider, applicant)
	}
	f, err := a.forge(applicant, nil)
	if err != nil {
		return nil, err
	}
	return f.bundle()
}

// asked is an attack that is a wish.
func asked(class, name, what string, i wish) Attack {
	return Attack{Name: name, Class: class, Description: what, make: i.make}
}
