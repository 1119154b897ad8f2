package tpmop

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// RSAKeyArea is a public area without symmetric part and with the exponent 65537,
// which TPMs write as 0 (Part 2, 12.2.3.5).
func RSAKeyArea(bits int, attributes tpm2.TPMAObject, scheme tpm2.TPMTRSAScheme, unique []byte) *tpm2.TPMTPublic {
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

// ECCKeyArea is a public area without symmetric part and KDF.
func ECCKeyArea(curve tpm2.TPMECCCurve, attributes tpm2.TPMAObject, scheme tpm2.TPMTECCScheme, x, y []byte) *tpm2.TPMTPublic {
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

// Padded is s with zeros after it, size bytes in all; s fits.
func Padded[S ~string | ~[]byte](s S, size int) []byte {
	b := make([]byte, size)
	copy(b, s)
	return b
}

// MarshalTemplate is tpm2.Marshal for a caller's template: that panics where a
// field is missing that the others call for.
func MarshalTemplate(area *tpm2.TPMTPublic) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("template: its fields do not go together: %v", p)
		}
	}()
	return tpm2.Marshal(area), nil
}

// StorageRootKey has an empty unique field, as the draft's other implementations have
// it; with zeros there a TPM makes another key.
func StorageRootKey() *tpm2.TPMTPublic {
	area := ECCKeyArea(tpm2.TPMECCNistP256, tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, Restricted: true, Decrypt: true,
	}, tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull}, nil, nil)
	area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		Symmetric: tpm2.TPMTSymDefObject{
			Algorithm: tpm2.TPMAlgAES,
			KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, tpm2.TPMKeyBits(128)),
			Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
		},
		Scheme:  tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull},
		CurveID: tpm2.TPMECCNistP256,
		KDF:     tpm2.TPMTKDFScheme{Scheme: tpm2.TPMAlgNull},
	})
	return area
}
