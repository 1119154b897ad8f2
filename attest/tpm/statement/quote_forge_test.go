package statement

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// quoteForgery is a quote before it is marshalled and signed, by a key in software. A
// test changes one thing of a good one.
type quoteForgery struct {
	unsigned
	pcrs    []PCR
	options QuoteOptions
}

// goodQuoteForgery quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement
// hierarchy.
func goodQuoteForgery(t testing.TB, ak *forger) *quoteForgery {
	t.Helper()
	selection, err := NewPCRSelection(tpm2.TPMAlgSHA256, 0, 1, 2, 3, 4, 5, 6, 7)
	testkit.NoError(t, err)
	f := &quoteForgery{unsigned: unsigned{ak: ak, scheme: ak.public.Scheme, attest: &Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       testQualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 1,
		Quote: &QuoteInfo{},
	}}}
	f.selectPCRs(selection)
	f.options = QuoteOptions{AK: AKFromCredential(ak.public.Raw), QualifyingData: testQualifyingData}
	return f
}

// selectPCRs quotes these, with values that follow from bank and index.
func (f *quoteForgery) selectPCRs(selections ...PCRSelection) {
	f.attest.Quote.Selections, f.pcrs = selections, nil
	for _, s := range selections {
		for _, i := range s.PCRs() {
			value := bytes.Repeat([]byte{byte(0x10 + i)}, tpmwire.HashOf(s.Hash).Size())
			f.pcrs = append(f.pcrs, PCR{Bank: s.Hash, Index: i, Value: value})
		}
	}
	f.digest()
}

// digest computes the TPM's digest: written anew, as a reference.
func (f *quoteForgery) digest() {
	h := tpmwire.HashOf(f.scheme.Hash).New()
	for _, p := range f.pcrs {
		h.Write(p.Value)
	}
	f.attest.Quote.PCRDigest = h.Sum(nil)
}

func (f *quoteForgery) evidence(t testing.TB) *QuoteEvidence {
	t.Helper()
	attest, sig := f.marshal(t)
	return &QuoteEvidence{Attest: attest, Signature: sig, PCRs: f.pcrs}
}

func (f *quoteForgery) verify(t *testing.T, want refusal.Check) *Quoted {
	t.Helper()
	got, err := VerifyQuote(f.evidence(t), f.options)
	tpmlab.ExpectCheck(t, err, want)
	return got
}

func TestVerifyQuoteAcceptsEveryKindOfAK(t *testing.T) {
	for name, ak := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			f := goodQuoteForgery(t, ak)
			q := f.verify(t, "")
			if !q.ClockTrusted || len(q.PCRs()) != 8 || q.SignatureScheme != ak.public.Scheme {
				t.Errorf("clock trusted %v, %d PCRs, %v", q.ClockTrusted, len(q.PCRs()), q.SignatureScheme)
			}
			value, err := q.Value(tpm2.TPMAlgSHA256, 7)
			if err != nil || !bytes.Equal(value, f.pcrs[7].Value) {
				t.Errorf("PCR 7: %x, %v", value, err)
			}
			slices.Reverse(f.pcrs) // the order of the evidence decides nothing
			f.verify(t, "")
		})
	}
}

func selectOctets(octets ...byte) func(*testing.T, *quoteForgery) {
	return func(_ *testing.T, f *quoteForgery) {
		f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: octets})
	}
}

