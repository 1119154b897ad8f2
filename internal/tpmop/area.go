package tpmop

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// RSAKeyArea is a public area with the Name over SHA-256. The exponent is 65537, which TPMs
// write as 0 (Part 2, 12.2.3.5), and what p leaves out is TPM_ALG_NULL.
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
	area := tpm2.ECCSRKTemplate
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{})
	return &area
}
