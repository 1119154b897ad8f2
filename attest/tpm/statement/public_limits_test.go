package statement

import (
	"crypto"
	"crypto/ecdsa"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// What follows an unknown algorithm is read as if it were known: only its own check
// refuses these.
func TestPublicWithUnknownSchemes(t *testing.T) {
	const unique = " 0001 01 0001 02"
	for name, in := range map[string]string{
		"a KDF that has no hash":        "0023 000b 00050072 0000 0010 0018 000b 0003 0014" + unique,
		"a KDF with an unknown hash":    "0023 000b 00050072 0000 0010 0018 000b 0003 0007 00ff" + unique,
		"ECDAA with an unknown hash":    "0023 000b 00050072 0000 0010 001a 00ff 0001 0003 0010" + unique,
		"ECDAA that ends before count":  "0023 000b 00050072 0000 0010 001a 000b",
		"a type that ends":              "00",
		"a type alone":                  "0001",
		"a name algorithm that ends":    "0001 00",
		"attributes that end":           "0001 000b 000500",
		"a scheme that ends":            "0023 000b 00050072 0000 0010 00",
		"a symmetric scheme that ends":  "0023 000b 00050072 0000 0006 0080 00",
		"a symmetric scheme without it": "0023 000b 00050072 0000 00",
		"a KDF that ends":               "0023 000b 00050072 0000 0010 0018 000b 0003 00",
		"a curve that ends":             "0023 000b 00050072 0000 0010 0018 000b 00",
		"a point of one coordinate":     "0023 000b 00050072 0000 0010 0018 000b 0003 0010 0001 01",
		"RSA that ends in keyBits":      "0001 000b 00050072 0000 0010 0014 000b 08",
		"RSA that ends in exponent":     "0001 000b 00050072 0000 0010 0014 000b 0800 0000",
		"a modulus that ends":           "0001 000b 00050072 0000 0010 0014 000b 0800 00000000 0002 01",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePublic(unhex(t, strings.ReplaceAll(in, " ", "")))
			tpmlab.ExpectCheck(t, err, checkPublicEncoding)
		})
	}
	good := "0023 000b 00050072 0000 0010 001a 000b 0001 0003 0010" + unique
	if p, err := ParsePublic(unhex(t, strings.ReplaceAll(good, " ", ""))); err != nil || p.Scheme.Count != 1 {
		t.Errorf("ECDAA: %v", err)
	}
}

