package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// rackProvider is a provider of one's own: a machine's evidence is the name of the
// rack slot that it stands in, which is no evidence at all. It reads version 2 of it.
type rackProvider struct{ policy *csr.Policy }

func (p rackProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	checked, err := p.policy.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	evidence := checked.Bundle()
	if evidence.Provider != "rack/v2" {
		return nil, &csr.Error{Check: csr.CheckProviderVersion, Got: evidence.Provider, Want: "rack/v2",
			Err: &csr.UnsupportedVersionError{Supported: []string{"rack/v2"}}}
	}
	slot := string(evidence.Data)
	return checked.Vouch("rack:"+slot, csr.Grant{}, slot), nil
}

func (p rackProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return nil, &csr.Error{Check: csr.CheckSignerName, Got: r.Request().Spec.SignerName, Want: "a client signer"}
}

func (p rackProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	return a.InventoryName()
}

func ExampleVerify() {
	const signer = "cluster.x-k8s.io/kube-apiserver-client-kubelet-rack"
	provider := rackProvider{&csr.Policy{
		SignerNames: []string{signer},
		ClusterIDs:  []string{"shop.example"},
		Machines:    inventory{"node-1": {Name: "machine-1", BootstrapReady: true}}.find,
	}}

	request := fileRequest("node-1")
	bundle, err := csr.Parse(request.Spec.Request)
	if err != nil {
		log.Fatal(err)
	}
	for _, version := range []string{"rack/v2", "rack/v1"} {
		bundle.Provider, bundle.Data = version, []byte("1/7")
		if request.Spec.Request, err = bundle.Marshal(); err != nil {
			log.Fatal(err)
		}
		request.Spec.SignerName = signer
		accepted, err := csr.Verify(context.Background(), provider, request)
		if unsupported, ok := errors.AsType[*csr.UnsupportedVersionError](err); ok {
			fmt.Println(unsupported.Annotation())
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(accepted.MachineName(), "is", accepted.Machine(), "in slot", accepted.Details())
	}
	// Output:
	// machine-1 is rack:1/7 in slot 1/7
	// cluster.x-k8s.io/kubelet-authenticator-attestation-versions rack/v2
}

func ExampleMetadata_ChooseVersion() {
	annotations := map[string]string{"cluster.x-k8s.io/kubelet-authenticator-attestation-versions": "tpm/v3,tpm/v2"}
	version, err := (&csr.Metadata{Annotations: annotations}).ChooseVersion([]string{"tpm/v1", "tpm/v2"})
	fmt.Println(version, err)
	// Output: tpm/v2 <nil>
}

func ExampleChecked_Inherit() {
	// The record of node-1's client certificate.
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	record := &csr.IssuedRecord{CredentialID: goodCredential, NodeName: "node-1", SignerName: csr.SignerClientTPM,
		Machine: "ak:sha256:00ff", MachineUID: "8f6e", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerKubeletServing},
		ClusterIDs:  []string{"shop.example"},
		Machines:    inventory{"node-1": {Name: "machine-1", UID: "8f6e", DNSNames: []string{"node-1"}, BootstrapReady: true}}.find,
		IssuedRecord: func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) {
			return record, nil
		},
		BuiltInSignerDuration: 24 * time.Hour,
	}

	checked, err := policy.Check(context.Background(), fileServingRequest("node-1").Parsed())
	if err != nil {
		log.Fatal(err)
	}
	attested, err := checked.Inherit(now)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(attested.Machine(), attested.Grant().DNSNames)

	_, err = checked.Inherit(now.Add(2 * time.Hour))
	fmt.Println(errors.Is(err, refusal.Check("inherited-expired")))
	// Output:
	// ak:sha256:00ff [node-1]
	// true
}

// fileServingRequest returns the object of a kubelet's own request.
func fileServingRequest(nodeName string) *csr.Request {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	der, err := csr.Create(csr.PurposeServing, key, nodeName, csr.CreateOptions{DNSNames: []string{nodeName}})
	if err != nil {
		log.Fatal(err)
	}
	spec, err := (&csr.Bundle{Request: der}).Spec(csr.SignerKubeletServing, 0)
	if err != nil {
		log.Fatal(err)
	}
	return csr.Filed(spec, csr.User{
		Username: csr.NodeUserPrefix + nodeName,
		Groups:   []string{csr.NodesGroup, csr.AuthenticatedGroup},
		Extra:    map[string][]string{csr.ExtraCredentialID: {goodCredential}},
	}, time.Now())
}
