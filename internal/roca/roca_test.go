package roca

import (
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"
)

// flawedPrime makes a prime of the flawed form: k·M + 65537^a mod M, where M is the
// product of the first primes.
func flawedPrime(t testing.TB, bits int) *big.Int {
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

func TestVulnerable(t *testing.T) {
	weak := new(big.Int).Mul(flawedPrime(t, 512), flawedPrime(t, 512))
	if !Vulnerable(weak) {
		t.Errorf("a flawed modulus passes: %x", weak)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range []*big.Int{key.N, new(big.Int).Add(weak, big.NewInt(2)), nil, big.NewInt(0), new(big.Int).Neg(weak)} {
		if Vulnerable(good) {
			t.Errorf("taken for flawed: %x", good)
		}
	}
	// 65537 generates the subgroups, so it and its powers have the fingerprint.
	if !Vulnerable(big.NewInt(1)) || !Vulnerable(big.NewInt(65537)) {
		t.Error("the generator is outside its subgroup")
	}
}

// Each order is that of 65537 modulo its prime.
func TestOrders(t *testing.T) {
	for _, m := range marks {
		if !new(big.Int).SetUint64(m.prime).ProbablyPrime(10) {
			t.Errorf("%d is no prime", m.prime)
		}
		order, power := uint64(1), uint64(65537)%m.prime
		for power != 1 {
			power = power * (65537 % m.prime) % m.prime
			order++
		}
		if order != m.order {
			t.Errorf("modulo %d: order %d, want %d", m.prime, m.order, order)
		}
	}
}
