package tpmcert

import "math/big"

// rocaModulus is a modulus of 2048 bits with the fingerprint of the flawed library: it is 1 modulo
// each of the first primes. Its factors are unknown.
func rocaModulus() *big.Int {
	m := big.NewInt(1)
	for n := range int64(168) {
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
		}
	}
	n := new(big.Int).Lsh(big.NewInt(1), 2047)
	n.Sub(n, new(big.Int).Mod(n, m))
	return n.Add(n, m.Add(m, big.NewInt(1)))
}
