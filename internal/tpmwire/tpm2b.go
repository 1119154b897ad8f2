package tpmwire

import "golang.org/x/crypto/cryptobyte"

// Limits of the structures.
const (
	MaxDigestSize    = 64
	MaxPCRBanks      = 16
	MaxPCRSelectSize = 4 // octets of a selection, eight PCRs each
)

// ReadTPM2B reads a 16-bit size and so many bytes, at most limit.
func ReadTPM2B(s *cryptobyte.String, out *[]byte, limit int) bool {
	var v cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&v) || len(v) > limit {
		return false
	}
	*out = v
	return true
}

// AddTPM2B appends a 16-bit size and v.
func AddTPM2B(b *cryptobyte.Builder, v []byte) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(v) })
}

// MaxTPMTPublicSize is the most bytes of a TPMT_PUBLIC that are read; RSA-4096 with a policy
// has about 620.
const MaxTPMTPublicSize = 1024
