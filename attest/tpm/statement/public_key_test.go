package statement

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestCurves(t *testing.T) {
	for id, want := range map[tpm2.TPMECCCurve]elliptic.Curve{
		tpm2.TPMECCNistP256: elliptic.P256(), tpm2.TPMECCNistP384: elliptic.P384(), tpm2.TPMECCNistP521: elliptic.P521(),
	} {
		c, ok := tpmwire.CurveOf(id)
		params := want.Params()
		if !ok || c.Curve != want || c.Width != (params.BitSize+7)/8 || (params.N.BitLen()+7)/8 != c.Width {
			t.Errorf("%s: got %+v", params.Name, c)
		}
		again, ok := tpmwire.CurveOfKey(&ecdsa.PublicKey{Curve: want})
		if !ok || again != c {
			t.Errorf("%s: by key %+v", params.Name, again)
		}
	}
	if _, ok := tpmwire.CurveOf(tpm2.TPMECCNistP224); ok {
		t.Error("P-224")
	}
	if _, ok := tpmwire.CurveOfKey(&ecdsa.PublicKey{Curve: elliptic.P224()}); ok {
		t.Error("P-224")
	}
}

func TestPublicKey(t *testing.T) {
	keys := map[string]crypto.PublicKey{
		"P256": tpmlab.P256().Public(), "P256b": tpmlab.P256b().Public(), "P384": tpmlab.P384().Public(),
		"P521": tpmlab.P521().Public(), "RSA": tpmlab.RSA2048().Public(), "RSAb": tpmlab.RSA2048b().Public(),
	}
	for name, key := range keys {
		p := publicArea(t, key, testSoftwareAttributes, noScheme)
		got, err := p.Key()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !key.(interface{ Equal(crypto.PublicKey) bool }).Equal(got) {
			t.Errorf("%s: another key", name)
		}
		for other, k := range keys {
			if p.SameKey(k) != (name == other) {
				t.Errorf("SameKey of %s and %s: %v", name, other, p.SameKey(k))
			}
			if q := publicArea(t, k, testAKAttributes, noScheme); p.sameKeyAs(q) != (name == other) {
				t.Errorf("sameKeyAs of %s and %s: %v", name, other, p.sameKeyAs(q))
			}
		}
	}
}

func TestSameKeyRefusesOtherKinds(t *testing.T) {
	ecc := publicArea(t, tpmlab.P256().Public(), testSoftwareAttributes, noScheme)
	rsaArea := publicArea(t, tpmlab.RSA2048().Public(), testSoftwareAttributes, noScheme)
	k := tpmlab.RSA2048()
	for name, key := range map[string]crypto.PublicKey{
		"nil": nil, "nil RSA": (*rsa.PublicKey)(nil), "nil ECDSA": (*ecdsa.PublicKey)(nil), "empty RSA": &rsa.PublicKey{},
		"empty ECDSA": &ecdsa.PublicKey{}, "Ed25519": ed25519.PublicKey(make([]byte, 32)), "value": k.PublicKey, "private": k,
		"other exponent": &rsa.PublicKey{N: k.N, E: 3}, "negative": &rsa.PublicKey{N: new(big.Int).Neg(k.N), E: k.E},
		"shorter": &rsa.PublicKey{N: new(big.Int).Rsh(k.N, 8), E: k.E}, "huge": &rsa.PublicKey{N: new(big.Int).Lsh(k.N, 8192), E: k.E},
		"P-224": tpmlab.P224().Public(),
	} {
		t.Run(name, func(t *testing.T) {
			if ecc.SameKey(key) || rsaArea.SameKey(key) {
				t.Errorf("%s: same key", name)
			}
		})
	}
	var zero Public
	if zero.SameKey(tpmlab.P256().Public()) || zero.SameKey(k.Public()) {
		t.Error("the zero value has a key")
	}
}

