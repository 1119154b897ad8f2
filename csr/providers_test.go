package csr_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// fakeProvider verifies by the policy of a fixture alone, and notes what it was asked.
type fakeProvider struct {
	policy *csr.Policy
	change func(*csr.Attested) *csr.Attested
	err    error
	asked  []string
	seen   func(*csr.Parsed) // what it is given, if set
}

func (p *fakeProvider) verify(ctx context.Context, r *csr.Parsed, what string) (*csr.Attested, error) {
	p.asked = append(p.asked, what)
	if p.seen != nil {
		p.seen(r)
	}
	if p.err != nil {
		return nil, p.err
	}
	checked, err := p.policy.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	a := goodVerified(checked)
	if p.change != nil {
		a = p.change(a)
	}
	return a, nil
}

func (p *fakeProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r, "client")
}

func (p *fakeProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r, "serving")
}

func (p *fakeProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	p.asked = append(p.asked, "name")
	return a.InventoryName()
}

// challengingProvider is a fakeProvider that is a Challenger.
type challengingProvider struct{ fakeProvider }

func (p *challengingProvider) Challenge(context.Context, *csr.Parsed) ([]byte, error) {
	return []byte("challenge"), nil
}

// signersOf are all signers that a provider can have, and Kubernetes' own.
func signersOf(provider string) []string {
	var names []string
	for _, prefix := range []string{"kube-apiserver-client-kubelet-", "kubelet-serving-", "kubelet-attestation-recovery-"} {
		if name := "cluster.x-k8s.io/" + prefix + provider; csr.ProviderOf(name) != "" {
			names = append(names, name)
		}
	}
	return append(names, csr.SignerKubeAPIServerClientKubelet)
}

// withDefaults gives all its signers and version 1 to each registration where these are nil.
func withDefaults(registrations ...csr.Registration) []csr.Registration {
	for i := range registrations {
		r := &registrations[i]
		if r.SignerNames == nil {
			r.SignerNames = signersOf(r.Name)
		}
		if r.Versions == nil && r.Name != csr.ProviderInsecure {
			r.Versions = []int{1}
		}
	}
	return registrations
}

func newProviders(t testing.TB, registrations ...csr.Registration) *csr.Providers {
	t.Helper()
	config := csr.ProvidersConfig{Providers: withDefaults(registrations...)}
	for _, r := range registrations {
		if r.Name == "tpm" || r.Name == "insecure" {
			config.AuthorizedAttestors = append(config.AuthorizedAttestors, r.Name)
		}
	}
	p, err := csr.NewProviders(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProvidersSelect(t *testing.T) {
	for _, c := range []struct {
		signer string
		class  csr.RequesterClass
		want   []string
	}{
		{csr.SignerClientTPM, csr.RequesterBootstrap, []string{"client", "name"}},
		{csr.SignerServingTPM, csr.RequesterNode, []string{"serving", "name"}},
		{csr.SignerRecoveryTPM, csr.RequesterNode, []string{"client", "name"}},
	} {
		t.Run(c.signer, func(t *testing.T) {
			f := goodFixture(c.signer, c.class)
			f.encode(t)
			fake := &fakeProvider{policy: f.policy}
			accepted, err := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}}).Verify(context.Background(), f.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, fake.asked); diff != "" {
				t.Error(diff)
			}
			if accepted.Provider() != "tpm" || accepted.MachineName() != "machine-1" || accepted.Checked().NodeName() != goodNode {
				t.Errorf("got %+v", accepted)
			}
		})
	}
}

// TestProvidersRefuse changes one thing of a request that is accepted, and counts on
// the provider not being asked.
func TestProvidersRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*requestFixture)
		target string
		want   csr.Check
	}{
		"signer of another provider": {func(f *requestFixture) {
			f.request.Spec.SignerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws"
		}, "", csr.CheckProviderUnknown},
		"the proposal's spelling": {func(f *requestFixture) {
			f.request.Spec.SignerName = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm"
		}, "", csr.CheckProviderUnknown},
		"insecure signer":               {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerClientInsecure }, "", csr.CheckProviderUnknown},
		"built-in client signer":        {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet }, "", csr.CheckProviderUnknown},
		"built-in serving signer":       {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerKubeletServing }, "", csr.CheckProviderUnknown},
		"hello":                         {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerChallengeTPM }, "", csr.CheckSignerName},
		"evidence of another provider":  {func(f *requestFixture) { f.provider = "aws/v1" }, "", csr.CheckAttestationProvider},
		"evidence of the insecure one":  {func(f *requestFixture) { f.provider = "insecure/v1" }, "", csr.CheckAttestationProvider},
		"no evidence":                   {func(f *requestFixture) { f.provider, f.data = "", nil }, "", csr.CheckAttestationProvider},
		"version below the minimum":     {func(f *requestFixture) { f.provider = "tpm/v1" }, "", csr.CheckProviderVersion},
		"version that nobody reads yet": {func(f *requestFixture) { f.provider = "tpm/v4" }, "", csr.CheckProviderVersion},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.provider = "tpm/v2"
			fake := &fakeProvider{policy: f.policy}
			providers := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{3, 1, 2}, MinimumVersion: 2})
			f.encode(t)
			if _, err := providers.Verify(context.Background(), f.request); err != nil {
				t.Fatalf("the good request: %v", err)
			}
			fake.asked = nil
			c.change(f)
			f.encode(t)
			_, err := providers.Verify(context.Background(), f.request)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if len(fake.asked) > 0 {
				t.Errorf("the provider was asked: %v", fake.asked)
			}
			verdict := csr.VerdictDeny
			if c.want == csr.CheckProviderUnknown {
				verdict = csr.VerdictIgnore // somebody else's
			}
			if d := csr.Decide(err); d.Verdict != verdict || errors.Is(err, csr.ErrOtherSigner) != (verdict == csr.VerdictIgnore) {
				t.Errorf("decision %+v, want %v", d, verdict)
			}
		})
	}
}

