package statement

import (
	"bytes"

	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestParseAttestation(t *testing.T) {
	raw := unhex(t, certifyHex)
	want := &Attestation{
		Raw: raw, Type: tpm2.TPMSTAttestCertify, QualifiedSigner: tpmlab.DigestName(0x11), ExtraData: testQualifyingData,
		Clock: 7, ResetCount: 1, RestartCount: 2, Safe: true, FirmwareVersion: 0x2019102300163636,
		Certified: &CertifyInfo{Name: tpmlab.DigestName(0x22), QualifiedName: tpmlab.DigestName(0x33)},
	}
	got, err := ParseAttestation(raw)
	testkit.NoError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	raw = unhex(t, quoteHex)
	want = &Attestation{
		Raw: raw, Type: tpm2.TPMSTAttestQuote, QualifiedSigner: tpmlab.DigestName(0x11), ExtraData: []byte{},
		Clock: 7, ResetCount: 1, RestartCount: 2, FirmwareVersion: 0x2019102300163636,
		Quote: &QuoteInfo{
			Selections: []PCRSelection{
				{Hash: tpm2.TPMAlgSHA1, Select: []byte{0, 0, 0x80}}, {Hash: tpm2.TPMAlgSHA256, Select: []byte{0x81, 0, 0}},
			},
			PCRDigest: bytes.Repeat([]byte{0x44}, 32),
		},
	}
	if got, err = ParseAttestation(raw); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{0, 7}, got.Quote.Selections[1].PCRs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{23}, got.Quote.Selections[0].PCRs()); diff != "" {
		t.Error(diff)
	}
}

// TestParseAttestationEveryPrefix: no statement is whole when a byte is missing.
func TestParseAttestationEveryPrefix(t *testing.T) {
	for _, in := range []string{certifyHex, quoteHex} {
		raw := unhex(t, in)
		for n := range raw {
			_, err := ParseAttestation(raw[:n])
			tpmlab.ExpectCheck(t, err, checkAttestEncoding)
		}
		_, err := ParseAttestation(append(raw, 0))
		tpmlab.ExpectCheck(t, err, checkAttestEncoding)
	}
}

func TestParseAttestationRefuses(t *testing.T) {
	certify, quote := unhex(t, certifyHex), unhex(t, quoteHex)
	at := func(b []byte, offset int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[offset:], v)
		return b
	}
	long := func(size int) []byte { // a qualified signer of that size
		return append(append(unhex(t, "ff5443478017"), byte(size>>8), byte(size)), make([]byte, size+80)...)
	}
	for name, row := range map[string]struct {
		in   []byte
		want refusal.Check
	}{
		"nothing":               {nil, checkAttestEncoding},
		"over the cap":          {make([]byte, maxAttestationSize+1), checkAttestSize},
		"zeros":                 {make([]byte, 64), CheckMagic},
		"magic":                 {at(certify, 0, 0xfe), CheckMagic},
		"type 0":                {at(certify, 4, 0, 0), checkStatementType},
		"type certify creation": {at(certify, 4, 0x80, 0x1a), checkStatementType},
		"type NV digest":        {at(certify, 4, 0x80, 0x1c), checkStatementType},
		"safe 2":                {at(certify, 6+36+6+16, 2), checkAttestEncoding},
		"signer of 67 bytes":    {long(67), checkAttestEncoding},
		"signer of 65535 bytes": {at(certify, 6, 0xff, 0xff), checkAttestEncoding},
		"extra data too long":   {at(certify, 6+36, 0, 67), checkAttestEncoding},
		"17 banks":              {at(quote, 6+36+2+25+3, 17), checkAttestEncoding},
		"2^32 − 1 banks":        {at(quote, 6+36+2+25, 0xff, 0xff, 0xff, 0xff), checkAttestEncoding},
		"selection of 0 octets": {at(quote, 6+36+2+25+6, 0), checkAttestEncoding},
		"selection of 5 octets": {at(quote, 6+36+2+25+6, 5), checkAttestEncoding},
		"digest of 65 bytes":    {append(at(quote, len(quote)-34, 0, 65), make([]byte, 33)...), checkAttestEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAttestation(row.in)
			tpmlab.ExpectCheck(t, err, row.want)
			if got != nil {
				t.Error("a result with the error")
			}
		})
	}
}

func TestAttestationMarshalRefuses(t *testing.T) {
	for name, a := range map[string]*Attestation{
		"zero":               {},
		"certify, no member": {Type: tpm2.TPMSTAttestCertify},
		"quote, wrong one":   {Type: tpm2.TPMSTAttestQuote, Certified: &CertifyInfo{}},
		"both":               {Type: tpm2.TPMSTAttestQuote, Quote: &QuoteInfo{}, Certified: &CertifyInfo{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Marshal()
			tpmlab.ExpectCheck(t, err, checkStatementType)
		})
	}
	a := &Attestation{Type: tpm2.TPMSTAttestCertify, Certified: &CertifyInfo{Name: make([]byte, 1<<16)}}
	_, err := a.Marshal()
	tpmlab.ExpectCheck(t, err, checkAttestEncoding)
}

// FuzzParseAttestation: what parses marshals to the same bytes, and go-tpm reads the
// same from it and writes the same.
func FuzzParseAttestation(f *testing.F) {
	f.Add(unhex(f, certifyHex))
	f.Add(unhex(f, quoteHex))
	f.Add([]byte{})
	f.Add(unhex(f, "ff544347801900000000000000000000000000000000000000000000000000"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := ParseAttestation(in)
		if err != nil {
			return
		}
		out, err := a.Marshal()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("marshals to %x (%v), was %x", out, err, in)
		}
		g, err := tpm2.Unmarshal[tpm2.TPMSAttest](in)
		if err != nil {
			t.Fatalf("go-tpm: %v", err)
		}
		if out := tpm2.Marshal(g); !bytes.Equal(in, out) {
			t.Fatalf("go-tpm marshals to %x, was %x", out, in)
		}
		same := a.Type == g.Type && bytes.Equal(a.QualifiedSigner, g.QualifiedSigner.Buffer) &&
			bytes.Equal(a.ExtraData, g.ExtraData.Buffer) && a.Clock == g.ClockInfo.Clock &&
			a.ResetCount == g.ClockInfo.ResetCount && a.RestartCount == g.ClockInfo.RestartCount &&
			a.Safe == g.ClockInfo.Safe && a.FirmwareVersion == g.FirmwareVersion
		if certified, err := g.Attested.Certify(); err == nil {
			same = same && a.Quote == nil && bytes.Equal(a.Certified.Name, certified.Name.Buffer) &&
				bytes.Equal(a.Certified.QualifiedName, certified.QualifiedName.Buffer)
		}
		if quote, err := g.Attested.Quote(); err == nil {
			same = same && a.Certified == nil && bytes.Equal(a.Quote.PCRDigest, quote.PCRDigest.Buffer) &&
				len(a.Quote.Selections) == len(quote.PCRSelect.PCRSelections)
			for i, s := range quote.PCRSelect.PCRSelections {
				same = same && a.Quote.Selections[i].Hash == s.Hash && bytes.Equal(a.Quote.Selections[i].Select, s.PCRSelect)
			}
		}
		if !same {
			t.Fatalf("got %+v, go-tpm has %+v", a, g)
		}
	})
}
