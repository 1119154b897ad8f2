package nitro

import (
	"encoding/binary"
	"unicode/utf8"
)

// The major types of RFC 8949, 3.1, and other values of the first byte of an item.
const (
	majorUint  = 0
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5

	indefiniteMap = 0xbf
	breakStop     = 0xff
	null          = 0xf6
)

// reader reads the CBOR (RFC 8949) of a document from left to right. It supports what
// documents contain: unsigned integers, byte strings, texts, arrays, maps and null, each with
// a length in the fewest bytes. It does not support strings in chunks, items without a length,
// tags, negative integers or floating-point numbers; the caller handles the one map without a
// length, the outer one. It keeps the first fault, and then reads zeros.
type reader struct {
	data  []byte
	fault string
}

func (r *reader) fail(fault string) {
	if r.fault == "" {
		r.fault = fault
	}
	r.data = nil
}

// err is the first fault, in a field of a document.
func (r *reader) err(field string) error {
	if r.fault == "" {
		return nil
	}
	return checkEncoding.Refuse("a bad "+field, r.fault)
}

// next consumes the byte if it is the next one.
func (r *reader) next(b byte) bool {
	if len(r.data) == 0 || r.data[0] != b {
		return false
	}
	r.data = r.data[1:]
	return true
}

// head reads an item's head: its major type, and its value or length in the fewest bytes.
func (r *reader) head(major byte, what string) uint64 {
	if len(r.data) == 0 || r.data[0]>>5 != major {
		r.fail(what)
		return 0
	}
	info := r.data[0] & 0x1f
	r.data = r.data[1:]
	if info < 24 {
		return uint64(info)
	}
	size := 1 << (info - 24)
	if info > 27 || len(r.data) < size {
		r.fail(what + " of a known length")
		return 0
	}
	var wide [8]byte
	copy(wide[8-size:], r.data[:size])
	r.data = r.data[size:]
	n := binary.BigEndian.Uint64(wide[:])
	if size == 1 && n < 24 || size > 1 && n>>(4*size) == 0 {
		r.fail(what + " with a head of the fewest bytes")
		return 0
	}
	return n
}

// uint reads an unsigned integer that is at most most.
func (r *reader) uint(most uint64) uint64 {
	n := r.head(majorUint, "an unsigned integer")
	if n > most {
		r.fail("a smaller integer")
		return 0
	}
	return n
}

// string reads a string of least to most bytes; it shares memory with the document.
func (r *reader) string(major byte, what string, least, most int) []byte {
	n := r.head(major, what) // 0 after a fault, when no data are left
	if n < uint64(least) || n > uint64(most) || n > uint64(len(r.data)) {
		r.fail(what + " of another length")
		return nil
	}
	s := r.data[:n:n]
	r.data = r.data[n:]
	return s
}

func (r *reader) bytes(least, most int) []byte {
	return r.string(majorBytes, "a byte string", least, most)
}

func (r *reader) text(least, most int) string {
	s := r.string(majorText, "a text", least, most)
	if !utf8.Valid(s) {
		r.fail("a text in UTF-8")
	}
	return string(s)
}

// optional reads a byte string, or null, which is nil.
func (r *reader) optional(most int) []byte {
	if r.next(null) {
		return nil
	}
	return r.bytes(0, most)
}

// array and pairs read the head of an array or a map, of least to most elements or pairs.
func (r *reader) array(least, most int) int { return r.count(majorArray, "an array", least, most) }
func (r *reader) pairs(least, most int) int { return r.count(majorMap, "a map", least, most) }

func (r *reader) count(major byte, what string, least, most int) int {
	n := r.head(major, what)
	if r.fault == "" && (n < uint64(least) || n > uint64(most)) {
		r.fail(what + " of another length")
	}
	if r.fault != "" {
		return 0
	}
	return int(n)
}

// end checks that nothing is left.
func (r *reader) end() {
	if r.fault == "" && len(r.data) > 0 {
		r.fail("nothing behind it")
	}
}
