package attesttest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm"
)

// bootPCRs is how many PCRs of the SHA-256 bank a world's policy asks for, from 0 on.
const bootPCRs = 8

// bootValue is what a good machine has in a PCR.
func bootValue(index int) []byte {
	sum := sha256.Sum256([]byte{'p', 'c', 'r', byte(index)})
	return sum[:]
}

// goodBoot are the values that a world's policy accepts.
func goodBoot() []tpm.PCR {
	pcrs := make([]tpm.PCR, bootPCRs)
	for i := range pcrs {
		pcrs[i] = tpm.PCR{Bank: tpm2.TPMAlgSHA256, Index: i, Value: bootValue(i)}
	}
	return pcrs
}

// quoteForgery is a quote before it is put together: a good one, until an attack
// changes one thing of it.
type quoteForgery struct {
	signer    *machine
	attest    *tpm.Attestation
	pcrs      []tpm.PCR // beside the statement, as they will stand there
	hash      tpm2.TPMAlgID
	patch     func(attest []byte) []byte
	signature func([]byte) []byte
}

// newQuoteForgery is a quote over good values, of the same boot as the certify
// statement.
func newQuoteForgery(m *machine, certify *tpm.Attestation) *quoteForgery {
	again := *certify
	again.Type = tpm2.TPMSTAttestQuote
	again.Quote = &tpm.QuoteInfo{}
	q := &quoteForgery{signer: m, attest: &again, pcrs: goodBoot(), hash: tpm2.TPMAlgSHA256}
	q.measure(bootPCRs, q.pcrs)
	return q
}

// measure has the statement cover the PCRs from 0 to n-1, with these values.
func (q *quoteForgery) measure(n int, pcrs []tpm.PCR) {
	q.attest.Quote.Selections = []tpm.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{byte(1<<n - 1), 0, 0}}}
	if n == 0 {
		q.attest.Quote.Selections = nil
	}
	h := sha256.New()
	for _, p := range pcrs[:n] {
		h.Write(p.Value)
	}
	q.attest.Quote.PCRDigest = h.Sum(nil)
}

// badBoot is what a machine has that booted something else: PCR 4 differs.
func badBoot() []tpm.PCR {
	pcrs := goodBoot()
	pcrs[4].Value = bytes.Repeat([]byte{0xbd}, sha256.Size)
	return pcrs
}

// statement makes the DER of the quote statement, in the order of pcrs: attacks write
// what tpm.MarshalQuote would not.
func (q *quoteForgery) statement() ([]byte, error) {
	raw, err := q.attest.Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if q.patch != nil {
		raw = q.patch(slices.Clone(raw))
	}
	v, err := q.signer.sign(q.hash, raw)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	sig, err := v.Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if q.signature != nil {
		sig = q.signature(sig)
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1OctetString(raw)
		b.AddASN1OctetString(sig)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, p := range q.pcrs {
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1Int64(int64(p.Bank))
					b.AddASN1Int64(int64(p.Index))
					b.AddASN1OctetString(p.Value)
				})
			}
		})
	})
	return b.Bytes()
}
