package tpm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"strconv"

	"github.com/google/go-tpm/tpm2"
)

// Checks of keys.
const (
	// CheckPoint: an ECC point is not on its curve, or its coordinates are too wide.
	CheckPoint Check = "key-point"
	// CheckWeakKey: the key is of a kind or size that is not accepted: RSA under
	// 2048 or over 4096 bits or with an exponent other than 65537, or a curve other
	// than P-256, P-384 and P-521.
	CheckWeakKey Check = "key-strength"
)

const (
	minRSABits         = 2048
	maxRSABits         = 4096
	defaultRSAExponent = 65537 // what exponent 0 of a TPMT_PUBLIC means: Part 2, 12.2.3.5
)

// curve is what this package needs to know of an ECC curve.
type curve struct {
	curve elliptic.Curve
	width int    // of a coordinate, in bytes; the order has the same
	order string // big-endian
}

// curveOf returns the curve of an identifier of the TCG Algorithm Registry, and
// false for one that this package does not accept.
func curveOf(id tpm2.TPMECCCurve) (curve, bool) {
	switch id {
	case tpm2.TPMECCNistP256:
		return curve{elliptic.P256(), 32, orderP256}, true
	case tpm2.TPMECCNistP384:
		return curve{elliptic.P384(), 48, orderP384}, true
	case tpm2.TPMECCNistP521:
		return curve{elliptic.P521(), 66, orderP521}, true
	}
	return curve{}, false
}

// curveOfKey is curveOf for a key of crypto/ecdsa.
func curveOfKey(k *ecdsa.PublicKey) (curve, bool) {
	switch k.Curve {
	case elliptic.P256():
		return curveOf(tpm2.TPMECCNistP256)
	case elliptic.P384():
		return curveOf(tpm2.TPMECCNistP384)
	case elliptic.P521():
		return curveOf(tpm2.TPMECCNistP521)
	}
	return curve{}, false
}

// The orders of the curves, FIPS 186-4, D.1.2, as strings so that they are
// constants and cost no big.Int.
const (
	orderP256 = "\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff" +
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

// Key returns the public key: an *rsa.PublicKey, or an *ecdsa.PublicKey whose point
// is on its curve. A template without a key is refused. Errors are an [*Error] with
// [CheckPublicEncoding] (a modulus of another size than KeyBits), [CheckWeakKey] (an
// exponent that crypto/rsa cannot hold, another curve) or [CheckPoint]. Nobody can see
// whether a modulus is the product of two primes: that shows where a signature of
// the key verifies.
func (p *Public) Key() (crypto.PublicKey, error) {
	if p.Type == tpm2.TPMAlgRSA {
		return p.rsaKey()
	}
	if p.Type != tpm2.TPMAlgECC {
		return nil, refuseStatement(CheckKeyType, algorithmName(p.Type), "RSA or ECC")
	}
	c, ok := curveOf(p.Curve)
	if !ok {
		return nil, refuseStatement(CheckWeakKey, "curve "+hexNumber(uint64(p.Curve), 4), "P-256, P-384 or P-521")
	}
	if len(p.X) > c.width || len(p.Y) > c.width {
		return nil, refuseStatement(CheckPoint, "coordinates of "+strconv.Itoa(len(p.X))+" and "+strconv.Itoa(len(p.Y))+" bytes",
			"at most "+strconv.Itoa(c.width))
	}
	var point [1 + 2*maxCoordinateSize]byte
	point[0] = 4 // uncompressed: SEC 1, 2.3.3
	copy(point[1+c.width-len(p.X):], p.X)
	copy(point[1+2*c.width-len(p.Y):], p.Y)
	key, err := ecdsa.ParseUncompressedPublicKey(c.curve, point[:1+2*c.width])
	if err != nil {
		return nil, &Error{Check: CheckPoint, Got: "a point that is not on " + c.curve.Params().Name, Err: err}
	}
	return key, nil
}

func (p *Public) rsaKey() (crypto.PublicKey, error) {
	if !p.hasModulus() {
		return nil, badPublic("a modulus of "+strconv.Itoa(len(withoutLeadingZeros(p.Modulus)))+" bytes", "keyBits "+strconv.Itoa(int(p.KeyBits)))
	}
	e := p.exponent()
	if e > 1<<31-1 {
		return nil, refuseStatement(CheckWeakKey, "exponent "+strconv.FormatUint(uint64(e), 10), "at most 2147483647")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(p.Modulus), E: int(e)}, nil
}

// hasModulus reports whether there is a modulus as large as KeyBits says, to the
// octet: the specification does not ask for its highest bit.
func (p *Public) hasModulus() bool {
	return len(p.Modulus) != 0 && len(p.Modulus)*8 == int(p.KeyBits) && p.Modulus[0] != 0
}

// exponent is the RSA exponent with the default filled in.
func (p *Public) exponent() uint32 {
	if p.Exponent == 0 {
		return defaultRSAExponent
	}
	return p.Exponent
}

// SameKey reports whether p holds the very key pub, an *rsa.PublicKey or
// *ecdsa.PublicKey. Leading zero bytes of coordinates do not count. It is false for
// a key of another kind, and for a pub that is not on its curve.
func (p *Public) SameKey(pub crypto.PublicKey) bool {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if k == nil || k.N == nil || p.Type != tpm2.TPMAlgRSA || k.N.Sign() <= 0 || !p.hasModulus() {
			return false
		}
		var buf [maxModulusSize]byte
		size := len(p.Modulus)
		if size > len(buf) || k.Size() != size || int64(k.E) != int64(p.exponent()) {
			return false
		}
		return bytes.Equal(k.N.FillBytes(buf[:size]), p.Modulus)
	case *ecdsa.PublicKey:
		//lint:ignore SA1019 Bytes panics where a coordinate is nil, and nothing else tells
		if k == nil || k.X == nil || k.Y == nil || p.Type != tpm2.TPMAlgECC {
			return false
		}
		c, ok := curveOf(p.Curve)
		if !ok || k.Curve != c.curve {
			return false
		}
		point, err := k.Bytes()
		if err != nil {
			return false
		}
		return equalPadded(p.X, point[1:1+c.width]) && equalPadded(p.Y, point[1+c.width:])
	}
	return false
}

