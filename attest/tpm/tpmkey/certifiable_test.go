package tpmkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"

	"math/big"

	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

var p256 = elliptic.P256()

func TestSoftwareKeyRefuses(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	testkit.NoError(t, err)
	mixed := *tpmlab.NewECDSA(t, p256)
	mixed.PublicKey = tpmlab.NewECDSA(t, p256).PublicKey
	good := tpmlab.RSA2048()
	exponent3 := *good
	exponent3.E = 3
	for name, key := range map[string]crypto.Signer{
		"nothing":             nil,
		"nil ECDSA":           (*ecdsa.PrivateKey)(nil),
		"empty ECDSA":         &ecdsa.PrivateKey{},
		"nil RSA":             (*rsa.PrivateKey)(nil),
		"empty RSA":           &rsa.PrivateKey{},
		"Ed25519":             ed,
		"P-224":               tpmlab.NewECDSA(t, elliptic.P224()),
		"two keys' halves":    &mixed,
		"RSA exponent 3":      &exponent3,
		"RSA without primes":  &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D},
		"RSA of other primes": &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D, Primes: []*big.Int{good.Primes[0], good.Primes[0]}},
		"three primes":        threePrimes(t),
		"uneven primes":       rsaOfPrimes(t, 1000, 1048),
		"RSA-1024":            rsaOfPrimes(t, 512, 512),
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := SoftwareKey(key); err == nil || k != nil {
				t.Errorf("%s: got %v, %v", name, k, err)
			}
		})
	}
}

// rsaOfPrimes makes a key that crypto/rsa would not make.
func rsaOfPrimes(t testing.TB, bits ...int) *rsa.PrivateKey {
	t.Helper()
	want := 0
	for _, b := range bits {
		want += b
	}
	one, e := big.NewInt(1), big.NewInt(65537)
	for {
		k := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: big.NewInt(1), E: 65537}}
		phi := big.NewInt(1)
		for _, b := range bits {
			p, err := rand.Prime(rand.Reader, b)
			testkit.NoError(t, err)
			k.Primes = append(k.Primes, p)
			k.N.Mul(k.N, p)
			phi.Mul(phi, new(big.Int).Sub(p, one))
		}
		if k.D = new(big.Int).ModInverse(e, phi); k.D != nil && k.N.BitLen() == want {
			return k
		}
	}
}

func threePrimes(t testing.TB) *rsa.PrivateKey { return rsaOfPrimes(t, 683, 683, 682) }

// rsaOf is an RSA key of these primes.
func rsaOf(t *testing.T, e int64, primes ...*big.Int) *rsa.PrivateKey {
	t.Helper()
	n, phi := big.NewInt(1), big.NewInt(1)
	for _, p := range primes {
		n.Mul(n, p)
		phi.Mul(phi, new(big.Int).Sub(p, big.NewInt(1)))
	}
	d := new(big.Int).ModInverse(big.NewInt(e), phi)
	if d == nil {
		t.Fatal("no private exponent")
	}
	k := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: n, E: int(e)}, D: d, Primes: primes}
	k.Precompute()
	testkit.NoError(t, k.Validate())
	return k
}

// primeFrom is the first prime from quarters * 2^1022 on whose predecessor has no factor 3.
func primeFrom(quarters int64) *big.Int {
	p := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(quarters), 1022), big.NewInt(1))
	for p.Add(p, big.NewInt(2)); ; p.Add(p, big.NewInt(2)) {
		if new(big.Int).Mod(p, big.NewInt(3)).Int64() == 2 && p.ProbablyPrime(10) {
			return p
		}
	}
}

// A software key that a TPM would not take is refused, each for one reason.
func TestSoftwareKeysOfNoUse(t *testing.T) {
	good := tpmlab.P256()
	ecc := func(change func(*ecdsa.PrivateKey)) *ecdsa.PrivateKey {
		k := *good
		change(&k)
		return &k
	}
	for name, c := range map[string]struct {
		key  *ecdsa.PrivateKey
		good bool
	}{
		"good":       {good, true},
		"none":       {nil, false},
		"no curve":   {ecc(func(k *ecdsa.PrivateKey) { k.Curve = nil }), false},
		"no D":       {ecc(func(k *ecdsa.PrivateKey) { k.D = nil }), false}, //nolint:staticcheck // deliberately invalid
		"no X":       {ecc(func(k *ecdsa.PrivateKey) { k.X = nil }), false},
		"no Y":       {ecc(func(k *ecdsa.PrivateKey) { k.Y = nil }), false},
		"a D of 0":   {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int) }), false},             //nolint:staticcheck // deliberately invalid
		"a large D":  {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int).Lsh(k.D, 8) }), false}, //nolint:staticcheck // deliberately invalid
		"another's":  {ecc(func(k *ecdsa.PrivateKey) { k.PublicKey = tpmlab.P256b().PublicKey }), false},
		"off P-256":  {ecc(func(k *ecdsa.PrivateKey) { k.Y = new(big.Int).Add(k.Y, big.NewInt(1)) }), false},
		"on P-224":   {tpmlab.P224(), false},
		"off by one": {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int).Add(k.D, big.NewInt(1)) }), false}, //nolint:staticcheck // deliberately invalid
	} {
		t.Run("ECDSA, "+name, func(t *testing.T) {
			if k, err := newSoftwareECDSA(c.key); c.good != (err == nil) || c.good != (k != nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	three, err := rsa.GenerateMultiPrimeKey(rand.Reader, 3, 2048) //nolint:staticcheck // deliberately invalid
	testkit.NoError(t, err)
	large, err := rsa.GenerateKey(rand.Reader, 4096)
	testkit.NoError(t, err)
	short, long := primeFrom(2), primeFrom(4) // of 1024 and 1025 bits, and 2048 together
	short3 := new(big.Int).Add(primeFrom(3), new(big.Int).Lsh(big.NewInt(1), 1000))
	for short3.Add(short3, big.NewInt(1)); new(big.Int).Mod(short3, big.NewInt(3)).Int64() != 2 || !short3.ProbablyPrime(10); {
		short3.Add(short3, big.NewInt(1))
	}
	without := *tpmlab.RSA2048()
	without.Primes = nil
	next := new(big.Int).Set(short) // the second prime of 1024 bits whose predecessor has no factor 3
	for next.Add(next, big.NewInt(2)); new(big.Int).Mod(next, big.NewInt(3)).Int64() != 2 || !next.ProbablyPrime(10); {
		next.Add(next, big.NewInt(2))
	}
	for name, c := range map[string]struct {
		key  *rsa.PrivateKey
		good bool
	}{
		"good":                {tpmlab.RSA2048(), true},
		"of 4096 bits":        {large, true},
		"none":                {nil, false},
		"nothing":             {&rsa.PrivateKey{}, false},
		"of 3072 bits":        {rsaOfPrimes(t, 1536, 1536), true},
		"three primes":        {three, false},
		"a prime of 3, too":   {rsaOf(t, 65537, short, next, big.NewInt(3)), false},
		"no primes":           {&without, false},
		"an exponent of 3":    {rsaOf(t, 3, primeFrom(3), short3), false},
		"a longer second one": {rsaOf(t, 65537, short, long), false},
		"a longer first one":  {rsaOf(t, 65537, long, short), false},
	} {
		t.Run("RSA, "+name, func(t *testing.T) {
			if k, err := newSoftwareRSA(c.key); c.good != (err == nil) || c.good != (k != nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}
