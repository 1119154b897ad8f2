package statement

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// coordinates is a public area on P-256 with these coordinates, no point.
func coordinates(t testing.TB, x, y []byte) *Public {
	t.Helper()
	return changed(t, publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA), func(p *Public) { p.X, p.Y = x, y })
}

func filled(n int, first byte) []byte {
	b := bytes.Repeat([]byte{0xa5}, n)
	if n > 0 {
		b[0] = first
	}
	return b
}

// Each coordinate by itself, in each width that has the same value.
func TestNamesAtOtherWidths(t *testing.T) {
	full := filled(32, 0x80)
	for name, c := range map[string]struct{ x, y, otherX, otherY []byte }{
		"X is narrow":          {filled(31, 1), full, append([]byte{0}, filled(31, 1)...), full},
		"Y is narrow":          {full, filled(31, 1), full, append([]byte{0}, filled(31, 1)...)},
		"both are narrow":      {filled(31, 1), filled(31, 1), append([]byte{0}, filled(31, 1)...), append([]byte{0}, filled(31, 1)...)},
		"X has a zero":         {filled(32, 0), full, filled(32, 0)[1:], full},
		"Y has a zero":         {full, filled(32, 0), full, filled(32, 0)[1:]},
		"X is one byte":        {[]byte{7}, full, append(make([]byte, 31), 7), full},
		"Y is one byte":        {full, []byte{7}, full, append(make([]byte, 31), 7)},
		"X is narrow, Y has 1": {filled(31, 1), filled(32, 1), append([]byte{0}, filled(31, 1)...), filled(32, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			p, other := coordinates(t, c.x, c.y), coordinates(t, c.otherX, c.otherY)
			if !p.HasName(p.Name()) || !p.HasName(other.Name()) || !other.HasName(p.Name()) {
				t.Error("the names of one key are not taken for each other")
			}
			for name, stranger := range map[string]*Public{
				"another X":          coordinates(t, filled(31, 2), c.y),
				"another Y":          coordinates(t, c.x, filled(31, 2)),
				"another name hash":  changed(t, p, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA384 }),
				"another attributes": changed(t, p, func(p *Public) { p.Attributes = testResidentAttributes }),
			} {
				t.Run(name, func(t *testing.T) {
					if p.HasName(stranger.Name()) || stranger.HasName(p.Name()) {
						t.Errorf("%s: taken for the same", name)
					}
				})
			}
		})
	}
}

// An area without a point has one Name alone: zeros are a point that it does not have.
// A coordinate that is too wide, or an area that was not parsed, is no reason to panic.
func TestNamesOfNoPoints(t *testing.T) {
	zeros, full := make([]byte, 32), filled(32, 0x80)
	for name, c := range map[string]struct{ x, y, otherX, otherY []byte }{
		"no point":    {nil, nil, zeros, zeros},
		"no X":        {nil, full, zeros, full},
		"no Y":        {full, nil, full, zeros},
		"a wider X":   {filled(33, 0), full, filled(33, 0)[1:], full},
		"a wider Y":   {full, filled(33, 0), full, filled(33, 0)[1:]},
		"both, wider": {filled(66, 0), filled(66, 0), filled(66, 0)[1:], filled(66, 0)[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			p := coordinates(t, c.x, c.y)
			if p.HasName(coordinates(t, c.otherX, c.otherY).Name()) {
				t.Error("another area's Name is taken for its own")
			}
			if !p.HasName(p.Name()) {
				t.Error("its own Name is refused")
			}
		})
	}
	for _, size := range []int{0, 1, 67} { // the coordinates alone have 68 bytes
		p := &Public{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, Curve: tpm2.TPMECCNistP256, X: zeros, Y: zeros, Raw: make([]byte, size)}
		if p.HasName(tpmlab.DigestName(1)) {
			t.Errorf("%d bytes: has any Name", size)
		}
	}
	if p := coordinates(t, full, full); p.HasName(nil) || p.HasName([]byte{0}) || p.HasName([]byte{0, 0x0b}) || p.HasName(p.Name()[:33]) {
		t.Error("has a cut Name")
	}
	if p := (&Public{Type: tpm2.TPMAlgRSA}); p.HasName(nil) {
		t.Error("an area without a name algorithm has the empty Name")
	}
}

