package tpmwire

import (
	"crypto"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

// algorithms are the words of the TCG Algorithm Registry for what a public area, a
// signature or a PCR bank can name, hashes aside.
var algorithms = map[tpm2.TPMAlgID]string{
	tpm2.TPMAlgRSA:       "RSA",
	tpm2.TPMAlgECC:       "ECC",
	tpm2.TPMAlgKeyedHash: "KEYEDHASH",
	tpm2.TPMAlgSymCipher: "SYMCIPHER",
	tpm2.TPMAlgNull:      "NULL",
	tpm2.TPMAlgRSASSA:    "RSASSA",
	tpm2.TPMAlgRSAPSS:    "RSAPSS",
	tpm2.TPMAlgRSAES:     "RSAES",
	tpm2.TPMAlgOAEP:      "OAEP",
	tpm2.TPMAlgECDSA:     "ECDSA",
	tpm2.TPMAlgECDAA:     "ECDAA",
	tpm2.TPMAlgECDH:      "ECDH",
	tpm2.TPMAlgSM2:       "SM2",
	tpm2.TPMAlgECSchnorr: "ECSCHNORR",
	tpm2.TPMAlgHMAC:      "HMAC",
}

// hashes has 0 for those that the SDK does not compute.
var hashes = map[tpm2.TPMAlgID]struct {
	name string
	hash crypto.Hash
}{
	tpm2.TPMAlgSHA1:    {"SHA1", crypto.SHA1},
	tpm2.TPMAlgSHA256:  {"SHA256", crypto.SHA256},
	tpm2.TPMAlgSHA384:  {"SHA384", crypto.SHA384},
	tpm2.TPMAlgSHA512:  {"SHA512", crypto.SHA512},
	tpm2.TPMAlgSM3256:  {"SM3_256", 0},
	tpm2.TPMAlgSHA3256: {"SHA3_256", 0},
	tpm2.TPMAlgSHA3384: {"SHA3_384", 0},
	tpm2.TPMAlgSHA3512: {"SHA3_512", 0},
}

// AlgorithmName gives the word of the TCG Algorithm Registry for an algorithm that
// a public area, a signature or a PCR bank can name, else its number.
func AlgorithmName(alg tpm2.TPMAlgID) string {
	if name := algorithms[alg] + hashes[alg].name; name != "" {
		return name
	}
	return HexNumber(uint64(alg), 4)
}

// KnownHash reports whether alg names a hash, one that the SDK computes or not.
func KnownHash(alg tpm2.TPMAlgID) bool { return hashes[alg].name != "" }

// HashOf returns the hash of an algorithm identifier, 0 for one that the SDK
// does not compute.
func HashOf(alg tpm2.TPMAlgID) crypto.Hash { return hashes[alg].hash }

// HexNumber writes v as 0x and at least width digits.
func HexNumber(v uint64, width int) string { return fmt.Sprintf("0x%0*x", width, v) }

// Refuse is a refusal by one of the checks of statements and of the TPM
// structures in them.
func Refuse(c refusal.Check, got, want string) error {
	return &refusal.Error{Check: c, Got: got, Want: want}
}