// Every forgery is signed with a good signature, unless it is about the signature.
var quoteForgeries = []struct {
	name   string
	want   refusal.Check
	change func(*testing.T, *quoteForgery)
}{
	{"four octets", "", selectOctets(0xff, 0, 0, 0)},
	{"one octet", "", selectOctets(0xff)},
	{"forged magic", CheckMagic, func(_ *testing.T, f *quoteForgery) { f.patch = func(b []byte) []byte { b[0] ^= 1; return b } }},
	{"a byte after", checkAttestEncoding, func(_ *testing.T, f *quoteForgery) { f.patch = func(b []byte) []byte { return append(b, 0) } }},
	{"a certify statement", checkStatementType, func(_ *testing.T, f *quoteForgery) {
		f.attest.Type, f.attest.Quote = tpm2.TPMSTAttestCertify, nil
		f.attest.Certified = &CertifyInfo{Name: f.ak.public.Name(), QualifiedName: f.ak.public.Name()}
	}},
	{"qualifying data absent", message.CheckQualifyingData, func(_ *testing.T, f *quoteForgery) { f.attest.ExtraData = nil }},
	{"qualifying data a prefix", message.CheckQualifyingData, func(_ *testing.T, f *quoteForgery) { f.attest.ExtraData = testQualifyingData[:3] }},
	{"qualifying data other", message.CheckQualifyingData, func(_ *testing.T, f *quoteForgery) { f.attest.ExtraData = []byte("other") }},
	{"no bank", CheckPCRSelection, func(_ *testing.T, f *quoteForgery) { f.selectPCRs() }},
	{"empty selection", CheckPCRSelection, selectOctets(0, 0, 0)},
	{"an empty bank next to another", CheckPCRSelection, func(_ *testing.T, f *quoteForgery) {
		f.selectPCRs(f.attest.Quote.Selections[0], PCRSelection{Hash: tpm2.TPMAlgSHA384, Select: []byte{0, 0, 0}})
	}},
	{"one bank twice", CheckPCRSelection, func(_ *testing.T, f *quoteForgery) {
		f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}, PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{2, 0, 0}})
	}},
	{"a bank of SHA-1", checkPCRBank, func(_ *testing.T, f *quoteForgery) {
		f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA1, Select: []byte{1, 0, 0}})
	}},
	{"a bank of an unknown hash", checkPCRBank, func(_ *testing.T, f *quoteForgery) {
		f.attest.Quote.Selections[0].Hash = tpm2.TPMAlgSM3256
	}},
	{"five octets", checkAttestEncoding, selectOctets(1, 0, 0, 0, 0)},
	{"a PCR listed twice", checkPCRDuplicate, func(_ *testing.T, f *quoteForgery) {
		// go-attestation checks the last one and calls both verified.
		f.pcrs = append([]PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: make([]byte, 32)}}, f.pcrs...)
	}},
	{"the same PCR listed twice", checkPCRDuplicate, func(_ *testing.T, f *quoteForgery) { f.pcrs = append(f.pcrs, f.pcrs[0]) }},
	{"a PCR outside the selection", CheckPCRNotQuoted, func(_ *testing.T, f *quoteForgery) {
		f.pcrs = append(f.pcrs, PCR{Bank: tpm2.TPMAlgSHA256, Index: 8, Value: make([]byte, 32)})
	}},
	{"a PCR of another bank", CheckPCRNotQuoted, func(_ *testing.T, f *quoteForgery) {
		f.pcrs = append(f.pcrs, PCR{Bank: tpm2.TPMAlgSHA384, Index: 0, Value: make([]byte, 48)})
	}},
	{"a PCR without a value", checkPCRMissing, func(_ *testing.T, f *quoteForgery) { f.pcrs = f.pcrs[1:] }},
	{"no values", checkPCRMissing, func(_ *testing.T, f *quoteForgery) { f.pcrs = nil }},
	{"a value one bit off", checkPCRDigest, func(_ *testing.T, f *quoteForgery) { f.pcrs[3].Value[31] ^= 1 }},
	{"two values swapped", checkPCRDigest, func(_ *testing.T, f *quoteForgery) {
		f.pcrs[0].Value, f.pcrs[1].Value = f.pcrs[1].Value, f.pcrs[0].Value
	}},
	{"a value cut short", checkPCRValue, func(_ *testing.T, f *quoteForgery) {
		// The last byte of PCR 0 moves to the front of PCR 1: the concatenation is unchanged.
		f.pcrs[1].Value = append([]byte{f.pcrs[0].Value[31]}, f.pcrs[1].Value...)
		f.pcrs[0].Value = f.pcrs[0].Value[:31]
	}},
	{"a digest under another hash", checkPCRDigest, func(_ *testing.T, f *quoteForgery) {
		f.attest.Quote.PCRDigest = tpmwire.AppendDigest(nil, tpmwire.HashOf(tpm2.TPMAlgSHA384), nil)
	}},
	{"no digest", checkPCRDigest, func(_ *testing.T, f *quoteForgery) { f.attest.Quote.PCRDigest = nil }},
	{"another selection than asked for", CheckPCRSelection, func(_ *testing.T, f *quoteForgery) {
		f.options.Selection = []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 1, 0}}}
	}},
	{"the selection asked for, in four octets", "", func(_ *testing.T, f *quoteForgery) {
		f.options.Selection = []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0, 0}}}
	}},
	{"an empty selection asked for", CheckPCRSelection, func(_ *testing.T, f *quoteForgery) { f.options.Selection = []PCRSelection{} }},
	{"an AK that decrypts", checkAKAttributes, func(t *testing.T, f *quoteForgery) {
		f.useAK(changed(t, f.ak.public, func(p *Public) { p.Attributes = testAKAttributes&^AttributeRestricted | AttributeDecrypt }))
	}},
	{"an AK that is not restricted", checkAKAttributes, func(t *testing.T, f *quoteForgery) {
		f.useAK(changed(t, f.ak.public, func(p *Public) { p.Attributes &^= AttributeRestricted }))
	}},
	{"another AK", checkSignature, func(t *testing.T, f *quoteForgery) {
		private := f.ak.private
		f.useAK(newForger(t, tpmlab.P256b(), schemeECDSA).public)
		f.ak = &forger{private: private, public: f.ak.public}
	}},
	{"signed by a key from outside", checkQualifiedSigner, func(_ *testing.T, f *quoteForgery) { f.attest.QualifiedSigner = f.ak.public.Name() }},
	{"no signer", checkQualifiedSigner, func(_ *testing.T, f *quoteForgery) { f.attest.QualifiedSigner = nil }},
	{"a signature of another hash", checkSignatureScheme, func(_ *testing.T, f *quoteForgery) {
		f.scheme.Hash = tpm2.TPMAlgSHA384
		f.digest()
	}},
	{"r = 0", checkSignatureRange, func(_ *testing.T, f *quoteForgery) { f.signature = func(v *Signature) { v.R = []byte{0} } }},
	{"a signature one bit off", checkSignature, func(_ *testing.T, f *quoteForgery) {
		f.signature = func(v *Signature) { v.S[len(v.S)-1] ^= 1 }
	}},
	{"no AK", checkQuoteOptions, func(_ *testing.T, f *quoteForgery) { f.options.AK = AK{} }},
	{"nil qualifying data", checkQuoteOptions, func(_ *testing.T, f *quoteForgery) { f.options.QualifyingData = nil }},
	{"both kinds of qualifying data", checkQuoteOptions, func(_ *testing.T, f *quoteForgery) { f.options.InsecureAllowAnyQualifyingData = true }},
}