func TestSizesOfQualifiedNames(t *testing.T) {
	name := tpmlab.DigestName(1)
	if QualifiedName(make([]byte, message.MaxNameSize), name) == nil {
		t.Error("no Qualified Name under the longest one")
	}
	if QualifiedName(make([]byte, message.MaxNameSize+1), name) != nil {
		t.Error("a Qualified Name under what is no name")
	}
	for _, bad := range [][]byte{nil, {0}, {0, 0x0b}, name[:33], append(bytes.Clone(name), 0)} {
		if QualifiedName(make([]byte, 4), bad) != nil {
			t.Errorf("a Qualified Name of %x", bad)
		}
	}
}

// keyWithoutZeros is a key on P-256, of which neither coordinate begins or ends with a
// zero byte: without that byte it is another number.
func keyWithoutZeros(t testing.TB) (*ecdsa.PublicKey, *Public) {
	t.Helper()
	for {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		testkit.NoError(t, err)
		p := publicArea(t, key.Public(), testAKAttributes, schemeECDSA)
		if p.X[0] != 0 && p.X[31] != 0 && p.Y[0] != 0 && p.Y[31] != 0 {
			return &key.PublicKey, p
		}
	}
}

func TestSameKeyEdges(t *testing.T) {
	key, p := keyWithoutZeros(t)
	if !p.SameKey(key) {
		t.Fatal("not its own key")
	}
	for name, x := range map[string][]byte{
		"without its first byte": p.X[1:], "without its last byte": p.X[:31], "nothing": nil, "one byte more": append(bytes.Clone(p.X), 0),
		"a zero more in front": append([]byte{0}, p.X...),
	} {
		t.Run("X "+name, func(t *testing.T) {
			if changed(t, p, func(p *Public) { p.X = x }).SameKey(key) {
				t.Error("the same")
			}
		})
	}
	for name, y := range map[string][]byte{"without its first byte": p.Y[1:], "nothing": nil, "one byte more": append(bytes.Clone(p.Y), 0), "a zero more in front": append([]byte{0}, p.Y...)} {
		t.Run("Y "+name, func(t *testing.T) {
			if changed(t, p, func(p *Public) { p.Y = y }).SameKey(key) {
				t.Error("the same")
			}
		})
	}
	//nolint:staticcheck // a point off its curve cannot be made in another way
	off := &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(p.X), Y: new(big.Int).Add(new(big.Int).SetBytes(p.Y), big.NewInt(1))}
	//nolint:staticcheck // see above
	y := off.Y.Bytes()
	for name, other := range map[string]crypto.PublicKey{
		"a point off the curve": off, "no key": nil, "no ECDSA key": (*ecdsa.PublicKey)(nil), "no point": &ecdsa.PublicKey{Curve: elliptic.P256()},
		"another curve": tpmlab.P384().Public(), "RSA": tpmlab.RSA2048().Public(), "no RSA key": (*rsa.PublicKey)(nil),
		"no modulus": &rsa.PublicKey{E: 65537},
	} {
		t.Run(name, func(t *testing.T) {
			if p.SameKey(other) || changed(t, p, func(p *Public) { p.Y = y }).SameKey(other) {
				t.Error("the same")
			}
		})
	}
	for name, bits := range map[string]int{"RSA-2048": 2048, "RSA-4096": 4096} {
		t.Run(name, func(t *testing.T) {
			n := filled(bits/8, 0xc3)
			p := publicArea(t, &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 65537}, testAKAttributes, schemeRSASSA)
			for name, c := range map[string]struct {
				key  crypto.PublicKey
				want bool
			}{
				"its own":          {&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 65537}, true},
				"another exponent": {&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 3}, false},
				"another modulus":  {&rsa.PublicKey{N: new(big.Int).SetBytes(filled(bits/8, 0xc5)), E: 65537}, false},
				"a shorter one":    {&rsa.PublicKey{N: new(big.Int).SetBytes(n[1:]), E: 65537}, false},
				"zero":             {&rsa.PublicKey{N: new(big.Int), E: 65537}, false},
				"negative":         {&rsa.PublicKey{N: new(big.Int).Neg(new(big.Int).SetBytes(n)), E: 65537}, false},
				"ECDSA":            {key, false},
			} {
				t.Run(name, func(t *testing.T) {
					if p.SameKey(c.key) != c.want {
						t.Errorf("%s: got %v", name, !c.want)
					}
				})
			}
		})
	}
	large := filled(maxModulusSize+1, 0xc3) // such an area is not parsed
	made := &Public{Type: tpm2.TPMAlgRSA, KeyBits: 8 * (maxModulusSize + 1), Modulus: large}
	if made.SameKey(&rsa.PublicKey{N: new(big.Int).SetBytes(large), E: 65537}) {
		t.Error("RSA of 4104 bits: the same")
	}
}

