package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// showInput recognises what an input is, and shows it. Nothing in a file states its type,
// so the first bytes have to suffice.
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

// looksBinary reports whether b has bytes that do not occur in any of the text forms.
func looksBinary(b []byte) bool {
	return !utf8.Valid(b) || bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' })
}

// showBase64 shows what base64 holds: the PEM of spec.request, a challenge from a
// condition's message, or anything in DER.
func (t *tree) showBase64(text string) {
	b, _ := base64.RawStdEncoding.AppendDecode(nil, []byte(strings.TrimRight(text, "="))) // as much as can be decoded
	switch {
	case bytes.HasPrefix(b, []byte(begin)):
		t.showPEM(b)
	case len(b) == 0:
		t.stop(0, "no base64 in one piece")
	default:
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil {
			t.fault("base64: " + err.Error())
		} else if recognize(b) == "Challenge" && len(text) != base64.StdEncoding.EncodedLen(len(b)) {
			t.fault("base64: a challenge in several lines")
		}
		t.showBinary(b)
	}
}

// showBinary shows DER or a TPM structure. tpm2-tools write some TPM structures prefixed
// with their size, that is, as TPM2Bs.
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

// recognize names a structure by its first tags or, for a TPM structure, its first fields;
// if two begin alike, by the parser that accepts it. It returns "" for anything that this
// program does not know.
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

// algorithmAt reports whether b has one of the TPM_ALG_IDs at the given offset.
func algorithmAt(b []byte, at int, ids ...uint16) bool {
	return len(b) >= at+2 && slices.Contains(ids, uint16(b[at])<<8|uint16(b[at+1]))
}

const begin = "-----BEGIN "

// showPEM reads PEM blocks leniently, one after the other, and then says whether the
// strict reader of the form accepts them.
func (t *tree) showPEM(text []byte) {
	labels := map[string]bool{}
	at := 0
	if !bytes.HasPrefix(text, []byte(begin)) {
		at = nextBlock(text, 0)
	}
	t.between(text[:at], 0)
	for at < len(text) {
		next := nextBlock(text, at)
		block, rest, fault := readBlock(text[at:next], at)
		labels[block.Type] = true
		t.in("block "+quoted(block.Type), fmt.Sprintf("at byte %d, content %s", at, sizeOf(len(block.Bytes))), func() {
			if fault != "" {
				t.fault(fault)
			}
			t.showBlock(block)
		})
		t.between(rest, next-len(rest))
		at = next
	}
	t.showForm(text, labels)
}

// nextBlock finds the next line that begins a block, or the text's end.
func nextBlock(text []byte, at int) int {
	if n := bytes.Index(text[at:], []byte("\n"+begin)); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

func (t *tree) between(text []byte, at int) {
	if len(bytes.TrimSpace(text)) > 0 {
		t.line("text outside of blocks", fmt.Sprintf("%s at byte %d, not shown", sizeOf(len(text)), at))
	}
}

// readBlock reads a block that begins at the given byte of the input. From a damaged one it
// gets what can be decoded, and says where and why the rest cannot be.
func readBlock(part []byte, at int) (b *pem.Block, rest []byte, fault string) {
	if b, rest = pem.Decode(part); b != nil {
		return b, rest, ""
	}
	first, body, _ := strings.Cut(string(part), "\n")
	b = &pem.Block{Type: strings.Trim(strings.TrimPrefix(first, begin), "- \r")}
	body, _, ended := strings.Cut(body, "-----END "+b.Type+"-----")
	var err error
	b.Bytes, err = base64.StdEncoding.AppendDecode(nil, []byte(body))
	var corrupt base64.CorruptInputError
	why := "not PEM"
	switch {
	case !ended:
		at, why = at+len(part), "the block ends without its END line"
	case errors.As(err, &corrupt):
		at, why = at+len(first)+1+int(corrupt), "not base64 from here on"
	}
	return b, nil, fmt.Sprintf("byte %d: %s", at, why)
}

// showBlock shows the content of a block whose label this program knows. Others are not
// shown: they may hold a private key.
func (t *tree) showBlock(b *pem.Block) {
	if len(b.Headers) > 0 {
		t.fault(fmt.Sprintf("a header, which no request has: %d are not shown", len(b.Headers)))
	}
	switch b.Type {
	case csr.BlockRequest, "NEW CERTIFICATE REQUEST": // the latter from older tools
		t.showRequest(b.Bytes)
	case "CERTIFICATE":
		t.showCertificate(b.Bytes)
	case "PUBLIC KEY":
		t.showKeyInfo(b.Bytes)
	case csr.BlockProvider:
		t.line("content", quoted(string(b.Bytes)))
	case csr.BlockData, csr.BlockProposalData:
		t.showBinary(b.Bytes)
	default:
		t.line("content", "not shown")
	}
}

// showForm names the form that the labels indicate, and says whether the SDK's strict
// reader of that form accepts the text.
func (t *tree) showForm(text []byte, has map[string]bool) {
	form, parse := "", (func([]byte) (any, error))(nil)
	switch {
	case has[csr.BlockProposalData]:
		form, parse = "the proposal's dialect", parser(csr.ParseProposal)
	case has[csr.BlockRequest] || has[csr.BlockProvider] || has[csr.BlockData]:
		form, parse = "a request bundle", parser(csr.Parse)
	case has["CERTIFICATE"]:
		form, parse = "certificates", parser(tpmcert.ParseCertificatesPEM)
	case has["NEW CERTIFICATE REQUEST"] || has["PUBLIC KEY"]:
		t.line("form", "PEM blocks that are no request bundle")
		return
	default:
		t.stop(0, "no block that this program knows")
		return
	}
	t.line("form", form)
	if _, err := parse(text); err != nil {
		t.fault("refused: " + err.Error())
	}
}

// maxDepth limits the nesting of DER.
const maxDepth = 32

// requestMember finds spec.request in truncated JSON.
var requestMember = regexp.MustCompile(`"request":\s*"([A-Za-z0-9+/=]+)`)

// showObject shows a CertificateSigningRequest object as csr.ParseRequest reads it, with
// the request, the challenge and the certificate in it. An object of another kind, a
// Secret for example, is not shown. Duplicate members and deep nesting, which
// csr.ParseRequest lets through, are refused here.
func (t *tree) showObject(text []byte) {
	r := strictjson.NewReader(text)
	if fault, ok := errors.AsType[*strictjson.Error](cmp.Or(r.Skip(), r.End())); ok {
		t.fault("refused: " + fault.Error())
	}
	request, err := csr.ParseServerObject(text)
	if err != nil {
		t.fault("refused: " + err.Error())
		if m := requestMember.FindSubmatch(text); m != nil {
			t.in("Request", "", func() { t.showBase64(string(m[1])) })
		}
		return
	}
	if len(request.Spec.Request) == 0 {
		t.fault("no spec.request: this is no CertificateSigningRequest")
	}
	certificate := request.Status.Certificate
	request.Status.Certificate = nil
	t.fields(reflect.ValueOf(request).Elem())
	if len(certificate) > 0 {
		evidence := t.parts // the issued certificate is not part of it
		t.in("Certificate", sizeOf(len(certificate)), func() { t.showPEM(certificate) })
		t.parts = evidence
	}
}
