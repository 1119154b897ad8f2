package attest

import (
	"context"
	"errors"
	"slices"

	"github.com/nodeattest/nodeattest/csr"
)

// ProviderName is the name of this package's provider in signer names and in
// [Provider].
const ProviderName = "tpm"

// ProviderVersion is the version of the data format that this package reads and
// writes: the number in [Provider].
const ProviderVersion = 1

// CheckProviderPurpose: a request for one purpose was given to the method of a
// provider for another.
const CheckProviderPurpose Check = "provider-purpose"

// errNotMade: there is no request, or no verifier.
var errNotMade = errors.New("attest: no request, or a verifier that NewVerifier did not make")

// TPMProvider is the provider "tpm" ([csr.Provider] and [csr.Challenger]) over a
// [Verifier], on the roads that it is configured for.
//
//	providers, err := csr.NewProviders(csr.ProvidersConfig{
//		Providers:           []csr.Registration{provider.Registration()},
//		AuthorizedAttestors: []string{attest.ProviderName},
//	})
type TPMProvider struct {
	verifier *Verifier
}

// NewProvider makes the provider. The signers that it serves are those of the
// verifier's policy.
func NewProvider(verifier *Verifier) (*TPMProvider, error) {
	if verifier == nil {
		return nil, errors.New("attest: provider: no verifier")
	}
	return &TPMProvider{verifier}, nil
}

// Registration is what [csr.NewProviders] wants to know of the provider.
func (p *TPMProvider) Registration() csr.Registration {
	r := csr.Registration{Name: ProviderName, Provider: p, Versions: []int{ProviderVersion}, MinimumVersion: ProviderVersion}
	if p.verifier != nil && p.verifier.policy != nil {
		r.SignerNames = slices.Clone(p.verifier.policy.SignerNames)
	}
	return r
}

// VerifyClientAttestationData verifies the answer in a request for a client or
// recovery certificate: [Verifier.Verify].
func (p *TPMProvider) VerifyClientAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, false)
}

// VerifyServingAttestationData verifies the answer in a request for a serving
// certificate: [Verifier.Verify].
func (p *TPMProvider) VerifyServingAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, true)
}

func (p *TPMProvider) verify(ctx context.Context, request *csr.Parsed, serving bool) (*csr.Attested, error) {
	if err := checkPurpose(request.Request(), serving); err != nil {
		return nil, err
	}
	r, err := p.verifier.verify(ctx, request)
	if err != nil {
		return nil, err
	}
	return &csr.Attested{Checked: r.Checked(), Verified: r.Verified(), Details: r}, nil
}

// checkPurpose holds the purpose of the signer name against the method that was
// called.
func checkPurpose(request *csr.Request, serving bool) error {
	if request == nil {
		return errors.New("attest: no request")
	}
	purpose, err := csr.PurposeOf(request.Spec.SignerName)
	if err != nil {
		return err
	}
	if (purpose == csr.PurposeServing) != serving {
		want := csr.PurposeClient
		if serving {
			want = csr.PurposeServing
		}
		return &Error{Check: CheckProviderPurpose, Got: "a request for a " + purpose.String() + " certificate", Want: want.String()}
	}
	return nil
}

// MachineName is the machine's name in the inventory of the verifier's policy.
func (p *TPMProvider) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}

// Challenge challenges a hello: [Verifier.Challenge].
func (p *TPMProvider) Challenge(ctx context.Context, request *csr.Parsed) ([]byte, error) {
	return p.verifier.challenge(ctx, request)
}
