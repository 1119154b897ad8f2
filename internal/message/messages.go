// Package message implements the DER messages of the join: the statements of hello, challenge
// and answer, the binding that they share, and the bundle that carries them in a request. It
// encodes and decodes them, and checks their form; package attest makes the decisions.
package message

import (
	"math"
	"strconv"
	"time"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// Sizes of the fields of a Binding, in bytes. A TPM Name is an algorithm and a digest.
const (
	KeyIDSize = 8
	NonceSize = 16
	HashSize  = 32

	// MaxNameSize bounds akName: nameAlg and a digest of up to 64 bytes.
	MaxNameSize = 2 + 64
)

// Binding holds the facts that a proof is bound to: every fact that the control plane knew when it issued
// the challenge. The verifier rebuilds it for the answer, taking only KeyID, Nonce and the two
// times from the echo, and compares the bytes.
//
//	Binding ::= SEQUENCE { version INTEGER (1), road ENUMERATED { ak(0), ek(1), document(2) },
//	         keyID OCTET STRING (SIZE(8)), nonce OCTET STRING (SIZE(16)),
//	         issuedAt INTEGER, notAfter INTEGER, clusterID UTF8String,
//	         signerName UTF8String, requester UTF8String, expirationSeconds INTEGER,
//	         machineKey OCTET STRING (SIZE(32)), akName OCTET STRING,
//	         requestHash OCTET STRING (SIZE(32)) }
type Binding struct {
	Road Road
	// KeyID names the challenge key.
	KeyID [KeyIDSize]byte
	// Nonce is random: two challenges for one request differ.
	Nonce [NonceSize]byte
	// IssuedAt and NotAfter are Unix seconds, 0 to 253402300799.
	IssuedAt, NotAfter int64
	// ClusterID is 1 to [der.MaxClusterIDSize] bytes.
	ClusterID string
	// SignerName is the target signer, 1 to [der.MaxSignerNameSize] bytes.
	SignerName string
	// Requester is spec.username of the request object, at most
	// [der.MaxRequesterSize] bytes; empty outside Kubernetes.
	Requester string
	// ExpirationSeconds is spec.expirationSeconds, or 0 if it is absent.
	ExpirationSeconds int32
	// MachineKey is the SHA-256 of the canonical SubjectPublicKeyInfo of the EK, or, on
	// [RoadAK], of the AK; on [RoadDocument] it is the hash of the machine.
	MachineKey [HashSize]byte
	// AKName is the TPM Name of the AK (nameAlg, big-endian, and the digest of akPublic as
	// received) on [RoadEK]; empty on the other roads.
	AKName []byte
	// RequestHash is the SHA-256 of the CertificationRequestInfo as received.
	RequestHash [HashSize]byte
}

// Marshal returns the DER of b. It returns a [*refusal.Error] with [der.CheckEncoding] if
// a field is outside its range.
func (b *Binding) Marshal() ([]byte, error) { return der.Marshal("binding", b.fields) }

func (b *Binding) fields(c *der.Codec) {
	c.Version()
	c.Enum("road", (*int)(&b.Road), int(RoadDocument))
	c.Fixed("keyID", b.KeyID[:])
	c.Fixed("nonce", b.Nonce[:])
	der.Int(c, "issuedAt", &b.IssuedAt, der.MaxUnixSeconds)
	der.Int(c, "notAfter", &b.NotAfter, der.MaxUnixSeconds)
	c.Text("clusterID", &b.ClusterID, 1, der.MaxClusterIDSize)
	c.Text("signerName", &b.SignerName, 1, der.MaxSignerNameSize)
	c.Text("requester", &b.Requester, 0, der.MaxRequesterSize)
	der.Int(c, "expirationSeconds", &b.ExpirationSeconds, math.MaxInt32)
	c.Fixed("machineKey", b.MachineKey[:])
	c.Octets("akName", &b.AKName, asn1.OCTET_STRING, 0, MaxNameSize)
	c.Demand(b.Road == RoadEK && len(b.AKName) > 2 || b.Road != RoadEK && len(b.AKName) == 0,
		"akName", "a TPM Name on road ek, none on others")
	c.Fixed("requestHash", b.RequestHash[:])
}

// Issued returns IssuedAt as a time in UTC.
func (b *Binding) Issued() time.Time { return time.Unix(b.IssuedAt, 0).UTC() }

// Expires returns NotAfter as a time in UTC.
func (b *Binding) Expires() time.Time { return time.Unix(b.NotAfter, 0).UTC() }

// ParseBinding reads the DER of a Binding. It accepts exactly what [Binding.Marshal] writes;
// AKName shares memory with data. It returns a [*refusal.Error] with [der.CheckEncoding],
// [der.CheckVersion] or [der.CheckSize].
func ParseBinding(data []byte) (*Binding, error) {
	b := &Binding{}
	return der.Parse(b, "binding", data, der.MaxChallengeSize, (*Binding).fields)
}

// Road says how trust gets from a TPM to a decision. The zero value is [RoadAK]: the numbers
// come from the wire format.
type Road int

const (
	// RoadAK is the road of the AK certificate: the certificate of the attestation key chains
	// to roots that the control plane chose. That the key is restricted and lives in a TPM is
	// its issuer's word.
	RoadAK Road = 0
	// RoadEK is the road of the EK certificate and a credential that only the TPM with that EK
	// can open.
	RoadEK Road = 1
	// RoadDocument is the road of a document that a platform signed.
	RoadDocument Road = 2
)

// String returns "ak", "ek", "document" or the number.
func (r Road) String() string {
	if r < RoadAK || r > RoadDocument {
		return "road(" + strconv.Itoa(int(r)) + ")"
	}
	return [...]string{"ak", "ek", "document"}[r]
}

// Hello is the node's first message: which road it wants to take, for which cluster and
// signer, and with which keys. It travels as the only statement of a [Bundle], alongside the
// final certificate request.
//
//	Hello ::= SEQUENCE { version INTEGER (1), road ENUMERATED { ak(0), ek(1) },
//	         clusterID UTF8String, targetSigner UTF8String,
//	         ekPublic [0] IMPLICIT OCTET STRING OPTIONAL, akPublic OCTET STRING }
//
// Its statement type is [oid.NodeAttestHello].
type Hello struct {
	Road Road
	// ClusterID is 1 to [der.MaxClusterIDSize] bytes of UTF-8: the cluster that the node
	// intends to join.
	ClusterID string
	// TargetSigner is the signer name under which the answer will be filed, 1 to
	// [der.MaxSignerNameSize] bytes.
	TargetSigner string
	// EKPublic is the SubjectPublicKeyInfo (DER) of an EK without a certificate, only on
	// [RoadEK]; nil otherwise.
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK as the TPM returned it, without the TPM2B size: 1
	// to [der.MaxPublicSize] bytes.
	AKPublic []byte
}

// Marshal returns the DER of h. It returns a [*refusal.Error] with [der.CheckEncoding] if
// a field is outside its range.
func (h *Hello) Marshal() ([]byte, error) { return der.Marshal("hello", h.fields) }

func (h *Hello) fields(c *der.Codec) {
	c.Version()
	c.Enum("road", (*int)(&h.Road), int(RoadEK))
	c.Text("clusterID", &h.ClusterID, 1, der.MaxClusterIDSize)
	c.Text("targetSigner", &h.TargetSigner, 1, der.MaxSignerNameSize)
	keys(c, h.Road, &h.EKPublic, &h.AKPublic)
}

// keys are the last fields of a hello and of a proof: the TPM's keys.
func keys(c *der.Codec, road Road, ek, ak *[]byte) {
	c.Optional("ekPublic", ek, der.Context0, 1, der.MaxPublicSize)
	c.Demand(*ek == nil || road == RoadEK, "ekPublic", "none on road ak")
	c.Octets("akPublic", ak, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// ParseHello reads the DER of a Hello. It accepts exactly what [Hello.Marshal] writes; the
// result shares memory with data. It returns a [*refusal.Error] with [der.CheckEncoding],
// [der.CheckVersion] or [der.CheckSize].
func ParseHello(data []byte) (*Hello, error) {
	h := &Hello{}
	return der.Parse(h, "hello", data, der.MaxEvidenceSize, (*Hello).fields)
}

// SecretSize is the size of a challenge's secret, in bytes.
const SecretSize = 32

// Limits on the two parts of a Credential, in bytes.
const (
	maxIDObjectSize        = 256
	maxEncryptedSecretSize = 1 << 10
)

// Challenge is the control plane's message to one node about one request: the Binding and the
// secret from which the qualifying data is made.
//
//	Challenge ::= SEQUENCE { binding Binding,
//	         secret CHOICE { clear [0] IMPLICIT OCTET STRING (SIZE(32)),
//	                         credential [1] IMPLICIT Credential } }
type Challenge struct {
	Binding Binding
	// Clear is the secret itself, 32 bytes, on [RoadAK] and [RoadDocument]: there it proves
	// only that the answer was made after the control plane spoke.
	Clear []byte
	// Credential carries the secret on [RoadEK].
	Credential *Credential
}

// Credential is the result of TPM2_MakeCredential, each part without the outer
// TPM2B size.
//
//	Credential ::= SEQUENCE { idObject OCTET STRING, encryptedSecret OCTET STRING }
type Credential struct {
	// IDObject is TPM2B integrityHMAC and encIdentity, at most 256 bytes.
	IDObject []byte
	// EncryptedSecret is the RSA ciphertext, or a TPMS_ECC_POINT of full width;
	// at most 1024 bytes.
	EncryptedSecret []byte
}

// Marshal returns the DER of c. It returns a [*refusal.Error] with [der.CheckEncoding] if a
// field is outside its range, or if the secret is not the one for the road.
func (c *Challenge) Marshal() ([]byte, error) {
	binding, err := c.Binding.Marshal()
	if err != nil {
		return nil, err
	}
	return der.Marshal("challenge", func(k *der.Codec) { c.fields(k, &binding) })
}

// fields also returns the Binding, which is never nil.
func (c *Challenge) fields(k *der.Codec, raw *[]byte) *Binding {
	binding := BindingField(k, raw)
	k.Optional("clear", &c.Clear, der.Context0, SecretSize, SecretSize)
	if k.Has(der.Context1Constructed, c.Credential != nil) {
		if c.Credential == nil {
			c.Credential = &Credential{}
		}
		k.Nested("credential", der.Context1Constructed, func(k *der.Codec) {
			k.Octets("idObject", &c.Credential.IDObject, asn1.OCTET_STRING, 1, maxIDObjectSize)
			k.Octets("encryptedSecret", &c.Credential.EncryptedSecret, asn1.OCTET_STRING, 1, maxEncryptedSecretSize)
		})
	}
	onEK := binding.Road == RoadEK
	k.Demand((c.Credential != nil) == onEK && (c.Clear == nil) == onEK, "secret", "clear [0], or on road ek credential [1]")
	return binding
}

// ParseChallenge reads the DER of a Challenge. It accepts exactly what [Challenge.Marshal]
// writes; the result shares memory with data. It returns a [*refusal.Error] with
// [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseChallenge(data []byte) (*Challenge, error) {
	c := &Challenge{}
	return der.Parse(c, "challenge", data, der.MaxChallengeSize, func(c *Challenge, k *der.Codec) { c.Binding = *c.fields(k, new([]byte)) })
}

// Proof is the node's echo of the Binding, with the keys that it used. It is
// the second statement of an answer, of type [oid.NodeAttestProof].
//
//	Proof ::= SEQUENCE { binding Binding, ekPublic [0] IMPLICIT OCTET STRING OPTIONAL,
//	         akPublic OCTET STRING }
type Proof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the challenge.
	Binding []byte
	// EKPublic is as in [Hello].
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK that signed the certify statement.
	AKPublic []byte
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with [der.CheckEncoding] if
// Binding is not the DER of a Binding, or if a key is empty or larger than
// [der.MaxPublicSize].
func (p *Proof) Marshal() ([]byte, error) {
	return der.Marshal("proof", func(c *der.Codec) { p.fields(c) })
}

// fields also returns the Binding, which is never nil.
func (p *Proof) fields(c *der.Codec) *Binding {
	binding := BindingField(c, &p.Binding)
	c.Demand(binding.Road != RoadDocument, "road", "ak or ek")
	keys(c, binding.Road, &p.EKPublic, &p.AKPublic)
	return binding
}

// BindingField is the first field of a proof and of a challenge: the DER of a Binding. If it
// is not one, BindingField records the fault and returns the zero Binding.
func BindingField(c *der.Codec, raw *[]byte) *Binding {
	c.Sequence("binding", raw)
	binding, err := ParseBinding(*raw)
	if c.Keep(err); err != nil {
		return &Binding{}
	}
	return binding
}

// ParseProof reads the DER of a Proof and of the Binding inside it. It accepts exactly what
// [Proof.Marshal] writes; the result shares memory with data. It returns a [*refusal.Error]
// with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseProof(data []byte) (*Proof, *Binding, error) {
	var binding *Binding
	p, err := der.Parse(&Proof{}, "proof", data, der.MaxEvidenceSize, func(p *Proof, c *der.Codec) { binding = p.fields(c) })
	if err != nil {
		return nil, nil, err
	}
	return p, binding, nil
}
