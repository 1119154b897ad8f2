package statement

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

type recordedQuote struct {
	name     string
	evidence QuoteEvidence
	options  QuoteOptions
}

var rawRSASSA = &KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}

// recordedQuotes reads every quote of the corpus that is said to verify.
func recordedQuotes(t testing.TB) []*recordedQuote {
	t.Helper()
	quotes := []*recordedQuote{azureTrustedLaunch(t), windowsOnGCE(t)}
	for _, name := range []string{"az_snp-verified", "az_tdx-verified"} {
		read := func(file string) []byte { return tpmlab.Corpus(t, "quotes", "azure-cvm", name, file) }
		var values []string
		testkit.NoError(t, json.Unmarshal(read("pcrs.json"), &values))
		q := &recordedQuote{name: name}
		q.evidence = QuoteEvidence{Attest: read("quote.bin"), Signature: read("sig.raw.bin"), RawSignature: rawRSASSA}
		for n, v := range values {
			b, err := hex.DecodeString(v)
			testkit.NoError(t, err)
			q.evidence.PCRs = append(q.evidence.PCRs, PCR{tpm2.TPMAlgSHA256, n, b})
		}
		q.options.AK.key, q.options.AK.Trust = publicKeyOf(t, read("ak.pem")), AKByIssuer
		quotes = append(quotes, q)
	}
	return append(quotes, kinvolk(t, "kinvolk-quote.bin", "kinvolk-akpub.pem"))
}

func azureTrustedLaunch(t testing.TB) *recordedQuote {
	read := func(file string) []byte { return tpmlab.Corpus(t, "azure-vtpm-linux", file) }
	q := &recordedQuote{name: "azure-vtpm-linux"}
	q.evidence = QuoteEvidence{Attest: read("quote.bin"), Signature: read("quote.sig.raw.bin"), RawSignature: rawRSASSA}
	var values []struct {
		Index  int    `json:"index"`
		Digest []byte `json:"digest"`
	}
	testkit.NoError(t, json.Unmarshal(read("pcrs.json"), &values))
	for _, v := range values {
		q.evidence.PCRs = append(q.evidence.PCRs, PCR{tpm2.TPMAlgSHA256, v.Index, v.Digest})
	}
	q.options.AK = AKFromCredential(read("ak.tpmt"))
	return q
}

// windowsOnGCE is a dump of go-attestation: signed with SHA-1, over the bank of SHA-1.
func windowsOnGCE(t testing.TB) *recordedQuote {
	var dump struct {
		AK    struct{ Public []byte }
		Quote struct{ Quote, Signature []byte }
		Log   struct {
			PCRs []struct {
				Index  int
				Digest []byte
			}
		}
	}
	testkit.NoError(t, json.Unmarshal(tpmlab.Corpus(t, "eventlogs", "windows_gcp_shielded_vm.json"), &dump))
	q := &recordedQuote{name: "windows_gcp_shielded_vm"}
	q.evidence = QuoteEvidence{Attest: dump.Quote.Quote, Signature: dump.Quote.Signature}
	for _, p := range dump.Log.PCRs {
		q.evidence.PCRs = append(q.evidence.PCRs, PCR{tpm2.TPMAlgSHA1, p.Index, p.Digest})
	}
	q.options = QuoteOptions{AK: AKFromCredential(dump.AK.Public), InsecureAllowSHA1Signature: true, InsecureAllowSHA1Bank: true}
	return q
}

// kinvolk reads the form of kinvolk/azure-cvm-tooling: signature and statement, each
// with its length in 8 bytes, little-endian, then 24 PCRs.
func kinvolk(t testing.TB, file, key string) *recordedQuote {
	b := tpmlab.Corpus(t, "quotes", "azure-cvm", file)
	next := func() []byte {
		n := binary.LittleEndian.Uint64(b)
		v := b[8 : 8+n]
		b = b[8+n:]
		return v
	}
	q := &recordedQuote{name: file}
	q.evidence.Signature, q.evidence.Attest, q.evidence.RawSignature = next(), next(), rawRSASSA
	if len(b) > 24*32 {
		b = b[len(b)-24*32:]
	}
	for n := range len(b) / 32 {
		q.evidence.PCRs = append(q.evidence.PCRs, PCR{tpm2.TPMAlgSHA256, n, b[32*n : 32*n+32]})
	}
	q.options.AK = AKFromIssuer(publicKeyOf(t, tpmlab.Corpus(t, "quotes", "azure-cvm", key)), q.options.AK.public)
	return q
}

