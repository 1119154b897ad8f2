package attesttest_test

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
)

// A whole join, and then a request that another user files with the same
// evidence. In a test, NewNode(t, NodeOptions{}) and NewControlPlane(t, node) close what
// they opened.
func Example() {
	ctx := context.Background()
	node, err := attesttest.OpenNode(attesttest.NodeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = node.Close() }()
	plane, err := attesttest.OpenControlPlane(node)
	if err != nil {
		fmt.Println(err)
		return
	}
	issued, err := plane.Join(ctx, node)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(issued.Certificate.Subject)

	request, err := plane.Evidence(ctx, node)
	if err != nil {
		fmt.Println(err)
		return
	}
	request.User.Username = "system:bootstrap:mallor"
	_, err = plane.Verifier.Verify(ctx, request)
	fmt.Println(err)
	fmt.Println(csr.Decide(err).Verdict, csr.Decide(err).Reason)
	// Output:
	// CN=system:node:node-1,O=system:nodes
	// binding-requester: got system:bootstrap:attest, want system:bootstrap:mallor
	// deny BindingRequester
}

// A node may come with another TPM, AK or key; here the TPM makes the kubelet's
// key, and the verifier asks for no less.
func ExampleNodeOptions() {
	ctx := context.Background()
	node, err := attesttest.OpenNode(attesttest.NodeOptions{Name: "worker-7", TPMKey: tpmkey.ECDSAP256})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = node.Close() }()
	plane, err := attesttest.OpenControlPlane(node)
	if err != nil {
		fmt.Println(err)
		return
	}
	plane.Config.RequireTPMResident = true
	verifier, err := attest.NewVerifier(plane.Config)
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := plane.Evidence(ctx, node)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := verifier.Verify(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.NodeName, result.Road, result.TPMResident, result.Machine.Kind())
	// Output: worker-7 ak true ak
}
