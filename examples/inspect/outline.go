package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// The SDK's parsers give everything or nothing. The outline is for what they refuse, and
// for X.509 extensions: it lists DER element by element, up to the first fault.

// What an outline shows: of public DER everything, of private DER neither octets nor a
// challengePassword.
const (
	public  = true
	private = false
)

// An element is the tag and the length of one DER element.
type element struct {
	tag        asn1.Tag
	head, size int // bytes of tag and length, and of the content that they announce
}

// readElement reads tag and length: one tag byte, and a length in its shortest form.
// What it announces need not be there.
func readElement(b []byte) (e element, fault string) {
	switch {
	case len(b) == 0:
		return e, "nothing there"
	case b[0]&0x1f == 0x1f:
		return e, fmt.Sprintf("tag 0x%02x of several bytes", b[0])
	case len(b) < 2:
		return e, "a tag without a length"
	}
	e = element{tag: asn1.Tag(b[0]), head: 2, size: int(b[1])}
	if e.size < 0x80 {
		return e, ""
	}
	n := e.size & 0x7f
	if n == 0 || n > 4 {
		return e, fmt.Sprintf("length byte 0x%02x, which DER does not have", b[1])
	}
	if len(b) < 2+n {
		return e, "an incomplete length"
	}
	e.head, e.size = 2+n, 0
	for _, v := range b[2:e.head] {
		e.size = e.size<<8 | int(v)
	}
	if e.size < 0x80 || e.size>>(8*(n-1)) == 0 || e.size > 1<<30 {
		return e, fmt.Sprintf("length %d in a form that DER does not have", e.size)
	}
	return e, ""
}

// outline lists the elements of b, which begins at a byte of the input. Elements that are
// whole structures by themselves are shown as such. It returns false after a fault.
func (t *tree) outline(b []byte, at int, shown bool) bool {
	password := false
	for len(b) > 0 && t.lines < maxLines {
		e, fault := readElement(b)
		if fault != "" || len(t.path) > 2*maxDepth {
			t.stop(at, cmp.Or(fault, "nested too deep"))
			return false
		}
		whole, missing := b, e.head+e.size-len(b)
		if missing <= 0 {
			whole = b[:e.head+e.size]
		}
		content, ok := whole[e.head:], true
		label := fmt.Sprintf("byte %d, %s", at, tagName(e.tag))
		switch {
		case password:
			t.line(label, sizeOf(e.size)+", not shown")
		case missing <= 0 && at > 0 && t.salvage(label, whole, content):
		case e.tag&0x20 != 0:
			t.in(label, sizeOf(e.size), func() { ok = t.outline(content, at+e.head, shown) })
		default:
			t.line(label, valueOf(e.tag, whole, content, shown))
			password = oid.OID(content) == oid.ChallengePassword
		}
		if ok && missing > 0 {
			t.stop(at+len(b), fmt.Sprintf("%s at byte %d announces %s, %d are there", tagName(e.tag), at, sizeOf(e.size), len(content)))
		}
		if !ok || missing > 0 {
			return false
		}
		b, at = b[len(whole):], at+len(whole)
	}
	return true
}

// salvage shows an element that, or whose content, one of the SDK's parsers takes.
func (t *tree) salvage(label string, whole, content []byte) bool {
	for _, b := range [][]byte{whole, content} {
		name := recognize(b)
		if parse := parsers[name]; parse != nil {
			if _, err := parse(b); err == nil {
				t.in(label, name, func() { t.show(name, b) })
				return true
			}
		}
	}
	return false
}

// valueOf writes the value of an element. Octets may be secret.
func valueOf(tag asn1.Tag, whole, content []byte, shown bool) string {
	s := cryptobyte.String(whole)
	var id oid.OID
	var number int64
	switch {
	case tag == asn1.OBJECT_IDENTIFIER && oid.Read(&s, &id):
		return nameOf(id)
	case tag == asn1.INTEGER && s.ReadASN1Integer(&number):
		return fmt.Sprint(number)
	case tag == asn1.UTF8String || tag == asn1.PrintableString || tag == asn1.IA5String:
		return quoted(string(content))
	case shown && len(content) > 0 && !looksBinary(content):
		return quoted(string(content))
	case shown:
		return hexOf(content)
	}
	return sizeOf(len(content))
}

func tagName(tag asn1.Tag) string {
	name := map[asn1.Tag]string{
		asn1.BOOLEAN: "BOOLEAN", asn1.INTEGER: "INTEGER", asn1.BIT_STRING: "BIT STRING", asn1.OCTET_STRING: "OCTET STRING",
		asn1.OBJECT_IDENTIFIER: "OBJECT IDENTIFIER", asn1.ENUM: "ENUMERATED", asn1.UTF8String: "UTF8String",
		asn1.PrintableString: "PrintableString", asn1.IA5String: "IA5String",
		asn1.SEQUENCE: "SEQUENCE", asn1.SET: "SET",
	}[tag]
	return cmp.Or(name, fmt.Sprintf("tag 0x%02x", uint8(tag)))
}

// tagsOf lists the first tags of DER, with constructed elements entered and the content of
// the others left out: "30 30 02".
func tagsOf(b []byte) string {
	var tags []string
	for len(tags) < 5 {
		e, fault := readElement(b)
		if fault != "" {
			break
		}
		tags = append(tags, hex.EncodeToString([]byte{byte(e.tag)}))
		if b = b[e.head:]; e.tag&0x20 == 0 {
			b = b[min(e.size, len(b)):]
		} else if e.size == 0 {
			tags = append(tags, "end")
		}
	}
	return strings.Join(tags, " ")
}
