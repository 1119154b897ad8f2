// Package message has the DER messages of the join: the statements of hello, challenge and
// answer with the binding that they share, and the bundle that carries them in a request.
// It encodes, decodes and checks their form; package attest decides.
package message

import (
	"time"

	"golang.org/x/crypto/cryptobyte"
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
func (b *Binding) Marshal() ([]byte, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	out := cryptobyte.NewBuilder(make([]byte, 0, 512))
	b.add(out)
	return out.Bytes()
}

func (b *Binding) add(out *cryptobyte.Builder) {
	out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) {
		out.AddASN1Int64(1)
		out.AddASN1Enum(int64(b.Road))
		out.AddASN1OctetString(b.KeyID[:])
		out.AddASN1OctetString(b.Nonce[:])
		out.AddASN1Int64(b.IssuedAt)
		out.AddASN1Int64(b.NotAfter)
		der.AddText(out, b.ClusterID)
		der.AddText(out, b.SignerName)
		der.AddText(out, b.Requester)
		out.AddASN1Int64(int64(b.ExpirationSeconds))
		out.AddASN1OctetString(b.MachineKey[:])
		out.AddASN1OctetString(b.AKName)
		out.AddASN1OctetString(b.RequestHash[:])
	})
}

func (b *Binding) check() error {
	switch {
	case !b.Road.valid():
		return der.Fault("binding", "road", "ak, ek or document")
	case b.IssuedAt < 0 || b.IssuedAt > der.MaxUnixSeconds:
		return der.Fault("binding", "issuedAt", "Unix seconds, 0 to 253402300799")
	case b.NotAfter < 0 || b.NotAfter > der.MaxUnixSeconds:
		return der.Fault("binding", "notAfter", "Unix seconds, 0 to 253402300799")
	case b.ExpirationSeconds < 0:
		return der.Fault("binding", "expirationSeconds", "0 to 2147483647")
	case b.Road != RoadEK && len(b.AKName) != 0:
		return der.Fault("binding", "akName", "none on road "+b.Road.String())
	case b.Road == RoadEK && (len(b.AKName) < 3 || len(b.AKName) > MaxNameSize):
		return der.Fault("binding", "akName", "a TPM Name on road ek")
	}
	if err := der.CheckText("binding", "clusterID", b.ClusterID, 1, der.MaxClusterIDSize); err != nil {
		return err
	}
	if err := der.CheckText("binding", "signerName", b.SignerName, 1, der.MaxSignerNameSize); err != nil {
		return err
	}
	return der.CheckText("binding", "requester", b.Requester, 0, der.MaxRequesterSize)
}

// Issued returns IssuedAt as a time in UTC.
func (b *Binding) Issued() time.Time { return time.Unix(b.IssuedAt, 0).UTC() }

// Expires returns NotAfter as a time in UTC.
func (b *Binding) Expires() time.Time { return time.Unix(b.NotAfter, 0).UTC() }

// ParseBinding reads the DER of a Binding. It accepts exactly what
// [Binding.Marshal] writes; AKName shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseBinding(data []byte) (*Binding, error) {
	body, err := der.OpenSequence("binding", data, der.MaxChallengeSize)
	if err != nil {
		return nil, err
	}
	b := &Binding{}
	if err := b.readHead(&body); err != nil {
		return nil, err
	}
	if err := b.readTail(&body); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault("binding", "frame", "nothing after requestHash")
	}
	return b, b.check()
}

func (b *Binding) readHead(s *cryptobyte.String) (err error) {
	if err := der.ReadVersion("binding", s); err != nil {
		return err
	}
	if b.Road, err = readRoad("binding", "ENUMERATED 0, 1 or 2", s, Road.valid); err != nil {
		return err
	}
	if err := der.ReadFixed("binding", "keyID", s, b.KeyID[:]); err != nil {
		return err
	}
	if err := der.ReadFixed("binding", "nonce", s, b.Nonce[:]); err != nil {
		return err
	}
	if b.IssuedAt, err = der.ReadInt("binding", "issuedAt", s, der.MaxUnixSeconds); err != nil {
		return err
	}
	b.NotAfter, err = der.ReadInt("binding", "notAfter", s, der.MaxUnixSeconds)
	return err
}

func (b *Binding) readTail(s *cryptobyte.String) (err error) {
	if b.ClusterID, err = der.ReadText("binding", "clusterID", s, 1, der.MaxClusterIDSize); err != nil {
		return err
	}
	if b.SignerName, err = der.ReadText("binding", "signerName", s, 1, der.MaxSignerNameSize); err != nil {
		return err
	}
	if b.Requester, err = der.ReadText("binding", "requester", s, 0, der.MaxRequesterSize); err != nil {
		return err
	}
	seconds, err := der.ReadInt("binding", "expirationSeconds", s, 1<<31-1)
	if err != nil {
		return err
	}
	b.ExpirationSeconds = int32(seconds)
	if err := der.ReadFixed("binding", "machineKey", s, b.MachineKey[:]); err != nil {
		return err
	}
	if b.AKName, err = der.ReadOctets("binding", "akName", s, asn1.OCTET_STRING, 0, MaxNameSize); err != nil {
		return err
	}
	return der.ReadFixed("binding", "requestHash", s, b.RequestHash[:])
}
