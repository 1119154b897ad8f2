package csr

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// ErrProviders says that [NewProviders] was given providers that do not go
// together, or too little.
const ErrProviders Error = "the providers are not usable"

// Registration is one provider and what it is there for.
type Registration struct {
	// Name is the provider's name as in its signer names, such as "tpm".
	Name string
	// Provider verifies.
	Provider Provider
	// Versions are the versions of the data format that the provider reads, each 1
	// or more, in any order: [1, 2] stands for tpm/v1 and tpm/v2. Empty leaves the
	// format to the provider, which is for [NewInsecureProvider], whose requests have no
	// evidence, and for foreign dialects, whose requests do not say what they are.
	Versions []int
	// MinimumVersion is the oldest of these that is accepted, so that nobody can
	// choose a format that has been found weak; 0 means 1.
	MinimumVersion int
	// BuiltInClient selects this provider for [SignerKubeAPIServerClientKubelet]
	// too, which names none itself. At most one registration has it.
	BuiltInClient bool
}

// ProvidersConfig is what [Providers] are made of.
type ProvidersConfig struct {
	// Providers are all providers of one certificate authority, at least one. The
	// insecure provider stands alone: whoever trusts a CA trusts all its certificates
	// alike, so nodes that prove nothing need a CA of their own.
	Providers []Registration
	// AuthorizedAttestors are the names of the providers that may attest nodes of
	// this cluster, spec.security.authorizedAttestors of the proposal. A provider
	// that is not listed is never asked; an empty list is an error.
	AuthorizedAttestors []string
}

// Providers selects the provider for a request by the signer name that it is filed
// under. The evidence behind the request never decides: it must agree. It is only
// read once it is made, so many goroutines may share it.
type Providers struct {
	byName   map[string]*Registration
	builtIn  *Registration
	attestor map[string]bool
}

// NewProviders checks the configuration. Errors match [ErrProviders].
func NewProviders(config *ProvidersConfig) (*Providers, error) {
	if config == nil || len(config.Providers) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrProviders)
	}
	if len(config.AuthorizedAttestors) == 0 {
		return nil, fmt.Errorf("%w: AuthorizedAttestors is empty", ErrProviders)
	}
	p := &Providers{byName: map[string]*Registration{}, attestor: map[string]bool{}}
	for i := range config.Providers {
		if err := p.add(config.Providers[i]); err != nil {
			return nil, err
		}
	}
	if p.byName[ProviderInsecure] != nil && len(p.byName) > 1 {
		return nil, fmt.Errorf("%w: %s stands beside others", ErrProviders, ProviderInsecure)
	}
	for _, name := range config.AuthorizedAttestors {
		if !validProvider(name) {
			return nil, fmt.Errorf("%w: AuthorizedAttestors has %s", ErrProviders, refusal.Quote(name))
		}
		p.attestor[name] = true
	}
	return p, nil
}

func (p *Providers) add(r Registration) error {
	r.Versions = slices.Clone(r.Versions)
	slices.Sort(r.Versions)
	fault := ""
	switch {
	case !validProvider(r.Name):
		fault = "is no name of a provider"
	case r.Provider == nil:
		fault = "has no Provider"
	case p.byName[r.Name] != nil:
		fault = "is there twice"
	case isInsecure(r.Provider) != (r.Name == ProviderInsecure):
		fault = "has a provider that is not its own: the insecure one has its own name, and no other has it"
	case r.BuiltInClient && (p.builtIn != nil || r.Name == ProviderInsecure):
		fault = "has BuiltInClient, which one secure provider may have"
	case r.MinimumVersion < 0 || len(r.Versions) > 0 && r.Versions[len(r.Versions)-1] < r.MinimumVersion:
		fault = "has a MinimumVersion that none of its Versions reaches"
	case len(r.Versions) > 0 && (r.Versions[0] < 1 || r.Versions[len(r.Versions)-1] > maxVersion):
		fault = "has a version that is not from 1 to 999999999"
	case len(r.Versions) == 0 && r.MinimumVersion > 0:
		fault = "has a MinimumVersion and no Versions"
	}
	if fault != "" {
		return fmt.Errorf("%w: %s %s", ErrProviders, refusal.Quote(r.Name), fault)
	}
	p.byName[r.Name] = &r
	if r.BuiltInClient {
		p.builtIn = &r
	}
	return nil
}

const maxVersion = 999999999

// SignerNames are the signers of certificates that select one of these providers, in
// order: for [CAOptions], and for a controller that watches requests by their signers. A
// provider's own policy may serve fewer of them. Providers that are no authorised
// attestors are left out. Not in the list are the names under which nodes file hellos,
// [SignerChallenge] of each provider, and [SignerKubeletServing], whose requests no
// provider verifies.
func (p *Providers) SignerNames() []string {
	var names []string
	for name := range p.byName {
		for _, prefix := range [...]string{clientSignerPrefix, servingSignerPrefix, recoverySignerPrefix} {
			if purpose, _, _ := parseSignerName(prefix + name); purpose != 0 && p.attestor[name] {
				names = append(names, prefix+name)
			}
		}
	}
	if p.builtIn != nil && p.attestor[p.builtIn.Name] {
		names = append(names, SignerKubeAPIServerClientKubelet)
	}
	slices.Sort(names)
	return names
}

