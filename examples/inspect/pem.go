package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/strictjson"
)

const begin = "-----BEGIN "

// showPEM reads PEM blocks leniently, one after the other, and then says whether the
// strict reader of the form takes them.
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

// readBlock reads a block that begins at a byte of the input. Out of a damaged one it gets
// what can be decoded, and says where and why the rest cannot.
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

// showBlock shows the content of a block that this program knows by its label. Others
// are not shown: they may hold a private key.
func (t *tree) showBlock(b *pem.Block) {
	if len(b.Headers) > 0 {
		t.fault(fmt.Sprintf("a header, which no request has: %d are not shown", len(b.Headers)))
	}
	switch b.Type {
	case csr.BlockRequest, "NEW CERTIFICATE REQUEST": // the latter from older tools
		t.showRequest(b.Bytes)
	case "CERTIFICATE", csr.BlockGKECertificate:
		t.showCertificate(b.Bytes)
	case "PUBLIC KEY":
		t.showKeyInfo(b.Bytes)
	case csr.BlockProvider, csr.BlockGKEIdentity:
		t.line("content", quoted(string(b.Bytes)))
	case csr.BlockData, csr.BlockProposalData:
		t.showBinary(b.Bytes)
	case csr.BlockGKESignature:
		t.showBareSignature(b.Bytes)
	default:
		t.line("content", "not shown")
	}
}

// showForm names the form that the labels make, and says whether the SDK's strict
// reader of that form takes the text.
func (t *tree) showForm(text []byte, has map[string]bool) {
	form, err := "", error(nil)
	switch {
	case has[csr.BlockGKESignature] || has[csr.BlockGKEIdentity]:
		form = "GKE's dialect"
		_, err = csr.ParseGKE(text)
	case has[csr.BlockProposalData]:
		form = "the proposal's dialect"
		_, err = csr.ParseProposal(text)
	case has[csr.BlockRequest] || has[csr.BlockProvider] || has[csr.BlockData]:
		form = "a request bundle"
		_, err = csr.Parse(text)
	case has["CERTIFICATE"]:
		form = "certificates"
		_, err = tpmcert.ParseCertificatesPEM(text)
	case has["NEW CERTIFICATE REQUEST"] || has["PUBLIC KEY"]:
		t.line("form", "PEM blocks that are no request bundle")
		return
	default:
		t.stop(0, "no block that this program knows")
		return
	}
	t.in("form", form, func() {
		if err == nil {
			t.line("strict reading", "passed")
		} else {
			t.fault("refused: " + err.Error())
		}
	})
}

// maxDepth bounds the nesting of DER.
const maxDepth = 32

// requestMember finds spec.request in JSON that ends too early.
var requestMember = regexp.MustCompile(`"request":\s*"([A-Za-z0-9+/=]+)`)

// showObject shows a CertificateSigningRequest object as csr.ParseRequest reads it, with
// the request, the challenge and the certificate in it. An object of another kind, a
// Secret for example, stays dark. What csr.ParseRequest lets through is refused here: a
// member that stands twice, and deep nesting.
func (t *tree) showObject(text []byte) {
	r := strictjson.NewReader(text)
	var fault *strictjson.Error
	if errors.As(cmp.Or(r.Skip(), r.End()), &fault) {
		t.fault("refused: " + fault.Error())
	}
	request, err := csr.ParseRequest(text)
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
		evidence := t.parts // which the issued certificate is no part of
		t.in("Certificate", sizeOf(len(certificate)), func() { t.showPEM(certificate) })
		t.parts = evidence
	}
}
