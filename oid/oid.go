// Package oid names the object identifiers that certificates, certificate requests
// and TPM evidence are made of, and reads and writes the extensions that carry
// machine identifiers: the provider ID of a Kubernetes node and the identity of a
// Google Compute Engine instance.
//
// An [OID] holds the content bytes of its DER encoding. So it is comparable, works in
// a switch statement and as a constant, is compared without decoding, and holds arcs
// of any size, which encoding/asn1 does not:
//
//	switch id {
//	case oid.SubjectAltName:
//	case oid.KubernetesNodeProviderIdentifier:
//	}
package oid

import (
	"encoding/asn1"
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// MaxSize is the length in bytes of the longest content that [Parse], [FromASN1] and
// [Read] take. It leaves room for three arcs of 128 bits and more.
const MaxSize = 128

// maxDotted is the length of the longest text for MaxSize bytes: a byte of content
// holds seven bits, and the longest text for it is ".127".
const maxDotted = 4*MaxSize + 1

// OID is an object identifier: the content bytes of its DER encoding (ITU-T X.690,
// 8.19), without tag and length. The zero value is no identifier. Values come from
// this package's constants, [Parse], [FromASN1] and [Read]; a conversion from a string
// is not checked.
type OID string

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// Error is one failed check; see [refusal.Error].
type Error = refusal.Error

func refuse(check Check, got, want string) error { return &Error{Check: check, Got: got, Want: want} }

func errSyntax(got string) error {
	return refuse(CheckSyntax, refusal.Quote(got), "arcs in decimal, as 1.2.3")
}

func errSize() error { return refuse(CheckSize, "more bytes", "at most "+strconv.Itoa(MaxSize)) }

// The reasons for which [Parse] and [FromASN1] refuse an identifier.
const (
	// CheckSyntax: not two or more decimal arcs without signs or leading zeros,
	// joined by single dots, or the first two arcs are out of range (the first is
	// 0, 1 or 2; below 0 and 1 the second is at most 39).
	CheckSyntax Check = "oid-syntax"
	// CheckSize: the content would be longer than MaxSize.
	CheckSize Check = "oid-size"
)

// Parse reads an identifier in dotted decimal, such as "2.23.133.8.1", in its only
// canonical form; arcs may have any size. It returns [CheckSyntax] or [CheckSize].
// For every id that it returns, id.String() is the input.
func Parse(dotted string) (OID, error) {
	if len(dotted) > maxDotted {
		return "", errSize()
	}
	parts := strings.Split(dotted, ".")
	if len(parts) < 2 {
		return "", errSyntax(dotted)
	}
	for _, p := range parts {
		if !canonicalArc(p) {
			return "", errSyntax(dotted)
		}
	}
	root := parts[0]
	if len(root) != 1 || root[0] > '2' {
		return "", errSyntax(dotted)
	}
	if root != "2" && (len(parts[1]) > 2 || len(parts[1]) == 2 && parts[1] > "39") {
		return "", errSyntax(dotted)
	}
	content := make([]byte, 0, 32)
	for i, p := range parts[1:] {
		base := uint64(0)
		if i == 0 {
			base = 40 * uint64(root[0]-'0')
		}
		content = appendArc(content, p, base)
		if len(content) > MaxSize {
			return "", errSize()
		}
	}
	return OID(content), nil
}

// canonicalArc reports whether p is a decimal number without sign or leading zero.
func canonicalArc(p string) bool {
	if p == "" || len(p) > 1 && p[0] == '0' {
		return false
	}
	for i := 0; i < len(p); i++ {
		if p[i] < '0' || p[i] > '9' {
			return false
		}
	}
	return true
}

// appendArc appends the base-128 form of p + base; p is canonical.
func appendArc(b []byte, p string, base uint64) []byte {
	v, err := strconv.ParseUint(p, 10, 64)
	if err == nil && v <= math.MaxUint64-base {
		return appendBase128(b, v+base)
	}
	n, _ := new(big.Int).SetString(p, 10)
	n.Add(n, new(big.Int).SetUint64(base))
	groups := (n.BitLen() + 6) / 7
	var low, group big.Int
	mask := big.NewInt(0x7f)
	for i := groups - 1; i >= 0; i-- {
		group.Rsh(n, uint(7*i))
		c := byte(low.And(&group, mask).Uint64())
		if i > 0 {
			c |= 0x80
		}
		b = append(b, c)
	}
	return b
}

func appendBase128(b []byte, v uint64) []byte {
	shift := 0
	for v>>shift > 0x7f {
		shift += 7
	}
	for ; shift > 0; shift -= 7 {
		b = append(b, byte(v>>shift)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

// FromASN1 converts an identifier of encoding/asn1. It returns [CheckSyntax] where id
// has fewer than two arcs, a negative one, or first arcs out of range, and [CheckSize].
func FromASN1(id asn1.ObjectIdentifier) (OID, error) {
	if !validRoot(id) {
		return "", errSyntax(id.String())
	}
	content := appendBase128(make([]byte, 0, 16), 40*uint64(id[0])+uint64(id[1]))
	for _, arc := range id[2:] {
		if arc < 0 {
			return "", errSyntax(id.String())
		}
		content = appendBase128(content, uint64(arc))
	}
	if len(content) > MaxSize {
		return "", errSize()
	}
	return OID(content), nil
}

func validRoot(id asn1.ObjectIdentifier) bool {
	return len(id) >= 2 && id[0] >= 0 && id[0] <= 2 && id[1] >= 0 && (id[0] == 2 || id[1] < 40)
}

// valid reports whether o is the content of a DER object identifier: arcs in their
// shortest form, the last one complete, no longer than MaxSize.
func (o OID) valid() bool {
	if len(o) == 0 || len(o) > MaxSize || o[len(o)-1]&0x80 != 0 {
		return false
	}
	start := true
	for i := 0; i < len(o); i++ {
		if start && o[i] == 0x80 {
			return false
		}
		start = o[i]&0x80 == 0
	}
	return true
}

// String returns the identifier in dotted decimal. For a value that is no identifier
// it returns "invalid:" and the bytes in hexadecimal.
func (o OID) String() string {
	if !o.valid() {
		return "invalid:" + hex.EncodeToString([]byte(o))
	}
	var b []byte
	for i, start := 0, 0; i < len(o); i++ {
		if o[i]&0x80 != 0 {
			continue
		}
		b = appendDotted(b, string(o[start:i+1]), start == 0)
		start = i + 1
	}
	return string(b)
}

// appendDotted appends one arc, given in base 128, or the first two.
func appendDotted(b []byte, arc string, first bool) []byte {
	if len(arc) > 9 { // more than 63 bits
		n := new(big.Int)
		for i := 0; i < len(arc); i++ {
			n.Lsh(n, 7).Or(n, big.NewInt(int64(arc[i]&0x7f)))
		}
		if first {
			b = append(b, '2')
			n.Sub(n, big.NewInt(80))
		}
		return n.Append(append(b, '.'), 10)
	}
	v := uint64(0)
	for i := 0; i < len(arc); i++ {
		v = v<<7 | uint64(arc[i]&0x7f)
	}
	if first {
		root := min(v/40, 2)
		b = append(b, '0'+byte(root))
		v -= 40 * root
	}
	return strconv.AppendUint(append(b, '.'), v, 10)
}

// ASN1 converts to a fresh identifier of encoding/asn1. It returns false where o is no
// identifier, or where encoding/asn1 would refuse it because an arc has more than 31
// bits.
func (o OID) ASN1() (asn1.ObjectIdentifier, bool) {
	if !o.valid() {
		return nil, false
	}
	id := make(asn1.ObjectIdentifier, 0, len(o)+1)
	v := 0
	for i := 0; i < len(o); i++ {
		if v > math.MaxInt32>>7 {
			return nil, false
		}
		v = v<<7 | int(o[i]&0x7f)
		if o[i]&0x80 != 0 {
			continue
		}
		if len(id) == 0 {
			root := min(v/40, 2)
			id = append(id, root)
			v -= 40 * root
		}
		id = append(id, v)
		v = 0
	}
	return id, true
}

// Equal reports whether o and id are the same identifier. It allocates nothing.
func (o OID) Equal(id asn1.ObjectIdentifier) bool {
	if !validRoot(id) {
		return false
	}
	rest, ok := cutArc(string(o), 40*uint64(id[0])+uint64(id[1]))
	for _, arc := range id[2:] {
		if !ok || arc < 0 {
			return false
		}
		rest, ok = cutArc(rest, uint64(arc))
	}
	return ok && rest == "" && len(o) <= MaxSize
}

// cutArc removes the base-128 form of v from the front of s.
func cutArc(s string, v uint64) (string, bool) {
	var buf [10]byte
	want := appendBase128(buf[:0], v)
	if len(s) < len(want) || s[:len(want)] != string(want) {
		return s, false
	}
	return s[len(want):], true
}

// Add appends o as a DER OBJECT IDENTIFIER. A value that is no identifier becomes the
// builder's error.
func Add(b *cryptobyte.Builder, o OID) {
	if !o.valid() {
		b.SetError(errSyntax(o.String()))
		return
	}
	b.AddASN1(cryptobyteasn1.OBJECT_IDENTIFIER, func(c *cryptobyte.Builder) {
		c.AddBytes([]byte(o))
	})
}

// Read removes a DER OBJECT IDENTIFIER from the front of s: tag 6, minimal length,
// 1 to [MaxSize] content bytes, arcs in their shortest form. It returns false, and
// leaves out alone, where s does not begin with one. An identifier that this package
// knows is returned without an allocation.
func Read(s *cryptobyte.String, out *OID) bool {
	var content cryptobyte.String
	if !s.ReadASN1(&content, cryptobyteasn1.OBJECT_IDENTIFIER) {
		return false
	}
	if i, known := find(content); known {
		*out = names[i].id
		return true
	}
	o := OID(content)
	if !o.valid() {
		return false
	}
	*out = o
	return true
}