// challengedProvider is the provider of a challenge signer, "" for other signers.
func challengedProvider(signerName string) string {
	name, ok := strings.CutPrefix(signerName, challengeSignerPrefix)
	if !ok || !validProvider(name) || name == ProviderInsecure {
		return ""
	}
	return name
}

// accepts says whether evidence of this version is read.
func (r *Registration) accepts(version int) bool {
	return version >= r.MinimumVersion && slices.Contains(r.Versions, version)
}

// supported are the names of the accepted versions, the newest first.
func (r *Registration) supported() []string {
	var names []string
	for _, v := range slices.Backward(r.Versions) {
		if name := r.Name + "/v" + strconv.Itoa(v); v >= r.MinimumVersion && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Accepted is a request whose evidence a provider has verified.
type Accepted struct {
	// Attested is the provider's result, for [CA.Issue].
	Attested
	// Provider is the provider's name.
	Provider string
	// MachineName is the machine's name in the operator's inventory.
	MachineName string
}

// Verify has the evidence of a request verified by the provider that its signer name
// selects, for the purpose that the signer name has, and then asks for the machine's
// name. The provider's result is held against the request, its signature included. A
// provider that names no machine breaks [RuleProviderResult].
//
// A request that is filed under a signer which selects none of these providers is
// somebody else's: the error matches [RuleProviderUnknown] and [ErrOtherSigner], and
// [Decide] ignores it.
//
// A request whose evidence has another version than the provider accepts is refused
// with an error that holds an [*UnsupportedVersionError]. Kubelets' own requests to
// [SignerKubeletServing] carry no evidence and no provider verifies them; see
// [InheritAttestation].
func (p *Providers) Verify(ctx context.Context, request *Request) (*Accepted, error) {
	r, err := p.find(ctx, request, request.signerName())
	if err != nil {
		return nil, err
	}
	purpose, err := PurposeOf(request.Spec.SignerName)
	if err != nil {
		return nil, err
	}
	verify := r.Provider.VerifyClientAttestationData
	if purpose == PurposeServing {
		verify = r.Provider.VerifyServingAttestationData
	}
	attested, err := verify(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := attested.Check(request); err != nil {
		return nil, err
	}
	if err := attested.Checked.CheckSignature(); err != nil {
		return nil, err
	}
	name, err := r.Provider.MachineName(ctx, attested)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, &Violation{Check: RuleProviderResult, Got: "a machine without a name", Want: "its name in the inventory"}
	}
	return &Accepted{Attested: *attested, Provider: r.Name, MachineName: name}, nil
}

// Challenge has a hello challenged by the provider that the challenge signer selects.
// A provider that is no [Challenger] gives a [*Violation] of [RuleNoChallenge].
func (p *Providers) Challenge(ctx context.Context, request *Request) ([]byte, error) {
	r, err := p.find(ctx, request, request.signerName())
	if err != nil {
		return nil, err
	}
	name := challengedProvider(request.Spec.SignerName)
	challenger, ok := r.Provider.(Challenger)
	if name == "" || !ok {
		return nil, &Violation{Check: RuleNoChallenge, Got: refusal.Quote(request.Spec.SignerName), Want: "the challenge signer of a provider that challenges"}
	}
	return challenger.Challenge(ctx, request)
}

// signerName is the signer's name, of a request that may be nil.
func (r *Request) signerName() string {
	if r == nil {
		return ""
	}
	return r.Spec.SignerName
}

// find selects by signer name, and looks at the version of the evidence.
func (p *Providers) find(ctx context.Context, request *Request, signerName string) (*Registration, error) {
	if ctx == nil {
		return nil, Retry(errNoContext)
	}
	if err := ctx.Err(); err != nil {
		return nil, Retry(err)
	}
	name := challengedProvider(signerName)
	if name == "" {
		name = ProviderOf(signerName)
	}
	r := p.byName[name]
	if signerName == SignerKubeAPIServerClientKubelet {
		r = p.builtIn
	}
	if r == nil {
		v := &Violation{Check: RuleProviderUnknown, Got: refusal.Quote(signerName), Want: "a signer that selects a provider"}
		if signerName != "" { // which no API server takes
			v.Err = Retry(ErrOtherSigner)
		}
		return nil, v
	}
	if !p.attestor[r.Name] {
		return nil, &Violation{Check: RuleAttestorNotAuthorized, Got: "provider " + r.Name, Want: "an authorised attestor"}
	}
	if len(r.Versions) == 0 {
		return r, nil
	}
	return r, r.checkVersion(request)
}

// checkVersion looks at the block with the provider's name and version.
func (r *Registration) checkVersion(request *Request) error {
	bundle, err := Parse(request.Spec.Request)
	if err != nil {
		return err
	}
	name, version, _ := ProviderVersion(bundle.Provider) // the name is "" where it has none
	if name != r.Name {
		got := "a request without evidence"
		if bundle.Provider != "" {
			got = refusal.Quote(bundle.Provider)
		}
		return &Violation{Check: RuleAttestationProvider, Got: got, Want: "evidence for provider " + r.Name}
	}
	if !r.accepts(version) {
		return unsupportedVersion(bundle.Provider, r.supported())
	}
	return nil
}
