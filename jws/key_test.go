package jws

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// The usual algorithm of a key is bound where none is given, and the key ID derived.
func TestNewKeyDefaults(t *testing.T) {
	for _, algorithm := range []Algorithm{RS256, ES256, ES384, ES512, EdDSA} {
		public := forgers()[algorithm].signer.Public()
		k, err := NewKey(public, KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if k.KeyID() != deriveKeyID(public) || k.Algorithm() != algorithm {
			t.Errorf("%s: got %s %s", algorithm, k.KeyID(), k.Algorithm())
		}
		if !k.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(public) {
			t.Errorf("%s: another key", algorithm)
		}
	}
}

// Each key takes the algorithms that fit it and no others.
func TestNewKeyAlgorithms(t *testing.T) {
	all := []Algorithm{RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, hs256, "none", "rs256"}
	fitting := map[Algorithm][]Algorithm{
		RS256: {RS256, RS384, RS512, PS256, PS384, PS512}, ES256: {ES256}, ES384: {ES384}, ES512: {ES512}, EdDSA: {EdDSA},
	}
	for usual, fit := range fitting {
		for _, algorithm := range all {
			k, err := NewKey(forgers()[usual].signer.Public(), KeyOptions{KeyID: "a key", Algorithm: algorithm})
			if slices.Contains(fit, algorithm) {
				if err != nil || k.Algorithm() != algorithm || k.KeyID() != "a key" {
					t.Errorf("%s for %s: %v", algorithm, usual, err)
				}
				continue
			}
			refusedFor(t, string(algorithm)+" for "+string(usual), err, CheckAlgorithm)
		}
	}
}

func TestNewKeyRefused(t *testing.T) {
	good := forgers()[RS256].signer.Public().(*rsa.PublicKey)
	withE := func(e int) *rsa.PublicKey { return &rsa.PublicKey{N: good.N, E: e} }
	withN := func(n *big.Int) *rsa.PublicKey { return &rsa.PublicKey{N: n, E: good.E} }
	bits := func(n int) *big.Int { // odd, of n bits
		return new(big.Int).SetBit(new(big.Int).Lsh(big.NewInt(1), uint(n-1)), 0, 1)
	}
	p256 := forgers()[ES256].signer.Public().(*ecdsa.PublicKey)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := p256.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	x, y := new(big.Int).SetBytes(uncompressed[1:33]), new(big.Int).SetBytes(uncompressed[33:])
	for name, test := range map[string]struct {
		public crypto.PublicKey
		want   Check
	}{
		"nothing":               {nil, checkKeyType},
		"a secret":              {[]byte("secret"), checkKeyType},
		"a private key":         {forgers()[ES256].signer, checkKeyType},
		"RSA by value":          {*good, checkKeyType},
		"nil RSA":               {(*rsa.PublicKey)(nil), checkKey},
		"zero RSA":              {&rsa.PublicKey{}, checkKey},
		"2047 bits":             {withN(bits(2047)), checkKey},
		"1024 bits":             {withN(bits(1024)), checkKey},
		"8193 bits":             {withN(bits(8193)), checkKey},
		"even modulus":          {withN(new(big.Int).SetBit(good.N, 0, 0)), checkKey},
		"negative modulus":      {withN(new(big.Int).Neg(good.N)), checkKey},
		"exponent 0":            {withE(0), checkKey},
		"exponent 1":            {withE(1), checkKey},
		"exponent 2":            {withE(2), checkKey},
		"even exponent":         {withE(65536), checkKey},
		"negative exponent":     {withE(-3), checkKey},
		"exponent over 31 bits": {withE(1<<31 + 1), checkKey},
		"nil ECDSA":             {(*ecdsa.PublicKey)(nil), checkKey},
		"zero ECDSA":            {&ecdsa.PublicKey{}, checkKey},
		"no point":              {point(elliptic.P256(), nil, nil), checkKey},
		"no X":                  {point(elliptic.P256(), nil, y), checkKey},
		"no Y":                  {point(elliptic.P256(), x, nil), checkKey},
		"no curve":              {point(nil, x, y), checkKey},
		"off the curve":         {point(elliptic.P256(), x, new(big.Int).Add(y, big.NewInt(1))), checkKey},
		"negative coordinate":   {point(elliptic.P256(), new(big.Int).Neg(x), y), checkKey},
		"infinity":              {point(elliptic.P256(), new(big.Int), new(big.Int)), checkKey},
		"the curve of another":  {point(elliptic.P384(), x, y), checkKey},
		"P-224":                 {p224.Public(), checkKeyType},
		"nil Ed25519":           {ed25519.PublicKey(nil), checkKey},
		"short Ed25519":         {ed25519.PublicKey(make([]byte, 31)), checkKey},
		"long Ed25519":          {ed25519.PublicKey(make([]byte, 33)), checkKey},
		"CVE-2017-15361 in RSA": {withN(rocaModulus(t)), checkKey},
	} {
		t.Run(name, func(t *testing.T) {
			for _, options := range []KeyOptions{{}, {KeyID: "k"}} {
				k, err := NewKey(test.public, options)
				refusedFor(t, name, err, test.want)
				if k != nil {
					t.Errorf("%s: a key with the error", name)
				}
			}
		})
	}
	for _, accepted := range []*rsa.PublicKey{withE(3), withE(1<<31 - 1), withN(bits(2048)), withN(bits(8192))} {
		if _, err := NewKey(accepted, KeyOptions{}); err != nil {
			t.Errorf("%d bits, exponent %d: %v", accepted.N.BitLen(), accepted.E, err)
		}
	}
	for _, keyID := range []string{strings.Repeat("k", MaxKeyIDSize+1), "\xff"} {
		_, err := NewKey(good, KeyOptions{KeyID: keyID})
		refusedFor(t, "a key ID", err, CheckKeyID)
	}
}

const rocaHex = "01a9c5a687db8fb2a30f82dff8dda154c291ef27b04b25e185b8ab20c4c6a5f604859fe59ede54a0af7c0e7288800ad7" +
	"193bb731a5bf1e1170d7a1c66930d41ea3eb21dedf7b8af5d42a91c34f72045b96efd57cb182301ddcc26967e5508e9a" +
	"b889986d57e837dfe70f99fc37c498f43c17c3b9b064cf704443d7a033e03a821697aabf30fb29ee7d33b3767965a890" +
	"58e3b39754bd3a1c007d28a23b0cfa79f9d711ac6e4c4b4f77b0634b1ecd68591af03c7d53b62a5f2d91163d4ef4f8f2" +
	"6831ae461ed85ec5f788c5123ffc12c87420fdcfea1d1b4a52c3521824fb3998348739b62a986d8e76b2289bc2eb8bc0" +
	"6d138147851b83a07183d210559f906321"

// point is a key that no parser would make.
func point(curve elliptic.Curve, x, y *big.Int) *ecdsa.PublicKey {
	//nolint:staticcheck // nothing else makes a point off its curve
	return &ecdsa.PublicKey{Curve: curve, X: x, Y: y}
}

// rocaModulus is the modulus that Wycheproof gives for CVE-2017-15361.
func rocaModulus(t testing.TB) *big.Int {
	t.Helper()
	modulus, ok := new(big.Int).SetString(rocaHex, 16)
	if !ok {
		t.Fatal("no number")
	}
	return modulus
}

// A key is a copy: changing the original does not change it.
func TestNewKeyCopies(t *testing.T) {
	original := forgers()[RS256].signer.Public().(*rsa.PublicKey)
	public := &rsa.PublicKey{N: new(big.Int).Set(original.N), E: original.E}
	k, err := NewKey(public, KeyOptions{KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	public.N.SetInt64(15)
	public.E = 1
	ed := bytes.Clone(forgers()[EdDSA].key.public.(ed25519.PublicKey))
	e, err := NewKey(ed25519.PublicKey(ed), KeyOptions{KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	ed[0] ^= 1
	for key, f := range map[*Key]*forger{k: forgers()[RS256], e: forgers()[EdDSA]} {
		token, err := Parse(f.good(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := key.Verify(token); err != nil {
			t.Error(err)
		}
	}
}

func TestDeriveKeyID(t *testing.T) {
	for algorithm, f := range forgers() {
		der, err := x509.MarshalPKIXPublicKey(f.signer.Public())
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(der)
		want := base64.RawURLEncoding.EncodeToString(digest[:])
		if got := deriveKeyID(f.signer.Public()); got != want || len(got) != 43 {
			t.Errorf("%s: got %s, want %s", algorithm, got, want)
		}
	}
}

// An error of the reader stays findable.
func TestReaderErrors(t *testing.T) {
	_, err := parseJWK([]byte(`{"kty":"RSA","kty":"RSA"}`))
	if !errors.Is(err, strictjson.ErrDuplicate) || !errors.Is(err, checkJWK) {
		t.Errorf("got %v", err)
	}
}

func TestAlgorithms(t *testing.T) {
	for algorithm, hash := range hashes {
		want := []byte("data")
		if hash != 0 {
			h := hash.New()
			h.Write(want)
			want = h.Sum(nil)
		}
		if sum, got := algorithm.digest(nil, []byte("data")); got != hash || !bytes.Equal(sum, want) {
			t.Errorf("%s: got %x by %v, want %x by %v", algorithm, sum, got, want, hash)
		}
		if asymmetric(string(algorithm)) != algorithm {
			t.Errorf("%s does not verify tokens", algorithm)
		}
		for _, other := range []string{strings.ToLower(string(algorithm)), string(algorithm) + " ", string(algorithm)[1:]} {
			if asymmetric(other) != "" {
				t.Errorf("%q verifies tokens", other)
			}
		}
	}
	for _, other := range []Algorithm{"", hs256, "HS384", "none", "ES256K", "Ed25519", "RS1"} {
		if asymmetric(string(other)) != "" {
			t.Errorf("%q verifies tokens", other)
		}
	}
}
