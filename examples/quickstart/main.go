// Quickstart is a node's way into a cluster, in one program that needs no network:
// a simulated TPM certifies a kubelet's key, the proof travels in the certificate
// request, the control plane challenges, verifies and issues the certificate. Then
// the same control plane meets what must be refused.
//
//	go run ./examples/quickstart
//
// This file is the story, from top to bottom. The two sides stand as a program of yours
// would have them: the control plane in plane.go, the node in node.go. The attacks are in
// attacks.go, and what stands in for the world around, and prints, in world.go. Package
// tpmsim is the machine's TPM and the cloud that certified it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func main() {
	if err := run(context.Background(), &story{w: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if an attack is not
// refused by the very check that is there for it.
func run(ctx context.Context, s *story) error {
	s.chapter("A node joins a cluster")
	cloud, err := tpmsim.NewCA(tpmsim.CAOptions{Name: "Example Cloud"})
	if err != nil {
		return err
	}
	tpm, err := tpmsim.Open(tpmsim.Options{CA: cloud, Instance: instance(1)})
	if err != nil {
		return err
	}
	defer func() { _ = tpm.Close() }()
	akCert := tpm.AKCertificate(tpmsim.RSA2048)
	s.step("the cloud starts a machine with a TPM",
		"AK", "its template and certificate are in the TPM's NV memory",
		"machine", akCert.Subject.String(),
		"issuer", akCert.Issuer.String())

	machines := []membership.Member{
		{NodeName: "node-1", Machine: "gce:example-project/4711000000000000001", ProviderID: providerID("node-1")},
		{NodeName: "node-2", Machine: "gce:example-project/4711000000000000002", ProviderID: providerID("node-2")},
	}
	plane, err := newControlPlane(cloud.Root(), machines)
	if err != nil {
		return err
	}
	s.step("the control plane is configured",
		"cluster", plane.clusterID,
		"trusts", cloud.Root().Subject.String(),
		"expects", "node-1 on machine "+string(machines[0].Machine),
		"", "node-2 on machine "+string(machines[1].Machine))

	n, err := newNode(tpm, "node-1", plane.clusterID)
	if err != nil {
		return err
	}
	s.step("the node makes a kubelet key and a certificate request",
		"subject", "CN=system:node:node-1,O=system:nodes",
		"claims", "provider ID "+providerID("node-1"))

	answer, issued, err := join(ctx, s, n, plane)
	if err != nil {
		return err
	}

	s.chapter("Attacks with the evidence of node-1, which is no secret")
	if err := attackWithEvidence(ctx, s, plane, answer); err != nil {
		return err
	}
	s.chapter("Attacks with a TPM")
	if err := attackWithTPM(ctx, s, plane, "the TPM of node-1 asks to be node-2", tpm, "node-2", attest.CheckMembership); err != nil {
		return err
	}
	if err := tpm.Close(); err != nil { // a process has one simulator
		return err
	}
	if err := attackWithOtherTPMs(ctx, s, plane, cloud); err != nil {
		return err
	}
	return s.end(issued)
}

// join is the way in: hello, challenge, answer, verification, certificate. It returns
// the answer as it was filed, too, for the attacks.
func join(ctx context.Context, s *story, n *node, plane *controlPlane) (*csr.Request, *csr.Issued, error) {
	hello, err := n.hello(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.step("hello, from the node",
		"carries", fmt.Sprintf("the request, the AK and its certificates: %d bytes", len(hello.Spec.Request)))

	challenge, err := plane.verifier.Challenge(ctx, hello)
	if err != nil {
		return nil, nil, err
	}
	s.step("challenge, from the control plane",
		"checked", "node policy, request signature, AK, certificate chain, membership",
		"binds", "cluster, signer, requester, AK and request, for "+window.String())

	answer, err := n.answer(ctx, challenge)
	if err != nil {
		return nil, nil, err
	}
	s.step("answer, from the node",
		"checked", "that the challenge is for its own cluster, signer, AK and request",
		"carries", fmt.Sprintf("the TPM's statement on the kubelet's key: %d bytes", len(answer.Spec.Request)))

	result, err := plane.verifier.Verify(ctx, answer)
	if err != nil {
		return nil, nil, err
	}
	details := []string{"checked", "all of the above again, the challenge's key and times, the TPM's statement"}
	for _, fact := range result.Facts() {
		details = append(details, string(fact.Standing), fact.Name+": "+fact.Value)
	}
	s.step("verification, by the control plane", details...)

	issued, err := plane.ca.Issue(ctx, result.Checked(), result.Verified())
	if err != nil {
		return nil, nil, err
	}
	s.step("certificate, from the cluster's CA",
		"subject", "made anew; SANs and provider ID only as vouched for")
	return answer, issued, nil
}
