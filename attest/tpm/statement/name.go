package statement

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkNameAlgorithm: a key's name algorithm is not SHA-256, SHA-384 or SHA-512 (SHA-1 needs
// InsecureAllowSHA1Name).
const checkNameAlgorithm refusal.Check = "name-algorithm"

// Name returns the Name of the public area: the name algorithm as two bytes, big-endian, and
// the digest of Raw. TPM 2.0 Library, Part 1, 16.
func (p *Public) Name() []byte {
	return appendName(make([]byte, 0, message.MaxNameSize), p.NameAlg, p.Raw)
}

// HasName reports whether name is the Name of exactly this public area. If a coordinate of an
// ECC key begins with a zero byte, TPMs disagree about whether they hash that byte, and the
// public area may have been re-encoded on the way. So in addition to the received bytes, the
// same area is tried with each coordinate at the curve's full width and without leading zero
// bytes. All other bytes are as received, and no stated name is trusted.
func (p *Public) HasName(name []byte) bool {
	if len(name) < 2 || binary.BigEndian.Uint16(name) != uint16(p.NameAlg) {
		return false
	}
	var buf [message.MaxNameSize]byte
	return bytes.Equal(name, appendName(buf[:0], p.NameAlg, p.Raw)) || p.hasNameAtOtherWidth(name)
}

// hasNameAtOtherWidth tries the other encodings of the coordinates, if there are any.
func (p *Public) hasNameAtOtherWidth(name []byte) bool {
	c, ok := tpmwire.CurveOf(p.Curve)
	if !ok || p.Type != tpm2.TPMAlgECC || len(p.Raw) < 4+len(p.X)+len(p.Y) ||
		len(p.X) == 0 || len(p.Y) == 0 || len(p.X) > c.Width || len(p.Y) > c.Width {
		return false
	}
	if len(p.X) == c.Width && p.X[0] != 0 && len(p.Y) == c.Width && p.Y[0] != 0 {
		return false // there is no other width
	}
	var area [tpmwire.MaxTPMTPublicSize]byte
	var buf [message.MaxNameSize]byte
	for _, x := range otherWidths(p.X, c.Width) {
		for _, y := range otherWidths(p.Y, c.Width) {
			b := append(area[:0], p.BeforeUnique()...)
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(x))), x...)
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(y))), y...)
			if bytes.Equal(name, appendName(buf[:0], p.NameAlg, b)) {
				return true
			}
		}
	}
	return false
}

// otherWidths returns v as received, at the full width, and without leading zero
// bytes.
func otherWidths(v []byte, width int) [3][]byte {
	full := make([]byte, width)
	copy(full[width-len(v):], v)
	return [3][]byte{v, full, withoutLeadingZeros(v)}
}

func withoutLeadingZeros(v []byte) []byte { return bytes.TrimLeft(v, "\x00") }

// QualifiedName returns the Qualified Name of an object: the Name's algorithm, and the digest
// of the parent's Qualified Name and the Name. For a primary object, parent is its
// hierarchy's handle as four bytes, big-endian. It returns nil if name is not a Name. TPM 2.0
// Library, Part 1, 16.
func QualifiedName(parent, name []byte) []byte {
	if !isName(name) || len(parent) > message.MaxNameSize {
		return nil
	}
	return appendName(nil, tpm2.TPMAlgID(binary.BigEndian.Uint16(name)), slices.Concat(parent, name))
}

// QualifiedNameOfPrimary returns the Qualified Name of a primary object directly
// under a hierarchy, such as tpm2.TPMRHEndorsement.
func QualifiedNameOfPrimary(hierarchy tpm2.TPMHandle, name []byte) []byte {
	return QualifiedName(binary.BigEndian.AppendUint32(nil, uint32(hierarchy)), name)
}

// isName reports whether b has the form of an object's Name.
func isName(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	h := tpmwire.HashOf(tpm2.TPMAlgID(binary.BigEndian.Uint16(b)))
	return h != 0 && len(b) == 2+h.Size()
}

// appendName appends alg and the digest of message, or nothing for an unsupported algorithm.
func appendName(out []byte, alg tpm2.TPMAlgID, message []byte) []byte {
	h := tpmwire.HashOf(alg)
	if h == 0 {
		return out
	}
	return tpmwire.AppendDigest(binary.BigEndian.AppendUint16(out, uint16(alg)), h, message)
}
