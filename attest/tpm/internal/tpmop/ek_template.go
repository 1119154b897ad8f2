package tpmop

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"fmt"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckEKType: the EK is of a kind for which no credential can be made. RSA-2048, RSA-3072
// (with the exponent 65537), P-256 and P-384 are possible.
const CheckEKType refusal.Check = "ek-type"

// ekParameters are the hash of all derivations and the size of the AES key of a credential for an
// EK.
type ekParameters struct {
	Hash    tpm2.TPMIAlgHash
	AesBits tpm2.TPMKeyBits
}

// The table of the TCG EK Credential Profile 2.6, B.3 and B.4. The EKs of the low and the high
// range have the same parameters.
var (
	smallEK = ekParameters{tpm2.TPMAlgSHA256, 128}
	largeEK = ekParameters{tpm2.TPMAlgSHA384, 256}
	rsaEKs  = map[int]ekParameters{2048: smallEK, 3072: largeEK} // by bits
	eccEKs  = map[tpm2.TPMECCCurve]ekParameters{tpm2.TPMECCNistP256: smallEK, tpm2.TPMECCNistP384: largeEK}
)

// EKParametersOf looks an EK up by its kind and nothing else: whatever a node says about its EK's
// name algorithm or cipher, its credential is made with these.
func EKParametersOf(ek crypto.PublicKey) (ekParameters, error) {
	got, want := "an EK of another kind", "RSA-2048, RSA-3072, P-256 or P-384"
	switch k := ek.(type) {
	case *rsa.PublicKey:
		if k == nil || k.N == nil {
			break
		}
		p, ok := rsaEKs[k.N.BitLen()]
		if ok && k.E == tpmwire.DefaultRSAExponent {
			return p, nil
		}
		got, want = "an RSA EK of "+strconv.Itoa(k.N.BitLen())+" bits with the exponent "+strconv.Itoa(k.E), "2048 or 3072, and 65537"
	case *ecdsa.PublicKey:
		if k == nil || k.Curve == nil {
			break
		}
		curve, _ := tpmwire.CurveOfKey(k)
		if p, ok := eccEKs[curve.ID]; ok {
			return p, nil
		}
		got, want = "an EK on "+k.Curve.Params().Name, "P-256 or P-384"
	}
	return ekParameters{}, CheckEKType.Refuse(got, want)
}

// EKCipher is AES in CFB mode, which every EK template uses.
func EKCipher(bits tpm2.TPMKeyBits) tpm2.TPMTSymDefObject {
	return tpm2.TPMTSymDefObject{
		Algorithm: tpm2.TPMAlgAES,
		KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, bits),
		Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
	}
}

// The digests of an EK's policies (TCG EK Credential Profile 2.6, B.6.2 to B.6.5), by
// the hash of its name algorithm. A is TPM2_PolicySecret(TPM_RH_ENDORSEMENT); C is
// TPM2_PolicyAuthorizeNV of the NV index 0x01c07f01 (SHA-384: 0x01c07f02) as the
// profile defines it; B is TPM2_PolicyOR of the two.
const (
	EKPolicyA256 = "\x83\x71\x97\x67\x44\x84\xb3\xf8\x1a\x90\xcc\x8d\x46\xa5\xd7\x24" +
		"\xfd\x52\xd7\x6e\x06\x52\x0b\x64\xf2\xa1\xda\x1b\x33\x14\x69\xaa"
	EKPolicyC256 = "\x37\x67\xe2\xed\xd4\x3f\xf4\x5a\x3a\x7e\x1e\xae\xfc\xef\x78\x64" +
		"\x3d\xca\x96\x46\x32\xe7\xaa\xd8\x2c\x67\x3a\x30\xd8\x63\x3f\xde"
	EKPolicyB256 = "\xca\x3d\x0a\x99\xa2\xb9\x39\x06\xf7\xa3\x34\x24\x14\xef\xcf\xb3" +
		"\xa3\x85\xd4\x4c\xd1\xfd\x45\x90\x89\xd1\x9b\x50\x71\xc0\xb7\xa0"
	EKPolicyA384 = "\x8b\xbf\x22\x66\x53\x7c\x17\x1c\xb5\x6e\x40\x3c\x4d\xc1\xd4\xb6" +
		"\x4f\x43\x26\x11\xdc\x38\x6e\x6f\x53\x20\x50\xc3\x27\x8c\x93\x0e" +
		"\x14\x3e\x8b\xb1\x13\x38\x24\xcc\xb4\x31\x05\x38\x71\xc6\xdb\x53"
	EKPolicyC384 = "\xd6\x03\x2c\xe6\x1f\x2f\xb3\xc2\x40\xeb\x3c\xf6\xa3\x32\x37\xef" +
		"\x2b\x6a\x16\xf4\x29\x3c\x22\xb4\x55\xe2\x61\xcf\xfd\x21\x7a\xd5" +
		"\xb4\x94\x7c\x2d\x73\xe6\x30\x05\xee\xd2\xdc\x2b\x35\x93\xd1\x65"
	EKPolicyB384 = "\xb2\x6e\x7d\x28\xd1\x1a\x50\xbc\x53\xd8\x82\xbc\xf5\xfd\x3a\x1a" +
		"\x07\x41\x48\xbb\x35\xd3\xb4\xe4\xcb\x1c\x0a\xd9\xbd\xe4\x19\xca" +
		"\xcb\x47\xba\x09\x69\x96\x46\x15\x0f\x9f\xc0\x00\xf3\xf8\x0e\x12"
)

