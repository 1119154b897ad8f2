package tpm

import (
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
)

// akUnique is in the unique field of this library's AK templates. A TPM derives a
// primary key from its template, unique field included: so no other software
// that leaves the field empty or zero has these keys.
const akUnique = "nodeattest/tpm/v1 attestation key"

// AKTemplateRSA2048SHA256 is an attestation key of this library: RSA-2048, RSASSA with
// SHA-256, Name over SHA-256. Like all of them it is a restricted signing key
// that its TPM made and that never leaves it (fixedTPM, fixedParent,
// sensitiveDataOrigin, userWithAuth, noDA, restricted, sign) with an empty
// password; noDA keeps others' wrong guesses at other keys from locking it. Each
// call returns a fresh value.
func AKTemplateRSA2048SHA256() *tpm2.TPMTPublic {
	scheme := tpm2.TPMTRSAScheme{
		Scheme:  tpm2.TPMAlgRSASSA,
		Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256}),
	}
	return rsaKeyArea(2048, akAttributes(), scheme, padded(akUnique, 2048/8))
}

// AKTemplateRSA2048PSS is an attestation key of this library: RSA-2048, RSAPSS with
// SHA-256, Name over SHA-256; see AKTemplateRSA2048SHA256.
func AKTemplateRSA2048PSS() *tpm2.TPMTPublic {
	scheme := tpm2.TPMTRSAScheme{
		Scheme:  tpm2.TPMAlgRSAPSS,
		Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSAPSS, &tpm2.TPMSSigSchemeRSAPSS{HashAlg: tpm2.TPMAlgSHA256}),
	}
	return rsaKeyArea(2048, akAttributes(), scheme, padded(akUnique, 2048/8))
}

// AKTemplateECDSAP256 is an attestation key of this library: P-256, ECDSA with
// SHA-256, Name over SHA-256; see AKTemplateRSA2048SHA256.
func AKTemplateECDSAP256() *tpm2.TPMTPublic {
	return ecdsaAK(tpm2.TPMECCNistP256, tpm2.TPMAlgSHA256, 32)
}

// AKTemplateECDSAP384 is an attestation key of this library: P-384, ECDSA with
// SHA-384, and a Name over SHA-384, so that no part of it is weaker than the
// curve; see AKTemplateRSA2048SHA256.
func AKTemplateECDSAP384() *tpm2.TPMTPublic {
	return ecdsaAK(tpm2.TPMECCNistP384, tpm2.TPMAlgSHA384, 48)
}

func ecdsaAK(curve tpm2.TPMECCCurve, hash tpm2.TPMIAlgHash, width int) *tpm2.TPMTPublic {
	scheme := tpm2.TPMTECCScheme{
		Scheme:  tpm2.TPMAlgECDSA,
		Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: hash}),
	}
	area := eccKeyArea(curve, akAttributes(), scheme, padded(akUnique, width), make([]byte, width))
	area.NameAlg = hash
	return area
}

func akAttributes() tpm2.TPMAObject {
	return tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, Restricted: true, SignEncrypt: true,
	}
}

// rsaKeyArea is a public area without symmetric part and with the exponent 65537,
// which TPMs write as 0 (Part 2, 12.2.3.5).
func rsaKeyArea(bits int, attributes tpm2.TPMAObject, scheme tpm2.TPMTRSAScheme, unique []byte) *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256, ObjectAttributes: attributes,
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{
			Symmetric: tpm2.TPMTSymDefObject{Algorithm: tpm2.TPMAlgNull},
			Scheme:    scheme,
			KeyBits:   tpm2.TPMKeyBits(bits),
		}),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: unique}),
	}
}

// eccKeyArea is a public area without symmetric part and KDF.
func eccKeyArea(curve tpm2.TPMECCCurve, attributes tpm2.TPMAObject, scheme tpm2.TPMTECCScheme, x, y []byte) *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, ObjectAttributes: attributes,
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			Symmetric: tpm2.TPMTSymDefObject{Algorithm: tpm2.TPMAlgNull},
			Scheme:    scheme,
			CurveID:   curve,
			KDF:       tpm2.TPMTKDFScheme{Scheme: tpm2.TPMAlgNull},
		}),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
			X: tpm2.TPM2BECCParameter{Buffer: x},
			Y: tpm2.TPM2BECCParameter{Buffer: y},
		}),
	}
}

// padded is s with zeros behind it, size bytes in all; s fits.
func padded[S ~string | ~[]byte](s S, size int) []byte {
	b := make([]byte, size)
	copy(b, s)
	return b
}

// marshalTemplate is tpm2.Marshal for a caller's template: that panics where a
// field is missing that the others call for.
func marshalTemplate(area *tpm2.TPMTPublic) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("template: its fields do not go together: %v", p)
		}
	}()
	return tpm2.Marshal(area), nil
}

// fillUnique puts a nonce into the unique field of a template, with zeros behind
// it to the width of the key (ECC: the field X, and Y stays); TCG EK Credential
// Profile 2.6, 2.2.1. The rest of the template is untouched.
func fillUnique(template *Public, nonce []byte) ([]byte, error) {
	width := int(template.KeyBits) / 8
	if template.Type == tpm2.TPMAlgECC {
		curve, _ := curveOf(template.Curve)
		width = curve.width
	}
	if len(nonce) > width {
		return nil, fmt.Errorf("nonce of %d bytes for a key of %d", len(nonce), width)
	}

	b := cryptobyte.NewBuilder(slices.Clone(template.beforeUnique()))
	addTPM2B(b, padded(nonce, width))
	if template.Type == tpm2.TPMAlgECC {
		addTPM2B(b, template.Y)
	}
	return b.Bytes()
}

// beforeUnique is everything up to the unique field, the last one: what a key has
// in common with its template.
func (p *Public) beforeUnique() []byte {
	if p.Type == tpm2.TPMAlgECC {
		return p.Raw[:len(p.Raw)-4-len(p.X)-len(p.Y)]
	}
	return p.Raw[:len(p.Raw)-2-len(p.Modulus)]
}
