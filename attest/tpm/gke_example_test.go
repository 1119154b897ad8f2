package tpm_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"fmt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// tokens verifies a platform's identity tokens. This one has none to show.
type tokens struct{}

func (tokens) VerifyTimeLimited(context.Context, *tpm.LimitedSubject, *csr.Request) (*tpm.LimitedProof, error) {
	return nil, nil
}

func ExampleNewGKEProvider() {
	config := tpm.GKEConfig{
		Policy: &csr.Policy{
			SignerNames: []string{csr.SignerKubeAPIServerClientKubelet},
			Machines: func(context.Context, string, *csr.Request) (*csr.Machine, error) {
				return nil, csr.ErrNoMachine
			},
		},
		AKPublicKey: func(context.Context, csr.GKEIdentity) (crypto.PublicKey, error) {
			return &rsa.PublicKey{}, nil // ask Compute Engine
		},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
			return nil, attest.NotMember(string(r.Machine) + " is in no instance group of this cluster")
		}),
		SecondProof: tokens{},
	}
	_, err := tpm.NewGKEProvider(config)
	fmt.Println(err)

	config.InsecureAllowNoChallenge = true
	provider, err := tpm.NewGKEProvider(config)
	fmt.Println(provider.Registration().Name, err)
	// Output:
	// configuration: got no InsecureAllowNoChallenge, want it set: the evidence has no challenge
	// gke <nil>
}
