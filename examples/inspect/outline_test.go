package main

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestDERHeader(t *testing.T) {
	for in, want := range map[string]struct {
		head, size int
		fault      string
	}{
		"":             {fault: "a tag without a length"},
		"30":           {fault: "a tag without a length"},
		"3000":         {head: 2},
		"307f":         {head: 2, size: 127},
		"308180":       {head: 3, size: 128},
		"3082ffff":     {head: 4, size: 65535},
		"308400010000": {fault: "length"},
		"30817f":       {fault: "length 127 in a form"},
		"30820080":     {fault: "length 128 in a form"},
		"3080":         {fault: "length byte 0x80, which"},
		"308500":       {fault: "length byte 0x85"},
		"30ff":         {fault: "length byte 0xff"},
		"3082ff":       {fault: "length byte 0x82"},
		"3084ffffffff": {fault: "length"},
		"1f01":         {fault: "tag 0x1f of several bytes"},
		"bf8101":       {fault: "tag 0xbf of several bytes"},
	} {
		t.Run(in, func(t *testing.T) {
			b := must(hex.DecodeString(in))(t)
			e, fault := readElement(b)
			if fault != "" {
				e = element{}
			}
			if e.head != want.head || e.size != want.size || (fault == "") != (want.fault == "") || !strings.Contains(fault, want.fault) {
				t.Errorf("%s: tag %x, head %d, size %d, %q", in, e.tag, e.head, e.size, fault)
			}
		})
	}
}

func TestRecognize(t *testing.T) {
	files := inputs(t)
	for file, want := range map[string]string{
		"ak.der": "Certificate", "request.der": "CertificationRequest", "attribute.der": "CertificationRequest",
		"evidence.der": "AttestationBundle", "hello.der": "Hello", "challenge.der": "Challenge", "credential.der": "Challenge",
		"proof.der": "Proof", "binding.der": "Binding", "certify.der": "TcgAttestCertify", "quote.der": "Quote",
		"attest.bin": "TPMS_ATTEST", "quote.bin": "TPMS_ATTEST", "public.bin": "TPMT_PUBLIC", "signature.bin": "TPMT_SIGNATURE",
	} {
		t.Run(file, func(t *testing.T) {
			if name := recognize(files[file]); name != want {
				t.Errorf("%s: %q, want %q", file, name, want)
			}
		})
	}
}