func (f *quoteForgery) useAK(public *Public) {
	f.ak = &forger{private: f.ak.private, public: public}
	f.attest.QualifiedSigner = QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
	f.options.AK = AKFromCredential(public.Raw)
}

func TestVerifyQuoteForgeries(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	for _, c := range quoteForgeries {
		t.Run(c.name, func(t *testing.T) {
			f := goodQuoteForgery(t, ak)
			c.change(t, f)
			f.verify(t, c.want)
		})
	}
}

// A tolerance is accepted with its own option, and only with that.
func TestVerifyQuoteTolerances(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA1, Select: []byte{1, 0, 0}}, PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}})
	f.options.InsecureAllowSHA1Bank = true
	q := f.verify(t, "")
	if v, err := q.Value(tpm2.TPMAlgSHA1, 0); err != nil || len(v) != 20 {
		t.Errorf("%x, %v", v, err)
	}
	f.options.QualifyingData, f.options.InsecureAllowAnyQualifyingData = nil, true
	f.verify(t, "")

	f = goodQuoteForgery(t, newForger(t, tpmlab.RSA2048(), KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1}))
	f.verify(t, CheckSignatureHash)
	f.options.InsecureAllowSHA1Signature = true
	f.verify(t, "")

	// With the bare key alone the clock is not trusted.
	f.options.AK = AKFromIssuer(f.ak.private.Public(), nil)
	if q := f.verify(t, ""); q.ClockTrusted || q.AKPublic != nil {
		t.Error("an AK whose public area is unknown")
	}
}

func TestQuotedValue(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	f.selectPCRs(PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0x81}}) // 0, 16, 23
	q := f.verify(t, "")
	if got := q.PCRs(); len(got) != 1 || got[0].Index != 0 {
		t.Errorf("PCRs %v", got)
	}
	for _, c := range []struct {
		bank  tpm2.TPMAlgID
		index int
		want  refusal.Check
	}{
		{tpm2.TPMAlgSHA256, 0, ""},
		{tpm2.TPMAlgSHA256, 1, CheckPCRNotQuoted},
		{tpm2.TPMAlgSHA384, 0, CheckPCRNotQuoted},
		{tpm2.TPMAlgSHA256, -1, CheckPCRNotQuoted},
		{tpm2.TPMAlgSHA256, 16, CheckPCRResettable},
		{tpm2.TPMAlgSHA256, 23, CheckPCRResettable},
	} {
		t.Run(fmt.Sprint(c.index), func(t *testing.T) {
			_, err := q.Value(c.bank, c.index)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
	_, err := new(Quoted).Value(tpm2.TPMAlgSHA256, 0)
	tpmlab.ExpectCheck(t, err, CheckPCRNotQuoted)
}
