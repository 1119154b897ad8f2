package main

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestAttacks tries attacks on the kind of evidence that main trusts.
func TestAttacks(t *testing.T) {
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	machines, names := map[string]*attesttest.Node{}, map[attest.Identity]string{}
	for _, name := range []string{attesttest.MachineOne, attesttest.MachineTwo, attesttest.Stranger} {
		device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
		n := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK, TPM: device})
		id, err := identity(t.Context(), socketOf(device))
		if err != nil {
			t.Fatal(err)
		}
		machines[name], names[id] = n, name
	}
	world := attesttest.NewWorld(t, attesttest.WorldOptions{Provider: tpm.Provider,
		Prove: func(ctx context.Context, p csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
			attester := machines[a.Machine].Attester
			subject := attest.Subject{Request: a.Request, SignerName: a.Object.Spec.SignerName, ClusterID: attesttest.ClusterID}
			spec, err := attester.Hello(ctx, subject)
			if err != nil {
				return nil, err
			}
			hello := a.Object
			hello.Spec.Request, hello.Spec.SignerName, hello.Status = spec.Request, csr.SignerChallengeTPM, csr.Status{}
			challenge, err := p.(*attest.Verifier).Challenge(ctx, &hello)
			if err != nil {
				return nil, err
			}
			key, err := tpmkey.SoftwareKey(a.Key)
			if err != nil {
				return nil, err
			}
			answer, err := attester.Answer(ctx, challenge, key, subject)
			if err != nil {
				return nil, err
			}
			return csr.Parse(answer.Request)
		}})
	kind, err := tpm.TrustEKs([]*x509.Certificate{ca.Root()})
	if err != nil {
		t.Fatal(err)
	}
	world.Config.Kinds = []attest.Kind{kind}
	world.Config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		err := world.Member(r.NodeName, names[r.Machine])
		if errors.Is(err, csr.ErrNoMachine) {
			return nil, attest.NotMember("machine " + string(r.Machine))
		}
		if err != nil {
			return nil, err
		}
		m := r.Checked().Machine()
		a := r.Admit(attest.KnownNode(m.NodeName))
		a.ProviderID, a.DNSNames, a.IPAddresses = m.ProviderID, m.DNSNames, m.IPAddresses
		return a, nil
	})
	verifier, err := attest.NewVerifier(world.Config)
	if err != nil {
		t.Fatal(err)
	}
	attesttest.Run(t, verifier, world)
}
