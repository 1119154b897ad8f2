package tpmwire

import (
	"crypto/ecdsa"
	"crypto/elliptic"

	"github.com/google/go-tpm/tpm2"
)

// DefaultRSAExponent is what exponent 0 of a TPMT_PUBLIC means: Part 2, 12.2.3.5.
const DefaultRSAExponent = 65537

// Curve is what the SDK needs to know of an ECC curve.
type Curve struct {
	ID    tpm2.TPMECCCurve // of the TCG Algorithm Registry
	Curve elliptic.Curve
	Width int    // of a coordinate, in bytes; the order has the same
	Order string // big-endian
}

var curves = [...]Curve{
	{tpm2.TPMECCNistP256, elliptic.P256(), 32, OrderP256},
	{tpm2.TPMECCNistP384, elliptic.P384(), 48, orderP384},
	{tpm2.TPMECCNistP521, elliptic.P521(), 66, orderP521},
}

// CurveOf returns the curve of an identifier of the TCG Algorithm Registry, and
// false for one that the SDK does not accept.
func CurveOf(id tpm2.TPMECCCurve) (Curve, bool) {
	for _, c := range curves {
		if c.ID == id {
			return c, true
		}
	}
	return Curve{}, false
}

// CurveOfKey is CurveOf for a key of crypto/ecdsa.
func CurveOfKey(k *ecdsa.PublicKey) (Curve, bool) {
	for _, c := range curves {
		if c.Curve == k.Curve {
			return c, true
		}
	}
	return Curve{}, false
}

// The orders of the curves, FIPS 186-4, D.1.2, as strings so that they are
// constants and cost no big.Int.
const (
	OrderP256 = "\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51"
	orderP384 = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\xff\xff\xff\xff\xff\xff\xff\xff\xc7\x63\x4d\x81\xf4\x37\x2d\xdf" +
		"\x58\x1a\x0d\xb2\x48\xb0\xa7\x7a\xec\xec\x19\x6a\xcc\xc5\x29\x73"
	orderP521 = "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\xff\xfa\x51\x86\x87\x83\xbf\x2f\x96\x6b\x7f\xcc\x01\x48\xf7\x09" +
		"\xa5\xd0\x3b\xb5\xc9\xb8\x89\x9c\x47\xae\xbb\x6f\xb7\x1e\x91\x38" +
		"\x64\x09"
)
