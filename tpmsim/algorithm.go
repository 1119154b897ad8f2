package tpmsim

import "fmt"

// Algorithm is the kind of a key that this package makes. The zero value stands
// for the default of the place where it is used.
type Algorithm int

// The algorithms. As an AK, a key signs with the scheme named here and the named
// hash; as an EK or as a key of a [CA], only size or curve count.
const (
	RSA2048    Algorithm = iota + 1 // RSA, 2048 bits; as an AK RSASSA with SHA-256
	RSA2048PSS                      // RSA, 2048 bits; RSAPSS with SHA-256; AKs only
	P256                            // NIST P-256; as an AK ECDSA with SHA-256
	P384                            // NIST P-384; as an AK ECDSA with SHA-384
	RSA3072                         // RSA, 3072 bits; as an AK RSASSA with SHA-256; swtpm only, as the simulator refuses it
)

// String gives the algorithm's Go name.
func (a Algorithm) String() string {
	switch a {
	case 0:
		return "default"
	case RSA2048:
		return "RSA2048"
	case RSA2048PSS:
		return "RSA2048PSS"
	case P256:
		return "P256"
	case P384:
		return "P384"
	case RSA3072:
		return "RSA3072"
	}
	return fmt.Sprintf("Algorithm(%d)", int(a))
}

func (a Algorithm) isRSA() bool { return a == RSA2048 || a == RSA2048PSS || a == RSA3072 }