func publicKeyOf(t testing.TB, text []byte) crypto.PublicKey {
	t.Helper()
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	testkit.NoError(t, err)
	return key
}

// The quotes of the corpus verify; one changed PCR, selection or bit is refused.
func TestVerifyQuoteCorpus(t *testing.T) {
	for _, q := range recordedQuotes(t) {
		t.Run(q.name, func(t *testing.T) {
			a, err := ParseAttestation(q.evidence.Attest)
			testkit.NoError(t, err)
			q.options.QualifyingData = append([]byte{}, a.ExtraData...)
			q.options.InsecureEmptyQualifyingData = len(a.ExtraData) == 0
			q.options.Selection = a.Quote.Selections
			got, err := VerifyQuote(&q.evidence, q.options)
			testkit.NoError(t, err)
			if n := len(q.evidence.PCRs); n < 8 || len(got.PCRs()) > n {
				t.Errorf("%d PCRs of %d", len(got.PCRs()), n)
			}
			recordedQuoteChangesAreRefused(t, q)
			throughTheWire(t, q)
		})
	}
}

func recordedQuoteChangesAreRefused(t *testing.T, q *recordedQuote) {
	t.Helper()
	try := func(want refusal.Check, e QuoteEvidence, o QuoteOptions) {
		t.Helper()
		_, err := VerifyQuote(&e, o)
		tpmlab.ExpectCheck(t, err, want)
	}
	for n, p := range q.evidence.PCRs {
		e := q.evidence
		e.PCRs = append([]PCR{}, q.evidence.PCRs...)
		e.PCRs[n].Value = bytes.Clone(p.Value)
		e.PCRs[n].Value[0] ^= 1
		try(checkPCRDigest, e, q.options)
		e.PCRs = append(e.PCRs, p)
		try(checkPCRDuplicate, e, q.options)
		e.PCRs = append(append([]PCR{}, q.evidence.PCRs[:n]...), q.evidence.PCRs[n+1:]...)
		try(checkPCRMissing, e, q.options)
	}
	o := q.options
	o.Selection = []PCRSelection{{Hash: q.evidence.PCRs[0].Bank, Select: []byte{3}}}
	try(CheckPCRSelection, q.evidence, o)
	o = q.options
	o.QualifyingData, o.InsecureEmptyQualifyingData = append([]byte{1}, o.QualifyingData...), false
	try(message.CheckQualifyingData, q.evidence, o)

	// One bit of the signed selection, and values to match.
	e := q.evidence
	a, err := ParseAttestation(bytes.Clone(e.Attest))
	testkit.NoError(t, err)
	a.Quote.Selections[0].Select[0] ^= 1
	e.Attest, e.PCRs, o.Selection = a.Raw, nil, nil
	for _, p := range q.evidence.PCRs {
		if p.Index != 0 {
			e.PCRs = append(e.PCRs, p)
		}
	}
	o.QualifyingData, o.InsecureEmptyQualifyingData = q.options.QualifyingData, q.options.InsecureEmptyQualifyingData
	try(checkPCRDigest, e, o)

	e = q.evidence
	e.Attest = bytes.Clone(e.Attest)
	e.Attest[bytes.Index(e.Attest, a.QualifiedSigner)+10] ^= 1
	try(checkSignature, e, q.options)
}

// throughTheWire encodes a quote that was recorded elsewhere as our statement.
func throughTheWire(t *testing.T, q *recordedQuote) {
	t.Helper()
	der, err := MarshalQuote(&q.evidence)
	testkit.NoError(t, err)
	e, err := ParseQuote(der)
	testkit.NoError(t, err)
	e.RawSignature = q.evidence.RawSignature
	if _, err := VerifyQuote(e, q.options); err != nil {
		t.Error(err)
	}
}

// A quote of another machine's AK.
func TestVerifyQuoteCorpusOfAnotherAK(t *testing.T) {
	q := kinvolk(t, "az_snp/quote.bin", "kinvolk-akpub.pem")
	q.options.InsecureAllowAnyQualifyingData = true
	_, err := VerifyQuote(&q.evidence, q.options)
	tpmlab.ExpectCheck(t, err, checkSignature)
	if !strings.Contains(err.Error(), "attestation key") {
		t.Error(err)
	}
}
