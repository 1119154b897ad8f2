package message

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// Proof is the node's echo of the Binding, with the keys that it used. It is
// the second statement of an answer, of type [oid.NodeAttestProof].
//
//	Proof ::= SEQUENCE { binding Binding, ekPublic [0] IMPLICIT OCTET STRING OPTIONAL,
//	         akPublic OCTET STRING }
type Proof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the
	// challenge.
	Binding []byte
	// EKPublic is as in [Hello].
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK that signed the certify statement.
	AKPublic []byte
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with [der.CheckEncoding] if
// Binding is not the DER of a Binding or a key is empty or over
// [der.MaxPublicSize].
func (p *Proof) Marshal() ([]byte, error) {
	binding, err := ParseBinding(p.Binding)
	if err != nil {
		return nil, err
	}
	if err := p.check(binding.Road); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(p.Binding)
		if p.EKPublic != nil {
			der.AddTagged(b, der.Context0, p.EKPublic)
		}
		b.AddASN1OctetString(p.AKPublic)
	})
	return b.Bytes()
}

func (p *Proof) check(road Road) error {
	switch {
	case !road.ofTPM():
		return der.Fault("proof", "road", "ak or ek")
	case p.EKPublic != nil && road != RoadEK:
		return der.Fault("proof", "ekPublic", "none on road ak")
	case p.EKPublic != nil && (len(p.EKPublic) == 0 || len(p.EKPublic) > der.MaxPublicSize):
		return der.Fault("proof", "ekPublic", "a SubjectPublicKeyInfo")
	case len(p.AKPublic) == 0 || len(p.AKPublic) > der.MaxPublicSize:
		return der.Fault("proof", "akPublic", "a TPMT_PUBLIC")
	}
	return nil
}

// ParseProof reads the DER of a Proof and of the Binding inside. It accepts
// exactly what [Proof.Marshal] writes; the result shares memory with der. It
// returns a [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseProof(data []byte) (*Proof, *Binding, error) {
	body, err := der.OpenSequence("proof", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, nil, err
	}
	p := &Proof{}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, nil, der.Fault("proof", "binding", "a SEQUENCE")
	}
	p.Binding = raw
	binding, err := ParseBinding(raw)
	if err != nil {
		return nil, nil, err
	}
	if body.PeekASN1Tag(der.Context0) {
		if p.EKPublic, err = der.ReadOctets("proof", "ekPublic", &body, der.Context0, 1, der.MaxPublicSize); err != nil {
			return nil, nil, err
		}
	}
	if p.AKPublic, err = der.ReadOctets("proof", "akPublic", &body, asn1.OCTET_STRING, 1, der.MaxPublicSize); err != nil {
		return nil, nil, err
	}
	if !body.Empty() {
		return nil, nil, der.Fault("proof", "frame", "nothing after akPublic")
	}
	if err := p.check(binding.Road); err != nil {
		return nil, nil, err
	}
	return p, binding, nil
}
