package roca

import (
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

func TestVulnerable(t *testing.T) {
	weak := new(big.Int).Mul(tpmlab.ROCAPrime(t, 512), tpmlab.ROCAPrime(t, 512))
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
