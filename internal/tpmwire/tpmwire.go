package tpmwire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
)

// algorithms are the names in the TCG Algorithm Registry for what a public area, a signature
// or a PCR bank can name, except hashes.
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

// hashes has 0 for algorithms that the SDK does not compute.
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

// AlgorithmName returns the TCG Algorithm Registry's name for an algorithm that a public area,
// a signature or a PCR bank can name, or else its number.
func AlgorithmName(alg tpm2.TPMAlgID) string {
	if name := algorithms[alg] + hashes[alg].name; name != "" {
		return name
	}
	return HexNumber(uint64(alg), 4)
}

// KnownHash reports whether alg names a hash, whether or not the SDK computes it.
func KnownHash(alg tpm2.TPMAlgID) bool { return hashes[alg].name != "" }

// HashOf returns the hash of an algorithm identifier, or 0 for one that the SDK does not
// compute.
func HashOf(alg tpm2.TPMAlgID) crypto.Hash { return hashes[alg].hash }

// HexNumber formats v as 0x and at least width digits.
func HexNumber(v uint64, width int) string { return fmt.Sprintf("0x%0*x", width, v) }

// DefaultRSAExponent is what exponent 0 of a TPMT_PUBLIC means: Part 2, 12.2.3.5.
const DefaultRSAExponent = 65537

// Curve describes an ECC curve.
type Curve struct {
	ID    tpm2.TPMECCCurve // of the TCG Algorithm Registry
	Curve elliptic.Curve
	Width int // of a coordinate, in bytes; the order has the same
}

var curves = [...]Curve{
	{tpm2.TPMECCNistP256, elliptic.P256(), 32},
	{tpm2.TPMECCNistP384, elliptic.P384(), 48},
	{tpm2.TPMECCNistP521, elliptic.P521(), 66},
}

// CurveOf returns the curve for an identifier of the TCG Algorithm Registry, and false for one
// that the SDK does not accept.
func CurveOf(id tpm2.TPMECCCurve) (Curve, bool) {
	return curveThat(func(c Curve) bool { return c.ID == id })
}

// CurveOfKey is CurveOf for a key of crypto/ecdsa.
func CurveOfKey(k *ecdsa.PublicKey) (Curve, bool) {
	return curveThat(func(c Curve) bool { return c.Curve == k.Curve })
}

func curveThat(is func(Curve) bool) (Curve, bool) {
	if n := slices.IndexFunc(curves[:], is); n >= 0 {
		return curves[n], true
	}
	return Curve{}, false
}

// AppendDigest appends the digest of message. It calls the one-shot functions, which do not
// allocate.
func AppendDigest(out []byte, h crypto.Hash, message []byte) []byte {
	switch h {
	case crypto.SHA1:
		d := sha1.Sum(message)
		return append(out, d[:]...)
	case crypto.SHA256:
		d := sha256.Sum256(message)
		return append(out, d[:]...)
	case crypto.SHA384:
		d := sha512.Sum384(message)
		return append(out, d[:]...)
	case crypto.SHA512:
		d := sha512.Sum512(message)
		return append(out, d[:]...)
	}
	return out
}

// Limits on the structures.
const (
	MaxDigestSize    = 64
	MaxPCRBanks      = 16
	MaxPCRSelectSize = 4 // octets of a selection, eight PCRs each
	MaxRSABits       = 4096
)

// ReadTPM2B reads a 16-bit size and that many bytes, at most limit.
func ReadTPM2B(s *cryptobyte.String, out *[]byte, limit int) bool {
	var v cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&v) || len(v) > limit {
		return false
	}
	*out = v
	return true
}

// AddTPM2B appends a 16-bit size and v.
func AddTPM2B(b *cryptobyte.Builder, v []byte) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(v) })
}

// MaxTPMTPublicSize is the largest number of bytes of a TPMT_PUBLIC that is read; RSA-4096
// with a policy has about 620.
const MaxTPMTPublicSize = 1024
