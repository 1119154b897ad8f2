package statement

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"math/big"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/roca"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of keys.
const (
	// CheckPoint: an ECC point is not on its curve, or its coordinates are too wide.
	CheckPoint refusal.Check = "key-point"
	// checkWeakKey: the key is of a kind or size that is not accepted: RSA of fewer than 2048
	// or more than 4096 bits, with an exponent other than 65537 or that can be factored (CVE-2017-15361), or a curve other than
	// P-256, P-384 and P-521.
	checkWeakKey refusal.Check = "tpm-key-strength"
)

const minRSABits = 2048

// Key returns the public key: an *rsa.PublicKey, or an *ecdsa.PublicKey whose point is on its
// curve. A template without a key is refused. Errors are a [*refusal.Error] with the check
// "public-encoding" (a modulus of another size than KeyBits), the check "tpm-key-strength" (an
// exponent that crypto/rsa cannot hold, another curve) or [CheckPoint]. A caller cannot tell by
// looking whether a modulus is the product of two primes: that shows when a signature by the
// key verifies.
func (p *Public) Key() (crypto.PublicKey, error) {
	p = cmp.Or(p, new(Public))
	c, known := tpmwire.CurveOf(p.Curve)
	switch {
	case p.Type == tpm2.TPMAlgRSA:
		return p.rsaKey()
	case p.Type != tpm2.TPMAlgECC:
		return nil, checkKeyType.Refuse(tpmwire.AlgorithmName(p.Type), "RSA or ECC")
	case !known:
		return nil, badCurve(p.Curve)
	case len(p.X) > c.Width || len(p.Y) > c.Width:
		return nil, CheckPoint.Refuse("coordinates of "+strconv.Itoa(len(p.X))+" and "+strconv.Itoa(len(p.Y))+" bytes",
			"at most "+strconv.Itoa(c.Width))
	}
	var point [1 + 2*maxCoordinateSize]byte
	point[0] = 4 // uncompressed: SEC 1, 2.3.3
	copy(point[1+c.Width-len(p.X):], p.X)
	copy(point[1+2*c.Width-len(p.Y):], p.Y)
	key, err := ecdsa.ParseUncompressedPublicKey(c.Curve, point[:1+2*c.Width])
	if err != nil {
		return nil, &refusal.Error{Check: CheckPoint, Got: "a point that is not on " + c.Curve.Params().Name, Err: err}
	}
	return key, nil
}

func (p *Public) rsaKey() (crypto.PublicKey, error) {
	if !p.hasModulus() {
		return nil, badPublic("a modulus of "+strconv.Itoa(len(withoutLeadingZeros(p.Modulus)))+" bytes", "keyBits "+strconv.Itoa(int(p.KeyBits)))
	}
	e := p.exponent()
	if e > 1<<31-1 {
		return nil, checkWeakKey.Refuse("exponent "+strconv.FormatUint(uint64(e), 10), "at most 2147483647")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(p.Modulus), E: int(e)}, nil
}

// hasModulus reports whether there is a modulus of the size in KeyBits, to the octet: the
// specification does not require its highest bit to be set.
func (p *Public) hasModulus() bool {
	return len(p.Modulus) != 0 && len(p.Modulus)*8 == int(p.KeyBits) && p.Modulus[0] != 0
}

// exponent returns the RSA exponent with the default filled in.
func (p *Public) exponent() uint32 { return cmp.Or(p.Exponent, tpmwire.DefaultRSAExponent) }

// SameKey reports whether p holds exactly the key pub, an *rsa.PublicKey or *ecdsa.PublicKey.
// Leading zero bytes of coordinates do not matter. It returns false for a key of another
// kind, and for a pub that is not on its curve.
func (p *Public) SameKey(pub crypto.PublicKey) bool {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		var buf [maxModulusSize]byte
		size := len(p.Modulus)
		return k != nil && k.N != nil && p.Type == tpm2.TPMAlgRSA && k.N.Sign() > 0 && p.hasModulus() && size <= len(buf) && k.Size() == size &&
			int64(k.E) == int64(p.exponent()) && bytes.Equal(k.N.FillBytes(buf[:size]), p.Modulus)
	case *ecdsa.PublicKey:
		//nolint:staticcheck // Bytes panics where a coordinate is nil, and nothing else tells
		if k == nil || k.X == nil || k.Y == nil || p.Type != tpm2.TPMAlgECC {
			return false
		}
		c, ok := tpmwire.CurveOf(p.Curve)
		if !ok || k.Curve != c.Curve || len(p.X) > c.Width || len(p.Y) > c.Width {
			return false
		}
		point, err := k.Bytes()
		return err == nil && sameNumber(p.X, point[1:1+c.Width]) && sameNumber(p.Y, point[1+c.Width:])
	}
	return false
}

// sameKeyAs is SameKey for a key that is also a public area. It does not check the curve: two
// areas with the same point off the curve are the same.
func (p *Public) sameKeyAs(q *Public) bool {
	if p.Type != q.Type {
		return false
	}
	if p.Type == tpm2.TPMAlgRSA {
		return bytes.Equal(p.Modulus, q.Modulus) && p.exponent() == q.exponent()
	}
	return p.Curve == q.Curve && sameNumber(p.X, q.X) && sameNumber(p.Y, q.Y)
}

// sameNumber compares numbers, whatever their widths.
func sameNumber(a, b []byte) bool { return bytes.Equal(withoutLeadingZeros(a), withoutLeadingZeros(b)) }

// checkStrength refuses weak RSA keys by their sizes; ParsePublic admits no weak curve.
func (p *Public) checkStrength() error {
	if p.Type != tpm2.TPMAlgRSA {
		return nil
	}
	return checkRSAStrength(int(p.KeyBits), int64(p.exponent()))
}

// checkFactors refuses RSA keys that can be factored. The modulus of an ECC key is 0, which
// passes.
func (p *Public) checkFactors() error { return checkModulus(new(big.Int).SetBytes(p.Modulus)) }

// CheckKeyStrength refuses weak keys, RSA keys made by Infineon's flawed key generation
// (CVE-2017-15361), and keys of unsupported kinds.
func CheckKeyStrength(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if k != nil && k.N != nil {
			return cmp.Or(checkRSAStrength(k.N.BitLen(), int64(k.E)), checkModulus(k.N))
		}
	case *ecdsa.PublicKey:
		if k == nil || k.Curve == nil {
			break
		}
		if _, ok := tpmwire.CurveOfKey(k); !ok {
			return checkWeakKey.Refuse("curve "+k.Params().Name, "P-256, P-384 or P-521")
		}
		return nil
	}
	return checkWeakKey.Refuse("no RSA or ECDSA key", "an *rsa.PublicKey or *ecdsa.PublicKey")
}

func checkRSAStrength(bits int, exponent int64) error {
	if bits < minRSABits || bits > tpmwire.MaxRSABits {
		return checkWeakKey.Refuse("RSA of "+strconv.Itoa(bits)+" bits", "2048 to 4096")
	}
	if exponent != tpmwire.DefaultRSAExponent {
		return checkWeakKey.Refuse("RSA exponent "+strconv.FormatInt(exponent, 10), "65537")
	}
	return nil
}

func checkModulus(modulus *big.Int) error {
	if roca.Vulnerable(modulus) {
		return checkWeakKey.Refuse("an RSA modulus with the fingerprint of CVE-2017-15361", "one that cannot be factored")
	}
	return nil
}
