package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"log"
	"math/big"
	"net/netip"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// inventory is a list of machines, and what a policy asks.
type inventory map[string]*csr.Machine

func (list inventory) find(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
	if m, ok := list[nodeName]; ok {
		return m, nil
	}
	return nil, csr.ErrNoMachine
}

// fileRequest is what a node and kube-apiserver do: a request with evidence, filed
// by a bootstrap token's user.
func fileRequest(nodeName string) *csr.Request {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	der, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pem, err := (&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte("evidence")}).Marshal()
	if err != nil {
		log.Fatal(err)
	}
	return &csr.Request{Spec: csr.Spec{
		Request:    pem,
		SignerName: csr.SignerClientTPM,
		Usages:     csr.Usages(csr.PurposeClient, false),
		Username:   "system:bootstrap:abc123",
		Groups:     []string{"system:bootstrappers", "system:authenticated"},
	}}
}

func ExamplePolicy_Check() {
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM},
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
	fmt.Println(csr.Decide(nil).Verdict)

	refused := &csr.Error{Check: csr.CheckSubjectOrganization, Got: `"system:masters"`, Want: "system:nodes"}
	d := csr.Decide(refused)
	fmt.Println(d.Verdict, d.Reason)
	fmt.Println(d.Message)

	d = csr.Decide(refusal.Retry(errors.New("inventory is down")))
	fmt.Println(d.Verdict, d.Reason)
	// Output:
	// approve
	// deny SubjectOrganization
	// subject-organization: got "system:masters", want system:nodes
	// retry TryAgain
}

func ExampleCA_Issue() {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	ca, err := csr.NewCA(exampleChain(now))
	if err != nil {
		log.Fatal(err)
	}
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM},
		Machines:    inventory{"node-1": {Name: "machine-1", BootstrapReady: true}}.find,
	}
	ctx := context.Background()
	checked, err := policy.Check(ctx, fileRequest("node-1").Parsed())
	if err != nil {
		log.Fatal(err)
	}
	// A provider verifies the evidence here; this is what it finds.
	attested := checked.Vouch("ek:sha256:3f2a")
	attested.ProviderID = "metal://rack-1/slot-7"
	issued, err := ca.Issue(ctx, attested)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(issued.Certificate.Subject)
	fmt.Println(issued.Certificate.NotBefore.Format(time.TimeOnly), "to", issued.Certificate.NotAfter.Format(time.DateTime))
	fmt.Println(issued.Record.Machine, "has", issued.Record.ProviderID)

	attested.Machine = ""
	_, err = ca.Issue(ctx, attested)
	fmt.Println(err)
	// Output:
	// CN=system:node:node-1,O=system:nodes
	// 09:55:00 to 2026-11-21 10:00:00
	// ek:sha256:3f2a has metal://rack-1/slot-7
	// verified-machine: got no machine identity, want one
}

// exampleChain is a CA of one certificate, with its key and options.
func exampleChain(now time.Time) ([]*x509.Certificate, *ecdsa.PrivateKey, csr.CAConfig) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nodes' CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(5, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		log.Fatal(err)
	}
	return []*x509.Certificate{certificate}, key, csr.CAConfig{
		SignerNames: []string{csr.SignerClientTPM},
		Now:         func() time.Time { return now },
	}
}

func ExampleParseRequest() {
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
	requester, err := csr.RequesterOf(request.User.Username, request.User.Groups)
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

func ExampleDecision_For() {
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM},
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
