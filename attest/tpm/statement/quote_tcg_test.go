package statement

import (
	"bytes"
	"crypto/x509"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// tcgQuoteDER writes a tcg-attest-tpm-quote, by hand; values nil leaves the field out.
func tcgQuoteDER(e *QuoteEvidence, values []byte) []byte {
	if values == nil {
		return tpmlab.Seq(tpmlab.Octets(e.Attest), tpmlab.Octets(e.Signature))
	}
	return tpmlab.Seq(tpmlab.Octets(e.Attest), tpmlab.Octets(e.Signature), tpmlab.Octets(values))
}

// valuesOf are the values of PCRs one behind the other.
func valuesOf(pcrs []PCR) (all []byte) {
	for _, p := range pcrs {
		all = append(all, p.Value...)
	}
	return all
}

// Every kind of AK quotes in several banks: the digest is under the AK's hash, whatever the
// banks are, and the values stand in the order of the selection.
func TestTCGQuoteVerifies(t *testing.T) {
	for name, ak := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			f := goodQuoteForgery(t, ak)
			f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA384, Select: []byte{0x81, 0, 0}}, PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 2, 0}})
			made := f.evidence(t)
			e, err := ParseTCGAttestQuote(tcgQuoteDER(made, valuesOf(made.PCRs)))
			testkit.NoError(t, err)
			if !slices.EqualFunc(e.PCRs, made.PCRs, PCR.Equal) {
				t.Errorf("got %v, want %v", e.PCRs, made.PCRs)
			}
			if _, err := VerifyQuote(e, f.options); err != nil {
				t.Error(err)
			}
			e.PCRs[0].Value = bytes.Clone(e.PCRs[0].Value)
			e.PCRs[0].Value[0] ^= 1
			_, err = VerifyQuote(e, f.options)
			tpmlab.ExpectCheck(t, err, checkPCRDigest)
		})
	}
}

func TestTCGQuoteRefused(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	good := f.evidence(t)
	values := valuesOf(good.PCRs)
	with := func(change func(*quoteForgery)) *QuoteEvidence {
		f := goodQuoteForgery(t, f.ak)
		change(f)
		return f.evidence(t)
	}
	certify, err := (&Attestation{Type: tpm2.TPMSTAttestCertify, QualifiedSigner: f.attest.QualifiedSigner, ExtraData: testQualifyingData,
		Certified: &CertifyInfo{Name: f.ak.public.Name(), QualifiedName: f.ak.public.Name()}}).Marshal()
	testkit.NoError(t, err)
	swapped := slices.Concat(values[32:64], values[:32], values[64:])
	for name, c := range map[string]struct {
		data         []byte
		read, verify refusal.Check
	}{
		"good":                        {tcgQuoteDER(good, values), "", ""},
		"no values":                   {tcgQuoteDER(good, nil), "", checkPCRMissing},
		"no bytes of values":          {tcgQuoteDER(good, []byte{}), der.CheckEncoding, ""},
		"one value too few":           {tcgQuoteDER(good, values[32:]), "", checkPCRMissing},
		"one byte too few":            {tcgQuoteDER(good, values[:255]), checkPCRMissing, ""},
		"one byte more":               {tcgQuoteDER(good, append(bytes.Clone(values), 0)), CheckPCRNotQuoted, ""},
		"one value more":              {tcgQuoteDER(good, slices.Concat(values, values[:32])), CheckPCRNotQuoted, ""},
		"two values swapped":          {tcgQuoteDER(good, swapped), "", checkPCRDigest},
		"more values than there are":  {tcgQuoteDER(good, make([]byte, maxPCRs*64+1)), der.CheckEncoding, ""},
		"values in a list":            {tpmlab.Seq(tpmlab.Octets(good.Attest), tpmlab.Octets(good.Signature), tpmlab.Seq(tpmlab.Octets(values))), der.CheckEncoding, ""},
		"our own form":                {fst(t)(MarshalQuote(good)), der.CheckEncoding, ""},
		"something after the values":  {tpmlab.Seq(tpmlab.Octets(good.Attest), tpmlab.Octets(good.Signature), tpmlab.Octets(values), tpmlab.Octets(values)), der.CheckEncoding, ""},
		"no signature":                {tpmlab.Seq(tpmlab.Octets(good.Attest)), der.CheckEncoding, ""},
		"something after it":          {append(tcgQuoteDER(good, values), 0), der.CheckEncoding, ""},
		"no SEQUENCE":                 {tpmlab.Octets(good.Attest), der.CheckEncoding, ""},
		"larger than any evidence":    {make([]byte, der.MaxEvidenceSize+1), der.CheckSize, ""},
		"a statement on a key":        {tcgQuoteDER(&QuoteEvidence{Attest: certify, Signature: good.Signature}, values), checkStatementType, ""},
		"no statement":                {tcgQuoteDER(&QuoteEvidence{Attest: good.Attest[1:], Signature: good.Signature}, values), CheckMagic, ""},
		"no PCR selected":             {tcgQuoteDER(with(func(f *quoteForgery) { f.attest.Quote.Selections = nil }), values), CheckPCRSelection, ""},
		"an empty selection":          {tcgQuoteDER(with(func(f *quoteForgery) { f.attest.Quote.Selections[0].Select = []byte{0, 0, 0} }), values), CheckPCRSelection, ""},
		"an unknown bank":             {tcgQuoteDER(with(func(f *quoteForgery) { f.attest.Quote.Selections[0].Hash = tpm2.TPMAlgSHA3256 }), values), checkPCRBank, ""},
		"one PCR more in the quote":   {tcgQuoteDER(with(func(f *quoteForgery) { f.attest.Quote.Selections[0].Select = []byte{0xff, 1, 0} }), values), "", checkPCRMissing},
		"the bank of SHA-1":           {sha1Quote(t, f.ak), "", checkPCRBank},
		"over other qualifying data":  {tcgQuoteDER(with(func(f *quoteForgery) { f.attest.ExtraData = []byte("another nonce 16") }), values), "", message.CheckQualifyingData},
		"with the digest of the bank": {bankDigestQuote(t), "", checkPCRDigest},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := ParseTCGAttestQuote(c.data)
			tpmlab.ExpectCheck(t, err, c.read)
			if err != nil {
				if e != nil {
					t.Error("a result with the error")
				}
				return
			}
			options := f.options
			if name == "with the digest of the bank" {
				options.AK = AKFromCredential(p384Forger(t).public.Raw)
			}
			_, err = VerifyQuote(e, options)
			tpmlab.ExpectCheck(t, err, c.verify)
		})
	}
}

