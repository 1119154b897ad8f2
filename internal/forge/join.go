package forge

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Base64url is base64url without padding.
func Base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Join is what one node's messages are bound to. Its zero fields are filled in by
// defaults.
type Join struct {
	Request    []byte         // PKCS#10
	Key        crypto.Signer  // of the request
	Signer     string         // the signer name
	Username   string         // of the requester
	Groups     []string       // of the requester
	Usages     []string       // that are asked for
	Expiration int32          // in seconds, 0 for none
	Cluster    string         // the cluster ID
	Ring       attest.RingKey // the challenge key
	Label      string         // of the nonce
	EK         *SoftEK        // on the road of the EK
}

// Defaults are those of the good node: a bootstrap token asks for a client
// certificate.
func (w *Bench) Defaults(j Join) Join {
	if j.Request == nil {
		j.Request, j.Key = w.Request, w.TLS
	}
	if j.Username == "" {
		j.Username, j.Groups = w.Bootstrap, []string{"system:bootstrappers", "system:authenticated"}
	}
	j.Signer = cmp.Or(j.Signer, w.Client, csr.SignerClientTPM)
	if j.Usages == nil {
		j.Usages = csr.Usages(Must(csr.PurposeOf(j.Signer)), false)
	}
	if j.Ring.ActiveAt.IsZero() {
		j.Ring = w.Ring
	}
	j.Cluster, j.Label = cmp.Or(j.Cluster, w.ClusterID), cmp.Or(j.Label, "nonce")
	return j
}

// Binding is what a verifier would bind a challenge to.
func (j *Join) Binding(w *Bench, ak crypto.PublicKey) *message.Binding {
	issued := w.Now.Add(-time.Minute)
	return &message.Binding{
		KeyID:             j.Ring.ID,
		Nonce:             [16]byte(Derive(j.Label, 16)),
		Road:              message.RoadAK,
		IssuedAt:          issued.Unix(),
		NotAfter:          issued.Add(message.DefaultWindow).Unix(),
		ClusterID:         j.Cluster,
		SignerName:        j.Signer,
		Requester:         j.Username,
		ExpirationSeconds: j.Expiration,
		MachineKey:        Must(csr.SPKIHash(ak)),
		RequestHash:       infoHash(j.Request),
	}
}

// infoHash is the SHA-256 of the CertificationRequestInfo, of requests too that package
// csr refuses; of what is none it is the SHA-256 of all.
func infoHash(request []byte) [sha256.Size]byte {
	var body, info cryptobyte.String
	s := cryptobyte.String(request)
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Element(&info, asn1.SEQUENCE) {
		return sha256.Sum256(request)
	}
	return sha256.Sum256(info)
}

// Secrets derives S and the qualifying data of a binding.
func (j *Join) Secrets(b *message.Binding) (secret, qualifyingData []byte) {
	der := Must(b.Marshal())
	key := j.Ring.Secret.Reveal()
	secret = Secret(key[:], der)
	return secret, QualifyingData(secret, der)
}

// Object is the object of the API server, filed under a signer name at a time.
func (j *Join) Object(bundle *csr.Bundle, signer string, created time.Time) *csr.Request {
	r := &csr.Request{
		APIVersion: "certificates.k8s.io/v1",
		Kind:       "CertificateSigningRequest",
		Metadata:   csr.Metadata{Name: "csr-1", UID: "6f2b0f6a-0000-4000-8000-000000000001", CreationTimestamp: created},
		Spec: csr.Spec{Request: Must(bundle.Marshal()), SignerName: signer, Usages: j.Usages,
			Username: j.Username, Groups: j.Groups},
	}
	if j.Expiration != 0 {
		r.Spec.ExpirationSeconds = &j.Expiration
	}
	return r
}

// AnsweredAt is when answers are filed: half a minute after the challenge.
func (w *Bench) AnsweredAt() time.Time { return w.Now.Add(-30 * time.Second) }

// bundleOf puts evidence behind a request.
func bundleOf(request []byte, chain [][]byte, statements ...message.Statement) *csr.Bundle {
	data := Must((&message.Bundle{Statements: statements, Certificates: chain}).Marshal())
	return &csr.Bundle{Request: request, Provider: tpm.Provider + "/v1", Data: data}
}

// Hello is the object of a hello, on the road of the EK where j has one.
func (w *Bench) Hello(j Join, akPublic []byte, s Sources) *csr.Request {
	j = w.Defaults(j)
	h := &message.Hello{Road: message.RoadAK, ClusterID: j.Cluster, TargetSigner: j.Signer, EKPublic: s.Public, AKPublic: akPublic}
	if j.EK != nil {
		h.Road = message.RoadEK
	}
	bundle := bundleOf(j.Request, s.Chain, message.Statement{Type: oid.NodeAttestHello, Stmt: Must(h.Marshal())})
	return j.Object(bundle, csr.SignerChallengeTPM, w.Now.Add(-time.Minute))
}

// WithKey is a join whose request has another key.
func (j Join) WithKey(w *Bench, key crypto.Signer) Join {
	request := w.NewPKCS10()
	request.Key = key
	j.Request, j.Key = request.DER(), key
	return j
}

// SoftEK is the public part of an EK with its certificates.
type SoftEK struct {
	Public  crypto.PublicKey
	Chain   [][]byte          // its certificates, leaf first
	private *ecdsa.PrivateKey // of a live world's
}

// Identity is the machine identity of the EK.
func (k *SoftEK) Identity() string {
	sum := Must(csr.SPKIHash(k.Public))
	return "ek:sha256:" + hex.EncodeToString(sum[:])
}

// Secret is S, a challenge's secret: HMAC-SHA256 under the challenge key K over
// "nodeattest/tpm/v1 secret", a zero byte, and the DER of the binding. It is written
// down here once more, beside package attest, so that both must be right.
func Secret(k, binding []byte) []byte {
	return labelled(k, "nodeattest/tpm/v1 secret", binding)
}

// QualifyingData is what a certify statement must contain: HMAC-SHA256 under S over
// "nodeattest/tpm/v1 certify", a zero byte, and the DER of the binding.
func QualifyingData(s, binding []byte) []byte {
	return labelled(s, "nodeattest/tpm/v1 certify", binding)
}

// QuotedData is what a quote must contain: as QualifyingData, under the label
// "nodeattest/tpm/v1 quote".
func QuotedData(s, binding []byte) []byte {
	return labelled(s, "nodeattest/tpm/v1 quote", binding)
}

func labelled(key []byte, label string, binding []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(append([]byte(label), 0))
	m.Write(binding)
	return m.Sum(nil)
}