// A coordinate has at most the width of its curve, and both count.
func TestCoordinates(t *testing.T) {
	key := tpmlab.P256().Public().(*ecdsa.PublicKey)
	good := publicArea(t, key, testAKAttributes, schemeECDSA)
	//nolint:staticcheck // the other point with this X
	mirrored := &ecdsa.PublicKey{Curve: key.Curve, X: key.X, Y: new(big.Int).Sub(key.Params().P, key.Y)}
	other := tpmlab.P256b().Public().(*ecdsa.PublicKey)
	wide := func(b []byte) []byte { return append([]byte{0}, b...) }
	for name, c := range map[string]struct {
		change func(*Public)
		key    crypto.PublicKey
		want   refusal.Check // of Key
		same   bool
	}{
		"as it is":            {func(*Public) {}, key, "", true},
		"X one byte too wide": {func(p *Public) { p.X = wide(p.X) }, key, CheckPoint, false},
		"Y one byte too wide": {func(p *Public) { p.Y = wide(p.Y) }, key, CheckPoint, false},
		"both too wide":       {func(p *Public) { p.X, p.Y = wide(p.X), wide(p.Y) }, key, CheckPoint, false},
		"X too wide, with the form's byte in front": {func(p *Public) { p.X = append([]byte{4}, p.X...) }, key, CheckPoint, false},
		"Y too wide, with the end of X in front":    {func(p *Public) { p.Y = append([]byte{p.X[len(p.X)-1]}, p.Y...) }, key, CheckPoint, false},
		"RSA without size and modulus":              {func(p *Public) { *p = Public{Type: tpm2.TPMAlgRSA} }, tpmlab.RSA2048().Public(), checkPublicEncoding, false},
		//nolint:staticcheck // half a key can be made in no other way
		"a key without X": {func(*Public) {}, &ecdsa.PublicKey{Curve: key.Curve, Y: mirrored.Y}, "", false},
		//nolint:staticcheck // half a key can be made in no other way
		"a key without Y":       {func(*Public) {}, &ecdsa.PublicKey{Curve: key.Curve, X: mirrored.X}, "", false},
		"the mirrored point":    {func(*Public) {}, mirrored, "", false},
		"another point":         {func(*Public) {}, other, "", false},
		"X of another point":    {func(p *Public) { p.X = publicArea(t, other, testAKAttributes, schemeECDSA).X }, key, CheckPoint, false},
		"Y of another point":    {func(p *Public) { p.Y = publicArea(t, other, testAKAttributes, schemeECDSA).Y }, key, CheckPoint, false},
		"another curve":         {func(p *Public) { p.Curve = tpm2.TPMECCNistP384 }, key, CheckPoint, false},
		"an unknown curve":      {func(p *Public) { p.Curve = 0x10 }, key, checkWeakKey, false},
		"a key of no curve":     {func(*Public) {}, &ecdsa.PublicKey{}, "", false},
		"no key":                {func(*Public) {}, (*ecdsa.PublicKey)(nil), "", false},
		"a key of another kind": {func(*Public) {}, tpmlab.RSA2048().Public(), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := *good
			c.change(&p)
			if got := p.SameKey(c.key); got != c.same {
				t.Errorf("SameKey: got %t", got)
			}
			_, err := p.Key()
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
	if _, err := mirrored.ECDH(); err != nil {
		t.Error("the mirrored point is not one")
	}
}

// Two public areas hold one key where every part of it agrees.
func TestSameKeyAs(t *testing.T) {
	ec := publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA)
	rsa := publicArea(t, tpmlab.RSA2048().Public(), testAKAttributes, schemeRSASSA)
	for name, c := range map[string]struct {
		p      *Public
		change func(*Public)
		want   bool
	}{
		"EC":                        {ec, func(*Public) {}, true},
		"EC with other attributes":  {ec, func(p *Public) { p.Attributes, p.Scheme = testResidentAttributes, noScheme }, true},
		"EC with zeros in front":    {ec, func(p *Public) { p.X, p.Y = append([]byte{0}, p.X...), append([]byte{0, 0}, p.Y...) }, true},
		"EC with another X":         {ec, func(p *Public) { p.X = append([]byte{p.X[0] ^ 1}, p.X[1:]...) }, false},
		"EC with another Y":         {ec, func(p *Public) { p.Y = append([]byte{p.Y[0] ^ 1}, p.Y[1:]...) }, false},
		"EC on another curve":       {ec, func(p *Public) { p.Curve = tpm2.TPMECCNistP384 }, false},
		"RSA":                       {rsa, func(*Public) {}, true},
		"RSA, exponent by name":     {rsa, func(p *Public) { p.Exponent = 65537 }, true},
		"RSA with another exponent": {rsa, func(p *Public) { p.Exponent = 65539 }, false},
		"RSA with another modulus":  {rsa, func(p *Public) { p.Modulus = append([]byte{p.Modulus[0] ^ 1}, p.Modulus[1:]...) }, false},
		"another kind":              {rsa, func(p *Public) { p.Type = tpm2.TPMAlgECC }, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := *c.p
			c.change(&q)
			if got := c.p.sameKeyAs(&q); got != c.want || q.sameKeyAs(c.p) != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// The attestation key as the certified one: by the area that is checked for it, and never
// by a key that the area does not hold.
func TestAKAsCertifiedKey(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	other := newForger(t, tpmlab.P256b(), schemeECDSA)
	for name, c := range map[string]struct {
		ak   AK
		key  crypto.PublicKey // certified
		want refusal.Check
	}{
		"by its area":                   {AKFromCredential(ak.public.Raw), ak.private.Public(), checkAKIsCertifiedKey},
		"by its key":                    {AKFromIssuer(ak.private.Public(), nil), ak.private.Public(), checkAKIsCertifiedKey},
		"by both":                       {AKFromIssuer(ak.private.Public(), ak.public.Raw), ak.private.Public(), checkAKIsCertifiedKey},
		"by an area of another key":     {AKFromIssuer(ak.private.Public(), other.public.Raw), ak.private.Public(), CheckAKMismatch},
		"the key of that area":          {AKFromIssuer(ak.private.Public(), other.public.Raw), other.private.Public(), checkAKIsCertifiedKey},
		"another key, by the key alone": {AKFromIssuer(ak.private.Public(), nil), other.private.Public(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, c.key)
			f.options.AK = c.ak
			f.verify(t, c.want)
		})
	}
}

// Restricted goes with one of sign and decrypt: Part 2, 8.3.3.
func TestRestrictedCertifiedKey(t *testing.T) {
	base := testResidentAttributes &^ (AttributeSign | AttributeDecrypt)
	for name, c := range map[string]struct {
		attributes Attributes
		want       refusal.Check
	}{
		"restricted, sign":                   {base | AttributeRestricted | AttributeSign, ""},
		"restricted, decrypt":                {base | AttributeRestricted | AttributeDecrypt, ""},
		"restricted, both":                   {base | AttributeRestricted | AttributeSign | AttributeDecrypt, checkKeyAttributes},
		"restricted, neither":                {base | AttributeRestricted, checkKeyAttributes},
		"not restricted, both":               {base | AttributeSign | AttributeDecrypt, ""},
		"neither":                            {base, checkKeyAttributes},
		"fixedTPM without fixedParent":       {base&^AttributeFixedParent | AttributeSign, checkKeyAttributes},
		"fixedTPM with encryptedDuplication": {base | AttributeSign | AttributeEncryptedDuplication, checkKeyAttributes},
		"x509sign":                           {base | AttributeSign | AttributeX509Sign, checkKeyAttributes},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, newForger(t, tpmlab.RSA2048(), schemeRSASSA), tpmlab.P256b().Public())
			recertify(c.attributes)(t, f)
			f.options.AllowRestrictedKey, f.options.AllowDecryptionKey = true, true
			f.verify(t, c.want)
		})
	}
}
