package statement

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestQuoteEncoding(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA384, Select: []byte{0x81, 0, 0}}, PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 2, 0x80}})
	e := f.evidence(t)
	data, err := MarshalQuote(e)
	testkit.NoError(t, err)
	got, err := ParseQuote(data)
	testkit.NoError(t, err)
	want := *e
	want.PCRs = slices.Concat(e.PCRs[2:], e.PCRs[:2]) // SHA-256 has the lower number
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := VerifyQuote(got, f.options); err != nil {
		t.Errorf("the banks of the wire are in another order than those of the quote: %v", err)
	}
	for n := range data {
		if _, err := ParseQuote(data[:n]); err == nil {
			t.Errorf("cut at %d", n)
		}
	}
	_, err = ParseQuote(append(bytes.Clone(data), 0))
	tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	_, err = ParseQuote(make([]byte, der.MaxEvidenceSize+1))
	tpmlab.ExpectCheck(t, err, der.CheckSize)
}

// quoteDER is a Quote by hand, so that it can be wrong: short lengths only.
func quoteDER(pcrs ...[]byte) []byte {
	list := bytes.Join(pcrs, nil)
	body := slices.Concat([]byte{4, 1, 'a', 4, 1, 's', 0x30}, derLength(len(list)), list)
	return slices.Concat([]byte{0x30}, derLength(len(body)), body)
}

func derLength(n int) []byte {
	if n < 128 {
		return []byte{byte(n)}
	}
	if n < 256 {
		return []byte{0x81, byte(n)}
	}
	return []byte{0x82, byte(n >> 8), byte(n)}
}

func pcrDER(bank, index byte, value ...byte) []byte {
	body := slices.Concat([]byte{2, 1, bank, 2, 1, index, 4, byte(len(value))}, value)
	return slices.Concat([]byte{0x30, byte(len(body))}, body)
}

func TestParseQuoteRefuses(t *testing.T) {
	v := make([]byte, 32)
	sha256 := byte(tpm2.TPMAlgSHA256)
	many := make([][]byte, 0, maxPCRs+1)
	for n := range maxPCRs + 1 {
		many = append(many, pcrDER(sha256, byte(n%32), v...))
	}
	for _, c := range []struct {
		name string
		data []byte
		want refusal.Check
	}{
		{"two", quoteDER(pcrDER(sha256, 0, v...), pcrDER(sha256, 1, v...)), ""},
		{"none", quoteDER(), der.CheckEncoding},
		{"descending", quoteDER(pcrDER(sha256, 1, v...), pcrDER(sha256, 0, v...)), der.CheckEncoding},
		{"descending banks", quoteDER(pcrDER(byte(tpm2.TPMAlgSHA384), 0, make([]byte, 48)...), pcrDER(sha256, 1, v...)), der.CheckEncoding},
		{"twice", quoteDER(pcrDER(sha256, 1, v...), pcrDER(sha256, 1, v...)), checkPCRDuplicate},
		{"index 32", quoteDER(pcrDER(sha256, 32, v...)), der.CheckEncoding},
		{"negative index", quoteDER(pcrDER(sha256, 0xff, v...)), der.CheckEncoding},
		{"negative bank", quoteDER(pcrDER(0xff, 0, v...)), der.CheckEncoding},
		{"unknown bank", quoteDER(pcrDER(0x12, 0, v...)), checkPCRBank},
		{"short value", quoteDER(pcrDER(sha256, 0, v[:31]...)), checkPCRValue},
		{"no value", quoteDER(pcrDER(sha256, 0)), der.CheckEncoding},
		{"something after a value", quoteDER(slices.Concat([]byte{0x30, 42}, pcrDER(sha256, 0, v...)[2:], []byte{5, 0})), der.CheckEncoding},
		{"not a sequence", quoteDER([]byte{4, 0}), der.CheckEncoding},
		{"too many", quoteDER(many...), der.CheckEncoding},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseQuote(c.data)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

func TestMarshalQuoteRefuses(t *testing.T) {
	good := QuoteEvidence{Attest: []byte{1}, Signature: []byte{2}, PCRs: []PCR{{tpm2.TPMAlgSHA256, 0, make([]byte, 32)}}}
	for name, c := range map[string]struct {
		want   refusal.Check
		change func(*QuoteEvidence)
	}{
		"good":         {"", func(*QuoteEvidence) {}},
		"no attest":    {der.CheckEncoding, func(e *QuoteEvidence) { e.Attest = nil }},
		"no signature": {der.CheckEncoding, func(e *QuoteEvidence) { e.Signature = nil }},
		"no PCRs":      {der.CheckEncoding, func(e *QuoteEvidence) { e.PCRs = nil }},
		"twice":        {checkPCRDuplicate, func(e *QuoteEvidence) { e.PCRs = append(e.PCRs, e.PCRs[0]) }},
		"too many":     {CheckPCRSelection, func(e *QuoteEvidence) { e.PCRs = make([]PCR, maxPCRs+1) }},
		"no index":     {CheckPCRSelection, func(e *QuoteEvidence) { e.PCRs = []PCR{{tpm2.TPMAlgSHA256, 32, make([]byte, 32)}} }},
		"no bank":      {checkPCRBank, func(e *QuoteEvidence) { e.PCRs = []PCR{{0, 0, make([]byte, 32)}} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := good
			e.PCRs = slices.Clone(good.PCRs)
			c.change(&e)
			_, err := MarshalQuote(&e)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

func TestEventLogEncoding(t *testing.T) {
	for _, size := range []int{1, 127, 128, 65536, MaxEventLogSize} {
		log := bytes.Repeat([]byte{7}, size)
		data, err := MarshalEventLog(log)
		testkit.NoError(t, err)
		got, err := ParseEventLog(data)
		if err != nil || !bytes.Equal(got, log) {
			t.Errorf("%d bytes: %v", size, err)
		}
		_, err = ParseEventLog(append(data, 0))
		tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	}
	for _, size := range []int{0, MaxEventLogSize + 1} {
		_, err := MarshalEventLog(make([]byte, size))
		tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	}
	for _, data := range [][]byte{nil, {4, 0}, {4, 0x81, 1, 7}, {5, 1, 7}, {4, 2, 7}} {
		_, err := ParseEventLog(data)
		tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	}
}

func FuzzParseQuote(f *testing.F) {
	testkit.BeginFuzz(f)
	e := goodQuoteForgery(f, newForger(f, tpmlab.P256(), schemeECDSA)).evidence(f)
	data, err := MarshalQuote(e)
	testkit.NoError(f, err)
	f.Add(data)
	f.Add(quoteDER(pcrDER(byte(tpm2.TPMAlgSHA256), 0, make([]byte, 32)...)))
	f.Add(quoteDER())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseQuote(data)
		if err != nil {
			return
		}
		again, err := MarshalQuote(e)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x, %v", again, err)
		}
		_, _ = VerifyQuote(e, QuoteOptions{AK: AKFromIssuer(tpmlab.P256().Public(), nil), InsecureAllowAnyQualifyingData: true, InsecureAllowSHA1Bank: true})
	})
}

func FuzzParseEventLogStatement(f *testing.F) {
	f.Add([]byte{4, 1, 7})
	f.Add([]byte{4, 0x81, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := ParseEventLog(data)
		if err != nil {
			return
		}
		if again, err := MarshalEventLog(log); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x, %v", again, err)
		}
	})
}
