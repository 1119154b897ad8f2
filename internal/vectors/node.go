package main

import (
	"time"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/secret"
)

// tpmNode is a node with an AK in the simulator.
type tpmNode struct {
	forge.Join
	attester  *attest.Attester
	public    *statement.Public
	certified tpmkey.Certifiable
}

// tpmNode makes a node whose AK comes from source. Its certificate is in NV, or is
// issued here.
func (w *world) tpmNode(source tpmkind.AKSource, j *forge.Join) *tpmNode {
	if j == nil {
		j = &forge.Join{}
	}
	n := &tpmNode{Join: w.Defaults(*j)}
	n.public = forge.Must(tpmkind.AKPublic(w.ctx, w.shared, source, secret.Value[[]byte]{}))
	o := tpmkind.ProverOptions{}
	if source.CertificateIndex != 0 {
		o.Intermediates = [][]byte{w.tpm.CA().AKIntermediate().Raw}
	} else {
		leaf := forge.Must(w.tpm.CertifyAK(forge.Must(n.public.Key())))
		o.Certificates = [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw}
	}
	n.attester = forge.Must(attest.NewAttester(forge.Must(tpmkind.NewProver(w.shared, source, o))))
	if resident, ok := n.Key.(*tpmkey.Key); ok {
		n.certified = resident
	} else {
		n.certified = forge.Must(tpmkey.SoftwareKey(forge.RawKey(n.Key)))
	}
	return n
}

func (n *tpmNode) subject() attest.Subject {
	return attest.Subject{Request: n.Request, SignerName: n.Signer, ClusterID: n.Cluster, ExpirationSeconds: n.Expiration}
}

func (n *tpmNode) hello(w *world) *csr.Request {
	return n.Object(bundleOf(n.attester.Hello(w.ctx, n.subject())), csr.SignerChallengeTPM, w.Now.Add(-time.Minute))
}

func (n *tpmNode) challenge(w *world) []byte {
	b := n.Binding(w.Bench, forge.Must(n.public.Key()))
	secret, _ := n.Secrets(b)
	return forge.Must((&message.Challenge{Binding: *b, Clear: secret}).Marshal())
}

func (n *tpmNode) answer(w *world, challenge []byte) *csr.Request {
	return n.Object(bundleOf(n.attester.Answer(w.ctx, challenge, n.certified, n.subject())), n.Signer, w.AnsweredAt())
}

// bundleOf is the bundle that an attester made.
func bundleOf(spec *csr.Spec, err error) *csr.Bundle {
	return forge.Must(csr.Parse(forge.Must(spec, err).Request))
}
