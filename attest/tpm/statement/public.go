package statement

import (
	"cmp"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits inside a TPMT_PUBLIC, in bytes.
const (
	maxModulusSize    = 512 // RSA-4096
	maxCoordinateSize = 66  // P-521
)

// Checks of [ParsePublic].
const (
	// checkPublicSize: the TPMT_PUBLIC is absent or over 1024 bytes.
	checkPublicSize refusal.Check = "public-size"
	// checkPublicEncoding: the TPMT_PUBLIC is not in its only canonical form, is truncated,
	// has trailing bytes, or holds a combination of values that no TPM accepts.
	checkPublicEncoding refusal.Check = "public-encoding"
	// checkKeyType: the public area is not that of an RSA or ECC key.
	checkKeyType refusal.Check = "tpm-key-type"
)

// Public is a TPMT_PUBLIC, the public area of an RSA or ECC key: TPM 2.0 Library, Part 2,
// 12.2.4. Its byte slices share memory with the bytes that it was parsed from. It may be a
// template, which has no key yet: only Key tells whether there is one.
type Public struct {
	// Raw is the whole structure as it was received, without a size prefix: the bytes that
	// the Name is over.
	Raw []byte
	// Type is tpm2.TPMAlgRSA or tpm2.TPMAlgECC.
	Type tpm2.TPMAlgID
	// NameAlg is tpm2.TPMAlgSHA1, SHA256, SHA384 or SHA512.
	NameAlg tpm2.TPMAlgID
	// Attributes are enforced by the TPM.
	Attributes Attributes
	// AuthPolicy is empty or a digest under NameAlg.
	AuthPolicy []byte
	// Symmetric is how a storage key protects its children; its Alg is
	// tpm2.TPMAlgNull for every other key.
	Symmetric SymmetricScheme
	// Scheme is the only scheme that the key works with; its Alg is tpm2.TPMAlgNull if each
	// command says which.
	Scheme KeyScheme
	// KDF is an ECC key's; its Alg is tpm2.TPMAlgNull on every TPM in use. Zero for
	// RSA.
	KDF KeyScheme
	// KeyBits is the size of an RSA modulus in bits, 8 to 4096. 0 for ECC.
	KeyBits uint16
	// Exponent is an RSA exponent as encoded: 0 means 65537. 0 for ECC.
	Exponent uint32
	// Curve is an ECC key's: tpm2.TPMECCNistP256, P384 or P521. 0 for RSA.
	Curve tpm2.TPMECCCurve
	// Modulus is an RSA key's, big-endian. A template's may be empty or any bytes.
	Modulus []byte
	// X and Y are an ECC key's coordinates, big-endian, with or without leading
	// zero bytes. A template's may be empty or any bytes.
	X, Y []byte
}

// SymmetricScheme is a TPMT_SYM_DEF_OBJECT: Part 2, 11.1.7.
type SymmetricScheme struct {
	// Alg is tpm2.TPMAlgNull or tpm2.TPMAlgAES.
	Alg tpm2.TPMAlgID
	// KeyBits is the key size in bits, not checked; 0 if Alg is tpm2.TPMAlgNull.
	KeyBits uint16
	// Mode is tpm2.TPMAlgCFB for a storage key; 0 if Alg is tpm2.TPMAlgNull.
	Mode tpm2.TPMAlgID
}

// KeyScheme is a TPMT_RSA_SCHEME, TPMT_ECC_SCHEME or TPMT_KDF_SCHEME: Part 2,
// 11.2.4.2, 11.2.5.6 and 11.2.3.3.
type KeyScheme struct {
	// Alg is the scheme, tpm2.TPMAlgNull for none.
	Alg tpm2.TPMAlgID
	// Hash is the scheme's hash; 0 if the scheme has none (NULL, RSAES).
	Hash tpm2.TPMAlgID
	// Count is the commit counter of ECDAA; 0 for every other scheme.
	Count uint16
}

// ParsePublic parses a TPMT_PUBLIC without a size prefix: an RSA key of up to 4096 bits or an
// ECC key on P-256, P-384 or P-521, with any attributes and any scheme; a storage key's
// symmetric algorithm must be AES. It is strict: each value has one encoding, and reserved
// bits and trailing bytes are refused. It does no arithmetic: whether the point is on its
// curve is for Key to say.
//
// The result refers to b, which must not be changed afterwards. Errors are a
// [*refusal.Error] with the check "public-size", "public-encoding", "tpm-key-type",
// "name-algorithm", or "tpm-key-strength" for any other curve.
func ParsePublic(b []byte) (*Public, error) {
	if len(b) == 0 || len(b) > tpmwire.MaxTPMTPublicSize {
		return nil, checkPublicSize.Refuse(strconv.Itoa(len(b))+" bytes", "1 to "+strconv.Itoa(tpmwire.MaxTPMTPublicSize))
	}
	p := &Public{Raw: b}
	w := wire{in: b}
	if err := p.code(&w); err != nil {
		return nil, err
	}
	if !w.in.Empty() {
		return nil, badPublic(strconv.Itoa(len(w.in))+" bytes after the public area", "none")
	}
	return p, nil
}

// Marshal returns the TPMT_PUBLIC of p's fields, without a size prefix; Raw is ignored. For a
// parsed one, these are the bytes it was parsed from. It returns a [*refusal.Error] with the
// check for which [ParsePublic] would refuse the result.
func (p *Public) Marshal() ([]byte, error) {
	p = cmp.Or(p, new(Public))
	w := writer(128 + len(p.Modulus))
	if err := p.code(w); err != nil {
		return nil, err
	}
	_, err := ParsePublic(w.out)
	return w.out, err
}

// BeforeUnique returns everything before the last field, unique: the part that a key has in common
// with its template.
func (p *Public) BeforeUnique() []byte {
	if p.Type == tpm2.TPMAlgECC {
		return p.Raw[:len(p.Raw)-4-len(p.X)-len(p.Y)]
	}
	return p.Raw[:len(p.Raw)-2-len(p.Modulus)]
}

func (p *Public) code(w *wire) error {
	switch {
	case !number(w, &p.Type) || !number(w, &p.NameAlg) || !number(w, &p.Attributes):
		return badPublic("an end within type, name algorithm or attributes", "a TPMT_PUBLIC")
	case p.Type != tpm2.TPMAlgRSA && p.Type != tpm2.TPMAlgECC:
		return checkKeyType.Refuse(tpmwire.AlgorithmName(p.Type), "RSA or ECC")
	case tpmwire.HashOf(p.NameAlg) == 0:
		return checkNameAlgorithm.Refuse(tpmwire.AlgorithmName(p.NameAlg), "SHA256, SHA384 or SHA512")
	case p.Attributes.HasAny(reservedAttributes):
		return badPublic("attributes "+p.Attributes.String(), "no reserved bit")
	case !w.tpm2b(&p.AuthPolicy, tpmwire.MaxDigestSize) || len(p.AuthPolicy) != 0 && len(p.AuthPolicy) != tpmwire.HashOf(p.NameAlg).Size():
		return badPublic("policy", "none, or a digest under the name algorithm")
	}
	if err := p.Symmetric.code(w); err != nil {
		return err
	}
	if p.Type == tpm2.TPMAlgRSA {
		return p.codeRSA(w)
	}
	return p.codeECC(w)
}

func (p *Public) codeRSA(w *wire) error {
	switch {
	case !p.Scheme.code(w, rsaSchemes):
		return badPublic("RSA scheme "+p.Scheme.String(), "a TPMT_RSA_SCHEME")
	case !number(w, &p.KeyBits) || !number(w, &p.Exponent):
		return badPublic("an end within the RSA parameters", "a TPMT_PUBLIC")
	case p.KeyBits == 0 || p.KeyBits > 8*maxModulusSize || p.KeyBits%8 != 0:
		return badPublic("keyBits "+strconv.Itoa(int(p.KeyBits)), "a multiple of 8, at most 4096")
	case !w.tpm2b(&p.Modulus, maxModulusSize):
		return badPublic("modulus", "at most 512 bytes")
	}
	return nil
}

func (p *Public) codeECC(w *wire) error {
	if !p.Scheme.code(w, eccSchemes) {
		return badPublic("ECC scheme "+p.Scheme.String(), "a TPMT_ECC_SCHEME")
	}
	if !number(w, &p.Curve) {
		return badPublic("an end within the ECC parameters", "a TPMT_PUBLIC")
	}
	switch _, known := tpmwire.CurveOf(p.Curve); {
	case !known:
		return badCurve(p.Curve)
	case !p.KDF.code(w, kdfSchemes):
		return badPublic("KDF scheme "+p.KDF.String(), "a TPMT_KDF_SCHEME")
	case !w.tpm2b(&p.X, maxCoordinateSize) || !w.tpm2b(&p.Y, maxCoordinateSize):
		return badPublic("point", "two coordinates of at most 66 bytes")
	}
	return nil
}

func (v *SymmetricScheme) code(w *wire) error {
	switch {
	case !number(w, &v.Alg):
		return badPublic("an end before the symmetric scheme", "a TPMT_PUBLIC")
	case v.Alg == tpm2.TPMAlgNull:
	case v.Alg != tpm2.TPMAlgAES:
		return badPublic("symmetric scheme "+tpmwire.AlgorithmName(v.Alg), "NULL or AES")
	case !number(w, &v.KeyBits) || !number(w, &v.Mode):
		return badPublic("an end within the symmetric scheme", "a TPMT_PUBLIC")
	}
	return nil
}

// The schemes of each kind, with the number of fields after the identifier: none, a hash,
// or a hash and a count.
var (
	rsaSchemes = map[tpm2.TPMAlgID]int{
		tpm2.TPMAlgNull: 0, tpm2.TPMAlgRSAES: 0, tpm2.TPMAlgRSASSA: 1, tpm2.TPMAlgRSAPSS: 1, tpm2.TPMAlgOAEP: 1,
	}
	eccSchemes = map[tpm2.TPMAlgID]int{
		tpm2.TPMAlgNull: 0, tpm2.TPMAlgECDSA: 1, tpm2.TPMAlgECDH: 1, tpm2.TPMAlgSM2: 1, tpm2.TPMAlgECSchnorr: 1,
		tpm2.TPMAlgECMQV: 1, tpm2.TPMAlgECDAA: 2,
	}
	kdfSchemes = map[tpm2.TPMAlgID]int{
		tpm2.TPMAlgNull: 0, tpm2.TPMAlgMGF1: 1, tpm2.TPMAlgKDF1SP80056A: 1, tpm2.TPMAlgKDF2: 1, tpm2.TPMAlgKDF1SP800108: 1,
	}
)

func (v *KeyScheme) code(w *wire, schemes map[tpm2.TPMAlgID]int) bool {
	if !number(w, &v.Alg) {
		return false
	}
	fields, known := schemes[v.Alg]
	return known && (fields < 1 || number(w, &v.Hash) && tpmwire.KnownHash(v.Hash)) && (fields < 2 || number(w, &v.Count))
}

// String returns the scheme and the hash by their names in the specification, as in
// "RSASSA/SHA256".
func (v KeyScheme) String() string {
	if v.Hash == 0 {
		return tpmwire.AlgorithmName(v.Alg)
	}
	return tpmwire.AlgorithmName(v.Alg) + "/" + tpmwire.AlgorithmName(v.Hash)
}

func badPublic(got, want string) error { return checkPublicEncoding.Refuse(got, want) }

func badCurve(c tpm2.TPMECCCurve) error {
	return checkWeakKey.Refuse("curve "+tpmwire.HexNumber(uint64(c), 4), "P-256, P-384 or P-521")
}
