package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// node is a machine that wants to be a node: its TPM, and a kubelet's key.
type node struct {
	attester *attest.Attester
	key      crypto.Signer
	subject  attest.Subject
}

// newNode makes the key and the certificate request. The AK is the one whose
// template and certificate the cloud left in the TPM.
func newNode(simulated *tpmsim.TPM, name, clusterID string) (*node, error) {
	prover, err := tpm.NewProver(simulated, tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{simulated.CA().AKIntermediate().Raw}})
	if err != nil {
		return nil, err
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // tpmkey.Create makes one that never leaves the TPM
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, key, name, csr.CreateOptions{ProviderID: providerID(name)})
	if err != nil {
		return nil, err
	}
	return &node{attester: attester, key: key, subject: attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: clusterID}}, nil
}

// hello asks for a challenge.
func (n *node) hello(ctx context.Context) (*csr.Request, error) {
	return file(n.attester.Hello(ctx, n.subject))
}

// answer has the TPM certify the kubelet's key for a challenge.
func (n *node) answer(ctx context.Context, challenge []byte) (*csr.Request, error) {
	return file(n.attester.Answer(ctx, challenge, n.key, n.subject))
}