func fst(t *testing.T) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		testkit.NoError(t, err)
		return b
	}
}

func sha1Quote(t *testing.T, ak *forger) []byte {
	f := goodQuoteForgery(t, ak)
	f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA1, Select: []byte{1, 0, 0}})
	e := f.evidence(t)
	return tcgQuoteDER(e, valuesOf(e.PCRs))
}

func p384Forger(t *testing.T) *forger {
	return newForger(t, tpmlab.P384(), schemeECDSA84)
}

// bankDigestQuote is a quote for a verifier that takes the bank's hash for the digest's: by an AK
// of SHA-384 over PCRs of SHA-256.
func bankDigestQuote(t *testing.T) []byte {
	f := goodQuoteForgery(t, p384Forger(t))
	f.scheme.Hash = tpm2.TPMAlgSHA256
	f.digest()
	f.scheme = f.ak.public.Scheme
	e := f.evidence(t)
	return tcgQuoteDER(e, valuesOf(e.PCRs))
}

// A quote that an independent encoder made over swtpm.
func TestCorpusTCGQuote(t *testing.T) {
	e, err := ParseTCGAttestQuote(tpmlab.Corpus(t, "oem", "generated", "H-2.quote.stmt"))
	testkit.NoError(t, err)
	cert, err := x509.ParseCertificate(tpmlab.Corpus(t, "oem", "generated", "H-2.iak.cert"))
	testkit.NoError(t, err)
	want := []int{0, 1, 2, 3, 4, 7}
	q, err := VerifyQuote(e, QuoteOptions{AK: AKFromIssuer(cert.PublicKey, tpmlab.Corpus(t, "oem", "generated", "H-2.iak.public")),
		QualifyingData: tpmlab.Corpus(t, "oem", "generated", "nonce.bin")})
	testkit.NoError(t, err)
	for n, p := range q.PCRs() {
		if p.Bank != tpm2.TPMAlgSHA256 || p.Index != want[n] {
			t.Errorf("got %v, want %d", p, want[n])
		}
	}
}

func FuzzParseTCGAttestQuote(f *testing.F) {
	for _, selections := range [][]PCRSelection{
		{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0}}},
		{{Hash: tpm2.TPMAlgSHA384, Select: []byte{1, 0, 0}}, {Hash: tpm2.TPMAlgSHA1, Select: []byte{0, 0, 1}}},
	} {
		q := goodQuoteForgery(f, newForger(f, tpmlab.P256(), schemeECDSA))
		q.selectPCRs(selections...)
		e := q.evidence(f)
		f.Add(tcgQuoteDER(e, valuesOf(e.PCRs)))
		f.Add(tcgQuoteDER(e, nil))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseTCGAttestQuote(data)
		if err != nil {
			if _, ok := errors.AsType[*refusal.Error](err); !ok {
				t.Errorf("%v is no check", err)
			}
			return
		}
		if again := tcgQuoteDER(e, valuesOf(e.PCRs)); !bytes.Equal(again, data) {
			t.Fatalf("not canonical: %x reads as %x", data, again)
		}
		_, _ = VerifyQuote(e, QuoteOptions{AK: AKFromIssuer(tpmlab.P256().Public(), nil), InsecureAllowAnyQualifyingData: true, InsecureAllowSHA1Bank: true})
	})
}
