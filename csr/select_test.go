package csr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
)

// fakeProvider verifies by the policy of a fixture alone, and notes what it was asked.
type fakeProvider struct {
	policy *csr.Policy
	change func(*csr.Attested) *csr.Attested
	err    error
	asked  []string
}

func (p *fakeProvider) verify(ctx context.Context, r *csr.Request, what string) (*csr.Attested, error) {
	p.asked = append(p.asked, what)
	if p.err != nil {
		return nil, p.err
	}
	checked, err := p.policy.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &csr.Attested{Checked: checked, Verified: goodVerified(checked)}
	if p.change != nil {
		a = p.change(a)
	}
	return a, nil
}

func (p *fakeProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Request) (*csr.Attested, error) {
	return p.verify(ctx, r, "client")
}

func (p *fakeProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Request) (*csr.Attested, error) {
	return p.verify(ctx, r, "serving")
}

func (p *fakeProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	p.asked = append(p.asked, "name")
	return a.InventoryName()
}

// challengingProvider is a fakeProvider that is a Challenger.
type challengingProvider struct{ fakeProvider }

func (p *challengingProvider) Challenge(context.Context, *csr.Request) ([]byte, error) {
	return []byte("challenge"), nil
}

func newProviders(t testing.TB, registrations ...csr.Registration) *csr.Providers {
	t.Helper()
	p, err := csr.NewProviders(&csr.ProvidersConfig{Providers: registrations, AuthorizedAttestors: []string{"tpm", "insecure"}})
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
			if accepted.Provider != "tpm" || accepted.MachineName != "machine-1" || accepted.Verified.NodeName != goodNode {
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
		want   csr.Rule
	}{
		"signer of another provider": {func(f *requestFixture) {
			f.request.Spec.SignerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws"
		}, "", csr.RuleProviderUnknown},
		"the proposal's spelling": {func(f *requestFixture) {
			f.request.Spec.SignerName = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm"
		}, "", csr.RuleProviderUnknown},
		"insecure signer":               {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerClientInsecure }, "", csr.RuleProviderUnknown},
		"built-in client signer":        {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet }, "", csr.RuleProviderUnknown},
		"built-in serving signer":       {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerKubeletServing }, "", csr.RuleProviderUnknown},
		"hello":                         {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerChallengeTPM }, "", csr.RuleSignerName},
		"evidence of another provider":  {func(f *requestFixture) { f.provider = "aws/v1" }, "", csr.RuleAttestationProvider},
		"evidence of the insecure one":  {func(f *requestFixture) { f.provider = "insecure/v1" }, "", csr.RuleAttestationProvider},
		"no evidence":                   {func(f *requestFixture) { f.provider, f.data = "", nil }, "", csr.RuleAttestationProvider},
		"version below the minimum":     {func(f *requestFixture) { f.provider = "tpm/v1" }, "", csr.RuleProviderVersion},
		"version that nobody reads yet": {func(f *requestFixture) { f.provider = "tpm/v4" }, "", csr.RuleProviderVersion},
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
			if c.want == csr.RuleProviderUnknown {
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
	otherAttested := &csr.Attested{Checked: other.mustCheck(t)}
	otherAttested.Verified = goodVerified(otherAttested.Checked)
	for name, change := range map[string]func(*csr.Attested) *csr.Attested{
		"nothing":         func(*csr.Attested) *csr.Attested { return nil },
		"nothing checked": func(a *csr.Attested) *csr.Attested { return &csr.Attested{Verified: a.Verified} },
		"checked by nobody": func(a *csr.Attested) *csr.Attested {
			return &csr.Attested{Checked: &csr.Checked{}, Verified: a.Verified}
		},
		"nothing verified":     func(a *csr.Attested) *csr.Attested { return &csr.Attested{Checked: a.Checked} },
		"another request":      func(*csr.Attested) *csr.Attested { return otherAttested },
		"another request hash": func(a *csr.Attested) *csr.Attested { a.Verified.RequestHash[0]++; return a },
		"another node":         func(a *csr.Attested) *csr.Attested { a.Verified.NodeName = "node-2"; return a },
		"another signer":       func(a *csr.Attested) *csr.Attested { a.Verified.SignerName = csr.SignerServingTPM; return a },
		"no machine":           func(a *csr.Attested) *csr.Attested { a.Verified.Machine = ""; return a },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.encode(t)
			fake := &fakeProvider{policy: f.policy, change: change}
			_, err := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}}).Verify(context.Background(), f.request)
			if !errors.Is(err, csr.RuleProviderResult) {
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
	unsigned, err := f.policy.CheckUnsigned(context.Background(), f.request, csr.SignerClientTPM)
	if err != nil {
		t.Fatal(err)
	}
	fake.policy = goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy
	provider := lax{fake, unsigned}
	_, err = newProviders(t, csr.Registration{Name: "tpm", Provider: provider, Versions: []int{1}}).Verify(context.Background(), f.request)
	if !errors.Is(err, csr.RuleSignature) {
		t.Errorf("got %v", err)
	}
}

