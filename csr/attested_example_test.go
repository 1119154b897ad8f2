package csr_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// A node with a TPM sends its request and its evidence in one text. The control plane reads it,
// checks the request, has the evidence verified, and issues a certificate with the provider ID that
// is vouched for. Node and verifier come from package attesttest, with a simulated TPM.
func Example_tpm() {
	ctx := context.Background()
	node, err := attesttest.OpenNode(attesttest.NodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	plane, err := attesttest.OpenControlPlane(node)
	if err != nil {
		log.Fatal(err)
	}
	request, err := plane.Evidence(ctx, node)
	if err != nil {
		log.Fatal(err)
	}

	bundle, err := csr.Parse(request.Spec.Request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("evidence of", bundle.Provider)
	checked, err := plane.Config.Policy.Check(ctx, request.Parsed())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checked.NodeName(), "claims", checked.ClaimedProviderID().Unproven())

	// The verifier says which machine it is, and vouches for its provider ID.
	result, err := plane.Verifier.Verify(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	issued, err := plane.CA.Issue(ctx, result.Attested())
	if err != nil {
		log.Fatal(err)
	}
	id, err := oid.ParseProviderID(issued.Certificate.Extensions)
	fmt.Println(issued.Certificate.Subject, "has", id, err)

	// The same request, without a verifier's word.
	_, err = plane.CA.Issue(ctx, checked.Vouch(string(result.Machine), csr.Grant{}, nil))
	fmt.Println(csr.Decide(err).Verdict, csr.Decide(err).Reason)
	// Output:
	// evidence of tpm/v1
	// node-1 claims sim://attesttest/node-1
	// CN=system:node:node-1,O=system:nodes has sim://attesttest/node-1 <nil>
	// deny ProviderIdNotVouched
}
