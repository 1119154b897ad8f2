package goattestation

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"slices"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// platform is what AttestPlatform returns: a quote of each bank, and the PCRs of all.
func platform(t testing.TB, client *goattest.TPM, algorithm goattest.Algorithm) (*goattest.PlatformParameters, *goattest.AKPublic) {
	t.Helper()
	ak := testkit.Must(client.NewAK(&goattest.AKConfig{Algorithm: algorithm}))
	p := testkit.Must(client.AttestPlatform(ak, qualifyingData, &goattest.PlatformAttestConfig{EventLog: []byte{0}}))
	testkit.NoError(t, ak.Close(client))
	return p, testkit.Must(goattest.ParseAKPublic(p.Public))
}

func quoteOptions(ak []byte) statement.QuoteOptions {
	return statement.QuoteOptions{AK: statement.AKFromCredential(ak), QualifyingData: qualifyingData, InsecureAllowSHA1Bank: true}
}

// Of the PCRs of all banks, each quote of AttestPlatform takes its own, and both libraries verify it.
func TestPlatform(t *testing.T) {
	onBoth(t, func(t *testing.T, device transport.TPM, client *goattest.TPM, _ *tpmsim.TPM) {
		tpmlab.ExtendPCR(t, device, 10)
		for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
			p, ak := platform(t, client, algorithm)
			if len(p.Quotes) < 2 || len(p.PCRs) != 24*len(p.Quotes) {
				t.Fatalf("%d quotes, %d PCRs", len(p.Quotes), len(p.PCRs))
			}
			for n, quote := range p.Quotes {
				e := testkit.Must(QuoteEvidence(quote, p.PCRs))
				if len(e.PCRs) != 24 {
					t.Errorf("quote %d takes %d PCRs", n, len(e.PCRs))
				}
				q, err := statement.VerifyQuote(e, quoteOptions(p.Public))
				testkit.NoError(t, err)
				value, err := q.Value(e.PCRs[10].Bank, 10)
				if zero := bytes.Equal(value, make([]byte, len(value))); err != nil || zero == (e.PCRs[10].Bank == tpm2.TPMAlgSHA256) {
					t.Errorf("quote %d, PCR 10: %x, %v", n, value, err)
				}
				other := quoteOptions(p.Public)
				other.QualifyingData = qualifyingData[1:]
				_, err = statement.VerifyQuote(e, other)
				tpmlab.ExpectCheck(t, err, "qualifying-data")

				// There and back.
				back, pcrs, err := Quote(e)
				testkit.NoError(t, err)
				testkit.NoError(t, ak.Verify(back, pcrs, qualifyingData))
				bank := slices.DeleteFunc(slices.Clone(p.PCRs), func(p goattest.PCR) bool { return p.DigestAlg != pcrs[0].DigestAlg })
				same(t, quote, back)
				same(t, bank, pcrs) // each verified, with all that go-attestation keeps
				same(t, e, testkit.Must(QuoteEvidence(back, pcrs)))
			}
		}
	})
}

