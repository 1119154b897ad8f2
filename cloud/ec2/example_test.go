package ec2_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
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
	ctx := context.Background()
	cloud, err := cloudtest.OpenEC2("us-east-2")
	if err != nil {
		log.Fatal(err)
	}
	machine := cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-east-2", InstanceID: "i-0123456789abcdef0", Role: "node"}
	verifier, err := newVerifier(cloud)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(join(ctx, verifier, cloud, machine))
	machine.Session = "i-0fedcba9876543210"
	fmt.Println(join(ctx, verifier, cloud, machine))
	// Output:
	// node-1 is aws:aws/us-east-2/i-0123456789abcdef0 <nil>
	//  ec2-session: got a session "i-0fedcba9876543210", want the document's instance, i-0123456789abcdef0
}

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-ec2"

// join is hello, challenge and answer of a machine, and says who joined.
func join(ctx context.Context, verifier *attest.Verifier, cloud *cloudtest.EC2, machine cloudtest.EC2Machine) (string, error) {
	server := cloud.Serve(machine)
	defer server.Close()
	prover, err := ec2.NewProver(ec2.SourceOptions{URL: server.URL})
	if err != nil {
		return "", err
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		return "", err
	}
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return "", err
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		return "", err
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return "", err
	}
	result, err := verifier.Verify(ctx, filed(answer))
	if err != nil {
		return "", err
	}
	return result.NodeName + " is " + string(result.Machine), nil
}

// newVerifier is a control plane that knows one instance, as node-1.
func newVerifier(cloud *cloudtest.EC2) (*attest.Verifier, error) {
	config, err := verifierConfig(cloud)
	if err != nil {
		return nil, err
	}
	return attest.NewVerifier(config)
}

func verifierConfig(cloud *cloudtest.EC2) (c attest.VerifierConfig, err error) {
	kind, err := ec2.NewKind(ec2.KindConfig{Certificates: cloud.Certificates(), Transport: cloud,
		Roles: []string{"arn:aws:iam::123456789012:role/node"}})
	if err != nil {
		return c, err
	}
	id, err := nitro.Identity("us-east-2", "i-0123456789abcdef0")
	if err != nil {
		return c, err
	}
	list, err := membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: ec2.Provider}})
	if err != nil {
		return c, err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		return c, err
	}
	return attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{"cluster-1"},
			SignerNames: []string{signerName},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "instance-1", NodeName: q.NodeName, BootstrapReady: true}, nil
			},
		},
		Authorizer: list, // behind which the first key is to be remembered: see package nitro's example
	}, nil
}

// filed is a node's spec as a server stores it: the user is from the server's own
// authentication, here of a bootstrap token.
func filed(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}, time.Now())
}
