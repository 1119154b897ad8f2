package tpmcert

import "math/big"

// rocaPrimes are the small primes p at which a modulus made by Infineon's RSALib
// (CVE-2017-15361) lies in the subgroup of powers of 65537, with the order r of that
// subgroup where it is a proper one.
var rocaPrimes = [...]struct{ order, prime uint64 }{
	{2, 11}, {6, 13}, {8, 17}, {9, 19}, {3, 37}, {26, 53}, {20, 61}, {35, 71}, {24, 73},
	{13, 79}, {6, 97}, {51, 103}, {53, 107}, {54, 109}, {42, 127}, {50, 151}, {78, 157},
}

// rocaVulnerable reports whether n has the fingerprint of a modulus whose primes
// were made by the flawed RSALib of Infineon's TPMs, so that it can be factored: n to
// the power r is 1 modulo p for every pair. Of moduli made otherwise, one in 2^27.8
// has it too.
func rocaVulnerable(n *big.Int) bool {
	if n == nil {
		return false
	}
	var prime, remainder big.Int
	for _, v := range rocaPrimes {
		base := remainder.Mod(n, prime.SetUint64(v.prime)).Uint64()
		power := uint64(1)
		for range v.order {
			power = power * base % v.prime
		}
		if power != 1 {
			return false
		}
	}
	return true
}
