package csr_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestAttestedCheckOtherObject has a provider answer with a result that is good, for an
// object that differs from the one in question in a single thing.
func TestAttestedCheckOtherObject(t *testing.T) {
	for name, change := range map[string]func(*csr.Request){
		"signer":    func(r *csr.Request) { r.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet },
		"requester": func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "zzz999" },
		"UID":       func(r *csr.Request) { r.Metadata.UID = "another object" },
		"no UID":    func(r *csr.Request) { r.Metadata.UID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.request.Metadata.UID = "this object"
			checked := f.mustCheck(t)
			good := goodVerified(checked)
			if err := good.Check(f.request.Parsed()); err != nil {
				t.Fatalf("the request itself: %v", err)
			}
			other := *f.request
			change(&other)
			if err := good.Check(other.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("its result for the other: got %v, want %v", err, csr.CheckProviderResult)
			}
			// The object is the caller's: what counts is how it was checked.
			change(f.request)
			if err := good.Check(f.request.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("an object that became the other: got %v, want %v", err, csr.CheckProviderResult)
			}
		})
	}
}

// nameless is a provider that verifies and does not know its machine.
type nameless struct{ *fakeProvider }

func (nameless) MachineName(context.Context, *csr.Attested) (string, error) { return "", nil }

func TestProvidersNeedMachineName(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	provider := nameless{&fakeProvider{policy: f.policy}}
	accepted, err := newProviders(t, csr.Registration{Name: "tpm", Provider: provider, Versions: []int{1}}).Verify(t.Context(), f.request)
	if accepted != nil || !errors.Is(err, csr.CheckProviderResult) || csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("got %+v, %v, want %v", accepted, err, csr.CheckProviderResult)
	}
}

func TestProvidersWithoutContext(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	p := newProviders(t, csr.Registration{Name: "tpm", Provider: &challengingProvider{}})
	//nolint:staticcheck // a nil context is the test
	if _, err := p.Verify(nil, f.request); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("Verify: got %v, want %v", err, refusal.ErrRetry)
	}
	//nolint:staticcheck // a nil context is the test
	if _, err := p.Challenge(nil, f.request); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("Challenge: got %v, want %v", err, refusal.ErrRetry)
	}
}

// TestInventoryNameOfNothing: each part of a result is needed.
func TestInventoryNameOfNothing(t *testing.T) {
	for name, a := range map[string]*csr.Attested{
		"nil":               nil,
		"nothing":           {},
		"checked by nobody": new(csr.Checked).Vouch("x", csr.Grant{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := a.InventoryName(); got != "" || !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("got %q, %v, want %v", got, err, csr.CheckProviderResult)
			}
		})
	}
}

func TestProvidersSignerNames(t *testing.T) {
	fake := &fakeProvider{}
	insecure, err := csr.NewInsecureProvider(&csr.Policy{SignerNames: []string{csr.SignerClientInsecure}, ClusterIDs: []string{goodCluster}, Machines: inventory{}.find})
	if err != nil {
		t.Fatal(err)
	}
	const clientAWS, servingAWS = "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws", "cluster.x-k8s.io/kubelet-serving-aws"
	two := withDefaults(csr.Registration{Name: "tpm", Provider: fake}, csr.Registration{Name: "aws", Provider: fake})
	for name, c := range map[string]struct {
		config csr.ProvidersConfig
		want   []string
	}{
		"one": {csr.ProvidersConfig{Providers: withDefaults(csr.Registration{Name: "tpm", Provider: fake}), AuthorizedAttestors: []string{"tpm"}},
			[]string{csr.SignerClientTPM, csr.SignerRecoveryTPM, csr.SignerServingTPM}},
		"two, one for the built-in signer": {csr.ProvidersConfig{Providers: two, BuiltInClient: []string{"tpm"},
			AuthorizedAttestors: []string{"aws", "tpm"}},
			[]string{clientAWS, csr.SignerClientTPM, csr.SignerRecoveryTPM, servingAWS, csr.SignerServingTPM, csr.SignerKubeAPIServerClientKubelet}},
		"two, one not authorised": {csr.ProvidersConfig{Providers: two, BuiltInClient: []string{"tpm"},
			AuthorizedAttestors: []string{"aws"}}, []string{clientAWS, servingAWS}},
		"insecure": {csr.ProvidersConfig{Providers: withDefaults(csr.Registration{Name: "insecure", Provider: insecure}), AuthorizedAttestors: []string{"insecure"}},
			[]string{csr.SignerClientInsecure}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := csr.NewProviders(c.config)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(c.want)
			names := p.SignerNames()
			if !slices.Equal(names, c.want) {
				t.Errorf("got %q, want %q", names, c.want)
			}
			opts := goodOptions()
			opts.SignerNames = names
			newCA(t, opts)
			for _, name := range names {
				// What is filed under it comes to a provider, which refuses this for other reasons.
				_, err := p.Verify(t.Context(), &csr.Request{Spec: csr.Spec{SignerName: name}})
				if errors.Is(err, csr.CheckProviderUnknown) || errors.Is(err, csr.CheckAttestorNotAuthorized) {
					t.Errorf("%s selects no provider: %v", name, err)
				}
			}
		})
	}
}
