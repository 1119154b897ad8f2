package csr

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// Registration is one provider and what it is registered for.
type Registration struct {
	// Name is the provider's name as in its signer names, such as "tpm".
	Name string
	// Provider verifies the requests.
	Provider Provider
	// SignerNames are the signers that the provider's policy serves, including at least one
	// that selects this provider or [SignerKubeAPIServerClientKubelet]. Names of other
	// providers are ignored. A request to any other signer is not given to the provider.
	SignerNames []string
	// Versions are the versions of the data format that the provider reads, each 1 or more,
	// in any order: [1, 2] means tpm/v1 and tpm/v2. Only [NewInsecureProvider] has none: its
	// requests have no evidence.
	Versions []int
	// MinimumVersion is the oldest of these that is accepted, so that nobody can choose a
	// format that has turned out to be weak; 0 means 1.
	MinimumVersion int
}

// ProvidersConfig is the configuration of [Providers].
type ProvidersConfig struct {
	// Providers are all providers of one certificate authority, at least one. The insecure
	// provider must be the only one: anyone who trusts a CA trusts all its certificates
	// alike, so nodes that prove nothing need a CA of their own.
	Providers []Registration
	// AuthorizedAttestors are the names of the providers that may attest nodes of this
	// cluster: spec.security.authorizedAttestors in the proposal. A provider that is not
	// listed is never called; an empty list is an error, and so is a name that is none of
	// Providers.
	AuthorizedAttestors []string
	// BuiltInClient are the names of the providers that are open for requests to
	// [SignerKubeAPIServerClientKubelet], which selects none itself. Each is one of
	// Providers with that signer among its SignerNames, and never the insecure one. Empty
	// opens it for none. If there are several, the request's own provider block chooses
	// among them.
	BuiltInClient []string
}

// Providers selects the provider for a request by the signer name that it is filed under.
// The evidence in the request never overrides this: it must agree. Only if the signer's name
// selects no provider does the evidence choose, among those that [ProvidersConfig] opens for
// that signer. A Providers is read-only once made, so many goroutines may share it.
type Providers struct {
	byName   map[string]*Registration
	builtIn  []*Registration
	attestor map[string]bool
}

// NewProviders checks the configuration and keeps no reference to it. Errors match
// [refusal.CheckConfig].
func NewProviders(c ProvidersConfig) (*Providers, error) {
	if len(c.Providers) == 0 {
		return nil, refusal.Config("Providers", "", "at least one")
	}
	if len(c.AuthorizedAttestors) == 0 {
		return nil, refusal.Config("AuthorizedAttestors", "", "at least one")
	}
	p := &Providers{byName: map[string]*Registration{}, attestor: map[string]bool{}}
	for _, r := range c.Providers {
		if err := p.add(r); err != nil {
			return nil, err
		}
	}
	if p.byName[providerInsecure] != nil && len(p.byName) > 1 {
		return nil, refusal.Config("Providers", providerInsecure+" beside others", "that signer only, or only the others")
	}
	for _, name := range c.AuthorizedAttestors {
		if p.byName[name] == nil {
			return nil, refusal.Config("AuthorizedAttestors", refusal.Quote(name), "the Name of one of Providers")
		}
		p.attestor[name] = true
	}
	return p, p.open(c.BuiltInClient)
}

func (p *Providers) add(r Registration) error {
	r.Versions, r.SignerNames = slices.Clone(r.Versions), slices.Clone(r.SignerNames)
	slices.Sort(r.Versions)
	oldest, newest := 1, 1 // of none
	if n := len(r.Versions); n > 0 {
		oldest, newest = r.Versions[0], r.Versions[n-1]
	}
	_, insecure := r.Provider.(insecureProvider)
	got := "Providers " + refusal.Quote(r.Name)
	if err := (faults{
		{!validProvider(r.Name), refusal.CheckConfig, got, "the name of a provider"},
		{r.Provider == nil, refusal.CheckConfig, got + " without a Provider", ""},
		{p.byName[r.Name] != nil, refusal.CheckConfig, got + " twice", ""},
		{insecure != (r.Name == providerInsecure), refusal.CheckConfig, got + " with a provider that is not its own",
			"the insecure one under its own name, and no other"},
		{r.MinimumVersion < 0 || newest < r.MinimumVersion, refusal.CheckConfig,
			got + " with a MinimumVersion that none of its Versions reaches", ""},
		{oldest < 1 || newest > maxVersion, refusal.CheckConfig, got + " with a version that is not from 1 to 999999999", ""},
		{(len(r.Versions) == 0) != insecure, refusal.CheckConfig, got + fmt.Sprint(" with Versions ", r.Versions), "one at least; none for the insecure one"},
		{!slices.ContainsFunc(r.SignerNames, r.selectedBy) && !slices.Contains(r.SignerNames, SignerKubeAPIServerClientKubelet),
			refusal.CheckConfig, got + " with none of its own signers in SignerNames", ""},
	}).first(); err != nil {
		return err
	}
	r.Versions = slices.DeleteFunc(slices.Compact(r.Versions), func(v int) bool { return v < r.MinimumVersion })
	p.byName[r.Name] = &r
	return nil
}

