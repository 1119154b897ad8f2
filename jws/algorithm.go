package jws

import "crypto"

// Algorithm is the name of a signature algorithm as it stands in the header member alg
// (RFC 7518, section 3.1; RFC 8037, section 3.1). The zero value is none.
type Algorithm string

// The algorithms. A token in compact form is signed by one of the first ten. HS256 is
// for detached signatures of discovery alone: a [Key] never has it, since whoever can
// verify with it can sign.
const (
	RS256 Algorithm = "RS256" // RSASSA-PKCS1-v1_5 with SHA-256
	RS384 Algorithm = "RS384" // RSASSA-PKCS1-v1_5 with SHA-384
	RS512 Algorithm = "RS512" // RSASSA-PKCS1-v1_5 with SHA-512
	PS256 Algorithm = "PS256" // RSASSA-PSS with SHA-256, MGF1 with SHA-256, salt of 32 bytes
	PS384 Algorithm = "PS384" // RSASSA-PSS with SHA-384, MGF1 with SHA-384, salt of 48 bytes
	PS512 Algorithm = "PS512" // RSASSA-PSS with SHA-512, MGF1 with SHA-512, salt of 64 bytes
	ES256 Algorithm = "ES256" // ECDSA on P-256 with SHA-256
	ES384 Algorithm = "ES384" // ECDSA on P-384 with SHA-384
	ES512 Algorithm = "ES512" // ECDSA on P-521 with SHA-512
	EdDSA Algorithm = "EdDSA" // Ed25519, of the message itself
	HS256 Algorithm = "HS256" // HMAC with SHA-256
)

// Hash returns the hash function of the algorithm, and 0 for EdDSA, which signs the
// message itself, and for what is no algorithm of this package.
func (a Algorithm) Hash() crypto.Hash {
	switch a {
	case RS256, PS256, ES256, HS256:
		return crypto.SHA256
	case RS384, PS384, ES384:
		return crypto.SHA384
	case RS512, PS512, ES512:
		return crypto.SHA512
	}
	return 0
}

// Asymmetric reports whether a is one of the ten algorithms with which this package
// verifies tokens.
func (a Algorithm) Asymmetric() bool { return asymmetric(string(a)) != "" }

// asymmetric returns the algorithm of that name, or "" if this package verifies no
// tokens with it. The result shares no memory with name.
func asymmetric(name string) Algorithm {
	switch name {
	case "RS256":
		return RS256
	case "RS384":
		return RS384
	case "RS512":
		return RS512
	case "PS256":
		return PS256
	case "PS384":
		return PS384
	case "PS512":
		return PS512
	case "ES256":
		return ES256
	case "ES384":
		return ES384
	case "ES512":
		return ES512
	case "EdDSA":
		return EdDSA
	}
	return ""
}
