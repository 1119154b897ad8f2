package statement

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/crypto/cryptobyte"
)

// wire reads a TPM structure, or writes one: each structure is described once, for both.
// Limits apply to reading.
type wire struct {
	in      cryptobyte.String
	out     []byte
	writing bool
}

func writer(size int) *wire { return &wire{out: make([]byte, 0, size), writing: true} }

// number reads or writes a number as wide as its type, big-endian.
func number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](w *wire, v *T) bool {
	var buf [8]byte
	size := bits.Len64(uint64(^T(0))) / 8
	if w.writing {
		binary.BigEndian.PutUint64(buf[:], uint64(*v))
		w.out = append(w.out, buf[8-size:]...)
		return true
	}
	var b []byte
	if !w.in.ReadBytes(&b, size) {
		return false
	}
	copy(buf[8-size:], b)
	*v = T(binary.BigEndian.Uint64(buf[:]))
	return true
}

// sized reads or writes a size of type S and that many bytes: least to most bytes when
// reading, and up to the largest size that S can express when writing.
func sized[S ~uint8 | ~uint16](w *wire, v *[]byte, least, most int) bool {
	size := S(len(*v))
	if !number(w, &size) {
		return false
	}
	if w.writing {
		w.out = append(w.out, *v...)
		return int(size) == len(*v)
	}
	return int(size) >= least && int(size) <= most && w.in.ReadBytes(v, int(size))
}

// tpm2b reads or writes a TPM2B of at most limit bytes.
func (w *wire) tpm2b(v *[]byte, limit int) bool { return sized[uint16](w, v, 0, limit) }