// EKRange is the low or the high range of EK templates.
type EKRange int

// The two ranges.
const (
	EKLow  EKRange = iota // attributes 0x300b2, policy A, a unique field of zeros
	EKHigh                // attributes 0x300f2, policy B, an empty unique field
)

// unique is one part of a template's unique field.
func (r EKRange) unique(width int) []byte {
	if r == EKHigh {
		return nil
	}
	return make([]byte, width)
}

// of turns an area into a template of this range.
func (r EKRange) of(p ekParameters, area *tpm2.TPMTPublic) *tpm2.TPMTPublic {
	digest := EKPolicyA256
	switch {
	case r == EKHigh && p == largeEK:
		digest = EKPolicyB384
	case r == EKHigh:
		digest = EKPolicyB256
	}
	area.NameAlg, area.AuthPolicy.Buffer = p.Hash, []byte(digest)
	area.ObjectAttributes = tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: r == EKHigh,
		AdminWithPolicy: true, Restricted: true, Decrypt: true,
	}
	return area
}

// EKTemplateRSA is the template of an RSA EK of 2048 or 3072 bits.
func EKTemplateRSA(bits int, r EKRange) *tpm2.TPMTPublic {
	p := rsaEKs[bits]
	parms := tpm2.TPMSRSAParms{Symmetric: EKCipher(p.AesBits), KeyBits: tpm2.TPMKeyBits(bits)}
	return r.of(p, RSAKeyArea(parms, tpm2.TPMAObject{}, r.unique(bits/8)))
}

// EKTemplateECC is the template of an EK on P-256 or P-384.
func EKTemplateECC(curve tpm2.TPMECCCurve, r EKRange) *tpm2.TPMTPublic {
	p := eccEKs[curve]
	c, _ := tpmwire.CurveOf(curve)
	parms := tpm2.TPMSECCParms{Symmetric: EKCipher(p.AesBits), CurveID: curve}
	return r.of(p, ECCKeyArea(parms, tpm2.TPMAObject{}, r.unique(c.Width), r.unique(c.Width)))
}

// RSAKeyArea is a public area with a SHA-256 Name. The exponent is 65537, which TPMs write as
// 0 (Part 2, 12.2.3.5), and whatever p omits is TPM_ALG_NULL.
func RSAKeyArea(p tpm2.TPMSRSAParms, attributes tpm2.TPMAObject, unique []byte) *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256, ObjectAttributes: attributes,
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &p),
		Unique:     tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: unique}),
	}
}

// ECCKeyArea is the same for an ECC key.
func ECCKeyArea(p tpm2.TPMSECCParms, attributes tpm2.TPMAObject, x, y []byte) *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, ObjectAttributes: attributes,
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &p),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
			X: tpm2.TPM2BECCParameter{Buffer: x},
			Y: tpm2.TPM2BECCParameter{Buffer: y},
		}),
	}
}

// Padded is s followed by zeros, size bytes in all; s must fit.
func Padded[S ~string | ~[]byte](s S, size int) []byte {
	b := make([]byte, size)
	copy(b, s)
	return b
}

// MarshalTemplate is tpm2.Marshal for a caller's template: tpm2.Marshal panics if a field is
// missing that the others require.
func MarshalTemplate(area *tpm2.TPMTPublic) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("template: its fields contradict each other: %v", p)
		}
	}()
	return tpm2.Marshal(area), nil
}

// StorageRootKey has an empty unique field, as in the draft's other implementations; with
// zeros there a TPM makes another key.
func StorageRootKey() *tpm2.TPMTPublic {
	area := tpm2.ECCSRKTemplate
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{})
	return &area
}
