// Package forge makes evidence for a join with keys in software, changes one thing in it and
// signs again. Its tables of attacks are the only ones on requests and on evidence of TPMs: the
// vectors of module vectors are made from them, and tests try them on running verifiers. A
// step that cannot be done is a panic, which [Caught] turns into an error.
package forge

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The names of nodes and machines: machine-1 may be node-1, machine-2 node-2.
const (
	NodeName     = "node-1"
	OtherNode    = "node-2"
	MachineOne   = "machine-1"
	MachineTwo   = "machine-2"
	MachineThree = "machine-3"
	// The certificates with which the two machines come back.
	CredentialOne = "X509SHA256=1111111111111111111111111111111111111111111111111111111111111111"
	CredentialTwo = "X509SHA256=2222222222222222222222222222222222222222222222222222222222222222"
	// MachineType is the type of the OtherName that names a machine: 2.999.1, from the
	// arc for examples.
	MachineType = oid.OID("\x88\x37\x01")
)

// Bench is what evidence is made with: keys in software, the CA that certifies them, and the
// control plane's names. All keys are derived from their labels.
type Bench struct {
	Now time.Time // the clock
	// ClusterID, ProviderID and Bootstrap are of the good node's join.
	ClusterID, ProviderID, Bootstrap string
	Client, Serving                  string // signer names; "" means package attest's
	Quoted                           bool   // good answers have a quote

	// CA certifies the keys; Stranger is a CA that no verifier trusts.
	CA, Stranger         *tpmsim.CA
	Ring, Retired, Later attest.RingKey // the key in use, one no longer in use, and one not yet in use

	TLS, TLS2       crypto.Signer // *ecdsa.PrivateKey on P-256
	Request         []byte        // the good node's PKCS#10 request
	AKP256, AKOther *SoftAK       // the good machine's AK, and another machine's

	// Machines are the machines of a live world, by name.
	Machines map[string]*Machine
	WeakEKs  map[string]*SoftEK // weak EKs that the world expects of the first machine, by attack

	// RSA keys take long to make: these are nil unless vectors are written.
	RSATLS, RSA1024 *rsa.PrivateKey
	AKRSA           *SoftAK // the good machine's
}

// MakeKeys makes the keys, and with rsaKey, if it is not nil, those in RSA.
func (w *Bench) MakeKeys(rsaKey func(bits int, label string) *rsa.PrivateKey) {
	w.TLS = Repeatable{ECKey(elliptic.P256(), "TLS key", nil)}
	w.TLS2 = Repeatable{ECKey(elliptic.P256(), "another TLS key", nil)}
	w.AKP256 = w.NewSoftAK(ECKey(elliptic.P256(), "AK P-256", nil), softak.ECDSA, MachineOne)
	if rsaKey != nil {
		w.RSATLS, w.RSA1024 = rsaKey(2048, "RSA TLS key"), rsaKey(1024, "weak RSA key")
		w.AKRSA = w.NewSoftAK(rsaKey(2048, "AK RSA"), softak.RSASSA, MachineOne)
	}
	w.AKOther = w.NewSoftAK(ECKey(elliptic.P256(), "AK of machine 2", nil), softak.ECDSA, MachineTwo)
	w.Request = Must(csr.Create(csr.PurposeClient, w.TLS, NodeName, csr.CreateOptions{ProviderID: w.ProviderID}))
	w.Ring = newRingKey("ring key", w.Now.Add(-time.Hour), time.Time{})
	w.Retired = newRingKey("retired ring key", w.Now.Add(-48*time.Hour), w.Now.Add(-time.Second))
	w.Later = newRingKey("later ring key", w.Now.Add(time.Hour), time.Time{})
}

func newRingKey(label string, active, retired time.Time) attest.RingKey {
	return attest.RingKey{ID: [8]byte(Derive(label+" id", 8)), Secret: secret.New([message.SecretSize]byte(Derive(label, message.SecretSize))),
		ActiveAt: active, RetiredAt: retired}
}

// MachineName is the identity in AK certificates: every AK whose certificate has it belongs to
// one machine, including those in software, so that membership is not what refuses them.
func MachineName(name string) *tpmsim.OtherName {
	return &tpmsim.OtherName{Type: MachineType, Value: append([]byte{0x0c, byte(len(name))}, name...)}
}

// Identity is the machine identity of the OtherName MachineName(name).
func Identity(name string) string {
	return "othername:" + MachineType.String() + ":" + Base64url(MachineName(name).Value)
}

// SPKI is a key's SubjectPublicKeyInfo in DER.
func SPKI(key crypto.PublicKey) []byte {
	return Must(csr.CanonicalSPKI(key))
}

// Seed is what all keys and nonces are derived from. Nothing made from it protects anything.
const Seed = "nodeattest test vectors"

// Derive returns bytes derived from the seed and a label.
func Derive(label string, size int) []byte {
	return Must(hkdf.Key(sha256.New, []byte(Seed), nil, label, size))
}

// ECKey is the key for that label. It moves to the next candidate if the bytes are not a
// scalar, or if fits, if given, rejects the key.
func ECKey(curve elliptic.Curve, label string, fits func(*ecdsa.PublicKey) bool) *ecdsa.PrivateKey {
	size := (curve.Params().BitSize + 7) / 8
	for n := 0; ; n++ {
		raw := Derive(fmt.Sprintf("%s %d", label, n), size)
		if curve == elliptic.P521() {
			raw[0] &= 1
		}
		key, err := ecdsa.ParseRawPrivateKey(curve, raw)
		if err == nil && (fits == nil || fits(&key.PublicKey)) {
			return key
		}
	}
}

// Repeatable signs the same bytes the same way each time, as far as the scheme permits: ECDSA
// by RFC 6979, RSASSA-PKCS1-v1_5 as always.
type Repeatable struct{ crypto.Signer }