type lax struct {
	*fakeProvider
	checked *csr.Checked
}

func (l lax) VerifyClientAttestationData(context.Context, *csr.Request) (*csr.Attested, error) {
	return &csr.Attested{Checked: l.checked, Verified: goodVerified(l.checked)}, nil
}

func TestProvidersErrors(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy, err: csr.Retry(errors.New("platform is down"))}
	providers := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}})
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, csr.ErrRetry) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fake.asked = nil
	if _, err := providers.Verify(ctx, f.request); !errors.Is(err, csr.ErrRetry) || len(fake.asked) > 0 {
		t.Errorf("a context that is done: %v, asked %q", err, fake.asked)
	}
	if _, err := providers.Verify(context.Background(), nil); !errors.Is(err, csr.RuleProviderUnknown) {
		t.Errorf("no request: %v", err)
	}
	f.machine.Name = ""
	fake.err = nil
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, csr.RuleMachineUnknown) {
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
	if _, err := silent.Challenge(ctx, f.request); !errors.Is(err, csr.RuleNoChallenge) {
		t.Errorf("a provider that does not challenge: %v", err)
	}
	f.request.Spec.SignerName = csr.SignerClientTPM
	if _, err := challenging.Challenge(ctx, f.request); !errors.Is(err, csr.RuleNoChallenge) {
		t.Errorf("no hello: %v", err)
	}
	f.request.Spec.SignerName = "cluster.x-k8s.io/kubelet-attestation-challenge-insecure"
	if _, err := challenging.Challenge(ctx, f.request); !errors.Is(err, csr.RuleProviderUnknown) {
		t.Errorf("the insecure provider challenges nobody: %v", err)
	}
}

func TestProvidersBuiltInClient(t *testing.T) {
	f := goodFixture(csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap)
	f.provider, f.data = "tpm/v1", []byte("evidence")
	f.encode(t)
	fake := &fakeProvider{policy: f.policy}
	if _, err := newProviders(t, csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1}, BuiltInClient: true}).Verify(context.Background(), f.request); err != nil {
		t.Error(err)
	}
}

func TestAuthorizedAttestors(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy}
	providers, err := csr.NewProviders(&csr.ProvidersConfig{AuthorizedAttestors: []string{"contoso-cloud"},
		Providers: []csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, csr.RuleAttestorNotAuthorized) || len(fake.asked) > 0 {
		t.Errorf("got %v; asked %v", err, fake.asked)
	}
}

func TestNewProvidersRefuses(t *testing.T) {
	f := goodFixture(csr.SignerClientInsecure, csr.RequesterBootstrap)
	f.policy.SignerNames = []string{csr.SignerClientInsecure}
	insecure, err := csr.NewInsecureProvider(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeProvider{}
	for name, registrations := range map[string][]csr.Registration{
		"none":                             nil,
		"insecure beside tpm":              {{Name: "insecure", Provider: insecure}, {Name: "tpm", Provider: fake, Versions: []int{1}}},
		"insecure as tpm":                  {{Name: "tpm", Provider: insecure}},
		"another provider as insecure":     {{Name: "insecure", Provider: fake}},
		"insecure for the built-in signer": {{Name: "insecure", Provider: insecure, BuiltInClient: true}},
		"twice":                            {{Name: "tpm", Provider: fake}, {Name: "tpm", Provider: fake}},
		"two for the built-in signer":      {{Name: "tpm", Provider: fake, BuiltInClient: true}, {Name: "aws", Provider: fake, BuiltInClient: true}},
		"no name":                          {{Provider: fake}},
		"a bad name":                       {{Name: "TPM", Provider: fake}},
		"no provider":                      {{Name: "tpm"}},
		"minimum over all versions":        {{Name: "tpm", Provider: fake, Versions: []int{1}, MinimumVersion: 2}},
		"minimum without versions":         {{Name: "tpm", Provider: fake, MinimumVersion: 1}},
		"version 0":                        {{Name: "tpm", Provider: fake, Versions: []int{0, 1}}},
	} {
		if _, err := csr.NewProviders(&csr.ProvidersConfig{Providers: registrations, AuthorizedAttestors: []string{"tpm"}}); !errors.Is(err, csr.ErrProviders) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	good := []csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{1}}}
	for name, c := range map[string]*csr.ProvidersConfig{
		"nil":                    nil,
		"no authorised attestor": {Providers: good},
		"a bad attestor":         {Providers: good, AuthorizedAttestors: []string{"contosoCloud!"}},
	} {
		if _, err := csr.NewProviders(c); !errors.Is(err, csr.ErrProviders) {
			t.Errorf("%s: got %v", name, err)
		} else if strings.Contains(err.Error(), "%!") {
			t.Error(err)
		}
	}
}