// TestProvidersNeverTrustAnnotations sets every annotation that means something: the
// outcome is the same.
func TestProvidersNeverTrustAnnotations(t *testing.T) {
	for _, provider := range []string{"tpm/v1", "tpm/v2"} {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.provider = provider
		f.request.Metadata.Annotations = map[string]string{csr.AnnotationVersions: "tpm/v1", csr.AnnotationEndorsementKey: "-----BEGIN PUBLIC KEY-----"}
		f.encode(t)
		_, err := newProviders(t, csr.Registration{Name: "tpm", Provider: &fakeProvider{policy: f.policy}, Versions: []int{1, 2}, MinimumVersion: 2}).Verify(context.Background(), f.request)
		if (err == nil) != (provider == "tpm/v2") {
			t.Errorf("%s: %v", provider, err)
		}
	}
}

// TestProvidersResult has a provider answer for something else than it was asked.
func TestProvidersResult(t *testing.T) {
	other := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	other.builder.key = p384Key()
	otherAttested := goodVerified(other.mustCheck(t))
	for name, change := range map[string]func(*csr.Attested) *csr.Attested{
		"nothing":           func(*csr.Attested) *csr.Attested { return nil },
		"checked by nobody": func(*csr.Attested) *csr.Attested { return new(csr.Checked).Vouch("x", csr.Grant{}, nil) },
		"another request":   func(*csr.Attested) *csr.Attested { return otherAttested },
		"no machine":        func(a *csr.Attested) *csr.Attested { return a.Checked().Vouch("", a.Grant(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.encode(t)
			fake := &fakeProvider{policy: f.policy, change: change}
			_, err := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}}).Verify(context.Background(), f.request)
			if !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("got %v", err)
			}
			if len(fake.asked) != 1 {
				t.Errorf("a machine's name without a verified result: %v", fake.asked)
			}
		})
	}
}

// TestProvidersSignature: a provider that forgets the request's own signature is
// caught.
func TestProvidersSignature(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.builder.badSignature = true
	f.encode(t)
	fake := &fakeProvider{policy: &csr.Policy{}, err: nil}
	unsigned, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), csr.SignerClientTPM)
	if err != nil {
		t.Fatal(err)
	}
	fake.policy = goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy
	provider := lax{fake, unsigned}
	_, err = newProviders(t, csr.Registration{Name: "tpm", Provider: provider, Versions: []int{1}}).Verify(context.Background(), f.request)
	if !errors.Is(err, csr.CheckSignature) {
		t.Errorf("got %v", err)
	}
}

type lax struct {
	*fakeProvider
	checked *csr.Checked
}

func (l lax) VerifyClientAttestationData(context.Context, *csr.Parsed) (*csr.Attested, error) {
	return goodVerified(l.checked), nil
}

func TestProvidersErrors(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy, err: refusal.Retry(errors.New("platform is down"))}
	providers := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}})
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fake.asked = nil
	if _, err := providers.Verify(ctx, f.request); !errors.Is(err, refusal.ErrRetry) || len(fake.asked) > 0 {
		t.Errorf("a context that is done: %v, asked %q", err, fake.asked)
	}
	if _, err := providers.Verify(context.Background(), nil); !errors.Is(err, csr.CheckProviderUnknown) {
		t.Errorf("no request: %v", err)
	}
	f.machine.Name = ""
	fake.err = nil
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, csr.CheckMachineUnknown) {
		t.Errorf("a machine without a name: %v", err)
	}
}

func TestProvidersChallenge(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Spec.SignerName = csr.SignerChallengeTPM
	f.encode(t)
	ctx := context.Background()
	challenging := newProviders(t, csr.Registration{Name: "tpm", Provider: &challengingProvider{}, Versions: []int{1}})
	if got, err := challenging.Challenge(ctx, f.request); err != nil || string(got) != "challenge" {
		t.Errorf("got %q, %v", got, err)
	}
	silent := newProviders(t, csr.Registration{Name: "tpm", Provider: &fakeProvider{policy: f.policy}, Versions: []int{1}})
	if _, err := silent.Challenge(ctx, f.request); !errors.Is(err, csr.CheckHelloSigner) {
		t.Errorf("a provider that does not challenge: %v", err)
	}
	f.request.Spec.SignerName = csr.SignerClientTPM
	if _, err := challenging.Challenge(ctx, f.request); !errors.Is(err, csr.CheckHelloSigner) {
		t.Errorf("no hello: %v", err)
	}
	f.request.Spec.SignerName = "cluster.x-k8s.io/kubelet-attestation-challenge-insecure"
	if _, err := challenging.Challenge(ctx, f.request); !errors.Is(err, csr.CheckProviderUnknown) {
		t.Errorf("the insecure provider challenges nobody: %v", err)
	}
}