// Sign ignores the source of randomness, except for RSASSA-PSS, which needs one.
func (r Repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if _, pss := opts.(*rsa.PSSOptions); pss {
		return r.Signer.Sign(rand.Reader, digest, opts)
	}
	return r.Signer.Sign(nil, digest, opts)
}

// Failure is the panic of Must: a step of the generator that did not work. The steps are
// hundreds of one-line calls, and the only thing to do about an error is to stop and name it.
type Failure struct{ err error }

// Must returns v. An error is a failure.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check makes an error a failure.
func Check(err error) {
	if err != nil {
		panic(Failure{err})
	}
}

// Caught turns a failure into an error. Use it as a deferred call.
func Caught(err *error) {
	if r := recover(); r != nil {
		*err = errors.Join(*err, Recovered(r))
	}
}

// Recovered returns the error of a recovered failure. Any other panic continues.
func Recovered(r any) error {
	f, ok := r.(Failure)
	if !ok {
		panic(r)
	}
	return f.err
}

// Base64url is base64url without padding.
func Base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Join is what one node's messages are bound to. Its zero fields are filled with defaults.
type Join struct {
	Request    []byte         // PKCS#10
	Key        crypto.Signer  // the request's
	Signer     string         // the signer name
	Username   string         // the requester's
	Groups     []string       // the requester's
	Usages     []string       // those requested
	Expiration int32          // in seconds, 0 for none
	Cluster    string         // the cluster ID
	Ring       attest.RingKey // the challenge key
	Label      string         // the nonce's
	EK         *SoftEK        // on the road of the EK
}

// Defaults fills in the good node's values: a bootstrap token asks for a client certificate.
func (w *Bench) Defaults(j Join) Join {
	if j.Request == nil {
		j.Request, j.Key = w.Request, w.TLS
	}
	if j.Username == "" {
		j.Username, j.Groups = w.Bootstrap, []string{"system:bootstrappers", "system:authenticated"}
	}
	j.Signer = cmp.Or(j.Signer, w.Client, csr.SignerClientTPM)
	if j.Usages == nil {
		j.Usages = Must(csr.PurposeOf(j.Signer)).Usages(false)
	}
	if j.Ring.ActiveAt.IsZero() {
		j.Ring = w.Ring
	}
	j.Cluster, j.Label = cmp.Or(j.Cluster, w.ClusterID), cmp.Or(j.Label, "nonce")
	return j
}

// Binding is the content to which a verifier would bind a challenge.
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

// infoHash is the SHA-256 of the CertificationRequestInfo, even for requests that package csr
// refuses; otherwise it is the SHA-256 of the whole.
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

// Object is the API server's object, filed under a signer name at a time.
func (j *Join) Object(bundle *csr.Bundle, signer string, created time.Time) *csr.Request {
	r := &csr.Request{
		APIVersion: "certificates.k8s.io/v1",
		Kind:       "CertificateSigningRequest",
		Metadata:   csr.Metadata{Name: "csr-1", UID: "6f2b0f6a-0000-4000-8000-000000000001", CreationTimestamp: created},
		Spec:       csr.Spec{Request: Must(bundle.Marshal()), SignerName: signer, Usages: j.Usages},
		User:       csr.User{Username: j.Username, Groups: j.Groups},
	}
	if j.Expiration != 0 {
		r.Spec.ExpirationSeconds = &j.Expiration
	}
	return r
}

// AnsweredAt is when answers are filed: half a minute after the challenge.
func (w *Bench) AnsweredAt() time.Time { return w.Now.Add(-30 * time.Second) }

// bundleOf puts evidence after a request.
func bundleOf(request []byte, chain [][]byte, statements ...message.Statement) *csr.Bundle {
	data := Must((&message.Bundle{Statements: statements, Certificates: chain}).Marshal())
	return &csr.Bundle{Request: request, Provider: tpm.Provider + "/v1", Data: data}
}

// Hello is the object of a hello, on the road of the EK if j has one.
func (w *Bench) Hello(j Join, akPublic []byte, s Sources) *csr.Request {
	j = w.Defaults(j)
	h := &message.Hello{Road: message.RoadAK, ClusterID: j.Cluster, TargetSigner: j.Signer, EKPublic: s.Public, AKPublic: akPublic}
	if j.EK != nil {
		h.Road = message.RoadEK
	}
	bundle := bundleOf(j.Request, s.Chain, message.Statement{Type: oid.NodeAttestHello, Stmt: Must(h.Marshal())})
	return j.Object(bundle, csr.SignerChallengeTPM, w.Now.Add(-time.Minute))
}

// WithKey returns a join whose request has another key.
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
	private *ecdsa.PrivateKey // in a live world
}

// Identity is the machine identity of the EK.
func (k *SoftEK) Identity() string {
	sum := Must(csr.SPKIHash(k.Public))
	return "ek:sha256:" + hex.EncodeToString(sum[:])
}

// Secret is S, a challenge's secret: HMAC-SHA256 under the challenge key K over
// "nodeattest/tpm/v1 secret", a zero byte, and the DER of the binding. It is deliberately
// written here again, independently of package attest, so that both must be right.
func Secret(k, binding []byte) []byte {
	return labelled(k, "nodeattest/tpm/v1 secret", binding)
}

// QualifyingData is the required qualifying data of a certify statement: HMAC-SHA256 under S over
// "nodeattest/tpm/v1 certify", a zero byte, and the DER of the binding.
func QualifyingData(s, binding []byte) []byte {
	return labelled(s, "nodeattest/tpm/v1 certify", binding)
}

// QuotedData is the required qualifying data of a quote: like QualifyingData, under the label
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
