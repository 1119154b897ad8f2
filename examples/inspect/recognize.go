package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte/asn1"
)

// showInput recognises what an input is, and shows it. Nothing in a file says what it
// is, so the first bytes must do.
func showInput(t *tree, b []byte) {
	text := bytes.TrimSpace(b)
	switch {
	case len(text) == 0:
		t.stop(0, "nothing there")
	case looksBinary(b) && !bytes.HasPrefix(text, []byte(begin)):
		showBinary(newReader(t, b, 0))
	case text[0] == '{':
		showObject(t, b)
	case bytes.Contains(b, []byte(begin)) || strings.HasPrefix(begin, string(text)):
		showPEM(t, b)
	case isBase64(text):
		t.in("base64", "", func() { showDecoded(t, text) })
	default:
		t.stop(0, "none of the forms that this program knows")
	}
}

// looksBinary reports whether b has bytes that none of the text forms has.
func looksBinary(b []byte) bool {
	if !utf8.Valid(b) {
		return true
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return true
		}
	}
	return false
}

// isBase64 reports whether text is base64 in one piece or in lines.
func isBase64(text []byte) bool {
	return len(bytes.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n")) == 0
}

// showDecoded shows what base64 holds: the PEM of spec.request, a challenge as it
// stands in a condition's message, or anything in DER.
func showDecoded(t *tree, text []byte) {
	b := lenientBase64(string(text))
	name, _ := recognizeDER(b)
	switch {
	case bytes.HasPrefix(b, []byte(begin)):
		showPEM(t, b)
	case name == "Challenge":
		t.showMessage(string(text))
	case len(b) == 0:
		t.stop(0, "no base64 in one piece")
	default:
		if _, err := base64.StdEncoding.Strict().DecodeString(string(text)); err != nil {
			t.fault("base64: " + err.Error())
		}
		showBinary(newReader(t, b, 0))
	}
}

// lenientBase64 decodes as much as can be decoded.
func lenientBase64(text string) []byte {
	text = strings.TrimRight(text, "=")
	b, _ := base64.RawStdEncoding.AppendDecode(nil, []byte(text))
	return b
}

// showBinary shows DER or a TPM structure.
func showBinary(r *reader) {
	name, show := recognizeDER(r.b)
	if show == nil {
		name, show = recognizeTPM(r.b)
	}
	if show == nil {
		name, show = r.sizePrefix()
	}
	if _, _, _, fault := derHeader(r.b); show == nil && fault != "" && len(r.b) > 0 && r.b[0] == byte(asn1.SEQUENCE) {
		r.stop("a SEQUENCE: %s", fault)
		return
	}
	if show == nil {
		r.stop("none of the forms that this program knows: %s, the first %s", sizeOf(len(r.b)), hex.EncodeToString(r.b[:min(2, len(r.b))]))
		return
	}
	r.t.in(name, "", func() { show(r) })
}

// sizePrefix passes over the size with which tpm2-tools writes some structures: they
// are TPM2Bs then.
func (r *reader) sizePrefix() (string, func(*reader)) {
	if len(r.b) < 4 {
		return "", nil
	}
	size, left := int(r.b[0])<<8|int(r.b[1]), len(r.b)-2
	name, show := recognizeTPM(r.b[2:])
	if show == nil || size < left || size > 2048 {
		return "", nil
	}
	r.t.line("size prefix", "2 bytes, a TPM2B: requests carry the structure without it")
	if size > left {
		r.cut = fmt.Sprintf("the size prefix announces %s, %d are there", sizeOf(size), left)
	}
	r.b, r.at = r.b[2:], r.at+2
	return name, show
}

// recognizeTPM tells TPM structures by their first fields.
func recognizeTPM(b []byte) (string, func(*reader)) {
	isType := len(b) >= 6 && b[4] == 0x80 && b[5] >= 0x14 && b[5] <= 0x1c
	switch {
	case isAlgorithm(b, "ff54") || isType:
		return "TPMS_ATTEST", showAttestation
	case isSignature(b):
		return "TPMT_SIGNATURE", showSignature
	case isPublic(b):
		return "TPMT_PUBLIC", func(r *reader) { showPublic(r, roleUnknown) }
	}
	return "", nil
}

// recognizeDER tells the DER structures by their first tags.
func recognizeDER(b []byte) (string, func(*reader)) {
	tags := tagsOf(b)
	is := func(prefix string) bool { return strings.HasPrefix(tags, prefix) }
	switch {
	case is("30 30 a0"), is("30 30 02 30 06"): // TBSCertificate: version, or serial and algorithm
		return "Certificate", showCertificate
	case is("30 30 02 30"): // CertificationRequestInfo: version, subject
		return "CertificationRequest", showRequest
	case is("30 30 30"):
		return "AttestationBundle", showEvidence
	case is("30 30 06"):
		return "SubjectPublicKeyInfo", showKeyInfo
	case is("30 30 02 0a"):
		return afterBinding(b)
	case is("30 02 0a 0c"):
		return "Hello", showHello
	case is("30 02 0a 04"):
		return "Binding", showBinding
	case is("30 04"):
		if third(b) == byte(asn1.SEQUENCE) {
			return "Quote", showQuote
		}
		return "TcgAttestCertify", showCertify
	}
	return "", nil
}

// tagsOf lists the first tags of DER, entering constructed elements and passing over
// others, and empty ones.
func tagsOf(b []byte) string {
	var tags []string
	for range 5 {
		tag, head, size, fault := derHeader(b)
		if fault != "" {
			break
		}
		tags = append(tags, hex.EncodeToString([]byte{byte(tag)}))
		b = b[head:]
		if tag&0x20 == 0 {
			b = b[min(size, len(b)):]
		} else if size == 0 {
			tags = append(tags, "end")
		}
	}
	return strings.Join(tags, " ")
}

// afterBinding tells a Challenge from a Proof: both begin with a Binding, and only a
// Proof ends with an OCTET STRING.
func afterBinding(b []byte) (string, func(*reader)) {
	_, head, _, _ := derHeader(b)
	rest := skipElement(b[head:])
	if len(rest) > 0 && (rest[0] == 0x04 || rest[0] == 0x80 && len(skipElement(rest)) > 0) {
		return "Proof", showProof
	}
	return "Challenge", showChallenge
}

// third returns the tag of the third element in a SEQUENCE, 0 where there is none.
func third(b []byte) byte {
	_, head, _, _ := derHeader(b)
	if rest := skipElement(skipElement(b[head:])); len(rest) > 0 {
		return rest[0]
	}
	return 0
}

// skipElement returns what is behind one element, nothing where it is not complete.
func skipElement(b []byte) []byte {
	_, head, size, fault := derHeader(b)
	if fault != "" || size > len(b)-head {
		return nil
	}
	return b[head+size:]
}
