package tpmwire

import (
	"strconv"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

// AlgorithmName gives the word of the TCG Algorithm Registry for an algorithm that
// a public area, a signature or a PCR bank can name, else its number.
func AlgorithmName(alg tpm2.TPMAlgID) string {
	if name := algorithmWord(alg); name != "" {
		return name
	}
	return HexNumber(uint64(alg), 4)
}

func algorithmWord(alg tpm2.TPMAlgID) string {
	switch alg {
	case tpm2.TPMAlgRSA:
		return "RSA"
	case tpm2.TPMAlgECC:
		return "ECC"
	case tpm2.TPMAlgKeyedHash:
		return "KEYEDHASH"
	case tpm2.TPMAlgSymCipher:
		return "SYMCIPHER"
	case tpm2.TPMAlgNull:
		return "NULL"
	case tpm2.TPMAlgRSASSA:
		return "RSASSA"
	case tpm2.TPMAlgRSAPSS:
		return "RSAPSS"
	case tpm2.TPMAlgRSAES:
		return "RSAES"
	case tpm2.TPMAlgOAEP:
		return "OAEP"
	case tpm2.TPMAlgECDSA:
		return "ECDSA"
	case tpm2.TPMAlgECDAA:
		return "ECDAA"
	case tpm2.TPMAlgECDH:
		return "ECDH"
	case tpm2.TPMAlgSM2:
		return "SM2"
	case tpm2.TPMAlgECSchnorr:
		return "ECSCHNORR"
	case tpm2.TPMAlgHMAC:
		return "HMAC"
	}
	return hashWord(alg)
}

func hashWord(alg tpm2.TPMAlgID) string {
	switch alg {
	case tpm2.TPMAlgSHA1:
		return "SHA1"
	case tpm2.TPMAlgSHA256:
		return "SHA256"
	case tpm2.TPMAlgSHA384:
		return "SHA384"
	case tpm2.TPMAlgSHA512:
		return "SHA512"
	case tpm2.TPMAlgSM3256:
		return "SM3_256"
	case tpm2.TPMAlgSHA3256:
		return "SHA3_256"
	case tpm2.TPMAlgSHA3384:
		return "SHA3_384"
	case tpm2.TPMAlgSHA3512:
		return "SHA3_512"
	}
	return ""
}

// KnownHash reports whether alg names a hash, one that the SDK computes or not.
func KnownHash(alg tpm2.TPMAlgID) bool { return hashWord(alg) != "" }

// HexNumber writes v as 0x and at least width digits.
func HexNumber(v uint64, width int) string {
	digits := strconv.FormatUint(v, 16)
	return "0x" + strings.Repeat("0", max(0, width-len(digits))) + digits
}

// Refuse is a refusal by one of the checks of statements and of the TPM
// structures in them.
func Refuse(c refusal.Check, got, want string) error {
	return &refusal.Error{Check: c, Got: got, Want: want}
}
