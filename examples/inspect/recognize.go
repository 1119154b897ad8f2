package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// showInput recognises what an input is, and shows it. Nothing in a file says what it
// is, so the first bytes must do.
func showInput(t *tree, b []byte) {
	text := bytes.TrimSpace(b)
	switch {
	case len(text) == 0:
		t.stop(0, "nothing there")
	case looksBinary(b) && !bytes.HasPrefix(text, []byte(begin)):
		t.showBinary(b)
	case text[0] == '{':
		t.showObject(b)
	case bytes.Contains(b, []byte(begin)) || strings.HasPrefix(begin, string(text)):
		t.showPEM(b)
	case len(bytes.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n")) == 0:
		t.in("base64", "", func() { t.showBase64(string(text)) })
	default:
		t.stop(0, "none of the forms that this program knows")
	}
}

// looksBinary reports whether b has bytes that none of the text forms has.
func looksBinary(b []byte) bool {
	return !utf8.Valid(b) || bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' })
}

// showBase64 shows what base64 holds: the PEM of spec.request, a challenge as it
// stands in a condition's message, or anything in DER.
func (t *tree) showBase64(text string) {
	b := lenientBase64(text)
	switch {
	case bytes.HasPrefix(b, []byte(begin)):
		t.showPEM(b)
	case recognize(b) == "Challenge":
		t.showMessage(text)
	case len(b) == 0:
		t.stop(0, "no base64 in one piece")
	default:
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil {
			t.fault("base64: " + err.Error())
		}
		t.showBinary(b)
	}
}

// lenientBase64 decodes as much as can be decoded.
func lenientBase64(text string) []byte {
	b, _ := base64.RawStdEncoding.AppendDecode(nil, []byte(strings.TrimRight(text, "=")))
	return b
}

// showMessage shows a challenge as it stands in a condition's message.
func (t *tree) showMessage(text string) {
	denied := csr.Condition{Type: csr.ConditionDenied, Reason: "AttestationChallenge", Message: text}
	der, err := attest.ChallengeOf(&csr.Request{Status: csr.Status{Conditions: []csr.Condition{denied}}})
	if err != nil {
		t.fault("refused: " + err.Error())
		der = lenientBase64(text)
	}
	t.show("Challenge", der)
}

// showBinary shows DER or a TPM structure. tpm2-tools write some TPM structures with
// their size in front: they are TPM2Bs then.
func (t *tree) showBinary(b []byte) {
	name := recognize(b)
	if name == "" && len(b) > 4 {
		if size := int(b[0])<<8 | int(b[1]); size >= len(b)-2 && size <= 2048 && recognize(b[2:]) != "" {
			t.line("size prefix", "2 bytes, a TPM2B: requests carry the structure without it")
			b, name = b[2:], recognize(b[2:])
			if size > len(b) {
				t.stop(2, fmt.Sprintf("the size prefix announces %s, %d are there", sizeOf(size), len(b)))
			}
		}
	}
	switch {
	case name != "":
		t.in(name, "", func() { t.show(name, b) })
	case len(b) > 0 && b[0] == 0x30:
		t.refuse(b, "none of the SEQUENCEs that this program knows")
	default:
		t.stop(0, fmt.Sprintf("none of the forms that this program knows: %s, the first %s", sizeOf(len(b)), hex.EncodeToString(b[:min(2, len(b))])))
	}
}

// recognize names a structure by its first tags, or the first fields of a TPM structure;
// of two that begin alike, by the parser that takes it. It returns "" for what this program
// does not know.
func recognize(b []byte) string {
	tags := tagsOf(b)
	for _, known := range []struct{ tags, name, orElse string }{
		{tags: "30 30 a0", name: "Certificate"}, // TBSCertificate: version, or serial and algorithm
		{tags: "30 30 02 30 06", name: "Certificate"},
		{tags: "30 30 02 30", name: "CertificationRequest"}, // CertificationRequestInfo: version, subject
		{tags: "30 30 30", name: "AttestationBundle"},
		{tags: "30 30 06", name: "SubjectPublicKeyInfo"},
		{tags: "30 30 02 0a", name: "Proof", orElse: "Challenge"}, // both begin with a Binding
		{tags: "30 02 0a 0c", name: "Hello"},
		{tags: "30 02 0a 04", name: "Binding"},
		{tags: "30 04", name: "Quote", orElse: "TcgAttestCertify"},
	} {
		if !strings.HasPrefix(tags, known.tags) {
			continue
		}
		if known.orElse != "" {
			if _, err := parsers[known.name](b); err != nil {
				return known.orElse
			}
		}
		return known.name
	}
	isType := len(b) >= 6 && b[4] == 0x80 && b[5] >= 0x14 && b[5] <= 0x1c
	switch {
	case algorithmAt(b, 0, 0xff54) || isType: // TPM_GENERATED_VALUE, or a TPM_ST_ATTEST after another magic
		return "TPMS_ATTEST"
	case isSignature(b):
		return "TPMT_SIGNATURE"
	case algorithmAt(b, 0, 0x0001, 0x0023) && (len(b) < 4 || hashAt(b, 2)): // RSA, ECC
		return "TPMT_PUBLIC"
	}
	return ""
}

// isSignature reports whether b begins like a TPMT_SIGNATURE: a scheme and a hash.
func isSignature(b []byte) bool {
	return algorithmAt(b, 0, 0x0014, 0x0016, 0x0018) && (len(b) < 4 || hashAt(b, 2))
}

func hashAt(b []byte, at int) bool { return algorithmAt(b, at, 0x0004, 0x000b, 0x000c, 0x000d) }

// algorithmAt reports whether one of the TPM_ALG_IDs stands at a byte of b.
func algorithmAt(b []byte, at int, ids ...uint16) bool {
	return len(b) >= at+2 && slices.Contains(ids, uint16(b[at])<<8|uint16(b[at+1]))
}
