package gke_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"fmt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/gke"
	"github.com/nodeattest/nodeattest/csr"
)

// tokens verifies a platform's identity tokens. This one has none to show.
type tokens struct{}

func (tokens) VerifyTimeLimited(context.Context, *gke.LimitedSubject, *csr.Request) (*gke.LimitedProof, error) {
	return nil, nil
}

func ExampleNewProvider() {
	config := gke.Config{
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
	_, err := gke.NewProvider(config)
	fmt.Println(err)

	config.InsecureAllowNoChallenge = true
	provider, err := gke.NewProvider(config)
	fmt.Println(provider.Registration().Name, err)
	// Output:
	// configuration: got no InsecureAllowNoChallenge, want it set: the evidence has no challenge
	// gke <nil>
}