// PCRs that are changed, missing or listed twice do not verify, and a PCR that no bank can hold is
// refused.
func TestQuotePCRsChanged(t *testing.T) {
	client := clientOf(t, tpmsim.New(t, tpmsim.Options{}))
	p, ak := platform(t, client, goattest.ECDSA)
	n := slices.IndexFunc(p.PCRs, func(p goattest.PCR) bool { return p.DigestAlg == crypto.SHA256 })
	quote := p.Quotes[n/24]
	good := p.PCRs[n : n+24]
	for name, c := range map[string]struct {
		pcrs func(pcrs []goattest.PCR) []goattest.PCR
		want refusal.Check // of the conversion, or of VerifyQuote
	}{
		"another value":  {func(p []goattest.PCR) []goattest.PCR { p[5].Digest[3] ^= 1; return p }, "pcr-digest"},
		"one is missing": {func(p []goattest.PCR) []goattest.PCR { return p[1:] }, "pcr-missing"},
		"twice":          {func(p []goattest.PCR) []goattest.PCR { return append(p, p[7]) }, "pcr-duplicate"},
		"twice, differs": {func(p []goattest.PCR) []goattest.PCR { return append([]goattest.PCR{forged(p[7])}, p...) }, "pcr-duplicate"},
		"a short value":  {func(p []goattest.PCR) []goattest.PCR { p[5].Digest = p[5].Digest[1:]; return p }, "pcr-value"},
		"no value":       {func(p []goattest.PCR) []goattest.PCR { p[5].Digest = nil; return p }, "pcr-value"},
		"of SHA-384":     {func(p []goattest.PCR) []goattest.PCR { p[5].DigestAlg = crypto.SHA384; return p }, "pcr-value"},
		"of MD5":         {func(p []goattest.PCR) []goattest.PCR { p[5].DigestAlg = crypto.MD5; return p }, checkValue},
		"of no hash":     {func(p []goattest.PCR) []goattest.PCR { p[5].DigestAlg = 0; return p }, checkValue},
		"index -1":       {func(p []goattest.PCR) []goattest.PCR { p[5].Index = -1; return p }, "pcr-selection"},
		"index 32":       {func(p []goattest.PCR) []goattest.PCR { p[5].Index = 32; return p }, "pcr-selection"},
		"index 24": {func(p []goattest.PCR) []goattest.PCR {
			extra := forged(p[5])
			extra.Index = 24
			return append(p, extra)
		}, "pcr-not-quoted"},
		"none":            {func([]goattest.PCR) []goattest.PCR { return nil }, checkValue},
		"of another bank": {func([]goattest.PCR) []goattest.PCR { return otherBank(p.PCRs) }, checkValue},
		"absurdly many":   {func(p []goattest.PCR) []goattest.PCR { return slices.Repeat(p, 1<<12) }, checkValue},
	} {
		copied := slices.Clone(good)
		for n := range copied {
			copied[n].Digest = bytes.Clone(copied[n].Digest)
		}
		e, err := QuoteEvidence(quote, c.pcrs(copied))
		if err == nil {
			_, err = statement.VerifyQuote(e, quoteOptions(p.Public))
		}
		t.Log(name)
		tpmlab.ExpectCheck(t, err, c.want)
	}
	// The reason for "pcr-duplicate": there, the forged value counts as verified.
	two := append([]goattest.PCR{forged(good[7])}, slices.Clone(good)...)
	if err := ak.Verify(quote, two, qualifyingData); err != nil || !two[0].QuoteVerified() {
		t.Errorf("go-attestation refuses two values of one PCR now: %v", err)
	}
}

func forged(p goattest.PCR) goattest.PCR {
	p.Digest = bytes.Repeat([]byte{0xff}, len(p.Digest))
	return p
}

func otherBank(pcrs []goattest.PCR) []goattest.PCR {
	return slices.DeleteFunc(slices.Clone(pcrs), func(p goattest.PCR) bool { return p.DigestAlg == crypto.SHA256 })
}

// softQuote is a quote over these banks by a key in software.
func softQuote(t testing.TB, scheme statement.KeyScheme, selected ...tpm2.TPMAlgID) (*statement.QuoteEvidence, *softak.AK) {
	t.Helper()
	private := crypto.Signer(tpmlab.P256())
	if scheme.Alg == tpm2.TPMAlgRSASSA {
		private = tpmlab.RSA2048()
	}
	ak := softak.NewAK(private, scheme)
	e, info, sum := &statement.QuoteEvidence{}, &statement.QuoteInfo{}, sha256.New()
	for _, bank := range selected {
		info.Selections = append(info.Selections, testkit.Must(statement.NewPCRSelection(bank, 0, 7)))
		for _, index := range []int{0, 7} {
			value := make([]byte, testkit.Must(bank.Hash()).Size())
			sum.Write(value)
			e.PCRs = append(e.PCRs, statement.PCR{Bank: bank, Index: index, Value: value})
		}
	}
	info.PCRDigest = sum.Sum(nil)
	e.Attest = testkit.Must((&statement.Attestation{Type: tpm2.TPMSTAttestQuote, QualifiedSigner: ak.Primary(), ExtraData: qualifyingData,
		Quote: info}).Marshal())
	e.Signature = testkit.Must(ak.Sign(scheme, e.Attest).Marshal())
	return e, ak
}

