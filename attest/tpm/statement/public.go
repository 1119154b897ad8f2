package statement

import (
	"strconv"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// Limits inside a TPMT_PUBLIC, in bytes.
const (
	maxModulusSize    = 512 // RSA-4096
	maxCoordinateSize = 66  // P-521
)

// Checks of [ParsePublic].
const (
	// CheckPublicSize: the TPMT_PUBLIC is absent or over 1024 bytes.
	CheckPublicSize Check = "public-size"
	// CheckPublicEncoding: the TPMT_PUBLIC is not in its one canonical form, ends
	// early, has bytes after it, or holds values that no TPM accepts together.
	CheckPublicEncoding Check = "public-encoding"
	// CheckKeyType: the public area is of another kind than an RSA or ECC key.
	CheckKeyType Check = "key-type"
)

// Public is a TPMT_PUBLIC, the public area of an RSA or ECC key: TPM 2.0 Library,
// Part 2, 12.2.4. Its byte slices share memory with the bytes that it was parsed
// from. It may be a template, whose key is not there yet: only Key says that there
// is one.
type Public struct {
	// Raw is the whole structure as it was received, without a size prefix: the
	// bytes under the Name.
	Raw []byte
	// Type is tpm2.TPMAlgRSA or tpm2.TPMAlgECC.
	Type tpm2.TPMAlgID
	// NameAlg is tpm2.TPMAlgSHA1, SHA256, SHA384 or SHA512.
	NameAlg tpm2.TPMAlgID
	// Attributes say what the TPM enforces for the key.
	Attributes Attributes
	// AuthPolicy is empty or a digest under NameAlg.
	AuthPolicy []byte
	// Symmetric is how a storage key protects its children; its Alg is
	// tpm2.TPMAlgNull for every other key.
	Symmetric SymmetricScheme
	// Scheme is the one scheme that the key works with; its Alg is tpm2.TPMAlgNull
	// where each command says which.
	Scheme KeyScheme
	// KDF is an ECC key's; its Alg is tpm2.TPMAlgNull on every TPM in use. Zero for
	// RSA.
	KDF KeyScheme
	// KeyBits is the size of an RSA modulus in bits, 8 to 4096. 0 for ECC.
	KeyBits uint16
	// Exponent is an RSA exponent as it stands there: 0 means 65537. 0 for ECC.
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
	// KeyBits is the key size in bits, not checked; 0 where Alg is tpm2.TPMAlgNull.
	KeyBits uint16
	// Mode is tpm2.TPMAlgCFB for a storage key; 0 where Alg is tpm2.TPMAlgNull.
	Mode tpm2.TPMAlgID
}

// KeyScheme is a TPMT_RSA_SCHEME, TPMT_ECC_SCHEME or TPMT_KDF_SCHEME: Part 2,
// 11.2.4.2, 11.2.5.6 and 11.2.3.3.
type KeyScheme struct {
	// Alg is the scheme, tpm2.TPMAlgNull for none.
	Alg tpm2.TPMAlgID
	// Hash is the scheme's hash; 0 where the scheme has none (NULL, RSAES).
	Hash tpm2.TPMAlgID
	// Count is the commit counter of ECDAA; 0 for every other scheme.
	Count uint16
}

// ParsePublic parses a TPMT_PUBLIC without a size prefix: an RSA key of up to 4096
// bits or an ECC key on P-256, P-384 or P-521, with any attributes and any scheme; a
// storage key's symmetric algorithm must be AES. It is strict: one encoding for one
// value, no reserved bits, nothing after it. It does no arithmetic: whether the
// point is on its curve is for Key to say.
//
// The result refers to b, which must not be changed afterwards. Errors are an
// [*Error] with [CheckPublicSize], [CheckPublicEncoding], [CheckKeyType],
// [CheckNameAlgorithm], or [CheckWeakKey] for any other curve.
func ParsePublic(b []byte) (*Public, error) {
	if len(b) == 0 || len(b) > tpmwire.MaxTPMTPublicSize {
		return nil, tpmwire.Refuse(CheckPublicSize, strconv.Itoa(len(b))+" bytes", "1 to "+strconv.Itoa(tpmwire.MaxTPMTPublicSize))
	}
	p := &Public{Raw: b}
	s := cryptobyte.String(b)
	if err := p.readHeader(&s); err != nil {
		return nil, err
	}
	var err error
	if p.Type == tpm2.TPMAlgRSA {
		err = p.readRSA(&s)
	} else {
		err = p.readECC(&s)
	}
	if err != nil {
		return nil, err
	}
	if !s.Empty() {
		return nil, badPublic(strconv.Itoa(len(s))+" bytes after the public area", "none")
	}
	return p, nil
}

// readHeader reads type to policy.
func (p *Public) readHeader(s *cryptobyte.String) error {
	if !s.ReadUint16((*uint16)(&p.Type)) || !s.ReadUint16((*uint16)(&p.NameAlg)) || !s.ReadUint32((*uint32)(&p.Attributes)) {
		return badPublic("an end within type, name algorithm or attributes", "a TPMT_PUBLIC")
	}
	if p.Type != tpm2.TPMAlgRSA && p.Type != tpm2.TPMAlgECC {
		return tpmwire.Refuse(CheckKeyType, tpmwire.AlgorithmName(p.Type), "RSA or ECC")
	}
	nameHash := tpmwire.HashOf(p.NameAlg)
	if nameHash == 0 {
		return tpmwire.Refuse(CheckNameAlgorithm, tpmwire.AlgorithmName(p.NameAlg), "SHA256, SHA384 or SHA512")
	}
	if p.Attributes.HasAny(reservedAttributes) {
		return badPublic("attributes "+p.Attributes.String(), "no reserved bit")
	}
	if !tpmwire.ReadTPM2B(s, &p.AuthPolicy, tpmwire.MaxDigestSize) || len(p.AuthPolicy) != 0 && len(p.AuthPolicy) != nameHash.Size() {
		return badPublic("policy", "none, or a digest under the name algorithm")
	}
	return p.Symmetric.read(s)
}

func (p *Public) readRSA(s *cryptobyte.String) error {
	if !p.Scheme.read(s, rsaSchemeForm) {
		return badPublic("RSA scheme "+p.Scheme.String(), "a TPMT_RSA_SCHEME")
	}
	if !s.ReadUint16(&p.KeyBits) || !s.ReadUint32(&p.Exponent) {
		return badPublic("an end within the RSA parameters", "a TPMT_PUBLIC")
	}
	if p.KeyBits == 0 || p.KeyBits > 8*maxModulusSize || p.KeyBits%8 != 0 {
		return badPublic("keyBits "+strconv.Itoa(int(p.KeyBits)), "a multiple of 8, at most 4096")
	}
	if !tpmwire.ReadTPM2B(s, &p.Modulus, maxModulusSize) {
		return badPublic("modulus", "at most 512 bytes")
	}
	return nil
}

func (p *Public) readECC(s *cryptobyte.String) error {
	if !p.Scheme.read(s, eccSchemeForm) {
		return badPublic("ECC scheme "+p.Scheme.String(), "a TPMT_ECC_SCHEME")
	}
	if !s.ReadUint16((*uint16)(&p.Curve)) {
		return badPublic("an end within the ECC parameters", "a TPMT_PUBLIC")
	}
	if _, ok := tpmwire.CurveOf(p.Curve); !ok {
		return tpmwire.Refuse(CheckWeakKey, "curve "+tpmwire.HexNumber(uint64(p.Curve), 4), "P-256, P-384 or P-521")
	}
	if !p.KDF.read(s, kdfSchemeForm) {
		return badPublic("KDF scheme "+p.KDF.String(), "a TPMT_KDF_SCHEME")
	}
	if !tpmwire.ReadTPM2B(s, &p.X, maxCoordinateSize) || !tpmwire.ReadTPM2B(s, &p.Y, maxCoordinateSize) {
		return badPublic("point", "two coordinates of at most 66 bytes")
	}
	return nil
}

func (v *SymmetricScheme) read(s *cryptobyte.String) error {
	if !s.ReadUint16((*uint16)(&v.Alg)) {
		return badPublic("an end before the symmetric scheme", "a TPMT_PUBLIC")
	}
	switch v.Alg {
	case tpm2.TPMAlgNull:
		return nil
	case tpm2.TPMAlgAES:
		if !s.ReadUint16(&v.KeyBits) || !s.ReadUint16((*uint16)(&v.Mode)) {
			return badPublic("an end within the symmetric scheme", "a TPMT_PUBLIC")
		}
		return nil
	}
	return badPublic("symmetric scheme "+tpmwire.AlgorithmName(v.Alg), "NULL or AES")
}

// schemeForm says what follows a scheme's identifier.
type schemeForm uint8

const (
	formUnknown schemeForm = iota
	formEmpty
	formHash
	formHashCount
)

func rsaSchemeForm(alg tpm2.TPMAlgID) schemeForm {
	switch alg {
	case tpm2.TPMAlgNull, tpm2.TPMAlgRSAES:
		return formEmpty
	case tpm2.TPMAlgRSASSA, tpm2.TPMAlgRSAPSS, tpm2.TPMAlgOAEP:
		return formHash
	}
	return formUnknown
}

func eccSchemeForm(alg tpm2.TPMAlgID) schemeForm {
	switch alg {
	case tpm2.TPMAlgNull:
		return formEmpty
	case tpm2.TPMAlgECDSA, tpm2.TPMAlgECDH, tpm2.TPMAlgSM2, tpm2.TPMAlgECSchnorr, tpm2.TPMAlgECMQV:
		return formHash
	case tpm2.TPMAlgECDAA:
		return formHashCount
	}
	return formUnknown
}

func kdfSchemeForm(alg tpm2.TPMAlgID) schemeForm {
	switch alg {
	case tpm2.TPMAlgNull:
		return formEmpty
	case tpm2.TPMAlgMGF1, tpm2.TPMAlgKDF1SP80056A, tpm2.TPMAlgKDF2, tpm2.TPMAlgKDF1SP800108:
		return formHash
	}
	return formUnknown
}

func (v *KeyScheme) read(s *cryptobyte.String, form func(tpm2.TPMAlgID) schemeForm) bool {
	if !s.ReadUint16((*uint16)(&v.Alg)) {
		return false
	}
	switch form(v.Alg) {
	case formEmpty:
		return true
	case formHash:
		return s.ReadUint16((*uint16)(&v.Hash)) && tpmwire.KnownHash(v.Hash)
	case formHashCount:
		return s.ReadUint16((*uint16)(&v.Hash)) && tpmwire.KnownHash(v.Hash) && s.ReadUint16(&v.Count)
	}
	return false
}

// String gives scheme and hash in the specification's words, as in "RSASSA/SHA256".
func (v KeyScheme) String() string {
	if v.Hash == 0 {
		return tpmwire.AlgorithmName(v.Alg)
	}
	return tpmwire.AlgorithmName(v.Alg) + "/" + tpmwire.AlgorithmName(v.Hash)
}

func badPublic(got, want string) error { return tpmwire.Refuse(CheckPublicEncoding, got, want) }
