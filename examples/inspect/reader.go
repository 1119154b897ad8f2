package main

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte/asn1"
)

// A reader takes one part of the input apart, from its front, and knows where it
// stands. The SDK's own parsers give everything or nothing; a reader shows each field
// as it comes, until the first fault. From then on it reads nothing: every method
// returns at once, so that callers need not look after each field.
type reader struct {
	t    *tree
	b    []byte // what has not been read yet
	at   int    // where b begins, in bytes
	cut  string // not empty: the input ends before this part does, and this says by how much
	done bool   // a fault was reported
}

func newReader(t *tree, b []byte, at int) *reader { return &reader{t: t, b: b, at: at} }

// stop reports a fault where the reader stands.
func (r *reader) stop(format string, args ...any) {
	if r.done {
		return
	}
	r.done = true
	why := fmt.Sprintf(format, args...)
	if r.cut != "" {
		why += " (" + r.cut + ")"
	}
	r.t.stop(r.at, why)
}

// more reports whether there is something left to read.
func (r *reader) more() bool { return !r.done && len(r.b) > 0 }

// end reports what is left over, or missing.
func (r *reader) end() {
	if r.done {
		return
	}
	if len(r.b) > 0 {
		r.stop("%s more than there should be", sizeOf(len(r.b)))
	} else if r.cut != "" {
		r.stop("the input ends here")
	}
}

// bytes takes n bytes.
func (r *reader) bytes(name string, n int) ([]byte, bool) {
	if r.done {
		return nil, false
	}
	if n > len(r.b) {
		r.stop("%s: %s wanted, %d left", name, sizeOf(n), len(r.b))
		return nil, false
	}
	v := r.b[:n:n]
	r.b, r.at = r.b[n:], r.at+n
	return v, true
}

// strictly reads a part to its end, and then holds its bytes against a parser of the
// SDK or of the standard library, which may refuse what could be read.
func (r *reader) strictly(read func(), parse func(raw []byte) error) {
	raw, before := r.b, len(r.t.faults)
	read()
	r.end()
	if r.done || len(r.t.faults) != before {
		return
	}
	if err := parse(raw); err != nil {
		r.done = true
		r.t.fault("refused: " + err.Error())
	}
}

// peek returns the tag of the next element, 0 where there is none.
func (r *reader) peek() asn1.Tag {
	if !r.more() {
		return 0
	}
	return asn1.Tag(r.b[0])
}

// element takes the next DER element: its tag, a reader of its content, and its bytes
// with tag and length. Where the input ends within a constructed element, the reader
// gets what is there, and reports it.
func (r *reader) element(name string) (asn1.Tag, *reader, []byte, bool) { return r.open(name, false) }

// open is element. With inside, it also enters an element that is not constructed, and
// holds a structure all the same, where the input ends within it.
func (r *reader) open(name string, inside bool) (asn1.Tag, *reader, []byte, bool) {
	if r.done {
		return 0, nil, nil, false
	}
	tag, head, size, fault := derHeader(r.b)
	if fault != "" {
		r.stop("%s: %s", name, fault)
		return 0, nil, nil, false
	}
	content := &reader{t: r.t, at: r.at + head}
	if size <= len(r.b)-head {
		raw := r.b[: head+size : head+size]
		content.b = raw[head:]
		r.b, r.at = r.b[head+size:], r.at+head+size
		return tag, content, raw, true
	}
	left := len(r.b) - head
	if tag&0x20 == 0 && !inside {
		r.stop("%s: announces %s, %d left", name, sizeOf(size), left)
		return 0, nil, nil, false
	}
	content.b = r.b[head:]
	content.cut = fmt.Sprintf("%s at byte %d announces %s, %d are there", name, r.at, sizeOf(size), left)
	raw := r.b
	r.b, r.at, r.done = nil, r.at+len(r.b), true
	return tag, content, raw, true
}

// derHeader reads tag and length: one tag byte, and a length in its shortest form.
func derHeader(b []byte) (tag asn1.Tag, head, size int, fault string) {
	if len(b) == 0 {
		return 0, 0, 0, "nothing there"
	}
	if b[0]&0x1f == 0x1f {
		return 0, 0, 0, fmt.Sprintf("tag 0x%02x of several bytes", b[0])
	}
	if len(b) < 2 {
		return 0, 0, 0, "a tag without a length"
	}
	tag, head, size = asn1.Tag(b[0]), 2, int(b[1])
	if size < 0x80 {
		return tag, head, size, ""
	}
	n := size & 0x7f
	if n == 0 || n > 4 {
		return 0, 0, 0, fmt.Sprintf("length byte 0x%02x, which DER has not", b[1])
	}
	if len(b) < 2+n {
		return 0, 0, 0, "an incomplete length"
	}
	size = 0
	for _, v := range b[2 : 2+n] {
		size = size<<8 | int(v)
	}
	if size < 0x80 || size>>(8*(n-1)) == 0 || size > 1<<30 {
		return 0, 0, 0, fmt.Sprintf("length %d in a form that DER has not", size)
	}
	return tag, 2 + n, size, ""
}

// take takes the next element, which must have the tag.
func (r *reader) take(name string, want asn1.Tag) (*reader, []byte, bool) {
	return r.takeOpen(name, want, false)
}

func (r *reader) takeOpen(name string, want asn1.Tag, inside bool) (*reader, []byte, bool) {
	if r.more() && r.peek() != want {
		r.stop("%s: tag 0x%02x, want %s", name, r.b[0], tagName(want))
	}
	_, content, raw, ok := r.open(name, inside)
	return content, raw, ok
}

// enter takes the next element, and reads its content to the end.
func (r *reader) enter(name string, want asn1.Tag, inside func(in *reader, raw []byte)) {
	if content, raw, ok := r.take(name, want); ok {
		inside(content, raw)
		content.end()
	}
}

// node is enter under a line of its own.
func (r *reader) node(name string, want asn1.Tag, inside func(in *reader, raw []byte)) {
	if r.done {
		return
	}
	r.t.in(name, "", func() { r.enter(name, want, inside) })
}

func tagName(tag asn1.Tag) string {
	names := map[asn1.Tag]string{
		asn1.BOOLEAN: "BOOLEAN", asn1.INTEGER: "INTEGER", asn1.BIT_STRING: "BIT STRING",
		asn1.OCTET_STRING: "OCTET STRING", asn1.OBJECT_IDENTIFIER: "OBJECT IDENTIFIER",
		asn1.ENUM: "ENUMERATED", asn1.UTF8String: "UTF8String", asn1.SEQUENCE: "SEQUENCE", asn1.SET: "SET",
	}
	if name := names[tag]; name != "" {
		return fmt.Sprintf("%s (0x%02x)", name, uint8(tag))
	}
	if tag&0xc0 == 0x80 {
		return fmt.Sprintf("[%d] (0x%02x)", uint8(tag&0x1f), uint8(tag))
	}
	return fmt.Sprintf("0x%02x", uint8(tag))
}
