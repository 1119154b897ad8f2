package main

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

const (
	maxCertificate = 64 << 10 // bytes that crypto/x509 gets to see
	maxRSABits     = 8192     // for keys that this program computes with
)

// showRequest shows a PKCS#10 request: RFC 2986.
func (t *tree) showRequest(b []byte) {
	request, err := csr.ParsePKCS10(b)
	if err != nil {
		t.fault("refused: " + err.Error())
		if request, err = csr.ParseForeignPKCS10(b); err != nil {
			t.in("outline", "", func() { t.outline(b, 0, private) })
			return
		}
	}
	if t.parts.request == nil {
		t.parts.request = request
	}
	t.names("subject", request.CSR.Subject)
	t.showKeyOf(request.CSR.PublicKey, request.CSR.RawSubjectPublicKeyInfo)
	for _, e := range request.CSR.Extensions {
		t.showExtension(e)
	}
	for _, id := range request.OtherAttributes {
		t.in("attribute "+nameOf(id), "", func() {
			if value, ok := request.Attribute(id); ok && id == oid.IDAAAttestation {
				t.showBinary(value)
			} else {
				t.line("value", sizeOf(len(value))+", not shown")
			}
		})
	}
	t.line("signed with", request.CSR.SignatureAlgorithm.String())
	if !computable(request.CSR.PublicKey) {
		t.line("self-signature", "not checked: the key is too large")
	} else if err := request.CheckSignature(); err != nil {
		t.line("self-signature", "DOES NOT HOLD: "+err.Error())
	} else {
		t.line("self-signature", "holds")
	}
}

// showCertificate shows a certificate: RFC 5280, 4.1. What a TPM's certificate says about
// the TPM comes from the SDK's own reader.
func (t *tree) showCertificate(b []byte) {
	c, err := x509.ParseCertificate(b[:min(len(b), maxCertificate)])
	if err != nil {
		t.refuse(b, err.Error())
		return
	}
	if len(t.parts.certificates) < maxChain {
		t.parts.certificates = append(t.parts.certificates, c)
	}
	t.line("serial", fmt.Sprintf("0x%x", c.SerialNumber))
	t.line("signed with", c.SignatureAlgorithm.String())
	t.names("issuer", c.Issuer)
	t.line("not before", c.NotBefore.UTC().Format(time.RFC3339))
	t.line("not after", c.NotAfter.UTC().Format(time.RFC3339))
	t.names("subject", c.Subject)
	t.line("certificate authority", map[bool]string{false: "no", true: "YES"}[c.IsCA])
	t.line("key usage", usages(c.KeyUsage))
	ek, ekErr := tpmcert.ParseEKCertificate(b, tpmcert.AnyEKEncoding())
	if c.PublicKey == nil && ekErr == nil {
		c.PublicKey = ek.PublicKey
	}
	t.showKeyOf(c.PublicKey, c.RawSubjectPublicKeyInfo)
	for _, e := range c.Extensions {
		t.showExtension(e)
		if oid.SubjectDirectoryAttributes.Equal(e.Id) && ekErr != nil {
			t.fault("refused as a TPM's certificate: " + ekErr.Error())
		}
	}
	if ekErr == nil {
		t.field("TPM", reflect.ValueOf(ek.Directory))
		t.field("TPM specification", reflect.ValueOf(ek.Specification))
	}
}

// usages lists the bits of a keyUsage extension.
func usages(usage x509.KeyUsage) string {
	var set []string
	for bit := x509.KeyUsageDigitalSignature; bit <= x509.KeyUsageDecipherOnly; bit <<= 1 {
		if usage&bit != 0 {
			set = append(set, bit.String())
		}
	}
	return cmp.Or(strings.Join(set, ", "), "not stated")
}

// names writes a distinguished name, one line for each attribute.
func (t *tree) names(name string, of pkix.Name) {
	t.in(name, "", func() {
		for _, n := range of.Names {
			t.line(nameOfDotted(n.Type.String()), quoted(fmt.Sprint(n.Value)))
		}
	})
}

// showExtension shows an X.509 extension, whose content need not be hidden.
func (t *tree) showExtension(e pkix.Extension) {
	t.in("extension "+nameOfDotted(e.Id.String()), map[bool]string{true: "critical"}[e.Critical], func() {
		if !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			t.outline(e.Value, 0, public)
		} else if id, err := oid.UnmarshalProviderID(e.Value); err == nil {
			t.line("provider ID", quoted(id))
		} else if g, gceErr := oid.ParseGCEInstance(e.Value); gceErr == nil {
			t.field("GCE instance", reflect.ValueOf(g))
		} else {
			t.refuse(e.Value, err.Error())
		}
	})
}