// A key on another curve is another key, also where its bytes fill the area's coordinates.
func TestSameKeyOnOtherCurves(t *testing.T) {
	for name, c := range map[string]struct {
		area  tpm2.TPMECCCurve
		width int
		key   elliptic.Curve
		same  bool
	}{
		"P-256":                      {tpm2.TPMECCNistP256, 32, elliptic.P256(), true},
		"P-224 in P-256":             {tpm2.TPMECCNistP256, 32, elliptic.P224(), false},
		"P-384 in P-256":             {tpm2.TPMECCNistP256, 32, elliptic.P384(), false},
		"P-256 in P-384":             {tpm2.TPMECCNistP384, 48, elliptic.P256(), false},
		"P-256 in P-521":             {tpm2.TPMECCNistP521, 66, elliptic.P256(), false},
		"P-256 in none":              {tpm2.TPMECCNone, 32, elliptic.P256(), false},
		"P-256 in a Barreto-Naehrig": {tpm2.TPMECCBNP256, 32, elliptic.P256(), false},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := ecdsa.GenerateKey(c.key, rand.Reader)
			testkit.NoError(t, err)
			point, err := key.PublicKey.Bytes()
			testkit.NoError(t, err)
			end := min(1+c.width, len(point))
			p := &Public{Type: tpm2.TPMAlgECC, Curve: c.area, X: point[1:end], Y: point[end:]}
			if p.SameKey(&key.PublicKey) != c.same {
				t.Errorf("got %t", !c.same)
			}
		})
	}
	t.Run("no curve in none", func(t *testing.T) {
		p := &Public{Type: tpm2.TPMAlgECC}
		//nolint:staticcheck // a key without a curve cannot be made in another way
		if p.SameKey(&ecdsa.PublicKey{X: new(big.Int), Y: new(big.Int)}) {
			t.Error("the same")
		}
	})
}

func TestExponents(t *testing.T) {
	for e, want := range map[uint32]refusal.Check{3: "", 0: "", 1<<31 - 1: "", 1 << 31: checkWeakKey, 1<<32 - 1: checkWeakKey} {
		p := changed(t, publicArea(t, tpmlab.RSA2048().Public(), testAKAttributes, schemeRSASSA), func(p *Public) { p.Exponent = e })
		_, err := p.Key()
		tpmlab.ExpectCheck(t, err, want)
	}
}

func TestStrengthOfNoKeys(t *testing.T) {
	for name, key := range map[string]crypto.PublicKey{
		"nil": nil, "no RSA key": (*rsa.PublicKey)(nil), "no modulus": &rsa.PublicKey{E: 65537}, "no ECDSA key": (*ecdsa.PublicKey)(nil),
		"no curve": &ecdsa.PublicKey{}, "P-224": tpmlab.P224().Public(), "a string": "key",
	} {
		t.Run(name, func(t *testing.T) { tpmlab.ExpectCheck(t, CheckKeyStrength(key), checkWeakKey) })
	}
}
