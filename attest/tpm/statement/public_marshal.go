package statement

import (
	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// Marshal returns the TPMT_PUBLIC of p's fields, without a size prefix; Raw is not
// looked at. For a parsed one these are the bytes that it was parsed from. It
// returns an [*Error] with the check that [ParsePublic] would refuse the result for.
func (p *Public) Marshal() ([]byte, error) {
	b := cryptobyte.NewBuilder(make([]byte, 0, 128+len(p.Modulus)))
	b.AddUint16(uint16(p.Type))
	b.AddUint16(uint16(p.NameAlg))
	b.AddUint32(uint32(p.Attributes))
	tpmwire.AddTPM2B(b, p.AuthPolicy)
	p.Symmetric.add(b)
	if p.Type == tpm2.TPMAlgRSA {
		p.Scheme.add(b, rsaSchemeForm)
		b.AddUint16(p.KeyBits)
		b.AddUint32(p.Exponent)
		tpmwire.AddTPM2B(b, p.Modulus)
	} else {
		p.Scheme.add(b, eccSchemeForm)
		b.AddUint16(uint16(p.Curve))
		p.KDF.add(b, kdfSchemeForm)
		tpmwire.AddTPM2B(b, p.X)
		tpmwire.AddTPM2B(b, p.Y)
	}
	out, err := b.Bytes()
	if err != nil {
		return nil, &Error{Check: CheckPublicEncoding, Err: err}
	}
	if _, err := ParsePublic(out); err != nil {
		return nil, err
	}
	return out, nil
}

func (v *SymmetricScheme) add(b *cryptobyte.Builder) {
	b.AddUint16(uint16(v.Alg))
	if v.Alg != tpm2.TPMAlgNull {
		b.AddUint16(v.KeyBits)
		b.AddUint16(uint16(v.Mode))
	}
}

func (v *KeyScheme) add(b *cryptobyte.Builder, form func(tpm2.TPMAlgID) schemeForm) {
	b.AddUint16(uint16(v.Alg))
	switch form(v.Alg) {
	case formHash:
		b.AddUint16(uint16(v.Hash))
	case formHashCount:
		b.AddUint16(uint16(v.Hash))
		b.AddUint16(v.Count)
	}
}

// BeforeUnique is everything up to the unique field, the last one: what a key has
// in common with its template.
func (p *Public) BeforeUnique() []byte {
	if p.Type == tpm2.TPMAlgECC {
		return p.Raw[:len(p.Raw)-4-len(p.X)-len(p.Y)]
	}
	return p.Raw[:len(p.Raw)-2-len(p.Modulus)]
}
