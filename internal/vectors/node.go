package main

import (
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
)

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// join is what one node's messages are bound to. Its zero fields are filled in by
// defaults.
type join struct {
	request    []byte // PKCS#10
	key        crypto.Signer
	signer     string
	username   string
	groups     []string
	usages     []string
	expiration int32
	cluster    string
	ring       vector.RingKey
	window     time.Duration
	label      string // of the nonce
}

// defaults are those of the good node: a bootstrap token asks for a client
// certificate.
func (w *world) defaults(j join) join {
	if j.request == nil {
		j.request, j.key = w.request, w.tls
	}
	if j.signer == "" {
		j.signer = csr.SignerClientTPM
	}
	if j.username == "" {
		j.username, j.groups = bootstrap, []string{"system:bootstrappers", "system:authenticated"}
	}
	if j.usages == nil {
		j.usages = csr.Usages(must(csr.PurposeOf(j.signer)), false)
	}
	if j.cluster == "" {
		j.cluster = clusterID
	}
	if j.ring.ID == "" {
		j.ring = w.ring
	}
	if j.window == 0 {
		j.window = attest.DefaultWindow
	}
	if j.label == "" {
		j.label = "nonce"
	}
	return j
}

// binding is what a verifier would bind a challenge to.
func (j *join) binding(w *world, ak crypto.PublicKey) *attest.Binding {
	issued := w.now.Add(-time.Minute)
	b := &attest.Binding{
		Road:              attest.RoadAK,
		IssuedAt:          issued.Unix(),
		NotAfter:          issued.Add(j.window).Unix(),
		ClusterID:         j.cluster,
		SignerName:        j.signer,
		Requester:         j.username,
		ExpirationSeconds: j.expiration,
		MachineKey:        must(csr.SPKIHash(ak)),
		RequestHash:       must(csr.ParsePKCS10(j.request)).InfoHash,
	}
	copy(b.KeyID[:], must(hex.DecodeString(j.ring.ID)))
	copy(b.Nonce[:], derive(j.label, len(b.Nonce)))
	return b
}

// secrets derives S and the qualifying data of a binding.
func (j *join) secrets(b *attest.Binding) (secret, qualifyingData []byte) {
	der := must(b.Marshal())
	secret = vector.Secret(j.ring.Secret, der)
	return secret, vector.QualifyingData(secret, der)
}

// object is the object of the API server, filed under a signer name at a time.
func (j *join) object(bundle *csr.Bundle, signer string, created time.Time) *csr.Request {
	r := &csr.Request{
		APIVersion: "certificates.k8s.io/v1",
		Kind:       "CertificateSigningRequest",
		Metadata:   csr.Metadata{Name: "csr-1", UID: "6f2b0f6a-0000-4000-8000-000000000001", CreationTimestamp: created},
		Spec: csr.Spec{Request: must(bundle.Marshal()), SignerName: signer, Usages: j.usages,
			Username: j.username, Groups: j.groups},
	}
	if j.expiration != 0 {
		r.Spec.ExpirationSeconds = &j.expiration
	}
	return r
}

// answeredAt is when answers are filed: half a minute after the challenge.
func (w *world) answeredAt() time.Time { return w.now.Add(-30 * time.Second) }

// bundleOf puts evidence behind a request.
func bundleOf(request []byte, chain [][]byte, statements ...attest.AttestationStatement) *csr.Bundle {
	data := must((&attest.AttestationBundle{Statements: statements, Certificates: chain}).Marshal())
	return &csr.Bundle{Request: request, Provider: tpm.Provider, Data: data}
}

// helloOf is the object of a hello.
func (w *world) helloOf(j join, akPublic []byte, chain [][]byte) *csr.Request {
	j = w.defaults(j)
	der := must((&attest.Hello{Road: attest.RoadAK, ClusterID: j.cluster, TargetSigner: j.signer, AKPublic: akPublic}).Marshal())
	bundle := bundleOf(j.request, chain, attest.AttestationStatement{Type: oid.NodeAttestHello, Stmt: der})
	return j.object(bundle, csr.SignerChallengeTPM, w.now.Add(-time.Minute))
}

// answerOf is the object of an answer.
func (w *world) answerOf(j join, b *attest.Binding, e *tpm.CertifyEvidence, akPublic []byte, chain [][]byte) *csr.Request {
	j = w.defaults(j)
	proof := must((&attest.Proof{Binding: must(b.Marshal()), AKPublic: akPublic}).Marshal())
	bundle := bundleOf(j.request, chain,
		attest.AttestationStatement{Type: oid.TCGAttestTPMCertify, Stmt: must(tpm.MarshalTCGAttestCertify(e))},
		attest.AttestationStatement{Type: oid.NodeAttestProof, Stmt: proof})
	return j.object(bundle, j.signer, w.answeredAt())
}

// tpmNode is a node with an AK in the simulator.
type tpmNode struct {
	join
	attester  *attest.Attester
	public    *tpm.Public
	certified tpm.Key
}

// tpmNode makes a node whose AK comes from source. Its certificate is in NV, or is
// issued here.
func (w *world) tpmNode(source tpm.AKSource, j *join) *tpmNode {
	if j == nil {
		j = &join{}
	}
	n := &tpmNode{join: w.defaults(*j)}
	n.public = must(tpm.AKPublic(w.ctx, w.shared, source, secret.Value[[]byte]{}))
	o := &attest.AttesterOptions{}
	if source.CertificateIndex != 0 {
		o.Intermediates = [][]byte{w.tpm.CA().AKIntermediate().Raw}
	} else {
		leaf := must(w.tpm.CertifyAK(must(n.public.Key()), nil))
		o.Certificates = [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw}
	}
	n.attester = must(attest.NewAttester(w.shared, source, o))
	if resident, ok := n.key.(*tpm.TPMKey); ok {
		n.certified = resident
	} else {
		n.certified = must(tpm.SoftwareKey(rawKey(n.key)))
	}
	return n
}

func (n *tpmNode) subject() *attest.Subject {
	return &attest.Subject{Request: n.request, SignerName: n.signer, ClusterID: n.cluster, ExpirationSeconds: n.expiration}
}

func (n *tpmNode) hello(w *world) *csr.Request {
	return n.object(must(n.attester.Hello(w.ctx, n.subject())), csr.SignerChallengeTPM, w.now.Add(-time.Minute))
}

func (n *tpmNode) challenge(w *world) []byte {
	b := n.binding(w, must(n.public.Key()))
	secret, _ := n.secrets(b)
	return must((&attest.Challenge{Binding: *b, Clear: secret}).Marshal())
}

func (n *tpmNode) answer(w *world, challenge []byte) *csr.Request {
	return n.object(must(n.attester.Answer(w.ctx, challenge, n.certified, n.subject())), n.signer, w.answeredAt())
}
