package message

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// Hello is the node's first message: which road it wants to go, for which
// cluster and signer, and with which keys. It travels as the only statement of
// an [Bundle], beside the final certificate request.
//
//	Hello ::= SEQUENCE { version INTEGER (1), road ENUMERATED { ak(0), ek(1) },
//	         clusterID UTF8String, targetSigner UTF8String,
//	         ekPublic [0] IMPLICIT OCTET STRING OPTIONAL, akPublic OCTET STRING }
//
// Its statement type is [oid.NodeAttestHello].
type Hello struct {
	Road Road
	// ClusterID is 1 to [der.MaxClusterIDSize] bytes of UTF-8: the cluster that the
	// node means to join.
	ClusterID string
	// TargetSigner is the signer name under which the answer will be filed, 1 to
	// [der.MaxSignerNameSize] bytes.
	TargetSigner string
	// EKPublic is the SubjectPublicKeyInfo (DER) of an EK without a certificate,
	// on [RoadEK] only; nil otherwise.
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK as the TPM gave it, without the
	// TPM2B size: 1 to [der.MaxPublicSize] bytes.
	AKPublic []byte
}

// Marshal returns the DER of h. It returns a [*refusal.Error] with [der.CheckEncoding] if
// a field is outside its range.
func (h *Hello) Marshal() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1)
		b.AddASN1Enum(int64(h.Road))
		der.AddText(b, h.ClusterID)
		der.AddText(b, h.TargetSigner)
		if h.EKPublic != nil {
			der.AddTagged(b, der.Context0, h.EKPublic)
		}
		b.AddASN1OctetString(h.AKPublic)
	})
	return b.Bytes()
}

func (h *Hello) check() error {
	switch {
	case !h.Road.ofTPM():
		return der.Fault("hello", "road", "ak or ek")
	case h.EKPublic != nil && h.Road != RoadEK:
		return der.Fault("hello", "ekPublic", "none on road ak")
	case h.EKPublic != nil && (len(h.EKPublic) == 0 || len(h.EKPublic) > der.MaxPublicSize):
		return der.Fault("hello", "ekPublic", "a SubjectPublicKeyInfo")
	case len(h.AKPublic) == 0 || len(h.AKPublic) > der.MaxPublicSize:
		return der.Fault("hello", "akPublic", "a TPMT_PUBLIC")
	}
	if err := der.CheckText("hello", "clusterID", h.ClusterID, 1, der.MaxClusterIDSize); err != nil {
		return err
	}
	return der.CheckText("hello", "targetSigner", h.TargetSigner, 1, der.MaxSignerNameSize)
}

// ParseHello reads the DER of a Hello. It accepts exactly what
// [Hello.Marshal] writes; the result shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseHello(data []byte) (*Hello, error) {
	body, err := der.OpenSequence("hello", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	h := &Hello{}
	if err := der.ReadVersion("hello", &body); err != nil {
		return nil, err
	}
	if h.Road, err = readRoad("hello", "ENUMERATED 0 or 1", &body, Road.ofTPM); err != nil {
		return nil, err
	}
	if h.ClusterID, err = der.ReadText("hello", "clusterID", &body, 1, der.MaxClusterIDSize); err != nil {
		return nil, err
	}
	if h.TargetSigner, err = der.ReadText("hello", "targetSigner", &body, 1, der.MaxSignerNameSize); err != nil {
		return nil, err
	}
	if body.PeekASN1Tag(der.Context0) {
		if h.EKPublic, err = der.ReadOctets("hello", "ekPublic", &body, der.Context0, 1, der.MaxPublicSize); err != nil {
			return nil, err
		}
	}
	if h.AKPublic, err = der.ReadOctets("hello", "akPublic", &body, asn1.OCTET_STRING, 1, der.MaxPublicSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault("hello", "frame", "nothing after akPublic")
	}
	return h, h.check()
}