// showKeyOf shows the key that a certificate or a request carries. key is nil if crypto/x509
// does not know its kind.
func (t *tree) showKeyOf(key crypto.PublicKey, spki []byte) {
	if key == nil {
		t.line("key", "of a kind that Go does not read")
		return
	}
	t.showKey(key)
	if !csr.IsCanonicalSPKI(spki) {
		t.line("encoding", "NOT the canonical one, over which the digest is")
	}
}

// showKeyInfo shows a SubjectPublicKeyInfo: RFC 5280, 4.1.2.7.
func (t *tree) showKeyInfo(b []byte) {
	key, err := x509.ParsePKIXPublicKey(b)
	if err != nil {
		t.refuse(b, err.Error())
		return
	}
	t.showKeyOf(key, b)
}

// showKey writes what a key is, and the digest that represents it in identities.
func (t *tree) showKey(key crypto.PublicKey) {
	kind := fmt.Sprintf("%T", key)
	switch key := key.(type) {
	case *rsa.PublicKey:
		kind = fmt.Sprintf("RSA, %d bits, exponent %d", key.N.BitLen(), key.E)
	case *ecdsa.PublicKey:
		kind = "ECDSA, " + key.Curve.Params().Name
	case ed25519.PublicKey:
		kind = "Ed25519"
	}
	t.line("key", kind)
	if hash, err := csr.SPKIHash(key); err == nil {
		t.line("key digest", fmt.Sprintf("sha256:%x", hash))
	}
}

// computable reports whether a signature under the key can be verified quickly.
func computable(key crypto.PublicKey) bool {
	k, ok := key.(*rsa.PublicKey)
	return !ok || k.N.BitLen() <= maxRSABits
}

// nameOf returns an identifier's name and its number.
func nameOf(id oid.OID) string {
	if name := id.Name(); name != "" {
		return strings.TrimPrefix(name, "id-at-") + " (" + id.String() + ")"
	}
	return id.String()
}

// nameOfDotted is nameOf for an identifier in dotted decimal.
func nameOfDotted(dotted string) string {
	id, err := oid.Parse(dotted)
	if err != nil {
		return dotted
	}
	return nameOf(id)
}

// The SDK's parsers return everything or nothing. The outline is for what they refuse, and
// for X.509 extensions: it lists DER element by element, up to the first fault.

// What an outline shows: everything for public DER; neither octets nor a challengePassword
// for private DER.
const (
	public  = true
	private = false
)

// An element is the tag and the length of one DER element.
type element struct {
	tag        asn1.Tag
	head, size int // bytes in tag and length, and in the content that they announce
}

// readElement reads tag and length: one tag byte, and a length in its shortest form. The
// content itself may be missing.
func readElement(b []byte) (e element, fault string) {
	switch {
	case len(b) > 0 && b[0]&0x1f == 0x1f:
		return e, fmt.Sprintf("tag 0x%02x of several bytes", b[0])
	case len(b) < 2:
		return e, "a tag without a length"
	}
	e = element{tag: asn1.Tag(b[0]), head: 2, size: int(b[1])}
	if n := e.size - 0x80; n >= 0 {
		var length [8]byte
		if n == 0 || n > 4 || copy(length[8-n:], b[2:]) < n {
			return e, fmt.Sprintf("length byte 0x%02x, which DER does not have here", b[1])
		}
		e.head, e.size = 2+n, int(binary.BigEndian.Uint64(length[:]))
		if e.size < 0x80 || e.size>>(8*(n-1)) == 0 || e.size > 1<<30 {
			return e, fmt.Sprintf("length %d in a form that DER does not have", e.size)
		}
	}
	return e, ""
}

// outline lists the elements of b, which begins at the given byte of the input. Elements that
// are complete structures themselves are shown as such. It returns false after a fault.
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

// salvage shows an element if one of the SDK's parsers accepts it or its content.
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

// valueOf returns the value of an element as text. Octets may be secret.
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

// tagsOf lists the first tags of DER, descending into constructed elements and leaving out
// the content of the others: "30 30 02".
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
