package tpmcert

import (
	"crypto/rand"
	"math/big"
	"testing"
)

// rocaPrime makes a prime of the flawed form: k·M + 65537^a mod M, where M is the
// product of the first primes.
func rocaPrime(t testing.TB, bits int) *big.Int {
	t.Helper()
	m := big.NewInt(1)
	for n, count := int64(2), 0; count < 39; n++ { // the 512-bit keys' M
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
			count++
		}
	}
	for {
		a, err := rand.Int(rand.Reader, m)
		if err != nil {
			t.Fatal(err)
		}
		k, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-m.BitLen())))
		if err != nil {
			t.Fatal(err)
		}
		p := new(big.Int).Exp(big.NewInt(65537), a, m)
		if p.Add(p, k.Mul(k, m)); p.BitLen() == bits && p.ProbablyPrime(10) {
			return p
		}
	}
}

func TestROCA(t *testing.T) {
	weak := new(big.Int).Mul(rocaPrime(t, 1024), rocaPrime(t, 1024))
	if !rocaVulnerable(weak) {
		t.Errorf("a flawed modulus passes: %x", weak)
	}
	for _, good := range []*big.Int{
		softwareKeys.rsa2048().N, softwareKeys.rsa2048b().N, softwareKeys.rsa1024().N,
		new(big.Int).Add(weak, big.NewInt(2)), nil, big.NewInt(0), new(big.Int).Neg(weak),
	} {
		if rocaVulnerable(good) {
			t.Errorf("taken for flawed: %x", good)
		}
	}
	// 65537 generates the subgroups, so it and its powers have the fingerprint.
	if !rocaVulnerable(big.NewInt(1)) || !rocaVulnerable(big.NewInt(65537)) {
		t.Error("the generator is outside its subgroup")
	}
}

// TestROCAOrders: each order is that of 65537 modulo its prime.
func TestROCAOrders(t *testing.T) {
	for _, v := range rocaPrimes {
		p := new(big.Int).SetUint64(v.prime)
		if !p.ProbablyPrime(10) {
			t.Errorf("%d is no prime", v.prime)
		}
		order, power := uint64(1), uint64(65537)%v.prime
		for power != 1 {
			power = power * (65537 % v.prime) % v.prime
			order++
		}
		if order != v.order {
			t.Errorf("modulo %d: order %d, want %d", v.prime, v.order, order)
		}
	}
}

func BenchmarkROCA(b *testing.B) {
	n := softwareKeys.rsa2048().N
	for b.Loop() {
		rocaVulnerable(n)
	}
}
