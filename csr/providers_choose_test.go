package csr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestChoose: the one place that chooses a provider, and looks at nothing of the request but
// its signer and its provider block.
func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		signer, block string
		want          string // the registration
		refused       csr.Check
		verdict       csr.Verdict // if it is refused
	}{
		"client":                     {csr.SignerClientTPM, "tpm/v2", "tpm", "", 0},
		"serving":                    {csr.SignerServingTPM, "tpm/v2", "tpm", "", 0},
		"recovery":                   {csr.SignerRecoveryTPM, "tpm/v3", "tpm", "", 0},
		"hello":                      {csr.SignerChallengeTPM, "tpm/v2", "tpm", "", 0},
		"built-in":                   {csr.SignerKubeAPIServerClientKubelet, "tpm/v2", "tpm", "", 0},
		"another provider":           {"cluster.x-k8s.io/kube-apiserver-client-kubelet-aws", "aws/v1", "aws", "", 0},
		"under the minimum":          {csr.SignerClientTPM, "tpm/v1", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"over all":                   {csr.SignerClientTPM, "tpm/v4", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"hello, under the minimum":   {csr.SignerChallengeTPM, "tpm/v1", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"no evidence":                {csr.SignerClientTPM, "", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"evidence of another":        {csr.SignerClientTPM, "aws/v1", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"evidence of nobody":         {csr.SignerClientTPM, "x/v2", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"another signer":             {"cluster.x-k8s.io/kube-apiserver-client-kubelet-gce", "gce/v1", "", csr.CheckProviderUnknown, csr.VerdictIgnore},
		"one that it does not serve": {"cluster.x-k8s.io/kubelet-serving-aws", "aws/v1", "", csr.CheckProviderUnknown, csr.VerdictIgnore},
		"somebody else's":            {"example.com/x", "tpm/v2", "", csr.CheckProviderUnknown, csr.VerdictIgnore},
		"no signer":                  {"", "tpm/v2", "", csr.CheckProviderUnknown, csr.VerdictDeny},
		"not authorised":             {"cluster.x-k8s.io/kube-apiserver-client-kubelet-banned", "banned/v1", "", csr.CheckAttestorNotAuthorized, csr.VerdictDeny},
	} {
		t.Run(name, func(t *testing.T) {
			providers := choosing(t)
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			if f.provider = c.block; c.block == "" {
				f.data = nil
			}
			f.encode(t)
			f.request.Spec.SignerName = c.signer
			r, err := providers.Choose(t.Context(), f.request.Parsed())
			if c.refused == "" {
				if err != nil || r.Name != c.want {
					t.Errorf("got %v, %v", r, err)
				}
				return
			}
			if r != nil || !errors.Is(err, c.refused) || csr.Decide(err).Verdict != c.verdict || errors.Is(err, csr.ErrOtherSigner) != (c.verdict == csr.VerdictIgnore) {
				t.Errorf("got %v, %v, want %v and %v", r, err, c.refused, c.verdict)
			}
		})
	}
}

// choosing are three providers, of which one is not authorised.
func choosing(t *testing.T) *csr.Providers {
	t.Helper()
	fake := &fakeProvider{err: errors.New("asked")}
	providers, err := csr.NewProviders(csr.ProvidersConfig{
		Providers: withDefaults(csr.Registration{Name: "tpm", Provider: fake, Versions: []int{1, 3, 2}, MinimumVersion: 2},
			csr.Registration{Name: "aws", Provider: fake, SignerNames: signersOf("aws")[:1]}, csr.Registration{Name: "banned", Provider: fake}),
		AuthorizedAttestors: []string{"tpm", "aws"}, BuiltInClient: []string{"tpm"}})
	if err != nil {
		t.Fatal(err)
	}
	return providers
}

func TestChooseNothing(t *testing.T) {
	providers, f := choosing(t), goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.provider = "tpm/v2"
	f.encode(t)
	if r, err := providers.Choose(t.Context(), nil); r != nil || !errors.Is(err, csr.CheckProviderUnknown) {
		t.Errorf("nil: got %v, %v", r, err)
	}
	if r, err := providers.Choose(t.Context(), (*csr.Request)(nil).Parsed()); r != nil || !errors.Is(err, csr.CheckProviderUnknown) {
		t.Errorf("no request: got %v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"nil": nil, "cancelled": ctx} {
		if r, err := providers.Choose(ctx, f.request.Parsed()); r != nil || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("context %s: got %v, %v", name, r, err)
		}
	}
	f.request.Spec.Request = []byte("x")
	if r, err := providers.Choose(t.Context(), f.request.Parsed()); r != nil || !errors.Is(err, csr.CheckBlock) {
		t.Errorf("unreadable: got %v, %v", r, err)
	}
	if r, err := new(csr.Providers).Choose(t.Context(), f.request.Parsed()); r != nil || !errors.Is(err, csr.CheckProviderUnknown) {
		t.Errorf("zero: got %v, %v", r, err)
	}
}

// TestChooseGivesACopy: what is changed on it opens no version.
func TestChooseGivesACopy(t *testing.T) {
	providers, f := choosing(t), goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.provider = "tpm/v2"
	f.encode(t)
	r, err := providers.Choose(t.Context(), f.request.Parsed())
	if err != nil {
		t.Fatal(err)
	}
	r.Name, r.Versions[0], r.Versions, r.SignerNames[0], r.SignerNames = "aws", 1, nil, "", nil
	f.provider = "tpm/v1"
	f.encode(t)
	if r, err := providers.Choose(t.Context(), f.request.Parsed()); r != nil || !errors.Is(err, csr.CheckProviderVersion) {
		t.Errorf("tpm/v1 under the minimum: got %v, %v", r, err)
	}
	f.provider = "tpm/v2"
	f.encode(t)
	if r, err := providers.Choose(t.Context(), f.request.Parsed()); err != nil || r.Name != "tpm" {
		t.Errorf("tpm/v2: got %v, %v", r, err)
	}
}

// TestChallengeOfARequest: what asks for a certificate is left to who decides about
// certificates, whatever provider would challenge.
func TestChallengeOfARequest(t *testing.T) {
	newer := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	newer.provider = "tpm/v9" // which only who decides about certificates may read
	newer.encode(t)
	if _, err := newProviders(t, csr.Registration{Name: "tpm", Provider: &challengingProvider{}}).Challenge(t.Context(), newer.request); !errors.Is(err, csr.ErrOtherSigner) || csr.Decide(err).Verdict != csr.VerdictIgnore {
		t.Errorf("a request in a version that is not read here: %v", err)
	}
	for name, c := range map[string]struct {
		signer string
		other  bool // ErrOtherSigner
	}{
		"client":             {csr.SignerClientTPM, true},
		"built-in":           {csr.SignerKubeAPIServerClientKubelet, true},
		"serving":            {csr.SignerServingTPM, true},
		"recovery":           {csr.SignerRecoveryTPM, true},
		"somebody else's":    {"example.com/x", true},
		"a hello to a mute":  {csr.SignerChallengeTPM, false},
		"a hello to another": {"cluster.x-k8s.io/kubelet-attestation-challenge-aws", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.encode(t)
			f.request.Spec.SignerName = c.signer
			for kind, p := range map[string]csr.Provider{"challenger": &challengingProvider{}, "mute": &fakeProvider{}} {
				challenge, err := newProviders(t, csr.Registration{Name: "tpm", Provider: p}).Challenge(t.Context(), f.request)
				if kind == "challenger" && !c.other {
					if err != nil || len(challenge) == 0 {
						t.Errorf("a hello is not challenged: %v", err)
					}
					continue
				}
				want := csr.VerdictDeny
				if c.other {
					want = csr.VerdictIgnore
				}
				if challenge != nil || errors.Is(err, csr.ErrOtherSigner) != c.other || csr.Decide(err).Verdict != want {
					t.Errorf("%s: got %q, %v", kind, challenge, err)
				}
				if !strings.Contains(err.Error(), c.signer) {
					t.Errorf("%s: %v does not name the signer", kind, err)
				}
			}
		})
	}
}
