package attest

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
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

// Marshal returns the DER of p. It returns an [*Error] with [CheckEncoding] if
// Binding is not the DER of a Binding or a key is empty or over
// [MaxPublicSize].
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
			addTagged(b, tagContext0, p.EKPublic)
		}
		b.AddASN1OctetString(p.AKPublic)
	})
	return b.Bytes()
}

func (p *Proof) check(road Road) error {
	switch {
	case p.EKPublic != nil && road != RoadEK:
		return fault("proof", "ekPublic", "none on road ak")
	case p.EKPublic != nil && (len(p.EKPublic) == 0 || len(p.EKPublic) > MaxPublicSize):
		return fault("proof", "ekPublic", "a SubjectPublicKeyInfo")
	case len(p.AKPublic) == 0 || len(p.AKPublic) > MaxPublicSize:
		return fault("proof", "akPublic", "a TPMT_PUBLIC")
	}
	return nil
}

// ParseProof reads the DER of a Proof, the Binding inside included. It accepts
// exactly what [Proof.Marshal] writes; the result shares memory with der. It
// returns an [*Error] with [CheckEncoding], [CheckVersion] or [CheckSize].
func ParseProof(der []byte) (*Proof, error) {
	p, _, err := parseProof(der)
	return p, err
}

// parseProof also returns the Binding that it had to read.
func parseProof(der []byte) (*Proof, *Binding, error) {
	body, err := openSequence("proof", der, MaxEvidenceSize)
	if err != nil {
		return nil, nil, err
	}
	p := &Proof{}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, nil, fault("proof", "binding", "a SEQUENCE")
	}
	p.Binding = raw
	binding, err := ParseBinding(raw)
	if err != nil {
		return nil, nil, err
	}
	if body.PeekASN1Tag(tagContext0) {
		if p.EKPublic, err = readOctets("proof", "ekPublic", &body, tagContext0, 1, MaxPublicSize); err != nil {
			return nil, nil, err
		}
	}
	if p.AKPublic, err = readOctets("proof", "akPublic", &body, asn1.OCTET_STRING, 1, MaxPublicSize); err != nil {
		return nil, nil, err
	}
	if !body.Empty() {
		return nil, nil, fault("proof", "frame", "nothing behind akPublic")
	}
	return p, binding, p.check(binding.Road)
}
