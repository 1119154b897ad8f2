package message

import (
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
func (h *Hello) Marshal() ([]byte, error) { return der.Marshal("hello", h.fields) }

func (h *Hello) fields(c *der.Codec) {
	c.Version()
	c.Enum("road", (*int)(&h.Road), int(RoadEK))
	c.Text("clusterID", &h.ClusterID, 1, der.MaxClusterIDSize)
	c.Text("targetSigner", &h.TargetSigner, 1, der.MaxSignerNameSize)
	keys(c, h.Road, &h.EKPublic, &h.AKPublic)
}

// keys are the last fields of a hello and of a proof: those of the TPM.
func keys(c *der.Codec, road Road, ek, ak *[]byte) {
	c.Optional("ekPublic", ek, der.Context0, 1, der.MaxPublicSize)
	c.Demand(*ek == nil || road == RoadEK, "ekPublic", "none on road ak")
	c.Octets("akPublic", ak, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// ParseHello reads the DER of a Hello. It accepts exactly what
// [Hello.Marshal] writes; the result shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseHello(data []byte) (*Hello, error) {
	h := &Hello{}
	if err := der.Parse("hello", data, der.MaxEvidenceSize, h.fields); err != nil {
		return nil, err
	}
	return h, nil
}