// TestChallengeSigners lists the signers of those who challenge, and are authorised to.
func TestChallengeSigners(t *testing.T) {
	registered := withDefaults(csr.Registration{Name: "tpm", Provider: &challengingProvider{}}, csr.Registration{Name: "aws", Provider: &fakeProvider{}},
		csr.Registration{Name: "rack", Provider: &challengingProvider{}})
	p, err := csr.NewProviders(csr.ProvidersConfig{Providers: registered, AuthorizedAttestors: []string{"tpm", "aws"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.ChallengeSigners(); !slices.Equal(got, []string{csr.SignerChallengeTPM}) {
		t.Errorf("got %q, want %s alone: aws does not challenge, rack is not authorised", got, csr.SignerChallengeTPM)
	}
}

// TestProvidersBuiltInClient: under Kubernetes' own signer the request's provider block
// chooses, among the providers that are open there and no others.
func TestProvidersBuiltInClient(t *testing.T) {
	for name, c := range map[string]struct {
		open   []string
		block  string // "" is a request without evidence
		breaks bool   // the bundle
		want   string // the provider that is asked
		err    csr.Check
	}{
		"nobody":                    {nil, "tpm/v1", false, "", csr.CheckProviderUnknown},
		"one":                       {[]string{"tpm"}, "tpm/v1", false, "tpm", ""},
		"one, evidence of another":  {[]string{"tpm"}, "aws/v1", false, "", csr.CheckAttestationProvider},
		"one, another version":      {[]string{"tpm"}, "tpm/v2", false, "", csr.CheckProviderVersion},
		"one, no evidence":          {[]string{"tpm"}, "", false, "", csr.CheckAttestationProvider},
		"two, the first":            {[]string{"tpm", "aws"}, "tpm/v1", false, "tpm", ""},
		"two, the second":           {[]string{"tpm", "aws"}, "aws/v1", false, "aws", ""},
		"two, another version":      {[]string{"tpm", "aws"}, "aws/v2", false, "", csr.CheckProviderVersion},
		"two, one that is not open": {[]string{"tpm", "aws"}, "azure/v1", false, "", csr.CheckAttestationProvider},
		"two, no evidence":          {[]string{"tpm", "aws"}, "", false, "", csr.CheckAttestationProvider},
		"two, a broken bundle":      {[]string{"tpm", "aws"}, "tpm/v1", true, "", csr.CheckBlock},
		"not authorised":            {[]string{"tpm", "banned"}, "banned/v1", false, "", csr.CheckAttestorNotAuthorized},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap)
			f.provider, f.data = c.block, []byte("evidence")
			if c.block == "" {
				f.data = nil
			}
			f.encode(t)
			if c.breaks {
				f.request.Spec.Request = append(f.request.Spec.Request, "more\n"...)
			}
			fakes := map[string]*fakeProvider{}
			config := csr.ProvidersConfig{AuthorizedAttestors: []string{"tpm", "aws", "azure"}, BuiltInClient: c.open}
			for _, name := range []string{"tpm", "aws", "azure", "banned"} {
				fakes[name] = &fakeProvider{err: errors.New("asked")}
				config.Providers = append(config.Providers, withDefaults(csr.Registration{Name: name, Provider: fakes[name]})...)
			}
			providers, err := csr.NewProviders(config)
			if err != nil {
				t.Fatal(err)
			}
			_, err = providers.Verify(t.Context(), f.request)
			if c.err != "" && !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			for name, fake := range fakes {
				if (len(fake.asked) > 0) != (name == c.want) {
					t.Errorf("%s was asked %d times", name, len(fake.asked))
				}
			}
		})
	}
}

// TestProvidersServeWhatPoliciesDo: a signer that a provider's policy does not serve is
// somebody else's, and the provider is not asked.
func TestProvidersServeWhatPoliciesDo(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy}
	for _, c := range []struct {
		name    string
		signers []string
		ok      bool
	}{
		{"served", []string{csr.SignerClientTPM, csr.SignerServingTPM}, true},
		{"not served", []string{csr.SignerClientTPM}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake.asked = nil
			p := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, SignerNames: c.signers, Versions: []int{1}})
			_, err := p.Verify(t.Context(), f.request)
			if c.ok != (err == nil) || c.ok == errors.Is(err, csr.ErrOtherSigner) || c.ok != (len(fake.asked) > 0) {
				t.Errorf("got %v, asked %q", err, fake.asked)
			}
			if got := p.SignerNames(); !slices.Equal(got, c.signers) {
				t.Errorf("signer names %q, want %q", got, c.signers)
			}
		})
	}
}
