package ec2_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
)

// An instance without a NitroTPM joins as the node that a list has for it, and a principal that may
// assume its role, but is another instance, does not. The cloud is a fake: with the real one the
// certificates come from AWS' page, and URL and Transport are left out.
func Example() {
	cloud := must(cloudtest.OpenEC2("us-east-2"))
	machine := cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-east-2", InstanceID: "i-0123456789abcdef0", Role: "node"}
	verifier := must(attest.NewVerifier(verifierConfig(cloud)))
	result := must(joinAs(verifier, cloud, machine))
	fmt.Println(result.NodeName, "is", result.Machine)
	machine.Session = "i-0fedcba9876543210"
	_, err := joinAs(verifier, cloud, machine)
	fmt.Println(err)
	// Output:
	// node-1 is aws:aws/us-east-2/i-0123456789abcdef0
	// ec2-session: got a session "i-0fedcba9876543210", want the document's instance, i-0123456789abcdef0
}

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-ec2"

// joinAs is a join of a machine.
func joinAs(verifier *attest.Verifier, cloud *cloudtest.EC2, machine cloudtest.EC2Machine) (*attest.Result, error) {
	server := cloud.Serve(machine)
	defer server.Close()
	return join(verifier, must(ec2.NewProver(ec2.SourceOptions{URL: server.URL})))
}

// join is hello, challenge and answer.
func join(verifier *attest.Verifier, prover attest.Prover) (*attest.Result, error) {
	ctx := context.Background()
	attester := must(attest.NewAttester(prover))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{}))
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return nil, err
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		return nil, err
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return nil, err
	}
	return verifier.Verify(ctx, filed(answer))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// verifierConfig is a control plane that knows one instance, as node-1.
func verifierConfig(cloud *cloudtest.EC2) attest.VerifierConfig {
	kind := must(ec2.NewKind(ec2.KindConfig{Certificates: cloud.Certificates(), Transport: cloud, Roles: []string{"arn:aws:iam::123456789012:role/node"}}))
	id := must(nitro.Identity("us-east-2", "i-0123456789abcdef0"))
	list := must(membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: ec2.Provider}}))
	return attest.VerifierConfig{
		KeyRing: must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{"cluster-1"},
			SignerNames: []string{signerName},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "instance-1", NodeName: q.NodeName, BootstrapReady: true}, nil
			},
		},
		Authorizer: list, // behind which the first key is to be remembered: see package nitro's example
	}
}

// filed is a node's spec as a server stores it: the user is from the server's own
// authentication, here of a bootstrap token.
func filed(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}, time.Now())
}