const maxVersion = 999999999

// selectedBy reports whether a signer of certificates selects this provider by its name.
func (r *Registration) selectedBy(signerName string) bool {
	_, provider, _ := parseSignerName(signerName)
	return provider == r.Name
}

// open opens Kubernetes' own signer of client certificates for some of the providers.
func (p *Providers) open(names []string) error {
	const field = "BuiltInClient"
	for i, name := range names {
		r := p.byName[name]
		switch {
		case r == nil || name == providerInsecure || slices.Contains(names[:i], name):
			return refusal.Config(field, refusal.Quote(name), "names of secure providers, each once")
		case !slices.Contains(r.SignerNames, SignerKubeAPIServerClientKubelet):
			return refusal.Config(field, name, "a provider with "+SignerKubeAPIServerClientKubelet+" in its SignerNames")
		}
		p.builtIn = append(p.builtIn, r)
	}
	return nil
}

// SignerNames returns the signers of certificates for which there is a provider, sorted: for
// [CAConfig], and for a controller that watches requests by their signers. They are the
// names in the registrations' SignerNames that select a provider that is an authorised
// attestor. The list does not include the names under which nodes file hellos
// ([Providers.ChallengeSigners]), or [SignerKubeletServing], whose requests no provider
// verifies.
func (p *Providers) SignerNames() []string {
	var names []string
	for name, r := range p.byName {
		for _, signer := range r.SignerNames {
			open := signer == SignerKubeAPIServerClientKubelet && slices.Contains(p.builtIn, r)
			if p.attestor[name] && (open || r.selectedBy(signer)) {
				names = append(names, signer)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ChallengeSigners returns the signers under which nodes file hellos ([SignerChallenge]),
// sorted: those of the authorised attestors that are a [Challenger].
func (p *Providers) ChallengeSigners() []string {
	var names []string
	for name, r := range p.byName {
		signer := challengeSignerPrefix + name
		if _, challenges := r.Provider.(Challenger); challenges && p.attestor[name] && challengedProvider(signer) == name {
			names = append(names, signer)
		}
	}
	slices.Sort(names)
	return names
}

// challengedProvider returns the provider of a challenge signer, or "" for other signers.
func challengedProvider(signerName string) string {
	name, ok := strings.CutPrefix(signerName, challengeSignerPrefix)
	if !ok || !validProvider(name) || name == providerInsecure {
		return ""
	}
	return name
}

// supported returns the names of the accepted versions, newest first.
func (r *Registration) supported() []string {
	var names []string
	for _, v := range slices.Backward(r.Versions) {
		names = append(names, r.Name+"/v"+strconv.Itoa(v))
	}
	return names
}

// Verify has the evidence of a request verified by the provider that its signer name
// selects, for the purpose of the signer name, and then asks for the machine's name. The
// provider's result is checked against the request, and the request's signature is verified.
// A provider that names no machine breaks [CheckProviderResult].
//
// A request filed under a signer that selects none of these providers is somebody else's:
// the error matches "provider-unknown" and [ErrOtherSigner], and [Decide] ignores it.
//
// A request whose evidence has a version that the provider does not accept is refused with
// an error that holds an [*UnsupportedVersionError]. Kubelets' own requests to
// [SignerKubeletServing] carry no evidence, and no provider verifies them; see
// [InheritAttestation].
func (p *Providers) Verify(ctx context.Context, request *Request) (*Attested, error) {
	parsed := request.Parsed()
	r, err := p.choose(ctx, parsed)
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
	attested, err := verify(ctx, parsed)
	if err != nil {
		return nil, err
	}
	if err := attested.Check(parsed); err != nil {
		return nil, err
	}
	if err := attested.checked.CheckSignature(); err != nil {
		return nil, err
	}
	accepted := *attested
	accepted.provider = r.Name
	if accepted.machineName, err = r.Provider.MachineName(ctx, attested); err != nil {
		return nil, err
	}
	if accepted.machineName == "" {
		return nil, &Error{Check: CheckProviderResult, Got: "a machine without a name", Want: "its name in the inventory"}
	}
	return &accepted, nil
}

// Challenge has a hello challenged by the provider that the challenge signer selects. A
// provider that is not a [Challenger] gives an [*Error] of "hello-signer". So does a request
// for a certificate, whatever is in it, together with [ErrOtherSigner]: nobody denies it for
// this.
func (p *Providers) Challenge(ctx context.Context, request *Request) ([]byte, error) {
	parsed := request.Parsed()
	refuse := func(cause error) error {
		return &Error{Check: checkHelloSigner, Got: refusal.Quote(request.signerName()), Want: "the challenge signer of a provider that challenges", Err: cause}
	}
	if _, err := PurposeOf(request.signerName()); err == nil {
		return nil, refuse(refusal.Retry(ErrOtherSigner))
	}
	r, err := p.choose(ctx, parsed)
	if err != nil {
		return nil, err
	}
	challenger, ok := r.Provider.(Challenger)
	if !ok {
		return nil, refuse(nil)
	}
	return challenger.Challenge(ctx, parsed)
}

// signerName returns the signer's name; r may be nil.
func (r *Request) signerName() string {
	if r == nil {
		return ""
	}
	return r.Spec.SignerName
}

// Choose returns a copy of the registration whose provider a request is for: the one that its
// signer name selects or, where that selects none, its provider block. It checks that the
// provider is an authorised attestor, and that the evidence is of a version that it accepts.
// Verify and Challenge begin with it; it decides nothing more.
func (p *Providers) Choose(ctx context.Context, request *Parsed) (*Registration, error) {
	r, err := p.choose(ctx, request)
	if err != nil {
		return nil, err
	}
	chosen := *r
	chosen.Versions, chosen.SignerNames = slices.Clone(r.Versions), slices.Clone(r.SignerNames)
	return &chosen, nil
}

func (p *Providers) choose(ctx context.Context, request *Parsed) (*Registration, error) {
	if err := begun(ctx); err != nil {
		return nil, err
	}
	r, err := typednil.OrZero(p).selected(request)
	if err != nil {
		return nil, err
	}
	if !p.attestor[r.Name] {
		return nil, &Error{Check: checkAttestorNotAuthorized, Got: "provider " + r.Name, Want: "an authorised attestor"}
	}
	if len(r.Versions) == 0 {
		return r, nil
	}
	bundle, err := request.Bundle()
	if err != nil {
		return nil, err
	}
	name, version, _ := ProviderVersion(bundle.Provider) // the name is "" if there is none
	if name != r.Name {
		return nil, otherEvidence(bundle.Provider, r.Name)
	}
	if !slices.Contains(r.Versions, version) {
		supported := r.supported()
		return nil, &Error{Check: CheckProviderVersion, Got: refusal.Quote(bundle.Provider), Want: strings.Join(supported, " or "),
			Err: &UnsupportedVersionError{Supported: supported}}
	}
	return r, nil
}

// selected returns the registration that the signer's name selects or, under Kubernetes' own
// signer, the request's provider block.
func (p *Providers) selected(request *Parsed) (*Registration, error) {
	signerName := request.Request().signerName()
	if signerName == SignerKubeAPIServerClientKubelet && len(p.builtIn) > 0 {
		return p.chosen(request)
	}
	if r := p.byName[challengedProvider(signerName)]; r != nil {
		return r, nil
	}
	if r := p.byName[ProviderOf(signerName)]; r != nil && slices.Contains(r.SignerNames, signerName) {
		return r, nil
	}
	refused := &Error{Check: checkProviderUnknown, Got: refusal.Quote(signerName), Want: "a signer that selects a provider"}
	if signerName != "" { // which no API server accepts
		refused.Err = refusal.Retry(ErrOtherSigner)
	}
	return nil, refused
}

// chosen returns the provider, among those open under Kubernetes' own signer, that the
// evidence is for. If only one is open, there is nothing to choose.
func (p *Providers) chosen(request *Parsed) (*Registration, error) {
	if len(p.builtIn) == 1 {
		return p.builtIn[0], nil
	}
	bundle, err := request.Bundle()
	if err != nil {
		return nil, err
	}
	name, _, _ := ProviderVersion(bundle.Provider) // "" if there is none
	want := make([]string, 0, len(p.builtIn))
	for _, r := range p.builtIn {
		if r.Name == name {
			return r, nil
		}
		want = append(want, r.Name)
	}
	return nil, otherEvidence(bundle.Provider, strings.Join(want, " or "))
}

func otherEvidence(block, want string) error {
	got := "a request without evidence"
	if block != "" {
		got = refusal.Quote(block)
	}
	return &Error{Check: CheckAttestationProvider, Got: got, Want: "evidence for provider " + want}
}
