package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// node is a machine that wants to be a node: its TPM, and a kubelet's key.
type node struct {
	attester *attest.Attester
	key      attest.Key
	subject  *attest.Subject
}

// newNode makes the key and the certificate request. The AK is the one whose
// template and certificate the cloud left in the TPM.
func newNode(tpm *tpmsim.TPM, name, clusterID string) (*node, error) {
	attester, err := attest.NewAttester(tpm, attest.GCERSA(), &attest.AttesterOptions{
		Intermediates: [][]byte{tpm.CA().AKIntermediate().Raw},
	})
	if err != nil {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := attest.SoftwareKey(private) // tpmkey.Create makes one that never leaves the TPM
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, private, name, csr.CreateOptions{ProviderID: providerID(name)})
	if err != nil {
		return nil, err
	}
	return &node{attester: attester, key: key, subject: &attest.Subject{
		Request: request, SignerName: csr.SignerClientTPM, ClusterID: clusterID,
	}}, nil
}

// hello asks for a challenge.
func (n *node) hello(ctx context.Context) (*csr.Request, error) {
	bundle, err := n.attester.Hello(ctx, n.subject)
	if err != nil {
		return nil, err
	}
	return file(bundle, csr.SignerChallengeTPM, time.Now())
}

// answer has the TPM certify the kubelet's key for a challenge.
func (n *node) answer(ctx context.Context, challenge []byte) (*csr.Request, error) {
	bundle, err := n.attester.Answer(ctx, challenge, n.key, n.subject)
	if err != nil {
		return nil, err
	}
	return file(bundle, n.subject.SignerName, time.Now())
}
