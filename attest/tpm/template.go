package tpm

import (
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
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
	return rsaAK(tpm2.TPMAlgRSASSA, tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256}))
}

// AKTemplateRSA2048PSS is an attestation key of this library: RSA-2048, RSAPSS with
// SHA-256, Name over SHA-256; see AKTemplateRSA2048SHA256.
func AKTemplateRSA2048PSS() *tpm2.TPMTPublic {
	return rsaAK(tpm2.TPMAlgRSAPSS, tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSAPSS, &tpm2.TPMSSigSchemeRSAPSS{HashAlg: tpm2.TPMAlgSHA256}))
}

func rsaAK(scheme tpm2.TPMAlgID, details tpm2.TPMUAsymScheme) *tpm2.TPMTPublic {
	parms := tpm2.TPMSRSAParms{Scheme: tpm2.TPMTRSAScheme{Scheme: scheme, Details: details}, KeyBits: 2048}
	return tpmop.RSAKeyArea(parms, akAttributes(), tpmop.Padded(akUnique, 2048/8))
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
	area := tpmop.ECCKeyArea(tpm2.TPMSECCParms{Scheme: scheme, CurveID: curve}, akAttributes(), tpmop.Padded(akUnique, width), make([]byte, width))
	area.NameAlg = hash
	return area
}

func akAttributes() tpm2.TPMAObject {
	return tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, Restricted: true, SignEncrypt: true,
	}
}

// fillUnique puts a nonce into the unique field of a template, with zeros after
// it to the width of the key (ECC: the field X, and Y stays); TCG EK Credential
// Profile 2.6, 2.2.1. The rest of the template is untouched.
func fillUnique(template *statement.Public, nonce []byte) ([]byte, error) {
	width := int(template.KeyBits) / 8
	if template.Type == tpm2.TPMAlgECC {
		curve, _ := tpmwire.CurveOf(template.Curve)
		width = curve.Width
	}
	if len(nonce) > width {
		return nil, fmt.Errorf("nonce of %d bytes for a key of %d", len(nonce), width)
	}

	b := cryptobyte.NewBuilder(slices.Clone(template.BeforeUnique()))
	tpmwire.AddTPM2B(b, tpmop.Padded(nonce, width))
	if template.Type == tpm2.TPMAlgECC {
		tpmwire.AddTPM2B(b, template.Y)
	}
	return b.Bytes()
}