// What go-attestation cannot read or verify is refused; here it verifies.
func TestQuoteRefusals(t *testing.T) {
	only256 := []tpm2.TPMAlgID{tpm2.TPMAlgSHA256}
	pss := func(e *statement.QuoteEvidence) { // one that verifies here is in TestQuotesOfNodes
		e.Signature = testkit.Must((&statement.Signature{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256, RSA: make([]byte, 256)}).Marshal())
	}
	for name, c := range map[string]struct {
		scheme statement.KeyScheme
		banks  []tpm2.TPMAlgID
		change func(*statement.QuoteEvidence)
		want   refusal.Check
	}{
		"ECDSA":           {softak.ECDSA, only256, nil, ""},
		"RSASSA, SHA-384": {softak.RSASSA, []tpm2.TPMAlgID{tpm2.TPMAlgSHA384}, nil, ""},
		"RSAPSS":          {softak.RSASSA, only256, pss, checkValue},
		"two banks":       {softak.ECDSA, []tpm2.TPMAlgID{tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA1}, nil, checkValue},
		"of another bank": {softak.ECDSA, only256, func(e *statement.QuoteEvidence) {
			e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA1, Value: make([]byte, 20)})
		}, checkValue},
		"twice":            {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { e.PCRs = append(e.PCRs, e.PCRs[0]) }, "pcr-duplicate"},
		"no signature":     {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { e.Signature = nil }, "tpm-signature-size"},
		"nothing":          {softak.ECDSA, nil, func(e *statement.QuoteEvidence) { *e = statement.QuoteEvidence{} }, "attest-encoding"},
		"no bank":          {softak.ECDSA, nil, nil, checkValue},
		"absurd":           {softak.ECDSA, nil, func(e *statement.QuoteEvidence) { e.Attest = make([]byte, 1<<20) }, "attest-size"},
		"an absurd PCR":    {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { e.PCRs[0].Value = make([]byte, 1<<20) }, "pcr-value"},
		"a bare signature": {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { bare(e) }, ""},
		"absurdly many":    {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { e.PCRs = make([]statement.PCR, 1<<20) }, "pcr-selection"},
		"not a known hash": {softak.ECDSA, only256, func(e *statement.QuoteEvidence) { e.PCRs[0].Bank = tpm2.TPMAlgSM3256 }, "pcr-bank"},
	} {
		e, ak := softQuote(t, c.scheme, c.banks...)
		if c.change != nil {
			c.change(e)
		}
		quote, pcrs, err := Quote(e)
		t.Log(name)
		if c.want != "" {
			tpmlab.ExpectCheck(t, err, c.want)
		} else if err != nil {
			t.Error(err)
		} else if err := testkit.Must(goattest.ParseAKPublic(ak.Public.Raw)).Verify(quote, pcrs, qualifyingData); err != nil {
			t.Error(err)
		}
		if name == "two banks" {
			_, err := statement.VerifyQuote(e, quoteOptions(ak.Public.Raw))
			testkit.NoError(t, err)
		}
	}
	if _, _, err := Quote(nil); err == nil {
		t.Error("nil is a quote")
	}
	device := tpmsim.New(t, tpmsim.Options{})
	c := certifiedOf(t, device, clientOf(t, device), goattest.ECDSA)
	_, err := QuoteEvidence(goattest.Quote{Quote: c.made.CreateAttestation, Signature: c.made.CreateSignature}, nil)
	tpmlab.ExpectCheck(t, err, checkValue)
}

// bare makes a quote's signature a bare one.
func bare(e *statement.QuoteEvidence) {
	signature := testkit.Must(statement.ParseSignature(e.Signature))
	e.RawSignature = &statement.KeyScheme{Alg: signature.Alg, Hash: signature.Hash}
	e.Signature = testkit.Must(signature.MarshalECDSA())
}

// FuzzQuote: a quote that is converted is the same there and back. pcrs is one PCR in 34 bytes: its
// hash, its index and its value.
func FuzzQuote(f *testing.F) {
	testkit.BeginFuzz(f)
	seed := func(e *statement.QuoteEvidence) {
		var pcrs []byte
		for _, p := range e.PCRs {
			pcrs = append(pcrs, slices.Concat([]byte{byte(slices.Index(banks, p.Bank)), byte(p.Index)}, p.Value, make([]byte, 32))[:34]...)
		}
		f.Add(e.Attest, e.Signature, pcrs)
	}
	for _, scheme := range []statement.KeyScheme{softak.ECDSA, softak.RSASSA} {
		e, _ := softQuote(f, scheme, tpm2.TPMAlgSHA256)
		seed(e)
		e, _ = softQuote(f, scheme, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA1)
		seed(e)
	}
	f.Add([]byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, attestation, signature, list []byte) {
		quote := goattest.Quote{Quote: attestation, Signature: signature}
		var pcrs []goattest.PCR
		for one := range slices.Chunk(list, 34) {
			if len(one) < 2 {
				break
			}
			hash, value := testkit.Must(banks[one[0]%4].Hash()), one[2:]
			if hash.Size() < len(value) {
				value = value[:hash.Size()]
			}
			pcrs = append(pcrs, goattest.PCR{Index: int(one[1]), Digest: value, DigestAlg: hash})
		}
		e, err := QuoteEvidence(quote, pcrs)
		if err != nil {
			return
		}
		back, there, err := Quote(e)
		if err != nil { // several banks, or RSAPSS
			return
		}
		same(t, quote, back)
		same(t, e, testkit.Must(QuoteEvidence(back, there)))
	})
}