// sameKeyAs is SameKey for a key that is a public area too. It says nothing of the
// curve: two areas with one point off it are the same.
func (p *Public) sameKeyAs(q *Public) bool {
	if p.Type != q.Type {
		return false
	}
	if p.Type == tpm2.TPMAlgRSA {
		return bytes.Equal(p.Modulus, q.Modulus) && p.exponent() == q.exponent()
	}
	return p.Curve == q.Curve && bytes.Equal(withoutLeadingZeros(p.X), withoutLeadingZeros(q.X)) &&
		bytes.Equal(withoutLeadingZeros(p.Y), withoutLeadingZeros(q.Y))
}

// equalPadded reports whether v, padded with zero bytes in front, is full.
func equalPadded(v, full []byte) bool {
	pad := len(full) - len(v)
	if pad < 0 || !bytes.Equal(v, full[pad:]) {
		return false
	}
	for _, b := range full[:pad] {
		if b != 0 {
			return false
		}
	}
	return true
}

// checkStrength refuses weak RSA keys; ParsePublic lets no weak curve through.
func (p *Public) checkStrength() error {
	if p.Type != tpm2.TPMAlgRSA {
		return nil
	}
	return checkRSAStrength(int(p.KeyBits), int64(p.exponent()))
}

// checkKeyStrength refuses weak keys, and keys of kinds that no TPM of ours has.
func checkKeyStrength(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if k == nil || k.N == nil {
			return refuseStatement(CheckWeakKey, "no RSA key", "an RSA key")
		}
		return checkRSAStrength(k.N.BitLen(), int64(k.E))
	case *ecdsa.PublicKey:
		if k == nil || k.Curve == nil {
			return refuseStatement(CheckWeakKey, "no ECDSA key", "an ECDSA key")
		}
		if _, ok := curveOfKey(k); !ok {
			return refuseStatement(CheckWeakKey, "curve "+k.Params().Name, "P-256, P-384 or P-521")
		}
		return nil
	}
	return refuseStatement(CheckWeakKey, "a key that is neither RSA nor ECDSA", "*rsa.PublicKey or *ecdsa.PublicKey")
}

func checkRSAStrength(bits int, exponent int64) error {
	if bits < minRSABits || bits > maxRSABits {
		return refuseStatement(CheckWeakKey, "RSA of "+strconv.Itoa(bits)+" bits", "2048 to 4096")
	}
	if exponent != defaultRSAExponent {
		return refuseStatement(CheckWeakKey, "RSA exponent "+strconv.FormatInt(exponent, 10), "65537")
	}
	return nil
}
