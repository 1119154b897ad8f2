package attest

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Registrations returns the verifier's kinds as providers of package csr, for
// [csr.NewProviders], in their order: for a control plane that also has providers from outside
// this package. Each is a [csr.Provider] and a [csr.Challenger]. [csr.Providers] chooses among
// them by signer name and provider block; the Verifier itself is such a choice among its own
// kinds.
func (v *Verifier) Registrations() []csr.Registration {
	var all []csr.Registration
	for _, k := range v.kinds {
		all = append(all, csr.Registration{Name: k.Provider, Provider: &provider{verifier: v, kind: k}, SignerNames: slices.Clone(v.c.Policy.SignerNames),
			Versions: slices.Clone(k.Versions), MinimumVersion: cmp.Or(v.c.MinimumVersions[k.Provider], 1)})
	}
	return all
}

// register makes the choice among the kinds.
func (v *Verifier) register() (err error) {
	c := csr.ProvidersConfig{Providers: v.Registrations()}
	for _, r := range c.Providers {
		c.AuthorizedAttestors = append(c.AuthorizedAttestors, r.Name)
		if slices.Contains(r.SignerNames, csr.SignerKubeAPIServerClientKubelet) {
			c.BuiltInClient = append(c.BuiltInClient, r.Name)
		}
	}
	for name, version := range v.c.MinimumVersions {
		if !slices.Contains(c.AuthorizedAttestors, name) {
			return refusal.Config("MinimumVersions of "+refusal.Quote(name), strconv.Itoa(version), "providers of Kinds")
		}
	}
	v.providers, err = csr.NewProviders(c)
	for _, k := range v.kinds {
		k.Versions = slices.DeleteFunc(k.Versions, func(version int) bool { return version < v.c.MinimumVersions[k.Provider] })
	}
	return err
}

// provider is one kind of a verifier.
type provider struct {
	verifier *Verifier
	kind     *openKind
}

func (p *provider) VerifyClientAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, false)
}

func (p *provider) VerifyServingAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, request, true)
}

func (p *provider) verify(ctx context.Context, request *csr.Parsed, serving bool) (*csr.Attested, error) {
	if err := checkPurpose(request.Request(), serving); err != nil {
		return nil, err
	}
	r, err := p.verifier.verify(ctx, p.kind, request)
	if err != nil {
		return nil, err
	}
	return r.Attested(), nil
}

// checkProviderPurpose: a request was given to the provider's method for its purpose.
const checkProviderPurpose Check = "provider-purpose"

// checkPurpose checks that a request was given to the method for its purpose.
func checkPurpose(request *csr.Request, serving bool) error {
	if request == nil {
		return errNotMade
	}
	purpose, err := csr.PurposeOf(request.Spec.SignerName)
	if err != nil {
		return err
	}
	if (purpose == csr.PurposeServing) != serving {
		return &Error{Check: checkProviderPurpose, Got: "a request for a " + purpose.String() + " certificate", Want: "one of the method's purpose"}
	}
	return nil
}

// MachineName is the machine's name in the inventory of the verifier's policy.
func (p *provider) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}

// Challenge challenges a hello.
func (p *provider) Challenge(ctx context.Context, request *csr.Parsed) ([]byte, error) {
	return p.verifier.challenge(ctx, p.kind, request)
}
