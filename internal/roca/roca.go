// Package roca recognizes RSA moduli that can be factored because of CVE-2017-15361.
package roca

import (
	"math/big"
	"math/bits"
	"slices"
)

// marks are the small primes p modulo which a modulus made by Infineon's RSALib is in the
// subgroup of powers of 65537, with the order r of that subgroup where it is a proper one.
var marks = [...]struct{ order, prime uint64 }{
	{2, 11}, {6, 13}, {8, 17}, {9, 19}, {3, 37}, {26, 53}, {20, 61}, {35, 71}, {24, 73},
	{13, 79}, {6, 97}, {51, 103}, {53, 107}, {54, 109}, {42, 127}, {50, 151}, {78, 157},
}

// Vulnerable reports whether n has the fingerprint of a modulus whose primes were made by the
// flawed RSALib: n to the power r is 1 modulo p for every pair. One in 2^27.8 of the moduli
// made otherwise has it too. A modulus that is nil or not positive does not. It allocates nothing.
func Vulnerable(n *big.Int) bool {
	if n == nil || n.Sign() <= 0 {
		return false
	}
	for _, m := range marks {
		base := remainder(n.Bits(), m.prime)
		power := uint64(1)
		for range m.order {
			power = power * base % m.prime
		}
		if power != 1 {
			return false
		}
	}
	return true
}

// remainder is that of a number by a prime.
func remainder(words []big.Word, prime uint64) (r uint64) {
	for _, word := range slices.Backward(words) {
		if bits.UintSize == 32 {
			r = (r<<32 | uint64(word)) % prime
		} else {
			r = bits.Rem64(r, uint64(word), prime)
		}
	}
	return r
}
