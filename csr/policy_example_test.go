package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// inventory is a list of machines, which a policy asks.
type inventory map[string]*csr.Machine

func (list inventory) find(_ context.Context, q csr.Question) (*csr.Machine, error) {
	if m, ok := list[q.NodeName]; ok {
		return m, nil
	}
	return nil, csr.ErrNoMachine
}

// fileRequest makes the object that a server files for a node: a request with evidence, by the user of
// a bootstrap token.
func fileRequest(nodeName string) *csr.Request {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	der, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	spec, err := (&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte("evidence")}).Spec(csr.SignerClientTPM, 0)
	if err != nil {
		log.Fatal(err)
	}
	user := csr.User{Username: csr.BootstrapUserPrefix + "abc123", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	return csr.Filed(spec, user, time.Now())
}

func ExamplePolicy_Check() {
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM},
		ClusterIDs:  []string{"shop.example"},
		Machines:    inventory{"node-1": {Name: "machine-1", NodeName: "node-1", BootstrapReady: true}}.find,
		ReservedIPs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	}
	request := fileRequest("node-1")
	checked, err := policy.Check(context.Background(), request.Parsed())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checked.Requester().Class, "asks for a", checked.Purpose(), "certificate of", checked.NodeName())

	// All that is wrong is reported, not the first fault alone.
	request = fileRequest("node-2")
	request.Spec.Usages = append(request.Spec.Usages, "server auth")
	_, err = policy.Check(context.Background(), request.Parsed())
	if violations, ok := errors.AsType[csr.Errors](err); ok {
		for _, v := range violations {
			fmt.Println(v.Check)
		}
	}
	fmt.Println(errors.Is(err, csr.CheckMachineUnknown))
	// Output:
	// bootstrap asks for a client certificate of node-1
	// usages
	// machine-unknown
	// true
}

func ExampleDecide() {
	// That nothing was refused proves nothing: Attested.Decision approves.
	fmt.Println(csr.Decide(nil).Verdict)

	refused := &csr.Error{Check: "subject-organization", Got: `"system:masters"`, Want: "system:nodes"}
	d := csr.Decide(refused)
	fmt.Println(d.Verdict, d.Reason)
	fmt.Println(d.Message)

	d = csr.Decide(refusal.Retry(errors.New("inventory is down")))
	fmt.Println(d.Verdict, d.Reason)
	// Output:
	// retry
	// deny SubjectOrganization
	// subject-organization: got "system:masters", want system:nodes
	// retry TryAgain
}

func ExampleParseServerObject() {
	pem := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE REQUEST-----\n..."))
	object := `{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": {"name": "csr-x7k2p", "creationTimestamp": "2026-11-20T10:00:00Z"},
		"spec": {"request": "` + pem + `", "signerName": "kubernetes.io/kubelet-serving",
			"username": "system:node:node-1", "groups": ["system:nodes", "system:authenticated"],
			"extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00ff"]}},
		"status": {}}`
	request, err := csr.ParseServerObject([]byte(object))
	if err != nil {
		log.Fatal(err)
	}
	requester, err := request.User.Requester()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(request.Metadata.Name, "by", requester.Class, requester.NodeName)
	fmt.Println(request.CredentialID())
	// Output:
	// csr-x7k2p by node node-1
	// X509SHA256=00ff
}

func ExamplePurposeOf() {
	purpose, err := csr.PurposeOf("cluster.x-k8s.io/kubelet-serving-tpm")
	fmt.Println(purpose, err)
	_, err = csr.PurposeOf("cluster-x-k8s-io/kubelet-serving-tpm")
	fmt.Println(err)
	// Output:
	// serving <nil>
	// signer-name: got "cluster-x-k8s-io/kubelet-serving-tpm", want the prefix cluster.x-k8s.io/: kube-apiserver refuses cluster-x-k8s-io/
}

func ExampleUnplacedDecision_For() {
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM},
		ClusterIDs:  []string{"shop.example"},
		Machines:    inventory{"node-1": {Name: "machine-1", BootstrapReady: true}}.find,
	}
	// reconcile is called for every change of an object, its own writes included.
	reconcile := func(request *csr.Request) {
		_, err := policy.Check(context.Background(), request.Parsed())
		d := csr.Decide(err).For(request)
		fmt.Printf("%v: %s, condition %q through %q\n", d.Verdict, d.Reason, d.Condition, d.Subresource)
		// A writer appends d.Condition to the object that it was given, with
		// d.UID and d.ResourceVersion, and updates d.Subresource. Where
		// d.Condition is "" it writes nothing.
	}

	request := fileRequest("node-9") // no machine of this name
	reconcile(request)
	request.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True"}}
	reconcile(request)
	// Another controller was faster, and wrong.
	request.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True"}}
	reconcile(request)
	// Output:
	// deny: MachineUnknown, condition "Denied" through "approval"
	// ignore: NothingToDecide, condition "" through ""
	// fail: MachineUnknown, condition "Failed" through "status"
}
