package tpm_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func newTPMProviders(t testing.TB, plane *attesttest.ControlPlane) (csr.Provider, *csr.Providers) {
	t.Helper()
	registrations := plane.Verifier.Registrations()
	providers, err := csr.NewProviders(csr.ProvidersConfig{Providers: registrations, AuthorizedAttestors: []string{"tpm"}})
	if err != nil {
		t.Fatal(err)
	}
	return registrations[0].Provider, providers
}

// TestTPMProviderJoins runs the three messages through the selection of providers, on
// both roads and for both purposes.
func TestTPMProviderJoins(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{})
	for name, o := range map[string]attesttest.NodeOptions{
		"AK, client": {},
		"EK, client": {Road: attest.RoadEK},
		"AK, serving": {Purpose: csr.PurposeServing, DNSNames: []string{"node-1.example.com"},
			IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}},
		"EK, serving": {Road: attest.RoadEK, Purpose: csr.PurposeServing, DNSNames: []string{"node-1.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			o.TPM = tpm
			node := attesttest.NewNode(t, o)
			plane := attesttest.NewControlPlane(t, node)
			provider, providers := newTPMProviders(t, plane)
			hello, err := node.Hello(ctx, plane.Now())
			if err != nil {
				t.Fatal(err)
			}
			challenge, err := providers.Challenge(ctx, hello)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := node.Answer(ctx, challenge, plane.Now())
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := providers.Verify(ctx, answer)
			if err != nil {
				t.Fatal(err)
			}
			if accepted.MachineName() != "machine-of-node-1" || accepted.Machine() == "" {
				t.Errorf("got %+v", accepted)
			}
			if _, err := plane.CA.Issue(ctx, accepted); err != nil {
				t.Error(err)
			}
			wrong := provider.VerifyServingAttestationData
			if node.Purpose == csr.PurposeServing {
				wrong = provider.VerifyClientAttestationData
			}
			if _, err := wrong(ctx, answer.Parsed()); !errors.Is(err, refusal.Check("provider-purpose")) {
				t.Errorf("the method for another purpose: %v", err)
			}
			if _, err := providers.Challenge(ctx, answer); !errors.Is(err, refusal.Check("hello-signer")) {
				t.Errorf("an answer is no hello: %v", err)
			}
			if _, err := providers.Verify(ctx, hello); err == nil {
				t.Error("a hello is no answer")
			}
			answer.User.Username = "system:bootstrap:zzzzzz"
			if _, err := providers.Verify(ctx, answer); err == nil {
				t.Error("another requester was accepted")
			}
		})
	}
}

func TestRegistrations(t *testing.T) {
	plane := attesttest.NewControlPlane(t, attesttest.NewNode(t, attesttest.NodeOptions{}))
	all := plane.Verifier.Registrations()
	if len(all) != 1 || all[0].Name != tpmkind.Provider || all[0].MinimumVersion != 1 || len(all[0].SignerNames) == 0 {
		t.Fatalf("got %+v", all)
	}
	if _, err := all[0].Provider.MachineName(t.Context(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
	if _, err := all[0].Provider.VerifyClientAttestationData(t.Context(), nil); err == nil {
		t.Error("no request")
	}
}