func TestPublicKeyRefuses(t *testing.T) {
	ecc := publicArea(t, tpmlab.P256().Public(), testSoftwareAttributes, noScheme)
	rsaArea := publicArea(t, tpmlab.RSA2048().Public(), testSoftwareAttributes, noScheme)
	for name, row := range map[string]struct {
		p    *Public
		want refusal.Check
	}{
		"zero":                   {&Public{}, checkKeyType},
		"curve":                  {&Public{Type: tpm2.TPMAlgECC, Curve: tpm2.TPMECCNistP192}, checkWeakKey},
		"ECC template":           {changed(t, ecc, func(p *Public) { p.X, p.Y = nil, nil }), CheckPoint},
		"ECC template of zeros":  {changed(t, ecc, func(p *Public) { p.X, p.Y = make([]byte, 32), make([]byte, 32) }), CheckPoint},
		"off the curve":          {changed(t, ecc, func(p *Public) { p.X = p.Y }), CheckPoint},
		"not reduced":            {changed(t, ecc, func(p *Public) { p.X = unhex(t, hexRepeat("ff", 32)) }), CheckPoint},
		"a zero byte too wide":   {changed(t, ecc, func(p *Public) { p.X = append([]byte{0}, p.X...) }), CheckPoint},
		"point of another curve": {changed(t, ecc, func(p *Public) { p.Curve = tpm2.TPMECCNistP384 }), CheckPoint},
		"RSA template":           {changed(t, rsaArea, func(p *Public) { p.Modulus = nil }), checkPublicEncoding},
		"RSA template of zeros":  {changed(t, rsaArea, func(p *Public) { p.Modulus = make([]byte, 256) }), checkPublicEncoding},
		"short modulus":          {changed(t, rsaArea, func(p *Public) { p.Modulus = p.Modulus[1:] }), checkPublicEncoding},
		"other keyBits":          {changed(t, rsaArea, func(p *Public) { p.KeyBits = 3072 }), checkPublicEncoding},
		"leading zero byte":      {changed(t, rsaArea, func(p *Public) { p.Modulus = append([]byte{0}, p.Modulus[1:]...) }), checkPublicEncoding},
		"exponent 2^31":          {changed(t, rsaArea, func(p *Public) { p.Exponent = 1 << 31 }), checkWeakKey},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := row.p.Key()
			tpmlab.ExpectCheck(t, err, row.want)
			if key != nil {
				t.Errorf("a key with the error: %v", key)
			}
		})
	}
}

// TestFlawedModulusOfAnArea: a public area is held to the same.
func TestFlawedModulusOfAnArea(t *testing.T) {
	for _, c := range []struct {
		key  *Public
		want refusal.Check
	}{
		{&Public{Type: tpm2.TPMAlgRSA, Modulus: tpmlab.RSA2048().N.Bytes()}, ""},
		{&Public{Type: tpm2.TPMAlgRSA, Modulus: tpmlab.FlawedModulus().Bytes()}, checkWeakKey},
		{&Public{Type: tpm2.TPMAlgECC}, ""},
	} {
		tpmlab.ExpectCheck(t, c.key.checkFactors(), c.want)
	}
}

func TestKeyStrength(t *testing.T) {
	k := tpmlab.RSA2048()
	for name, row := range map[string]struct {
		key  crypto.PublicKey
		want refusal.Check
	}{
		"RSA-2048":        {k.Public(), ""},
		"P-521":           {tpmlab.P521().Public(), ""},
		"RSA-1024":        {tpmlab.RSA1024().Public(), checkWeakKey},
		"RSA-2047":        {&rsa.PublicKey{N: new(big.Int).Rsh(k.N, 1), E: k.E}, checkWeakKey},
		"RSA-4096":        {&rsa.PublicKey{N: new(big.Int).Lsh(k.N, 4096-2048), E: k.E}, ""},
		"RSA-4097":        {&rsa.PublicKey{N: new(big.Int).Lsh(k.N, 4097-2048), E: k.E}, checkWeakKey},
		"exponent 3":      {&rsa.PublicKey{N: k.N, E: 3}, checkWeakKey},
		"exponent 65538":  {&rsa.PublicKey{N: k.N, E: 65538}, checkWeakKey},
		"exponent −65537": {&rsa.PublicKey{N: k.N, E: -65537}, checkWeakKey},
		"CVE-2017-15361":  {&rsa.PublicKey{N: tpmlab.FlawedModulus(), E: 65537}, checkWeakKey},
		"P-224":           {tpmlab.P224().Public(), checkWeakKey},
		"nil":             {nil, checkWeakKey},
		"nil RSA":         {(*rsa.PublicKey)(nil), checkWeakKey},
		"nil ECDSA":       {(*ecdsa.PublicKey)(nil), checkWeakKey},
		"Ed25519":         {ed25519.PublicKey(make([]byte, 32)), checkWeakKey},
	} {
		t.Run(name, func(t *testing.T) { tpmlab.ExpectCheck(t, CheckKeyStrength(row.key), row.want) })
	}
}
