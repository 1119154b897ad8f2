package attest

import (
	"context"
	"slices"

	"github.com/nodeattest/nodeattest/csr"
)

// version ends the provider block: it is the version of the kind's data format.
const version = "/v1"

// Registrations returns the verifier's kinds as providers of package csr, for
// [csr.NewProviders], in their order. Each is a [csr.Provider] and a [csr.Challenger]. Where a
// control plane also has providers from outside this package, such as GKE's dialect,
// [csr.Providers] chooses among all of them. Where it has none, call the Verifier itself.
func (v *Verifier) Registrations() []csr.Registration {
	var all []csr.Registration
	for _, k := range v.kinds {
		all = append(all, csr.Registration{Name: k.Provider, Provider: &provider{verifier: v, name: k.Provider}, SignerNames: slices.Clone(v.c.Policy.SignerNames),
			Versions: []int{1}, MinimumVersion: 1})
	}
	return all
}

// provider is one kind of a verifier.
type provider struct {
	verifier *Verifier
	name     string
}

func (p *provider) VerifyClientAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, false)
}

func (p *provider) VerifyServingAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, true)
}

func (p *provider) verify(ctx context.Context, request *csr.Parsed, serving bool) (*csr.Attested, error) {
	if err := csr.CheckPurpose(request.Request(), serving); err != nil {
		return nil, err
	}
	r, err := p.verifier.verify(ctx, request)
	if err != nil {
		return nil, err
	}
	if r.Provider != p.name {
		return nil, &Error{Check: CheckProvider, Got: "evidence of " + r.Provider, Want: p.name}
	}
	return r.Attested(), nil
}

// MachineName is the machine's name in the inventory of the verifier's policy.
func (p *provider) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}

// Challenge challenges a hello.
func (p *provider) Challenge(ctx context.Context, request *csr.Parsed) ([]byte, error) {
	return p.verifier.challenge(ctx, request)
}
