package main

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func TestDERHeader(t *testing.T) {
	for in, want := range map[string]struct {
		head, size int
		fault      string
	}{
		"":             {fault: "nothing there"},
		"30":           {fault: "a tag without a length"},
		"3000":         {head: 2},
		"307f":         {head: 2, size: 127},
		"308180":       {head: 3, size: 128},
		"3082ffff":     {head: 4, size: 65535},
		"308400010000": {fault: "length"},
		"30817f":       {fault: "length 127 in a form"},
		"30820080":     {fault: "length 128 in a form"},
		"3080":         {fault: "length byte 0x80"},
		"308500":       {fault: "length byte 0x85"},
		"30ff":         {fault: "length byte 0xff"},
		"3082ff":       {fault: "an incomplete length"},
		"3084ffffffff": {fault: "length"},
		"1f01":         {fault: "tag 0x1f of several bytes"},
		"bf8101":       {fault: "tag 0xbf of several bytes"},
	} {
		b := must(hex.DecodeString(in))(t)
		tag, head, size, fault := derHeader(b)
		if head != want.head || size != want.size || (fault == "") != (want.fault == "") || !strings.Contains(fault, want.fault) {
			t.Errorf("%s: tag %x, head %d, size %d, %q", in, tag, head, size, fault)
		}
	}
}

func TestSigned(t *testing.T) {
	for in, want := range map[string]string{
		"": "<nil>", "00": "0", "7f": "127", "80": "-128", "0080": "128", "ff": "-1", "ff7f": "-129",
		"0000": "<nil>", "007f": "<nil>", "ffff": "<nil>", "ff80": "<nil>",
		"00ffffffffffffffff": "18446744073709551615",
	} {
		if got := signed(must(hex.DecodeString(in))(t)).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestReaderStops checks that a reader reports one fault and then reads nothing.
func TestReaderStops(t *testing.T) {
	var out bytes.Buffer
	tr := newTree(&out)
	r := newReader(tr, []byte{0x02, 0x01, 0x05, 0x04, 0x01, 0xaa}, 100)
	r.integer("five")
	r.text("text")
	r.octets("octets")
	r.end()
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	if want := "five: 5\n!! byte 103: text: tag 0x04, want UTF8String (0x0c)\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if len(tr.faults) != 1 {
		t.Errorf("faults %q", tr.faults)
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
		name, show := recognizeDER(files[file])
		if show == nil {
			name, _ = recognizeTPM(files[file])
		}
		if name != want {
			t.Errorf("%s: %q, want %q", file, name, want)
		}
	}
}
