package attest

import (
	"encoding/hex"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Sizes of the fixed fields of a Binding, in bytes.
const (
	KeyIDSize = 8
	NonceSize = 16
	HashSize  = 32
)

// KeyID names a challenge key of a [KeyRing].
type KeyID [KeyIDSize]byte

// String returns the identifier in lower-case hexadecimal.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// Binding is what a proof is bound to: every fact that the control plane knew
// when it gave the challenge. The verifier rebuilds it for the answer, taking
// only KeyID, Nonce and the two times from the echo, and compares the bytes.
//
//	Binding ::= SEQUENCE { version INTEGER (1), road ENUMERATED { ak(0), ek(1) },
//	         keyID OCTET STRING (SIZE(8)), nonce OCTET STRING (SIZE(16)),
//	         issuedAt INTEGER, notAfter INTEGER, clusterID UTF8String,
//	         signerName UTF8String, requester UTF8String, expirationSeconds INTEGER,
//	         machineKey OCTET STRING (SIZE(32)), akName OCTET STRING,
//	         requestHash OCTET STRING (SIZE(32)) }
type Binding struct {
	Road  Road
	KeyID KeyID
	// Nonce is random: two challenges for one request differ.
	Nonce [NonceSize]byte
	// IssuedAt and NotAfter are Unix seconds, 0 to 253402300799.
	IssuedAt, NotAfter int64
	// ClusterID is 1 to [MaxClusterIDSize] bytes.
	ClusterID string
	// SignerName is the target signer, 1 to [MaxSignerNameSize] bytes.
	SignerName string
	// Requester is spec.username of the request object, at most
	// [MaxRequesterSize] bytes; empty outside Kubernetes.
	Requester string
	// ExpirationSeconds is spec.expirationSeconds, 0 where it is absent.
	ExpirationSeconds int32
	// MachineKey is SHA-256 of the canonical SubjectPublicKeyInfo of the EK, on
	// [RoadAK] of the AK.
	MachineKey [HashSize]byte
	// AKName is the TPM Name of the AK (nameAlg, big-endian, and the digest of
	// akPublic as received) on [RoadEK]; empty on [RoadAK].
	AKName []byte
	// RequestHash is SHA-256 of the CertificationRequestInfo as received.
	RequestHash [HashSize]byte
}

// Marshal returns the DER of b. It returns an [*Error] with [CheckEncoding] if
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
		addText(out, b.ClusterID)
		addText(out, b.SignerName)
		addText(out, b.Requester)
		out.AddASN1Int64(int64(b.ExpirationSeconds))
		out.AddASN1OctetString(b.MachineKey[:])
		out.AddASN1OctetString(b.AKName)
		out.AddASN1OctetString(b.RequestHash[:])
	})
}

func (b *Binding) check() error {
	switch {
	case !b.Road.valid():
		return fault("binding", "road", "ak or ek")
	case b.IssuedAt < 0 || b.IssuedAt > maxUnixSeconds:
		return fault("binding", "issuedAt", "Unix seconds, 0 to 253402300799")
	case b.NotAfter < 0 || b.NotAfter > maxUnixSeconds:
		return fault("binding", "notAfter", "Unix seconds, 0 to 253402300799")
	case b.ExpirationSeconds < 0:
		return fault("binding", "expirationSeconds", "0 to 2147483647")
	case b.Road == RoadAK && len(b.AKName) != 0:
		return fault("binding", "akName", "none on road ak")
	case b.Road == RoadEK && (len(b.AKName) < 3 || len(b.AKName) > maxNameSize):
		return fault("binding", "akName", "a TPM Name on road ek")
	}
	if err := checkText("binding", "clusterID", b.ClusterID, 1, MaxClusterIDSize); err != nil {
		return err
	}
	if err := checkText("binding", "signerName", b.SignerName, 1, MaxSignerNameSize); err != nil {
		return err
	}
	return checkText("binding", "requester", b.Requester, 0, MaxRequesterSize)
}

// Issued returns IssuedAt as a time in UTC.
func (b *Binding) Issued() time.Time { return time.Unix(b.IssuedAt, 0).UTC() }

// Expires returns NotAfter as a time in UTC.
func (b *Binding) Expires() time.Time { return time.Unix(b.NotAfter, 0).UTC() }

// ParseBinding reads the DER of a Binding. It accepts exactly what
// [Binding.Marshal] writes; AKName shares memory with der. It returns an
// [*Error] with [CheckEncoding], [CheckVersion] or [CheckSize].
func ParseBinding(der []byte) (*Binding, error) {
	body, err := openSequence("binding", der, MaxChallengeSize)
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
		return nil, fault("binding", "frame", "nothing behind requestHash")
	}
	return b, b.check()
}

func (b *Binding) readHead(s *cryptobyte.String) (err error) {
	if err := readVersion("binding", s); err != nil {
		return err
	}
	if b.Road, err = readRoad("binding", s); err != nil {
		return err
	}
	if err := readFixed("binding", "keyID", s, b.KeyID[:]); err != nil {
		return err
	}
	if err := readFixed("binding", "nonce", s, b.Nonce[:]); err != nil {
		return err
	}
	if b.IssuedAt, err = readInt("binding", "issuedAt", s, maxUnixSeconds); err != nil {
		return err
	}
	b.NotAfter, err = readInt("binding", "notAfter", s, maxUnixSeconds)
	return err
}

func (b *Binding) readTail(s *cryptobyte.String) (err error) {
	if b.ClusterID, err = readText("binding", "clusterID", s, 1, MaxClusterIDSize); err != nil {
		return err
	}
	if b.SignerName, err = readText("binding", "signerName", s, 1, MaxSignerNameSize); err != nil {
		return err
	}
	if b.Requester, err = readText("binding", "requester", s, 0, MaxRequesterSize); err != nil {
		return err
	}
	seconds, err := readInt("binding", "expirationSeconds", s, 1<<31-1)
	if err != nil {
		return err
	}
	b.ExpirationSeconds = int32(seconds)
	if err := readFixed("binding", "machineKey", s, b.MachineKey[:]); err != nil {
		return err
	}
	if b.AKName, err = readOctets("binding", "akName", s, asn1.OCTET_STRING, 0, maxNameSize); err != nil {
		return err
	}
	return readFixed("binding", "requestHash", s, b.RequestHash[:])
}
