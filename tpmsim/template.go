package tpmsim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// akTemplate returns the template of a restricted signing key as Google Compute
// Engine's vTPM has it: attributes 0x50072, no policy, an empty unique field.
func akTemplate(a Algorithm) (*tpm2.TPMTPublic, error) {
	t := &tpm2.TPMTPublic{
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM:            true,
			FixedParent:         true,
			SensitiveDataOrigin: true,
			UserWithAuth:        true,
			Restricted:          true,
			SignEncrypt:         true,
		},
	}
	switch a {
	case RSA2048, RSA3072:
		bits := tpm2.TPMKeyBits(2048)
		if a == RSA3072 {
			bits = 3072
		}
		rsaParameters(t, bits, tpm2.TPMTRSAScheme{
			Scheme:  tpm2.TPMAlgRSASSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256}),
		})
	case RSA2048PSS:
		rsaParameters(t, 2048, tpm2.TPMTRSAScheme{
			Scheme:  tpm2.TPMAlgRSAPSS,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSAPSS, &tpm2.TPMSSigSchemeRSAPSS{HashAlg: tpm2.TPMAlgSHA256}),
		})
	case P256:
		eccParameters(t, tpm2.TPMECCNistP256, tpm2.TPMAlgSHA256)
	case P384:
		eccParameters(t, tpm2.TPMECCNistP384, tpm2.TPMAlgSHA384)
	default:
		return nil, fmt.Errorf("%w: no AK of algorithm %v", ErrOptions, a)
	}
	return t, nil
}

func rsaParameters(t *tpm2.TPMTPublic, bits tpm2.TPMKeyBits, scheme tpm2.TPMTRSAScheme) {
	t.Type = tpm2.TPMAlgRSA
	t.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{Scheme: scheme, KeyBits: bits})
	t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{})
}

func eccParameters(t *tpm2.TPMTPublic, curve tpm2.TPMECCCurve, hash tpm2.TPMAlgID) {
	t.Type = tpm2.TPMAlgECC
	t.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		Scheme: tpm2.TPMTECCScheme{
			Scheme:  tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: hash}),
		},
		CurveID: curve,
	})
	t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{})
}

// withUnique returns a copy of the template whose unique field is full-width: the
// nonce, then zeros, in the RSA modulus or the X coordinate (EK Credential Profile,
// section 2.2.2).
func withUnique(t *tpm2.TPMTPublic, nonce []byte) (*tpm2.TPMTPublic, error) {
	c := *t
	width, err := uniqueWidth(t)
	if err != nil {
		return nil, err
	}
	if len(nonce) > width {
		return nil, fmt.Errorf("%w: a nonce of %d bytes for a unique field of %d", ErrOptions, len(nonce), width)
	}
	filled := make([]byte, width)
	copy(filled, nonce)
	if t.Type == tpm2.TPMAlgRSA {
		c.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: filled})
		return &c, nil
	}
	c.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
		X: tpm2.TPM2BECCParameter{Buffer: filled},
		Y: tpm2.TPM2BECCParameter{Buffer: make([]byte, width)},
	})
	return &c, nil
}

// uniqueWidth is the size in bytes of a template's modulus or coordinate.
func uniqueWidth(t *tpm2.TPMTPublic) (int, error) {
	switch t.Type {
	case tpm2.TPMAlgRSA:
		p, err := t.Parameters.RSADetail()
		if err != nil {
			return 0, fmt.Errorf("tpmsim: template: %w", err)
		}
		return int(p.KeyBits) / 8, nil
	case tpm2.TPMAlgECC:
		p, err := t.Parameters.ECCDetail()
		if err != nil {
			return 0, fmt.Errorf("tpmsim: template: %w", err)
		}
		switch p.CurveID {
		case tpm2.TPMECCNistP256:
			return 32, nil
		case tpm2.TPMECCNistP384:
			return 48, nil
		case tpm2.TPMECCNistP521:
			return 66, nil
		}
		return 0, fmt.Errorf("%w: template for curve %v", ErrOptions, p.CurveID)
	}
	return 0, fmt.Errorf("%w: template for key type %v", ErrOptions, t.Type)
}

// fixedNonce is the nonce of an index for which the caller gave none.
func fixedNonce(index tpm2.TPMHandle) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte("tpmsim nonce "), uint32(index)))
	return sum[:]
}
