package tpm

import (
	"bytes"

	"crypto/elliptic"

	"encoding/binary"

	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

var p256 = elliptic.P256()

const ownIndex tpm2.TPMHandle = 0x01800001

const testIndex tpm2.TPMHandle = 0x01800001

// header puts a TCG_PCCLIENT_STORED_CERT header before a certificate.
func header(der []byte, withTag bool) []byte {
	if withTag {
		der = append([]byte{0x10, 0x02}, der...)
	}
	return append([]byte{0x10, 0x01, 0x00, byte(len(der) >> 8), byte(len(der))}, der...)
}

func handleName(h tpm2.TPMHandle) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(h))
}

// appendName appends alg and the digest of message, or nothing for an algorithm
// that is not ours.
func appendName(out []byte, alg tpm2.TPMAlgID, message []byte) []byte {
	h := tpmwire.HashOf(alg)
	if h == 0 {
		return out
	}
	return tpmwire.AppendDigest(binary.BigEndian.AppendUint16(out, uint16(alg)), h, message)
}

// pcrsPerBank is how many PCRs a bank of a PC Client platform has: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1.
const pcrsPerBank = 24

// quoteForgery is a quote before it is marshalled and signed, by a key in software. A
// test changes one thing of a good one.
type quoteForgery struct {
	ak        *forger.AK
	attest    *statement.Attestation
	pcrs      []statement.PCR
	scheme    statement.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*statement.Signature)
	options   statement.QuoteOptions
}

// goodQuoteForgery quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement
// hierarchy.
func goodQuoteForgery(t testing.TB, ak *forger.AK) *quoteForgery {
	t.Helper()
	selection, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 1, 2, 3, 4, 5, 6, 7)
	if err != nil {
		t.Fatal(err)
	}
	f := &quoteForgery{ak: ak, scheme: ak.Public.Scheme, attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.Public.Name()),
		ExtraData:       forger.QualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 1,
		Quote: &statement.QuoteInfo{},
	}}
	f.selectPCRs(selection)
	f.options = statement.QuoteOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: forger.QualifyingData}
	return f
}

// selectPCRs quotes these, with values that follow from bank and index.
func (f *quoteForgery) selectPCRs(selections ...statement.PCRSelection) {
	f.attest.Quote.Selections, f.pcrs = selections, nil
	for _, s := range selections {
		for _, i := range s.PCRs() {
			value := bytes.Repeat([]byte{byte(0x10 + i)}, tpmwire.HashOf(s.Hash).Size())
			f.pcrs = append(f.pcrs, statement.PCR{Bank: s.Hash, Index: i, Value: value})
		}
	}
	f.digest()
}

// digest computes what the TPM would: written anew, as a reference.
func (f *quoteForgery) digest() {
	h := tpmwire.HashOf(f.scheme.Hash).New()
	for _, p := range f.pcrs {
		h.Write(p.Value)
	}
	f.attest.Quote.PCRDigest = h.Sum(nil)
}

func (f *quoteForgery) evidence(t testing.TB) *statement.QuoteEvidence {
	t.Helper()
	attest, err := f.attest.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if f.patch != nil {
		attest = f.patch(attest)
	}
	v := f.ak.Sign(t, f.scheme, attest)
	if f.signature != nil {
		f.signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return &statement.QuoteEvidence{Attest: attest, Signature: sig, PCRs: f.pcrs}
}
