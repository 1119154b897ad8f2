package attest

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Hello is the node's first message: which road it wants to go, for which
// cluster and signer, and with which keys. It travels as the only statement of
// an [AttestationBundle], beside the final certificate request.
//
//	Hello ::= SEQUENCE { version INTEGER (1), road ENUMERATED { ak(0), ek(1) },
//	         clusterID UTF8String, targetSigner UTF8String,
//	         ekPublic [0] IMPLICIT OCTET STRING OPTIONAL, akPublic OCTET STRING }
//
// Its statement type is [oid.NodeAttestHello].
type Hello struct {
	Road Road
	// ClusterID is 1 to [MaxClusterIDSize] bytes of UTF-8: the cluster that the
	// node means to join.
	ClusterID string
	// TargetSigner is the signer name under which the answer will be filed, 1 to
	// [MaxSignerNameSize] bytes.
	TargetSigner string
	// EKPublic is the SubjectPublicKeyInfo (DER) of an EK without a certificate,
	// on [RoadEK] only; nil otherwise.
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK as the TPM gave it, without the
	// TPM2B size: 1 to [MaxPublicSize] bytes.
	AKPublic []byte
}

// Marshal returns the DER of h. It returns an [*Error] with [CheckEncoding] if
// a field is outside its range.
func (h *Hello) Marshal() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1)
		b.AddASN1Enum(int64(h.Road))
		addText(b, h.ClusterID)
		addText(b, h.TargetSigner)
		if h.EKPublic != nil {
			addTagged(b, tagContext0, h.EKPublic)
		}
		b.AddASN1OctetString(h.AKPublic)
	})
	return b.Bytes()
}

func (h *Hello) check() error {
	switch {
	case !h.Road.valid():
		return fault("hello", "road", "ak or ek")
	case h.EKPublic != nil && h.Road != RoadEK:
		return fault("hello", "ekPublic", "none on road ak")
	case h.EKPublic != nil && (len(h.EKPublic) == 0 || len(h.EKPublic) > MaxPublicSize):
		return fault("hello", "ekPublic", "a SubjectPublicKeyInfo")
	case len(h.AKPublic) == 0 || len(h.AKPublic) > MaxPublicSize:
		return fault("hello", "akPublic", "a TPMT_PUBLIC")
	}
	if err := checkText("hello", "clusterID", h.ClusterID, 1, MaxClusterIDSize); err != nil {
		return err
	}
	return checkText("hello", "targetSigner", h.TargetSigner, 1, MaxSignerNameSize)
}

// ParseHello reads the DER of a Hello. It accepts exactly what
// [Hello.Marshal] writes; the result shares memory with der. It returns an
// [*Error] with [CheckEncoding], [CheckVersion] or [CheckSize].
func ParseHello(der []byte) (*Hello, error) {
	body, err := openSequence("hello", der, MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	h := &Hello{}
	if err := readVersion("hello", &body); err != nil {
		return nil, err
	}
	if h.Road, err = readRoad("hello", &body); err != nil {
		return nil, err
	}
	if h.ClusterID, err = readText("hello", "clusterID", &body, 1, MaxClusterIDSize); err != nil {
		return nil, err
	}
	if h.TargetSigner, err = readText("hello", "targetSigner", &body, 1, MaxSignerNameSize); err != nil {
		return nil, err
	}
	if body.PeekASN1Tag(tagContext0) {
		if h.EKPublic, err = readOctets("hello", "ekPublic", &body, tagContext0, 1, MaxPublicSize); err != nil {
			return nil, err
		}
	}
	if h.AKPublic, err = readOctets("hello", "akPublic", &body, asn1.OCTET_STRING, 1, MaxPublicSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, fault("hello", "frame", "nothing behind akPublic")
	}
	return h, h.check()
}
