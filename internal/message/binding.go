// Package message has the DER messages of the join: the statements of hello, challenge and
// answer with the binding that they share, and the bundle that carries them in a request.
// It encodes, decodes and checks their form; package attest decides.
package message

import (
	"math"
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

// Binding is what a proof is bound to: every fact that the control plane knew
// when it gave the challenge. The verifier rebuilds it for the answer, taking
// only KeyID, Nonce and the two times from the echo, and compares the bytes.
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
	// ExpirationSeconds is spec.expirationSeconds, 0 where it is absent.
	ExpirationSeconds int32
	// MachineKey is SHA-256 of the canonical SubjectPublicKeyInfo of the EK, on
	// [RoadAK] of the AK, and on [RoadDocument] the hash of the machine.
	MachineKey [HashSize]byte
	// AKName is the TPM Name of the AK (nameAlg, big-endian, and the digest of
	// akPublic as received) on [RoadEK]; empty on the others.
	AKName []byte
	// RequestHash is SHA-256 of the CertificationRequestInfo as received.
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

// ParseBinding reads the DER of a Binding. It accepts exactly what
// [Binding.Marshal] writes; AKName shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseBinding(data []byte) (*Binding, error) {
	b := &Binding{}
	if err := der.Parse("binding", data, der.MaxChallengeSize, b.fields); err != nil {
		return nil, err
	}
	return b, nil
}
