package csr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

func insecureFixture(t testing.TB) (*requestFixture, csr.Provider) {
	t.Helper()
	f := goodFixture(csr.SignerClientInsecure, csr.RequesterBootstrap)
	f.policy.SignerNames = []string{csr.SignerClientInsecure}
	f.machine.Provider = "insecure"
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, goodProviderID))
	p, err := csr.NewInsecureProvider(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// TestInsecureIssues goes the whole way, on a CA of its own.
func TestInsecureIssues(t *testing.T) {
	f, p := insecureFixture(t)
	f.encode(t)
	ctx := context.Background()
	accepted, err := csr.Verify(ctx, p, f.request)
	if err != nil {
		t.Fatal(err)
	}
	opts := goodOptions()
	opts.SignerNames = []string{csr.SignerClientInsecure}
	issued := mustIssue(t, newCA(t, opts), accepted)
	if issued.Record.Machine != "insecure:node-1" || issued.Record.ProviderID != goodProviderID || accepted.MachineName() != "machine-1" {
		t.Errorf("record %+v", issued.Record)
	}
	// Nothing that it issues is ever inherited from.
	if issued.Record.ClientOf(goodNode, issued.Record.CredentialID) {
		t.Error("the record counts as attested")
	}
	if _, err := newCA(t, goodOptions()).Issue(ctx, accepted); !errors.Is(err, csr.ErrOtherSigner) {
		t.Errorf("the CA of another signer: %v", err)
	}
}

func TestInsecureRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*requestFixture)
		want   csr.Check
	}{
		"another signer":           {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerClientTPM }, csr.CheckSignerName},
		"rotation":                 {func(f *requestFixture) { f.ask(csr.RequesterNode) }, csr.CheckRequesterPurpose},
		"recovery":                 {func(f *requestFixture) { f.ask(csr.RequesterRecovery) }, csr.CheckRequesterPurpose},
		"evidence of another kind": {func(f *requestFixture) { f.provider, f.data = "tpm/v1", []byte{1} }, csr.CheckAttestationProvider},
		"unknown machine":          {func(f *requestFixture) { f.machine = nil }, csr.CheckMachineUnknown},
		"another provider ID":      {func(f *requestFixture) { f.machine.ProviderID = "test://zone/instance-2" }, csr.CheckProviderIDMismatch},
		"SANs": {func(f *requestFixture) {
			f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN(goodNode)))
		}, csr.CheckSANOnClient},
		"no signature": {func(f *requestFixture) { f.builder.badSignature = true }, csr.CheckSignature},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := insecureFixture(t)
			c.change(f)
			f.encode(t)
			if _, err := p.VerifyClientAttestationData(context.Background(), f.request.Parsed()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	f, p := insecureFixture(t)
	f.encode(t)
	if _, err := p.VerifyServingAttestationData(context.Background(), f.request.Parsed()); !errors.Is(err, csr.CheckSignerName) {
		t.Errorf("serving: %v", err)
	}
	if _, err := p.MachineName(context.Background(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
	f.policy.SignerNames = []string{csr.SignerClientInsecure, csr.SignerClientTPM}
	if _, err := csr.NewInsecureProvider(f.policy); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("beside another signer: %v", err)
	}
	if _, err := csr.NewInsecureProvider(nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no policy: %v", err)
	}
}
